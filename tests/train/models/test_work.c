/*
 * The arithmetic of each place of an axis, counted in plans of shipped models with their real
 * sizes: of the layers that the axis divides at most half, and 5 % more. Nothing runs.
 */
#include "train/lab.h"

#include <fnmatch.h>

#include "device/core/device.h"
#include "graph/mesh.h"
#include "plan/plan.h"
#include <cltrain/models.h>

enum { BATCH = 4, PLACES = 2 };

/* A model, an axis, and patterns of the nodes that the axis leaves whole. */
typedef struct setting {
    const char *model, *parallel, *whole[4];
    int side, tokens, words; /* of images or text */
} setting;

#define GPT "gpt2:124M"
#define VIT "vit-tiny:heads=4"
#define RESNET "resnet18:sync"
#define UNET "unet:sync"
#define LSTM "lstm"

static const setting settings[] = {
    {GPT, "tp=2", {NULL}, 0, 64, 50257},
    {GPT, "time=2", {NULL}, 0, 64, 50257},
    {GPT, "pp=2", {NULL}, 0, 64, 50257},
    {VIT, "tp=2", {"patch_embed.*", "logits*"}, 224, 0, 0},
    {VIT, "pp=2", {NULL}, 224, 0, 0},
    {RESNET, "tp=2", {"conv1*", "layer?.0.downsample.*", "logits*"}, 224, 0, 0},
    {RESNET, "space=2", {"logits*"}, 224, 0, 0},
    {RESNET, "pp=2", {NULL}, 224, 0, 0},
    /* Transposed convolutions are gradients of convolutions. */
    {UNET, "tp=2", {"conv2d_data_grad_*", "prediction*"}, 512, 0, 0},
    {UNET, "space=2", {NULL}, 512, 0, 0},
    {UNET, "pp=2", {NULL}, 512, 0, 0},
    {LSTM, "tp=2", {"lstm_*", "linear_*"}, 0, 64, 5000},
    {LSTM, "time=2", {NULL}, 0, 64, 5000},
};

static clt_graph *build(const setting *s)
{
    clt_model_field fields[2];
    clt_graph *g;
    const clt_model_input input = {.fields = fields, .n_fields = 2, .ignore_index = -100};
    if (!s->side) {
        fields[0] = (clt_model_field){"tokens", CLT_I32, 1, {s->tokens}, s->words};
        fields[1] = (clt_model_field){"targets", CLT_I32, 1, {s->tokens}, s->words};
    } else if (!strncmp(s->model, "unet", 4)) {
        fields[0] = (clt_model_field){"x", CLT_F32, 3, {3, s->side, s->side}, 0};
        fields[1] = (clt_model_field){"y", CLT_F32, 3, {1, s->side, s->side}, 0};
    } else {
        clt_model_images(3, s->side, s->side, 1000, fields);
    }
    ok(clt_graph_create(&g));
    ok(clt_model_build(s->model, &input, g));
    ok(clt_graph_status(g));
    return g;
}

static bool is_heavy(const clt_node *node)
{
    static const char *const names[] = {"linear", "matmul", "conv", "attention", "lstm", "gru"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strstr(node->op->name, names[i]))
            return true;
    return false;
}

static bool is_whole(const setting *s, const clt_node *node)
{
    for (int i = 0; i < 4 && s->whole[i]; i++)
        if (!fnmatch(s->whole[i], node->name, 0))
            return true;
    return false;
}

/* Adds up the work of products, convolutions, attention and recurrent layers: of those that the
 * axis divides, and of the others. */
static void add_up(const setting *s, const clt_plan *plan, double *divided, double *whole)
{
    *divided = *whole = 0;
    for (int i = 0; i < plan->n_nodes; i++) {
        const clt_node *node = plan->nodes[i].node;
        if (is_heavy(node))
            *(is_whole(s, node) ? whole : divided) += node->op->flops(node, BATCH);
    }
}

static clt_plan *plan_of(const clt_graph *g, const clt_caps *caps, const char *parallel, int place)
{
    const clt_bucket_sizes sizes = clt_bucket_sizes_default();
    clt_plan_options o = clt_plan_options_default(CLT_PLAN_TRAIN, BATCH);
    clt_buckets parts, own;
    clt_mesh mesh;
    clt_plan *plan;
    ok(clt_mesh_parse(parallel, parallel ? PLACES : 1, &mesh));
    o.mesh = parallel ? &mesh : NULL;
    o.participant = place;
    o.several = parallel != NULL;
    ok(clt_buckets_create_parts(g, &sizes, o.mesh, &parts));
    if (parallel && mesh.size[CLT_AXIS_PIPELINE] > 1)
        ok(clt_buckets_stage(&parts, place, &own));
    else
        ok(clt_buckets_copy(&parts, &own));
    ok(clt_plan_create(g, &own, caps, NULL, &o, &plan));
    clt_buckets_free(&parts);
    clt_buckets_free(&own);
    return plan;
}

static void check(const setting *s, const clt_caps *caps)
{
    clt_graph *g = build(s);
    clt_plan *one = plan_of(g, caps, NULL, 0);
    double divided, whole;
    /* Stages have whole layers, so the 5 % are of all work. */
    const double most = strncmp(s->parallel, "pp", 2) ? 1.05 / PLACES : 1.0 / PLACES + 0.05;
    add_up(s, one, &divided, &whole);
    assert_true(divided > 0 && (whole > 0) == (s->whole[0] != NULL));
    for (int p = 0; p < PLACES; p++) {
        clt_plan *plan = plan_of(g, caps, s->parallel, p);
        double own, undivided;
        add_up(s, plan, &own, &undivided);
        if (!(own <= most * divided) || undivided != whole || plan->partition.gathers)
            fail_msg("%s, %s: place %d does %.4f of the divided layers, %g instead of %g of the "
                     "others, and gathers for %d operators",
                     s->model, s->parallel, p, own / divided, undivided, whole,
                     plan->partition.gathers);
        clt_plan_destroy(plan);
    }
    clt_plan_destroy(one);
    clt_graph_destroy(g);
}

static void places_do_their_share(void **state)
{
    lab l = lab_on_kept("pocl@1");
    (void)state;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        check(&settings[i], &l.devices[0]->caps);
    lab_close(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(places_do_their_share)};
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
