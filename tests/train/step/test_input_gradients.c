/*
 * Gradients of inputs and vector-Jacobian products, against central differences of a reference in
 * double: on one device and on several, with micro-batches, in 16 bits, with frozen parameters, and
 * in all kinds of memory.
 */
#include "train/lab.h"
#include "device/core/device.h"
#include "graph/graph.h"

enum { IN = 5, HIDDEN = 8, OUT = 4, MOST = 23 };

enum { LOSS = 1, GIVEN = 2 };

typedef struct setting {
    const char *devices, *parallel;
    int kind, accumulate;
    clt_dtype precision;
    int zero;
    int64_t virtual_shards;
    double tolerance; /* relative to the largest element */
    bool frozen, uneven, in_flight;
} setting;

static void fails(clt_status status, clt_status want, const char *text)
{
    assert_int_equal(status, want);
    if (!strstr(clt_error_message(), text))
        fail_msg("message '%s' does not have '%s'", clt_error_message(), text);
}

static float xs[MOST * IN], targets[MOST * OUT], vs[MOST * OUT], shift[HIDDEN];
static const struct {
    const char *name;
    int count;
} parameters[] = {
    {"h.weight", HIDDEN *IN}, {"h.bias", HIDDEN}, {"o.weight", OUT *HIDDEN}, {"o.bias", OUT}};
static float values[4][HIDDEN * IN];

/* --- the network and its reference ------------------------------------------------------------ */

/* y = o(tanh(h(x) + shift)), where shift is an input without samples. */
static clt_graph *build(const setting *s)
{
    const int64_t in[] = {CLT_BATCH, IN}, out[] = {CLT_BATCH, OUT}, hidden = HIDDEN;
    clt_graph *g;
    clt_value *sum, *weight;
    ok(clt_graph_create(&g));
    clt_value *x = clt_input(g, "x", CLT_F32, 2, in);
    clt_value *h = layer(g, x, "h.weight", "h.bias", IN, HIDDEN);
    h = clt_tanh(clt_add(h, clt_input(g, "shift", CLT_F32, 1, &hidden)));
    h = clt_cut(h);
    clt_value *y = clt_output(layer(g, h, "o.weight", "o.bias", HIDDEN, OUT), "y");
    if (s->kind & LOSS) {
        clt_mse(y, clt_input(g, "target", CLT_F32, 2, out), &sum, &weight);
        ok(clt_loss(g, "loss", sum, weight, 3));
    }
    if (s->kind & GIVEN)
        assert_non_null(clt_output_gradient(y, "v"));
    ok(clt_input_gradient(g, "x"));
    ok(clt_input_gradient(g, "shift"));
    ok(clt_shard(g, "h.weight|h.bias", CLT_AXIS_TENSOR, 0, 1, NULL));
    ok(clt_shard(g, "o.weight", CLT_AXIS_TENSOR, 1, 1, NULL));
    if (s->frozen)
        ok(clt_freeze(g, "*", NULL));
    return g;
}

static double objective(const setting *s, const double *x, const double *c, int64_t count)
{
    double squares = 0, product = 0;
    for (int64_t i = 0; i < count; i++) {
        double h[HIDDEN];
        for (int j = 0; j < HIDDEN; j++) {
            double sum = (double)values[1][j] + c[j];
            for (int k = 0; k < IN; k++)
                sum += (double)values[0][j * IN + k] * x[i * IN + k];
            h[j] = tanh(sum);
        }
        for (int o = 0; o < OUT; o++) {
            double y = (double)values[3][o];
            for (int j = 0; j < HIDDEN; j++)
                y += (double)values[2][o * HIDDEN + j] * h[j];
            squares += pow(y - (double)targets[i * OUT + o], 2);
            product += y * (double)vs[i * OUT + o];
        }
    }
    return (s->kind & LOSS ? 3 * squares / ((double)count * OUT) : 0) +
           (s->kind & GIVEN ? product : 0);
}

/* Central differences. */
static void differences(const setting *s, int64_t count, double *dx, double *dc)
{
    const double h = 1e-5;
    double x[MOST * IN], c[HIDDEN];
    for (int64_t i = 0; i < count * IN; i++)
        x[i] = (double)xs[i];
    for (int i = 0; i < HIDDEN; i++)
        c[i] = (double)shift[i];
    for (int64_t i = 0; i < count * IN + HIDDEN; i++) {
        double *at = i < count * IN ? &x[i] : &c[i - count * IN], before = *at;
        *at = before + h;
        const double above = objective(s, x, c, count);
        *at = before - h;
        const double below = objective(s, x, c, count);
        *at = before;
        *(i < count * IN ? &dx[i] : &dc[i - count * IN]) = (above - below) / (2 * h);
    }
}

static void near(const char *what, const float *have, const double *want, int64_t n, double within)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs(want[i]));
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)have[i] - want[i]) <= within * most))
            fail_msg("%s[%lld] is %.9g, not %.9g (the largest is %.3g)", what, (long long)i,
                     (double)have[i], want[i], most);
}

/* --- labs --------------------------------------------------------------------------------------
 */

static void fill(void)
{
    for (int i = 0; i < MOST * IN; i++)
        xs[i] = (float)sin(0.37 * i + 1);
    for (int i = 0; i < MOST * OUT; i++) {
        targets[i] = (float)cos(0.73 * i);
        vs[i] = (float)((i * 7) % 11 - 5) / 8;
    }
    for (int i = 0; i < HIDDEN; i++)
        shift[i] = (float)(i - 3) / 10;
}

static lab lab_of(const setting *s)
{
    static const double uneven[] = {1, 3};
    clt_trainer_options o;
    clt_store_options stored;
    clt_trainer_options_init(&o);
    clt_store_options_init(&stored);
    o.batch = MOST;
    o.accumulate = s->accumulate ? s->accumulate : 1;
    o.precision = s->precision;
    o.zero = s->zero;
    o.virtual_shards = s->virtual_shards;
    o.poison = 1;
    o.separate = clt_test_oclgrind();
    o.in_flight = s->in_flight ? 2 : 0;
    stored.seed = 3;
    stored.parallel = s->parallel;
    stored.zero = s->zero == 3 ? 3 : 0;
    fill();
    lab l = lab_on_kept(clt_test_devices(s->devices));
    if (s->uneven) {
        o.weights = uneven;
        o.batch = 2 * MOST;
    }
    l.graph = build(s);
    ok(clt_store_create_with(l.graph, l.devices, l.n, &stored, &l.store));
    ok(clt_trainer_create(l.graph, l.store, &o, &l.trainer));
    for (int p = 0; p < 4; p++)
        ok(clt_store_get(l.store, parameters[p].name, values[p],
                         (size_t)parameters[p].count * sizeof(float)));
    return l;
}

static const clt_feed feeds[] = {{"x", -1, CLT_HOST(xs)},
                                 {"shift", -1, CLT_HOST(shift)},
                                 {"target", -1, CLT_HOST(targets)},
                                 {"v", -1, CLT_HOST(vs)}};

static clt_step_batch batch_of(int64_t count)
{
    clt_step_batch batch = lab_batch(feeds, count);
    batch.n_feeds = 4;
    return batch;
}

static void read_both(lab *l, float *dx, float *dc)
{
    const clt_array x = CLT_HOST(dx), c = CLT_HOST(dc);
    ok(clt_trainer_input_gradient(l->trainer, -1, "x", &x));
    ok(clt_trainer_input_gradient(l->trainer, -1, "shift", &c));
}

/* Whether the devices suffice, and are of one kind where that is needed. */
static bool is_possible(const setting *s)
{
    lab l = lab_on_kept(clt_test_devices(s->devices));
    const bool several = l.n > 1, two = l.n == 2;
    const bool alike =
        several && !memcmp(&l.devices[0]->caps, &l.devices[1]->caps, sizeof l.devices[0]->caps);
    lab_close(&l);
    return s->uneven ? two : s->parallel || s->virtual_shards || s->zero ? two && alike : true;
}

/* --- values ------------------------------------------------------------------------------------
 */

typedef enum way { PARTS, STEP, GRADIENTS, WAYS } way;

static void run(lab *l, const setting *s, way how, int64_t count)
{
    const clt_step_batch batch = batch_of(count);
    if (how == STEP)
        ok(clt_trainer_step(l->trainer, &batch, NULL));
    else if (how == GRADIENTS)
        ok(clt_trainer_gradients(l->trainer, &batch));
    else
        ok(clt_trainer_forward(l->trainer, &batch));
    if (how == PARTS)
        ok(clt_trainer_backward_from(l->trainer, &feeds[3], s->kind & GIVEN ? 1 : 0));
}

static void values_of(const setting *s, way how, int64_t count)
{
    float dx[MOST * IN], dc[HIDDEN];
    double want_x[MOST * IN], want_c[HIDDEN];
    const double within = s->tolerance > 0 ? s->tolerance : 2e-5;
    lab l = lab_of(s);
    differences(s, count, want_x, want_c);
    run(&l, s, how, count);
    read_both(&l, dx, dc);
    near("dx", dx, want_x, count * IN, within);
    near("dshift", dc, want_c, HIDDEN, within);
    lab_close(&l);
}

static void by_differences(void **state)
{
    (void)state;
    static const setting settings[] = {
        {"pocl", .kind = GIVEN},
        {"pocl", .kind = LOSS},
        {"pocl", .kind = LOSS | GIVEN},
        {"pocl/2", .kind = GIVEN},
        {"pocl/2", .kind = LOSS},
        {"pocl/2", .kind = LOSS | GIVEN, .uneven = true},
        {"pocl", .kind = GIVEN, .frozen = true},
        {"pocl/2", .kind = LOSS, .frozen = true},
        {"pocl", .kind = LOSS, .accumulate = 3},
        {"pocl/2", .kind = LOSS | GIVEN, .accumulate = 4},
        {"pocl/2", .kind = LOSS, .accumulate = 4, .in_flight = true},
        {"pocl", .kind = LOSS | GIVEN, .precision = CLT_BF16, .tolerance = 2e-2},
        {"pocl/2", .kind = LOSS, .precision = CLT_F16, .tolerance = 4e-3},
        {"pocl/2", .kind = LOSS, .precision = CLT_F16, .tolerance = 4e-3, .accumulate = 2},
        {"pocl/2", .kind = LOSS, .zero = 1},
        {"pocl/2", .kind = LOSS | GIVEN, .zero = 3},
        {"pocl/2", .kind = LOSS, .virtual_shards = 8},
        {"pocl/2", "tp=2", .kind = LOSS | GIVEN},
        {"pocl/2", "tp=2", .kind = LOSS, .accumulate = 2},
        {"pocl/2", "pp=2", .kind = LOSS | GIVEN, .accumulate = 2},
    };
    static const int64_t counts[] = {MOST, 9, 1};
    const int n = clt_test_oclgrind() ? 5 : (int)(sizeof settings / sizeof *settings);
    for (int i = 0; i < n; i++) {
        const setting *s = &settings[i];
        const bool parts = !s->accumulate && !s->virtual_shards;
        for (way how = parts ? PARTS : STEP; is_possible(s) && how < WAYS; how++)
            for (int c = 0; c < (s->virtual_shards ? 1 : 3); c++)
                values_of(s, how, counts[c]);
    }
}

/* --- repeated products -------------------------------------------------------------------------
 */

/* Rows of the Jacobian: backward of one forward, with a unit vector for each output. Nothing is
 * updated, and the next step is that of a trainer that computed no products. */
static void jacobian(void **state)
{
    (void)state;
    static const setting settings[] = {{"pocl", .kind = GIVEN}, {"pocl/2", .kind = GIVEN}};
    for (int i = 0; i < 2; i++) {
        const setting *s = &settings[i];
        float dx[MOST * IN], dc[HIDDEN], before[HIDDEN * IN], after[HIDDEN * IN];
        double want_x[MOST * IN], want_c[HIDDEN];
        lab l = lab_of(s), plain = lab_of(s);
        const clt_step_batch batch = batch_of(9);
        const int64_t steps = clt_trainer_steps(l.trainer);
        ok(clt_trainer_forward(l.trainer, &batch));
        for (int row = 0; row < OUT + 1; row++) {
            for (int k = 0; k < MOST * OUT; k++)
                vs[k] = k % OUT == row % OUT;
            differences(s, 9, want_x, want_c);
            ok(clt_trainer_backward_from(l.trainer, &feeds[3], 1));
            read_both(&l, dx, dc);
            near("dx", dx, want_x, 9 * IN, 2e-5);
            near("dshift", dc, want_c, HIDDEN, 2e-5);
        }
        assert_true(clt_trainer_steps(l.trainer) == steps);
        fails(clt_trainer_backward(l.trainer), CLT_INVALID_ARGUMENT, "no feed for input");
        const clt_feed wrong = {"misspelt", -1, CLT_HOST(vs)};
        fails(clt_trainer_backward_from(l.trainer, &wrong, 1), CLT_INVALID_ARGUMENT,
              "no gradient of an output with the name misspelt");
        fill();
        /* The last backward counts for the update. */
        ok(clt_trainer_backward_from(l.trainer, &feeds[3], 1));
        ok(clt_trainer_reduce(l.trainer));
        ok(clt_trainer_apply(l.trainer, NULL));
        ok(clt_trainer_step(plain.trainer, &batch, NULL));
        for (int p = 0; p < 4; p++) {
            const size_t bytes = (size_t)parameters[p].count * sizeof(float);
            ok(clt_store_get(plain.store, parameters[p].name, before, bytes));
            ok(clt_store_get(l.store, parameters[p].name, after, bytes));
            assert_memory_equal(before, after, bytes);
        }
        lab_close(&plain);
        lab_close(&l);
    }
}

/* A step whose graph marks no inputs has the bits of one that does, as far as gradients of
 * parameters go: marking adds nodes and changes none. */
static void same_parameters(void **state)
{
    (void)state;
    float a[HIDDEN * IN], b[HIDDEN * IN];
    for (int devices = 1; devices <= 2; devices++) {
        const setting s = {devices == 1 ? "pocl" : "pocl/2", .kind = LOSS};
        clt_trainer_options o;
        clt_trainer_options_init(&o);
        o.batch = MOST;
        lab marked = lab_of(&s), plain = lab_on_kept(clt_test_devices(s.devices));
        clt_graph *g = build(&s);
        for (int i = 0; i < g->n_values; i++)
            g->values[i]->input_gradient = false;
        lab_store(&plain, g, 3);
        lab_trainer(&plain, &o);
        for (int k = 0; k < 3; k++) {
            const clt_step_batch batch = batch_of(MOST - k);
            ok(clt_trainer_step(marked.trainer, &batch, NULL));
            ok(clt_trainer_step(plain.trainer, &batch, NULL));
        }
        for (int p = 0; p < 4; p++) {
            const size_t bytes = (size_t)parameters[p].count * sizeof(float);
            ok(clt_store_get(plain.store, parameters[p].name, a, bytes));
            ok(clt_store_get(marked.store, parameters[p].name, b, bytes));
            assert_memory_equal(a, b, bytes);
        }
        lab_close(&plain);
        lab_close(&marked);
    }
}

/* --- memory ------------------------------------------------------------------------------------
 */

static cl_mem buffer_on(const lab *l, int device, int64_t bytes)
{
    cl_int code;
    const cl_mem mem =
        clCreateBuffer(l->devices[device]->context, CL_MEM_READ_WRITE, (size_t)bytes, NULL, &code);
    assert_int_equal(code, CL_SUCCESS);
    return mem;
}

/* Arrays of doubles with strides, parts of single devices, and buffers have the values of the dense
 * array. */
static void kinds_of_memory(void **state)
{
    (void)state;
    static const setting settings[] = {{"pocl", .kind = GIVEN},
                                       {"pocl/2", .kind = GIVEN, .uneven = true},
                                       {"pocl/2", .kind = LOSS, .precision = CLT_F16}};
    for (int i = 0; i < 3; i++) {
        const int64_t count = 9;
        float dx[MOST * IN], dc[HIDDEN], part[MOST * IN], all[MOST * IN];
        double turned[IN][MOST];
        if (!is_possible(&settings[i]))
            continue;
        lab l = lab_of(&settings[i]);
        run(&l, &settings[i], settings[i].kind == LOSS ? STEP : PARTS, count);
        read_both(&l, dx, dc);
        const clt_array view = {.host = turned,
                                .bytes = sizeof turned,
                                .dtype = CLT_F64,
                                .rank = 2,
                                .shape = {count, IN},
                                .strides = {sizeof(double), MOST * sizeof(double)}};
        ok(clt_trainer_input_gradient(l.trainer, -1, "x", &view));
        for (int64_t n = 0; n < count; n++)
            for (int k = 0; k < IN; k++)
                assert_true((float)turned[k][n] == dx[n * IN + k]);
        int64_t offsets[] = {0, count, count};
        if (l.n == 2)
            ok(clt_split(count, 2, settings[i].uneven ? (const double[]){1, 3} : NULL, 1, offsets));
        for (int d = 0; d < l.n; d++) {
            const int64_t n = offsets[d + 1] - offsets[d], bytes = n * IN * (int64_t)sizeof(float);
            const clt_array host = CLT_HOST(part);
            ok(clt_trainer_input_gradient(l.trainer, d, "x", &host));
            memcpy(all + offsets[d] * IN, part, (size_t)bytes);
            const cl_mem mem = buffer_on(&l, d, bytes + 256);
            const clt_array buffer = CLT_BUFFER(mem, 64);
            memset(part, 0, sizeof part);
            ok(clt_trainer_input_gradient(l.trainer, d, "x", &buffer));
            assert_int_equal(clEnqueueReadBuffer(l.devices[d]->queue, mem, CL_TRUE, 64,
                                                 (size_t)bytes, part, 0, NULL, NULL),
                             CL_SUCCESS);
            assert_memory_equal(part, all + offsets[d] * IN, (size_t)bytes);
            clReleaseMemObject(mem);
        }
        assert_memory_equal(all, dx, (size_t)count * IN * sizeof(float));
        lab_close(&l);
    }
}

/* --- mistakes ----------------------------------------------------------------------------------
 */

static void mistakes(void **state)
{
    (void)state;
    const setting s = {"pocl/2", .kind = GIVEN};
    float dx[MOST * IN];
    const clt_array to = CLT_HOST(dx);
    const int64_t wrong[] = {3, IN}, one = 1;
    clt_array small;
    lab l = lab_of(&s);
    const clt_step_batch batch = batch_of(9);
    fails(clt_trainer_input_gradient(l.trainer, -1, "x", &to), CLT_STATE, "backward has not run");
    run(&l, &s, PARTS, 9);
    fails(clt_trainer_input_gradient(l.trainer, -1, "shifts", &to), CLT_NOT_FOUND, "shift");
    fails(clt_trainer_input_gradient(l.trainer, l.n, "x", &to), CLT_INVALID_ARGUMENT, "device");
    ok(clt_array_of(&small, dx, CLT_F32, 2, wrong));
    fails(clt_trainer_input_gradient(l.trainer, -1, "x", &small), CLT_INVALID_ARGUMENT, "[9, 5]");
    ok(clt_array_of(&small, dx, CLT_I32, 1, &one));
    fails(clt_trainer_input_gradient(l.trainer, -1, "x", &small), CLT_INVALID_ARGUMENT, "x");
    ok(clt_trainer_forward(l.trainer, &batch));
    fails(clt_trainer_input_gradient(l.trainer, -1, "x", &to), CLT_STATE, "backward has not run");
    if (l.n > 1) {
        const cl_mem mem = buffer_on(&l, 0, 9 * IN * (int64_t)sizeof(float));
        const clt_array buffer = CLT_BUFFER(mem, 0);
        ok(clt_trainer_backward_from(l.trainer, &feeds[3], 1));
        fails(clt_trainer_input_gradient(l.trainer, -1, "x", &buffer), CLT_INVALID_ARGUMENT,
              "name it");
        fails(clt_trainer_input_gradient(l.trainer, 1, "x", &buffer), CLT_INVALID_ARGUMENT,
              "another context");
        clReleaseMemObject(mem);
    }
    const clt_fetch fetch = {"x.gradient", -1, CLT_HOST(dx)};
    clt_step_batch fetches = batch_of(9);
    fetches.fetches = &fetch;
    fetches.n_fetches = 1;
    fails(clt_trainer_step(l.trainer, &fetches, NULL), CLT_UNSUPPORTED,
          "clt_trainer_input_gradient");
    lab_close(&l);

    clt_graph *g = build(&s);
    const int64_t in[] = {CLT_BATCH, IN};
    fails(clt_input_gradient(g, "y"), CLT_NOT_FOUND, "no input y");
    fails(clt_input_gradient(g, "xx"), CLT_NOT_FOUND, "did you mean x");
    fails(clt_input_gradient(g, "v"), CLT_INVALID_ARGUMENT, "gradient of an output");
    clt_input(g, "numbers", CLT_I32, 2, in);
    fails(clt_input_gradient(g, "numbers"), CLT_INVALID_ARGUMENT, "only f32");
    clt_input(g, "unused", CLT_F32, 2, in);
    ok(clt_input_gradient(g, "unused"));
    lab other = lab_on_kept(clt_test_devices("pocl"));
    clt_trainer_options o;
    clt_trainer_options_init(&o);
    o.batch = MOST;
    lab_store(&other, g, 1);
    fails(clt_trainer_create(g, other.store, &o, &other.trainer), CLT_INVALID_ARGUMENT,
          "input unused has no gradient");
    lab_close(&other);
}

/* --- values that are shared --------------------------------------------------------------------
 */

/* The gradients of x, of `same` and of the parameter are one value, and v itself. */
static void shared_values(void **state)
{
    (void)state;
    const int64_t in[] = {CLT_BATCH, IN}, row = IN;
    float dx[MOST * IN], dsame[MOST * IN], dc[IN], db[IN];
    for (int devices = 1; devices <= 2; devices++) {
        clt_graph *g;
        clt_trainer_options o;
        ok(clt_graph_create(&g));
        clt_value *x = clt_input(g, "x", CLT_F32, 2, in);
        clt_value *same = clt_input(g, "same", CLT_F32, 2, in);
        clt_value *c = clt_input(g, "c", CLT_F32, 1, &row);
        clt_value *b = clt_parameter(g, "b", 1, &row, (clt_init){CLT_INIT_CONSTANT, 1, 0});
        clt_value *y = clt_output(clt_add(clt_add(x, same), clt_add(c, b)), "y");
        assert_non_null(clt_output_gradient(y, "v"));
        ok(clt_input_gradient(g, "x"));
        ok(clt_input_gradient(g, "same"));
        ok(clt_input_gradient(g, "c"));
        clt_trainer_options_init(&o);
        o.batch = MOST;
        o.poison = 1;
        lab l = lab_on_kept(clt_test_devices(devices == 1 ? "pocl" : "pocl/2"));
        lab_store(&l, g, 1);
        lab_trainer(&l, &o);
        fill();
        const clt_feed own[] = {{"x", -1, CLT_HOST(xs)},
                                {"same", -1, CLT_HOST(xs)},
                                {"c", -1, CLT_HOST(shift)},
                                {"v", -1, CLT_HOST(xs)}};
        clt_step_batch batch = lab_batch(own, 9);
        batch.n_feeds = 4;
        ok(clt_trainer_gradients(l.trainer, &batch));
        const clt_array ax = CLT_HOST(dx), as = CLT_HOST(dsame), ac = CLT_HOST(dc);
        ok(clt_trainer_input_gradient(l.trainer, -1, "x", &ax));
        ok(clt_trainer_input_gradient(l.trainer, -1, "same", &as));
        ok(clt_trainer_input_gradient(l.trainer, -1, "c", &ac));
        ok(clt_trainer_gradient(l.trainer, 0, "b", db, sizeof db));
        assert_memory_equal(dx, xs, 9 * IN * sizeof(float));
        assert_memory_equal(dsame, xs, 9 * IN * sizeof(float));
        for (int k = 0; k < IN; k++) {
            double sum = 0;
            for (int i = 0; i < 9; i++)
                sum += (double)xs[i * IN + k];
            assert_true(fabs((double)dc[k] - sum) < 1e-5 && fabs((double)db[k] - sum) < 1e-5);
        }
        lab_close(&l);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_differences),  cmocka_unit_test(jacobian),
        cmocka_unit_test(same_parameters), cmocka_unit_test(kinds_of_memory),
        cmocka_unit_test(mistakes),        cmocka_unit_test(shared_values),
    };
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
