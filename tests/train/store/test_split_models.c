/* Shipped models with the splits that they bring: close to one device after steps on tp=2, and
 * equal in bits on any mesh that a checkpoint is read on. */
#include "train/lab.h"

#include "checkpoint/scratch.h"
#include "train/store/store.h"
#include <cltrain/fit.h>
#include <cltrain/models.h>

enum { COUNT = 4, DEVICES = 4, T = 6, WORDS = 13, SIDE = 28, CLASSES = 5 };

typedef struct model_case {
    const char *model;
    bool text;
} model_case;

static const model_case models[] = {{"gpt2:layers=2,heads=2,width=8,dropout=0.1", true},
                                    {"mlp:10,7", false},
                                    {"vit-tiny:layers=1,heads=2,width=8,patch=7", false}};
enum { MODELS = sizeof models / sizeof *models };

static float images[COUNT * SIDE * SIDE];
static int32_t tokens[COUNT * T], targets[COUNT * T], labels[COUNT];

static clt_graph *build(const model_case *m)
{
    clt_model_field fields[2];
    const clt_model_input input = {.fields = fields, .n_fields = 2, .ignore_index = -100};
    clt_graph *g;
    if (m->text) {
        fields[0] = (clt_model_field){"tokens", CLT_I32, 1, {T}, WORDS};
        fields[1] = (clt_model_field){"targets", CLT_I32, 1, {T}, WORDS};
    } else {
        clt_model_images(1, SIDE, SIDE, CLASSES, fields);
    }
    ok(clt_graph_create(&g));
    ok(clt_model_build(m->model, &input, g));
    return g;
}

static lab lab_of(const model_case *m, const char *parallel, int count)
{
    clt_device *devices[DEVICES];
    clt_store_options so;
    clt_trainer_options o;
    lab l = lab_on_kept(clt_test_devices(count > 1 ? "pocl/2" : "pocl@1"));
    for (int d = 0; d < count; d++)
        devices[d] = l.devices[d % l.n];
    clt_store_options_init(&so);
    clt_trainer_options_init(&o);
    so.parallel = parallel;
    l.graph = build(m);
    ok(clt_store_create_with(l.graph, devices, count, &so, &l.store));
    o.optimizer = CLT_ADAMW;
    o.batch = COUNT;
    o.lr = 0.001;
    o.check_every = 1;
    o.comm_timeout = 60;
    lab_trainer(&l, &o);
    return l;
}

static void train(lab *l, const model_case *m, int steps)
{
    const clt_feed text[] = {{"tokens", -1, CLT_HOST(tokens)}, {"targets", -1, CLT_HOST(targets)}};
    const clt_feed image[] = {{"image", -1, CLT_HOST(images)}, {"label", -1, CLT_HOST(labels)}};
    clt_step_batch batch;
    clt_step_batch_init(&batch);
    batch.count = COUNT;
    batch.feeds = m->text ? text : image;
    batch.n_feeds = 2;
    for (int s = 0; s < steps; s++)
        ok(clt_trainer_step(l->trainer, &batch, NULL));
    ok(clt_trainer_wait(l->trainer));
}

/* Compares all parameters. Tolerance 0: all bits. */
static void compare(const char *model, lab *a, lab *b, double tolerance)
{
    for (int i = 0; i < clt_store_count(a->store); i++) {
        const char *name;
        int rank;
        int64_t dims[CLT_MAX_RANK], count = 1;
        ok(clt_store_describe(a->store, i, &name, NULL, &rank, dims, NULL));
        for (int k = 0; k < rank; k++)
            count *= dims[k];
        const size_t bytes = (size_t)count * sizeof(float);
        float *x = malloc(bytes), *y = malloc(bytes);
        assert_true(x && y);
        ok(clt_store_get(a->store, name, x, bytes));
        ok(clt_store_get(b->store, name, y, bytes));
        for (int64_t e = 0; e < count; e++)
            if (tolerance > 0 ? !(fabs(x[e] - y[e]) <= tolerance) : memcmp(&x[e], &y[e], 4) != 0)
                fail_msg("%s: %s[%lld]: %.9g, not %.9g", model, name, (long long)e, y[e], x[e]);
        free(x);
        free(y);
    }
    ok(clt_store_check(b->store));
}

static void same_file(const char *a, const char *b, const char *name)
{
    char x[2][400];
    size_t n, m;
    snprintf(x[0], sizeof x[0], "%s/step-00000003/%s", a, name);
    snprintf(x[1], sizeof x[1], "%s/step-00000003/%s", b, name);
    unsigned char *p = get_file(x[0], &n), *q = get_file(x[1], &m);
    assert_int_equal(n, m);
    assert_memory_equal(p, q, n);
    free(p);
    free(q);
}

static void models_are_split_and_saved_whole(void **state)
{
    static const struct {
        const char *parallel;
        int devices;
    } places[] = {{NULL, 1}, {"tp=2", 2}, {"dp=2,tp=2", 4}};
    (void)state;
    for (int i = 0; i < MODELS; i++) {
        const model_case *m = &models[i];
        clt_position position;
        int64_t seed;
        char run[64], again[64];
        lab one = lab_of(m, NULL, 1), split = lab_of(m, "tp=2", 2);
        assert_true(clt_buckets_split(split.store->replicas[0].layout));
        compare(m->model, &one, &split, 0);
        train(&one, m, 3);
        train(&split, m, 3);
        compare(m->model, &one, &split, 1e-4);
        snprintf(run, sizeof run, "run-%d", i);
        char *dir = strdup(in_scratch(run));
        ok(clt_trainer_save(split.trainer, dir, (clt_position){0, 0}, COUNT, 1, 0, "test"));
        for (int p = 0; p < 3; p++) {
            lab read = lab_of(m, places[p].parallel, places[p].devices);
            ok(clt_trainer_restore(read.trainer, dir, &position, &seed));
            compare(m->model, &split, &read, 0);
            snprintf(again, sizeof again, "again-%d-%d", i, p);
            char *copy = strdup(in_scratch(again));
            ok(clt_trainer_save(read.trainer, copy, (clt_position){0, 0}, COUNT, 1, 0, "test"));
            same_file(dir, copy, "model.safetensors");
            same_file(dir, copy, "optimizer.safetensors");
            free(copy);
            lab_close(&read);
        }
        free(dir);
        lab_close(&split);
        lab_close(&one);
    }
}

static int open_all(void **state)
{
    for (size_t i = 0; i < sizeof images / sizeof *images; i++)
        images[i] = (float)((i * 37 + i / 101) % 203) / 203;
    for (int i = 0; i < COUNT * T; i++) {
        tokens[i] = (i * 7 + i / 5) % WORDS;
        targets[i] = (i * 3 + i / 7) % WORDS;
    }
    for (int i = 0; i < COUNT; i++)
        labels[i] = i % CLASSES;
    return scratch_make(state) || open_runtime(state);
}

static int close_all(void **state)
{
    return close_runtime(state) || scratch_remove(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(models_are_split_and_saved_whole)};
    return cmocka_run_group_tests(tests, open_all, close_all);
}
