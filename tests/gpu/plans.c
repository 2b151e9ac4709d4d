#include "gpu/plans.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/covered.h"
#include "passes/passes.h"
#include "plan/plan.h"

bool with_tiles;
clt_dtype kept_in = CLT_F32;
const char *asked;

/* A CPU with all features that plans ask for. */
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

void stop(const char *what)
{
    fprintf(stderr, "gpu_launches: %s: %s\n", what, clt_error_message());
    exit(1);
}

void print_line(const char *file, const char *options, const char *kernel, int64_t items,
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
            /* CLBlast's products have no kernel of ours. */
            if (!l->blas)
                print_line(l->file, l->options, l->kernel, items, role);
        }
}

static void print_plan(const clt_plan *plan, const clt_graph *graph, const clt_buckets *buckets)
{
    print_launches(plan, asked ? "fallback" : "chosen");
    /* The tiles that a tuner would try. */
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
            if (!pn->variant || !pn->variant->tiles ||
                !pn->variant->tiles(pn->node, &target, tile, text))
                continue;
            found = 1;
            record.count++;
            snprintf(e->op, sizeof e->op, "%s", pn->node->op->name);
            e->key = pn->key;
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

/* Makes a plan for each variant that the plan's own choices hide, the first time the variant is
 * found. */
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

void plan_graph(clt_graph *graph, const clt_caps *caps, clt_plan_mode mode, int64_t batch)
{
    const clt_bucket_sizes sizes = clt_bucket_sizes_default();
    clt_plan_options options = clt_plan_options_default(mode, batch);
    clt_buckets buckets;
    clt_plan *plan;
    options.variants = asked;
    options.precision = kept_in;
    OK(clt_graph_status(graph));
    OK(clt_buckets_create(graph, &sizes, &buckets));
    OK(clt_plan_create(graph, &buckets, caps, NULL, &options, &plan));
    if (counted)
        print_counts(plan);
    else
        print_plan(plan, graph, &buckets);
    if (!asked && !counted)
        plan_others(plan, graph, &buckets);
    clt_plan_destroy(plan);
    for (int small = 0; small < 2 && !counted;
         small++) { /* values of one image have the layout PLAIN */
        options.max_batch = small ? 1 : batch;
        OK(clt_plan_create(graph, &buckets, &cpu, NULL, &options, &plan));
        covered_on_cpu(plan, caps);
        clt_plan_destroy(plan);
    }
    clt_buckets_free(&buckets);
    clt_graph_destroy(graph);
}

/* Plans one layer and its gradients: `y` in a graph of the inputs x0, x1, x2. */
void plan_layer(clt_graph *graph, clt_value *y, clt_value **x, int n, const clt_caps *caps)
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
        /* The gradient may be dy itself, or another operand's gradient too. */
        if (got[i]->kind != CLT_VALUE_INTERMEDIATE || got[i]->name)
            got[i] = clt_copy(got[i]);
        clt_output(got[i], names[i]);
    }
    plan_graph(graph, caps, CLT_PLAN_EVALUATE, 64);
}
