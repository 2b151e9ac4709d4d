/*
 * Every kind of collective of the graph, on devices with other numbers of samples and along two
 * axes. Numbers are small integers, so that results equal those of doubles to the bit.
 */
#include "ops/collective/collective.h"
#include "train/lab.h"
#include "train/unsplit.h"

#include "train/core/trainer.h"

enum { MOST = 12, WIDTH = 5, PLACES = 3 };

static const char *const names[] = {"dp0", "dp1", "dp2", "dp3", "tp0", "tp1", "tp2", "tp3"};
static float xs[MOST * WIDTH];
static float factors[PLACES * WIDTH], weights[PLACES * WIDTH];

/* r: a place's part of places x gathered. Its own row of `factors` makes it differ. */
static void add_collectives(clt_value *x, clt_value *c, clt_value *w, clt_axis axis, int places,
                            clt_value *out[4])
{
    const int first = 0;
    clt_value *r =
        clt_axis_reduce_scatter(clt_mul(clt_axis_all_gather(x, axis, places), c), axis, places);
    clt_value *all = clt_axis_all_gather(r, axis, places);
    out[0] = clt_reduce_sum(clt_mul(all, w), &first, 1, 0);
    out[1] = clt_axis_all_reduce(r, axis, CLT_AXIS_SUM);
    out[2] = clt_axis_all_reduce(r, axis, CLT_AXIS_MAX);
    out[3] = clt_axis_all_reduce(x, axis, CLT_AXIS_SUM);
}

/* Along dp, of the sum of a device's samples; along tp, of each sample. */
static clt_graph *build(int data, int tensor)
{
    const int64_t dims[] = {CLT_BATCH, WIDTH};
    const clt_init zero = {CLT_INIT_ZERO, 0, 0};
    const int first = 0;
    clt_value *out[4], *sum, *weight;
    clt_graph *g;
    ok(clt_graph_create(&g));
    clt_value *x = clt_input(g, "x", CLT_F32, 2, dims);
    clt_value *p = clt_parameter(g, "p", 1, &dims[1], zero);
    for (int k = 0; k < 2; k++) {
        const int places = k ? tensor : data, rank = k ? 3 : 2;
        const int64_t rows[] = {places, k ? 1 : WIDTH, WIDTH};
        if (places == 1)
            continue;
        clt_value *c = clt_parameter(g, k ? "c.tp" : "c.dp", rank, rows, zero);
        clt_value *w = clt_parameter(g, k ? "w.tp" : "w.dp", rank, rows, zero);
        add_collectives(k ? x : clt_reduce_sum(x, &first, 1, 0), c, w,
                        k ? CLT_AXIS_TENSOR : CLT_AXIS_DATA, places, out);
        for (int i = 0; i < 4; i++)
            clt_output(k ? out[i] : clt_add(clt_scale(x, 0), out[i]), names[4 * k + i]);
    }
    clt_mse(clt_mul(x, p), x, &sum, &weight);
    ok(clt_loss(g, "loss", sum, weight, 1));
    ok(clt_graph_status(g));
    return g;
}

/* Finds what add_collectives gives for column j, from x of each place. Places without samples take
 * part in gathers only. */
static void expect(const double *x, const bool *empty, int places, int j, double want[4])
{
    int joins = 0;
    for (int i = 0; i < places; i++)
        joins += !empty[i];
    want[0] = want[1] = want[3] = 0;
    want[2] = -1e30;
    for (int i = 0; i < places; i++) {
        const double r = joins * x[i] * (double)factors[i * WIDTH + j];
        want[0] += r * (double)weights[i * WIDTH + j];
        if (empty[i])
            continue;
        want[1] += r;
        want[2] = fmax(want[2], r);
        want[3] += x[i];
    }
}

static void check_batch(lab *l, int data, int tensor, int n, const int64_t *offsets)
{
    static float have[8][MOST * WIDTH];
    const clt_feed feed = {.name = "x", .device = -1, .array = CLT_HOST(xs)};
    const bool none[PLACES] = {false};
    const int first = data > 1 ? 0 : 4, end = tensor > 1 ? 8 : 4;
    clt_fetch fetches[8];
    clt_step_batch batch;
    clt_step_batch_init(&batch);
    memset(have, 0, sizeof have);
    for (int i = first; i < end; i++)
        fetches[i] = (clt_fetch){names[i], -1, CLT_HOST(have[i])};
    batch.count = n;
    batch.offsets = offsets;
    batch.feeds = &feed;
    batch.n_feeds = 1;
    batch.fetches = fetches + first;
    batch.n_fetches = end - first;
    ok(clt_trainer_predict(l->trainer, &batch, NULL));
    ok(clt_trainer_wait(l->trainer));
    for (int j = 0; j < WIDTH; j++) {
        double sums[PLACES] = {0}, want[8];
        bool empty[PLACES];
        for (int d = 0; d < data; d++) {
            empty[d] = offsets[d] == offsets[d + 1];
            for (int64_t i = offsets[d]; i < offsets[d + 1]; i++)
                sums[d] += (double)xs[i * WIDTH + j];
        }
        expect(sums, empty, data, j, want);
        for (int i = 0; i < n; i++) {
            const double x = (double)xs[i * WIDTH + j], same[PLACES] = {x, x, x};
            expect(same, none, tensor, j, want + 4);
            for (int k = first; k < end; k++)
                if ((double)have[k][i * WIDTH + j] != want[k])
                    fail_msg("dp=%d,tp=%d, %d samples: %s of sample %d is %g, not %g", data, tensor,
                             n, names[k], i, (double)have[k][i * WIDTH + j], want[k]);
        }
    }
}

static void check_mesh(const char *devices, int data, int tensor)
{
    char parallel[32];
    clt_store_options store;
    clt_trainer_options o;
    lab l = lab_on_kept(devices);
    snprintf(parallel, sizeof parallel, "dp=%d,tp=%d", data, tensor);
    l.graph = let_axes_idle(build(data, tensor));
    clt_store_options_init(&store);
    store.parallel = parallel;
    ok(clt_store_create_with(l.graph, l.devices, l.n, &store, &l.store));
    for (int k = 0; k < 2; k++) {
        const size_t places = (size_t)(k ? tensor : data), bytes = places * WIDTH * sizeof(float);
        if (places == 1)
            continue;
        ok(clt_store_set(l.store, k ? "c.tp" : "c.dp", factors, bytes));
        ok(clt_store_set(l.store, k ? "w.tp" : "w.dp", weights, bytes));
    }
    clt_trainer_options_init(&o);
    o.batch = PLACES * MOST; /* a device may get all samples */
    o.poison = 1;
    lab_trainer(&l, &o);
    for (int n = MOST; n > 0; n -= 5) {
        const int64_t divisions[][4] = {{0, n / 2, n - n / 4, n}, {0, 0, n / 3, n}, {0, 1, n, n}};
        for (int k = 0; k < 3; k++) {
            int64_t offsets[4];
            memcpy(offsets, divisions[k], sizeof offsets);
            offsets[data] = n;
            check_batch(&l, data, tensor, n, offsets);
        }
    }
    lab_close(&l);
}

static void all_kinds(void **state)
{
    (void)state;
    check_mesh("pocl@1,pocl@1", 2, 1);
    check_mesh("pocl@1,pocl@1,pocl@1", 3, 1);
    check_mesh("pocl@1,pocl@1", 1, 2);
    check_mesh("pocl@1,pocl@1,pocl@1", 1, 3);
    check_mesh("pocl@1,pocl@1,pocl@1,pocl@1", 2, 2);
}

static int set_up(void **state)
{
    for (int i = 0; i < MOST * WIDTH; i++)
        xs[i] = (float)((i * 7) % 13 - 6);
    for (int i = 0; i < PLACES * WIDTH; i++) {
        factors[i] = (float)((i * 5) % 7 - 3);
        weights[i] = (float)((i * 3) % 5 + 1);
    }
    return open_runtime(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_kinds)};
    return cmocka_run_group_tests(tests, set_up, close_runtime);
}
