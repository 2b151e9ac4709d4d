/*
 * Prints the kernels that plans for GPUs would launch, for tools/gpu-compile: a line each of file,
 * build options, kernel, work-group size and why (chosen: a plan's own choice; fallback: of a
 * variant that another stands before, which declines groups of 256 or 2^30 elements), parted by
 * tabs. Fails if a variant that a GPU may run is in none of the plans (covered.h). Opens no device.
 *
 *     gpu_launches amd | nvidia | intel [tiles]     tiles: more shapes, and what a tuner would try
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/covered.h"
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
     .clblast = true,
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
     .clblast = true,
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
     .clblast = true,
     .fp16 = true,
     .subgroups = true},
};

/* One that plans have everything for that is not for GPUs. */
static const clt_caps cpu = {.name = "cpu",
                             .vendor = "GenuineIntel",
                             .kind = CLT_KIND_CPU,
                             .compute_units = 4,
                             .vector_width = 16,
                             .memory_bytes = (int64_t)16 << 30,
                             .max_alloc_bytes = (int64_t)4 << 30,
                             .align_bytes = 128,
                             .local_bytes = 65536,
                             .max_work_group = 4096,
                             .fp64 = true};

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

static void print_line(const char *file, const char *options, const char *kernel, int64_t items,
                       const char *role)
{
    printf("%s\t%s\t%s\t%lld\t%s\n", file, options, kernel, (long long)items, role);
}

static void print_launches(const clt_plan *plan, const char *role)
{
    covered_by(plan);
    for (int i = 0; i < plan->n_nodes; i++)
        for (int j = 0; j < plan->nodes[i].program.n_launches; j++) {
            const clt_launch *l = &plan->nodes[i].program.launches[j];
            const int64_t items = l->local[0] * (l->work_dim > 1 ? l->local[1] * l->local[2] : 1);
            /* A library's product is no kernel of ours. */
            if (!l->blas)
                print_line(l->file, l->options, l->kernel, items, role);
        }
}

static void print_plan(const clt_plan *plan, const clt_graph *graph, const clt_buckets *buckets)
{
    print_launches(plan, asked ? "fallback" : "chosen");
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
            print_launches(other, "chosen");
            clt_plan_destroy(other);
        }
        free(record.entries);
    }
}

/* Variants that the plan's own ones stand before: one plan each, the first time. */
static void plan_others(const clt_plan *plan, const clt_graph *graph, const clt_buckets *buckets)
{
    char name[128];
    while (covered_find(plan, name, sizeof name)) {
        clt_plan_options options = plan->options;
        clt_plan *other;
        options.variants = name;
        OK(clt_plan_create(graph, buckets, &plan->caps, NULL, &options, &other));
        covered_by(other);
        for (int i = 0; i < other->n_nodes; i++) {
            const clt_plan_node *pn = &other->nodes[i];
            const size_t length = strlen(pn->node->op->name);
            for (int j = 0; j < pn->program.n_launches; j++) {
                const clt_launch *l = &pn->program.launches[j];
                if (!strncmp(name, pn->node->op->name, length) && name[length] == '=' && !l->blas)
                    print_line(l->file, l->options, l->kernel,
                               l->local[0] * (l->work_dim > 1 ? l->local[1] * l->local[2] : 1),
                               "fallback");
            }
        }
        clt_plan_destroy(other);
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
    if (!asked)
        plan_others(plan, graph, &buckets);
    clt_plan_destroy(plan);
    OK(clt_plan_create(graph, &buckets, &cpu, NULL, &options, &plan));
    covered_on_cpu(plan, caps);
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
        /* One that is dy itself, or another operand's too. */
        if (got[i]->kind != CLT_VALUE_INTERMEDIATE || got[i]->name)
            got[i] = clt_copy(got[i]);
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

/* Products along a long K with few results: of a vector, and gradients of weights of few outputs.
 */
static void plan_long_products(const clt_caps *caps)
{
    clt_graph *g;
    clt_value *x[2];
    OK(clt_graph_create(&g));
    x[0] = clt_input(g, "x0", CLT_F32, 2, (int64_t[]){1, 4096});
    x[1] = clt_input(g, "x1", CLT_F32, 2, (int64_t[]){64, 4096});
    plan_layer(g, clt_matmul(x[0], x[1], 0, 1), x, 2, caps);
    for (int outputs = 1; outputs <= 32; outputs += 31) {
        OK(clt_graph_create(&g));
        x[0] = clt_input(g, "x0", CLT_F32, 3, (int64_t[]){CLT_BATCH, 1024, 64});
        x[1] = clt_input(g, "x1", CLT_F32, 2, (int64_t[]){outputs, 64});
        plan_layer(g, clt_linear(x[0], x[1], NULL), x, 2, caps);
    }
}

enum { ONE = 6 }; /* the shape of which there is one image, so that its sums are parted */

/* Layers of LeNet, ResNet, MobileNet and ConvNeXt: channels, size, output channels, kernel, stride,
 * groups. */
static void plan_convolutions(const clt_caps *caps)
{
    static const int shapes[][6] = {
        {1, 28, 20, 5, 1, 1},   {20, 12, 50, 5, 1, 1},     {3, 224, 64, 7, 2, 1},
        {64, 56, 64, 3, 1, 1},  {32, 56, 32, 3, 1, 32},    {144, 56, 144, 3, 2, 144},
        {512, 7, 512, 3, 1, 1}, {128, 28, 128, 3, 1, 1},   {256, 14, 512, 1, 2, 1},
        {512, 7, 512, 3, 1, 1}, {64, 28, 64, 3, 1, 4},     {96, 14, 96, 3, 1, 96},
        {64, 28, 64, 3, 2, 64}, {240, 28, 240, 5, 1, 240}, {96, 56, 96, 7, 1, 96}};
    for (size_t i = 0; i < (with_tiles ? sizeof shapes / sizeof *shapes : ONE + 1); i++) {
        const int *s = shapes[i];
        clt_conv2d_options o;
        clt_graph *g;
        clt_value *x[3];
        clt_conv2d_options_init(&o);
        o.stride[0] = o.stride[1] = s[4];
        o.padding[0] = o.padding[1] = i < 2 ? 0 : s[3] / 2;
        o.groups = s[5];
        OK(clt_graph_create(&g));
        x[0] =
            clt_input(g, "x0", CLT_F32, 4, (int64_t[]){i == ONE ? 1 : CLT_BATCH, s[0], s[1], s[1]});
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
        for (int max = 0; max < (with_tiles || i != 1 ? 2 : 1); max++) {
            clt_graph *g;
            OK(clt_graph_create(&g));
            clt_value *x = clt_input(g, "x0", CLT_F32, 4, shapes[i].dims);
            clt_value *y =
                (max ? clt_reduce_max : clt_reduce_mean)(x, shapes[i].axes, shapes[i].n_axes, 1);
            plan_layer(g, y, &x, 1, caps);
        }
}

/* Maxima of everything by the portable kernels, whose partial results another one joins. */
static void plan_portable_parts(const clt_caps *caps)
{
    clt_graph *g;
    OK(clt_graph_create(&g));
    clt_value *x = clt_input(g, "x0", CLT_F32, 2, (int64_t[]){CLT_BATCH, 4096});
    asked = "max=portable";
    plan_layer(g, clt_reduce_max(x, NULL, 0, 0), &x, 0, caps);
    asked = NULL;
}

/* Softmax, cross entropy and the metric over rows that are short, long, and not contiguous. */
static void plan_rows(const clt_caps *caps)
{
    static const int64_t shapes[][3] = {
        {CLT_BATCH, 1000, 1}, {CLT_BATCH, 21, 64}, {CLT_BATCH, 50257, 1}, {CLT_BATCH, 32768, 1}};
    for (size_t i = 0; i < (with_tiles ? sizeof shapes / sizeof *shapes : 2); i++)
        for (int kind = 0; kind < (with_tiles || !i ? 4 : 2); kind++) {
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

/* A tensor of images of `width` columns. */
static clt_graph *begin(clt_value **x, clt_dtype dtype, int64_t width)
{
    clt_graph *g;
    OK(clt_graph_create(&g));
    *x = clt_input(g, "x0", dtype, 4, (int64_t[]){CLT_BATCH, 12, 16, width});
    return g;
}

/* What places elements: of heads before and behind attention, of two branches, of a part and of a
 * border, with rows that 16 bytes fit and do not. */
static void plan_places(const clt_caps *caps)
{
    for (int odd = 0; odd < 2; odd++) {
        const int64_t width = 64 - odd, none[4] = {0}, start[4] = {0, 4, 0, 0};
        const int64_t end[4] = {CLT_TO_END, 8, CLT_TO_END, CLT_TO_END}, step[4] = {1, 1, 2, 1};
        const int64_t border[4] = {0, 0, 4, odd ? 1 : 4};
        clt_value *x[2];
        clt_graph *g = begin(&x[0], CLT_F32, width);
        plan_layer(g, clt_transpose(x[0], (int[]){0, 2, 1, 3}), x, 1, caps);
        g = begin(&x[0], CLT_F32, width);
        x[1] = clt_input(g, "x1", CLT_F32, 4, (int64_t[]){CLT_BATCH, 5, 16, width});
        plan_layer(g, clt_concat(x, 2, 1), x, 2, caps);
        g = begin(&x[0], CLT_F32, width);
        plan_layer(g, clt_slice(x[0], start, end, NULL), x, 1, caps);
        g = begin(&x[0], CLT_F32, width);
        plan_layer(g, clt_slice(x[0], none, end, step), x, 1, caps);
        g = begin(&x[0], CLT_F32, width);
        plan_layer(g, clt_pad(x[0], border, border, 0), x, 1, caps);
        g = begin(&x[0], CLT_F32, width);
        x[1] = clt_parameter(g, "w", 3, (int64_t[]){12, 16, width}, (clt_init){0});
        x[0] = clt_output(clt_dropout(clt_add(x[0], x[1]), 0.1), "y");
        clt_output_gradient(x[0], "dy");
        plan_graph(g, caps, CLT_PLAN_TRAIN, 64);
    }
}

/* Conversions between all element types. */
static void plan_casts(const clt_caps *caps)
{
    static const clt_dtype types[] = {CLT_F32, CLT_F16, CLT_BF16, CLT_I32, CLT_U8, CLT_F64};
    for (int i = 0; i < 36; i++) {
        const clt_dtype from = types[i / 6], to = types[i % 6];
        clt_value *x;
        if (from == to || ((from == CLT_F64 || to == CLT_F64) && !caps->fp64) ||
            (!with_tiles && from != CLT_F32 && to != CLT_F32))
            continue;
        for (int odd = 0; odd < 1 + (with_tiles || i == 2); odd++) {
            clt_graph *g = begin(&x, from, 64 - odd);
            plan_layer(g, clt_cast(x, to), NULL, 0, caps);
        }
    }
}

static clt_value *product(clt_value *x)
{
    return clt_mul(x, x);
}

static clt_value *quotient(clt_value *x)
{
    return clt_div(x, x);
}

static clt_value *difference(clt_value *x)
{
    return clt_sub(x, x);
}

static clt_value *scaled(clt_value *x)
{
    return clt_scale(x, 2);
}

static clt_value *row_sum(clt_value *x)
{
    return clt_reduce_sum(x, (int[]){3}, 1, 1);
}

static clt_value *leaky(clt_value *x)
{
    return clt_leaky_relu(x, 0.1);
}

/* Each by itself, with its gradient: chains of them are one kernel. */
static void plan_activations(const clt_caps *caps)
{
    static clt_value *(*const all[])(clt_value *) = {
        clt_relu, leaky,    clt_sigmoid, clt_tanh, clt_gelu, clt_gelu_tanh,
        product,  quotient, difference,  scaled,   row_sum,  clt_copy};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        clt_value *x;
        clt_graph *g = begin(&x, CLT_F32, 64);
        plan_layer(g, all[i](x), &x, 1, caps);
    }
}

/* The variants that need sub-groups, which drivers of the vendor may not have. */
static void plan_subgroups(const clt_caps *caps)
{
    if (!caps->subgroups)
        return;
    asked = "softmax=rows_gpu_subgroups,softmax_grad=rows_gpu_subgroups,"
            "log_softmax=rows_gpu_subgroups,log_softmax_grad=rows_gpu_subgroups,"
            "cross_entropy=rows_gpu_subgroups,cross_entropy_grad=rows_gpu_subgroups";
    plan_rows(caps);
    asked = NULL;
}

/* What runs beside plans: exec/update.c, checksum.c and gather.c, and measurements in tune and
 * comm. */
static void print_beside(const clt_caps *caps)
{
    static const char *const updates[] = {"square_sum",   "step_word", "loss_upstream", "add_to",
                                          "assign_state", "sgd",       "momentum",      "adam"};
    static const char *const types[] = {"uchar", "ushort", "uint", "ulong"};
    const char *fp64 = caps->fp64 ? "-DCLT_FP64" : "";
    for (size_t i = 0; i < sizeof updates / sizeof *updates; i++) {
        const int items = strcmp(updates[i], "loss_upstream") ? 256 : 1;
        print_line("gpu/update.cl", fp64, updates[i], items, "chosen");
        print_line("train/update.cl", fp64, updates[i], 1, "fallback");
    }
    print_line("gpu/checksum.cl", "", "checksum", 64, "chosen");
    print_line("train/checksum.cl", "", "checksum", 64, "fallback");
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char options[64];
        snprintf(options, sizeof options, "-DT=%s -DV=%d", types[i], i < 3 ? 4 : 2);
        print_line("gpu/gather.cl", options, "gather_copy", 256, "chosen");
        snprintf(options, sizeof options, "-DT=%s", types[i]);
        print_line("portable/gather.cl", options, "gather_copy", 256, "fallback");
    }
    for (int gpu = 0; gpu < 2; gpu++) {
        const char *file = gpu ? "gpu/gather.cl" : "portable/gather.cl";
        const char *role = gpu ? "chosen" : "fallback", *v = gpu ? " -DV=4" : "";
        char options[64];
        snprintf(options, sizeof options, "-DT=uchar%s", v);
        print_line(file, options, "gather_look_up", 256, role);
        snprintf(options, sizeof options, "-DT=float%s", v);
        print_line(file, options, "gather_scale", 256, role);
        snprintf(options, sizeof options, "-DT=int%s", v);
        print_line(file, options, "gather_scale", 256, role);
    }
    print_line("gpu/gather.cl", "-DT=uchar -DV=1", "gather_widen", 256, "chosen");
    print_line("portable/gather.cl", "-DT=uchar", "gather_widen", 256, "fallback");
    print_line("bench/limits.cl", "-DVW=1 -DCHAINS=8 -DCPU=0 -DAHEAD=0", "clt_fma_peak", 256,
               "fallback");
    print_line("bench/limits.cl", "-DVW=4 -DCHAINS=1 -DCPU=0 -DAHEAD=0", "clt_copy", 256,
               "fallback");
    print_line("bench/allreduce.cl", "-DCPU=0 -DSAMPLES=64 -DDELAY=1000", "clt_allreduce_write", 64,
               "fallback");
    print_line("bench/allreduce.cl", "-DCPU=0 -DSAMPLES=64 -DDELAY=1000", "clt_allreduce_read", 1,
               "fallback");
    print_line("bench/allreduce.cl", "-DCPU=0 -DSAMPLES=64 -DDELAY=1000", "clt_allreduce_check", 64,
               "fallback");
}

/* Sums between devices, of comm/local/peer_kernels.c. */
static void print_sums(const clt_caps *caps)
{
    static const char *const types[] = {"f32", "i32", "f16", "bf16", "f64"};
    char options[64], kernel[64];
    snprintf(options, sizeof options, "-DCPU=0 -DDOUBLE=%d -DLANES=16", caps->fp64);
    for (size_t i = 0; i < sizeof types / sizeof *types - !caps->fp64; i++) {
        snprintf(kernel, sizeof kernel, "clt_comm_reduce_%s", types[i]);
        print_line("comm/reduce.cl", options, kernel, 64, "fallback");
        snprintf(kernel, sizeof kernel, "clt_comm_measure_%s", types[i]);
        if (caps->fp64)
            print_line("comm/reduce.cl", options, kernel, 64, "fallback");
    }
}

int main(int argc, char **argv)
{
    with_tiles = argc == 3 && !strcmp(argv[2], "tiles");
    for (size_t i = 0; argc == 2 + with_tiles && i < sizeof devices / sizeof *devices; i++) {
        const clt_caps *caps = &devices[i];
        if (strcmp(argv[1], caps->name))
            continue;
        for (int m = 0; m < clt_model_count(); m++)
            plan_model(clt_model_name(m), caps);
        plan_products(caps);
        plan_long_products(caps);
        plan_convolutions(caps);
        plan_reductions(caps);
        plan_portable_parts(caps);
        plan_rows(caps);
        plan_subgroups(caps);
        plan_moves(caps);
        plan_places(caps);
        plan_casts(caps);
        plan_activations(caps);
        plan_pooling(caps);
        print_beside(caps);
        print_sums(caps);
        return covered_report(caps) ? 1 : 0;
    }
    fprintf(stderr, "usage: gpu_launches amd | nvidia | intel [tiles]\n");
    return 2;
}
