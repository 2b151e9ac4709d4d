/*
 * Prints the kernels that plans for GPUs would launch, for tools/gpu-compile: a line each of file,
 * build options, kernel and work-group size, parted by tabs. Opens no device.
 *
 *     gpu_launches amd | nvidia | intel [tiles]     tiles: more shapes, and what a tuner would try
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/nn.h"
#include "passes/passes.h"
#include "plan/plan.h"
#include <cltrain/models.h>

/* What the vendors' drivers report of a GPU in the middle of their range. */
static const clt_caps devices[] = {
    {.name = "amd",
     .vendor = "Advanced Micro Devices, Inc.",
     .kind = CLT_KIND_GPU,
     .compute_units = 60,
     .vector_width = 1,
     .memory_bytes = (int64_t)16 << 30,
     .max_alloc_bytes = (int64_t)4 << 30,
     .align_bytes = 128,
     .local_bytes = 65536,
     .max_work_group = 256,
     .fp16 = true,
     .fp64 = true,
     .subgroups = true},
    {.name = "nvidia",
     .vendor = "NVIDIA Corporation",
     .kind = CLT_KIND_GPU,
     .compute_units = 108,
     .vector_width = 1,
     .memory_bytes = (int64_t)16 << 30,
     .max_alloc_bytes = (int64_t)4 << 30,
     .align_bytes = 128,
     .local_bytes = 49152,
     .max_work_group = 1024,
     .fp64 = true},
    {.name = "intel",
     .vendor = "Intel(R) Corporation",
     .kind = CLT_KIND_GPU,
     .compute_units = 512,
     .vector_width = 1,
     .memory_bytes = (int64_t)16 << 30,
     .max_alloc_bytes = (int64_t)4 << 30,
     .align_bytes = 128,
     .local_bytes = 65536,
     .max_work_group = 512,
     .fp16 = true,
     .subgroups = true},
};

static void stop(const char *what)
{
    fprintf(stderr, "gpu_launches: %s: %s\n", what, clt_error_message());
    exit(1);
}

#define OK(expression)                                                                             \
    do {                                                                                           \
        if ((expression) != CLT_OK)                                                                \
            stop(#expression);                                                                     \
    } while (0)

static bool with_tiles;
static const char *asked; /* OP=NAME,...: variants instead of a plan's own choice */

static void print_launches(const clt_plan *plan)
{
    for (int i = 0; i < plan->n_nodes; i++)
        for (int j = 0; j < plan->nodes[i].program.n_launches; j++) {
            const clt_launch *l = &plan->nodes[i].program.launches[j];
            const int64_t items = l->local[0] * (l->work_dim > 1 ? l->local[1] * l->local[2] : 1);
            printf("%s\t%s\t%s\t%lld\n", l->file, l->options, l->kernel, (long long)items);
        }
}

static void print_plan(const clt_plan *plan, const clt_graph *graph, const clt_buckets *buckets)
{
    print_launches(plan);
    /* The alternatives that a tuner would try. */
    for (int tile = 0, found = with_tiles; found; tile++) {
        clt_tuning_record record = {0};
        record.entries = calloc((size_t)plan->n_nodes + 1, sizeof *record.entries);
        found = 0;
        for (int i = 0; record.entries && i < plan->n_nodes; i++) {
            const clt_plan_node *pn = &plan->nodes[i];
            const clt_target target = {.caps = &plan->caps,
                                       .lanes = plan->options.lanes,
                                       .max_batch = plan->options.max_batch};
            clt_tuning_entry *e = &record.entries[record.count];
            char text[CLT_TILE_TEXT];
            if (!pn->variant || !pn->node->op->tiles ||
                !pn->node->op->tiles(pn->node, pn->variant, &target, tile, text))
                continue;
            found = 1;
            record.count++;
            snprintf(e->op, sizeof e->op, "%s", pn->node->op->name);
            snprintf(e->shape_class, sizeof e->shape_class, "%s", pn->shape_class);
            snprintf(e->variant, sizeof e->variant, "%s", pn->variant->name);
            snprintf(e->options, sizeof e->options, "%s", text);
        }
        if (found) {
            clt_plan *other;
            OK(clt_plan_create(graph, buckets, &plan->caps, &record, &plan->options, &other));
            print_launches(other);
            clt_plan_destroy(other);
        }
        free(record.entries);
    }
}

static void plan_graph(clt_graph *graph, const clt_caps *caps, clt_plan_mode mode, int64_t batch)
{
    const clt_bucket_sizes sizes = clt_bucket_sizes_default();
    clt_plan_options options = clt_plan_options_default(mode, batch);
    clt_buckets buckets;
    clt_plan *plan;
    options.variants = asked;
    OK(clt_graph_status(graph));
    OK(clt_buckets_create(graph, &sizes, &buckets));
    OK(clt_plan_create(graph, &buckets, caps, NULL, &options, &plan));
    print_plan(plan, graph, &buckets);
    clt_plan_destroy(plan);
    clt_buckets_free(&buckets);
    clt_graph_destroy(graph);
}

static void plan_model(const char *name, const clt_caps *caps)
{
    const clt_model_input input = {
        .channels = 1, .height = 28, .width = 28, .classes = 10, .ignore_index = -100};
    clt_graph *graph;
    OK(clt_graph_create(&graph));
    OK(clt_model_build(name, &input, graph));
    plan_graph(graph, caps, CLT_PLAN_TRAIN, 256);
}

/* One layer and its gradients: `y` of a graph of inputs x0, x1, x2. */
static void plan_layer(clt_graph *graph, clt_value *y, clt_value **x, int n, const clt_caps *caps)
{
    clt_value *got[3] = {NULL};
    if (!y)
        stop("a layer");
    clt_value *dy = n ? clt_graph_value(graph, CLT_VALUE_INPUT, &y->type, "dy") : NULL;
    clt_output(y, "y");
    if (n)
        OK(clt_autodiff(graph, &y, &dy, 1, x, n, got));
    for (int i = 0; i < n; i++) {
        static const char *const names[] = {"dx0", "dx1", "dx2"};
        clt_output(got[i], names[i]);
    }
    plan_graph(graph, caps, CLT_PLAN_EVALUATE, 64);
}

/* Products large and small, with rows that float4 fits and does not. */
static void plan_products(const clt_caps *caps)
{
    enum { ALL = 8, FEW = 2 };
    static const int64_t sizes[ALL][3] = {{4096, 4096, 4096}, {1021, 1019, 1031}, {256, 128, 800},
                                          {256, 3072, 768},   {64, 10, 500},      {63, 65, 4097},
                                          {1024, 1024, 1024}, {8, 4096, 4096}};
    const size_t count = with_tiles ? ALL : FEW;
    for (size_t i = 0; i < count; i++)
        /* Gradients are products of the other kinds. */
        for (int t = 0; t < (with_tiles ? 4 : 1); t++) {
            const int64_t m = sizes[i][0], n = sizes[i][1], k = sizes[i][2];
            const int ta = t & 1, tb = t >> 1;
            clt_graph *g;
            clt_value *x[2];
            OK(clt_graph_create(&g));
            x[0] = clt_input(g, "x0", CLT_F32, 2, (int64_t[]){ta ? k : m, ta ? m : k});
            x[1] = clt_input(g, "x1", CLT_F32, 2, (int64_t[]){tb ? n : k, tb ? k : n});
            plan_layer(g, clt_matmul(x[0], x[1], ta, tb), x, 2, caps);
        }
    for (size_t i = 0; i < count; i++) {
        clt_graph *g;
        clt_value *x[3];
        OK(clt_graph_create(&g));
        x[0] = clt_input(g, "x0", CLT_F32, 2, (int64_t[]){CLT_BATCH, sizes[i][2]});
        x[1] = clt_input(g, "x1", CLT_F32, 2, (int64_t[]){sizes[i][1], sizes[i][2]});
        x[2] = clt_input(g, "x2", CLT_F32, 1, (int64_t[]){sizes[i][1]});
        plan_layer(g, clt_relu(clt_linear(x[0], x[1], x[2])), x, 3, caps);
    }
}

/* Layers of LeNet, ResNet, MobileNet and ConvNeXt: channels, size, output channels, kernel, stride,
 * groups. */
static void plan_convolutions(const clt_caps *caps)
{
    static const int shapes[][6] = {
        {1, 28, 20, 5, 1, 1},      {20, 12, 50, 5, 1, 1},   {3, 224, 64, 7, 2, 1},
        {64, 56, 64, 3, 1, 1},     {32, 56, 32, 3, 1, 32},  {144, 56, 144, 3, 2, 144},
        {128, 28, 128, 3, 1, 1},   {256, 14, 512, 1, 2, 1}, {512, 7, 512, 3, 1, 1},
        {64, 28, 64, 3, 1, 4},     {96, 14, 96, 3, 1, 96},  {64, 28, 64, 3, 2, 64},
        {240, 28, 240, 5, 1, 240}, {96, 56, 96, 7, 1, 96}};
    for (size_t i = 0; i < (with_tiles ? sizeof shapes / sizeof *shapes : 6); i++) {
        const int *s = shapes[i];
        clt_conv2d_options o;
        clt_graph *g;
        clt_value *x[3];
        clt_conv2d_options_init(&o);
        o.stride[0] = o.stride[1] = s[4];
        o.padding[0] = o.padding[1] = i < 2 ? 0 : s[3] / 2;
        o.groups = s[5];
        OK(clt_graph_create(&g));
        x[0] = clt_input(g, "x0", CLT_F32, 4, (int64_t[]){CLT_BATCH, s[0], s[1], s[1]});
        x[1] = clt_input(g, "x1", CLT_F32, 4, (int64_t[]){s[2], s[0] / s[5], s[3], s[3]});
        x[2] = clt_input(g, "x2", CLT_F32, 1, (int64_t[]){s[2]});
        plan_layer(g, clt_relu(clt_conv2d(x[0], x[1], x[2], &o)), x, 3, caps);
    }
}

/* Sums over rows, columns, images and everything, that float4 fits and does not. */
static void plan_reductions(const clt_caps *caps)
{
    static const struct {
        int64_t dims[4];
        int n_axes, axes[3];
    } shapes[] = {
        {{CLT_BATCH, 1, 1, 1024}, 1, {3}}, {{CLT_BATCH, 64, 12, 12}, 3, {0, 2, 3}},
        {{CLT_BATCH, 1, 1, 1000}, 1, {0}}, {{CLT_BATCH, 64, 7, 7}, 2, {2, 3}},
        {{4096, 1, 33, 3}, 1, {0}},        {{CLT_BATCH, 3, 31, 31}, 0, {0}},
    };
    for (size_t i = 0; i < (with_tiles ? sizeof shapes / sizeof *shapes : 3); i++)
        for (int max = 0; max < (with_tiles || !i ? 2 : 1); max++) {
            clt_graph *g;
            OK(clt_graph_create(&g));
            clt_value *x = clt_input(g, "x0", CLT_F32, 4, shapes[i].dims);
            clt_value *y =
                (max ? clt_reduce_max : clt_reduce_mean)(x, shapes[i].axes, shapes[i].n_axes, 1);
            plan_layer(g, y, &x, 1, caps);
        }
}

/* Softmax, cross entropy and the metric over rows that are short, long, and not contiguous. */
static void plan_rows(const clt_caps *caps)
{
    static const int64_t shapes[][3] = {
        {CLT_BATCH, 1000, 1}, {CLT_BATCH, 50257, 1}, {CLT_BATCH, 32768, 1}, {CLT_BATCH, 21, 64}};
    for (size_t i = 0; i < (with_tiles ? sizeof shapes / sizeof *shapes : 1); i++)
        for (int kind = 0; kind < 4; kind++) {
            clt_graph *g;
            OK(clt_graph_create(&g));
            clt_value *x = clt_input(g, "x0", CLT_F32, 3, shapes[i]), *y = NULL, *weight;
            clt_value *labels =
                clt_input(g, "labels", CLT_I32, 2, (int64_t[]){shapes[i][0], shapes[i][2]});
            if (kind < 2)
                y = (kind ? clt_log_softmax : clt_softmax)(x, 1);
            else if (kind == 2)
                OK(clt_cross_entropy(x, labels, NULL, &y, &weight));
            else
                OK(clt_correct(x, labels, 5, -100, &y, &weight));
            plan_layer(g, y, &x, kind < 3, caps);
        }
    for (int i = 0; i < 1 + with_tiles; i++) {
        clt_graph *g;
        clt_value *x[2], *y = NULL, *weight;
        OK(clt_graph_create(&g));
        x[0] = clt_input(g, "x0", CLT_F32, 2, (int64_t[]){CLT_BATCH, i ? 1023 : 1024});
        x[1] = clt_input(g, "x1", CLT_F32, 2, (int64_t[]){CLT_BATCH, i ? 1023 : 1024});
        OK(clt_mse(x[0], x[1], &y, &weight));
        plan_layer(g, y, x, 2, caps);
    }
}

/* Pooling of LeNet, ResNet and Inception, with rows that float4 fits and does not. */
static void plan_pooling(const clt_caps *caps)
{
    static const int shapes[][4] = {{24, 2, 2, 0}, {112, 3, 2, 1}, {35, 3, 2, 0}};
    for (size_t i = 0; i < (with_tiles ? 3 : 1); i++)
        for (int mean = 0; mean < 2; mean++) {
            const int *s = shapes[i];
            clt_pool2d_options o;
            clt_graph *g;
            clt_pool2d_options_init(&o);
            o.kernel[0] = o.kernel[1] = s[1];
            o.stride[0] = o.stride[1] = s[2];
            o.padding[0] = o.padding[1] = s[3];
            OK(clt_graph_create(&g));
            clt_value *x = clt_input(g, "x0", CLT_F32, 4, (int64_t[]){CLT_BATCH, 64, s[0], s[0]});
            plan_layer(g, (mean ? clt_avg_pool2d : clt_max_pool2d)(x, &o), &x, 1, caps);
        }
}

/* Transpositions, and chains with operands that repeat. */
static void plan_moves(const clt_caps *caps)
{
    for (int odd = 0; odd < 1 + with_tiles; odd++) {
        clt_graph *g;
        clt_value *x[3];
        OK(clt_graph_create(&g));
        x[0] = clt_input(g, "x0", CLT_F32, 3, (int64_t[]){CLT_BATCH, 128 + odd, 64});
        plan_layer(g, clt_transpose(x[0], (int[]){0, 2, 1}), x, 1, caps);
        OK(clt_graph_create(&g));
        x[0] = clt_input(g, "x0", CLT_F32, 4, (int64_t[]){CLT_BATCH, 64, 8, 8 + odd});
        x[1] = clt_input(g, "x1", CLT_F32, 4, (int64_t[]){1, 64, 1, 1});
        x[2] = clt_input(g, "x2", CLT_F32, 4, (int64_t[]){CLT_BATCH, 64, 8, 8 + odd});
        plan_layer(g, clt_gelu(clt_add(clt_mul(x[0], x[1]), x[2])), x, 3, caps);
    }
}

/* The variants that need sub-groups, which drivers of the vendor may not have. */
static void plan_subgroups(const clt_caps *caps)
{
    if (!caps->subgroups) {
        fprintf(stderr, "nothing with sub-groups is compiled for %s, whose drivers report none\n",
                caps->name);
        return;
    }
    asked = "softmax=rows_gpu_subgroups,softmax_grad=rows_gpu_subgroups,"
            "log_softmax=rows_gpu_subgroups,log_softmax_grad=rows_gpu_subgroups,"
            "cross_entropy=rows_gpu_subgroups,cross_entropy_grad=rows_gpu_subgroups";
    plan_rows(caps);
    asked = NULL;
}

/* The update at the end of a step is no part of a plan: exec/update.c. */
static void print_update(const clt_caps *caps)
{
    static const char *const names[] = {"square_sum",   "step_word", "loss_upstream", "add_to",
                                        "assign_state", "sgd",       "momentum",      "adam"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        printf("gpu/update.cl\t%s\t%s\t%d\n", caps->fp64 ? "-DCLT_FP64" : "", names[i],
               strcmp(names[i], "loss_upstream") ? 256 : 1);
}

int main(int argc, char **argv)
{
    with_tiles = argc == 3 && !strcmp(argv[2], "tiles");
    for (size_t i = 0; argc == 2 + with_tiles && i < sizeof devices / sizeof *devices; i++) {
        if (strcmp(argv[1], devices[i].name))
            continue;
        for (int m = 0; m < clt_model_count(); m++)
            plan_model(clt_model_name(m), &devices[i]);
        plan_products(&devices[i]);
        plan_convolutions(&devices[i]);
        plan_reductions(&devices[i]);
        plan_rows(&devices[i]);
        plan_subgroups(&devices[i]);
        plan_moves(&devices[i]);
        plan_pooling(&devices[i]);
        print_update(&devices[i]);
        return 0;
    }
    fprintf(stderr, "usage: gpu_launches amd | nvidia | intel [tiles]\n");
    return 2;
}
