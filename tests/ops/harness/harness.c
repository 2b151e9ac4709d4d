#include "ops/harness/harness.h"

#include <time.h>

bool op_only_chosen;

static void op_compare(op_test *t, const op_case *c, const op_bound *b, const clt_run *run,
                       const char *name, const double *want, const double *bound)
{
    const clt_value *value = clt_graph_find(b->plan->graph, name);
    clt_view view;
    assert_non_null(value);
    assert_int_equal(value->layout, CLT_LAYOUT_PLAIN);
    const int64_t count = clt_type_elements(&value->type, run->count);
    if (!count)
        return;
    OP_OK(clt_exec_locate(b->exec, run, value, &view));
    float *got = calloc((size_t)count, sizeof *got);
    assert_non_null(got);
    assert_int_equal(clEnqueueReadBuffer(op_devices[0]->queue, view.buffer, CL_TRUE,
                                         (size_t)view.offset, (size_t)count * sizeof *got, got, 0,
                                         NULL, NULL),
                     CL_SUCCESS);
    for (int64_t i = 0; i < count; i++) {
        const double error = fabs((double)got[i] - want[i]);
        const double unit = 0x1p-23 * bound[i] + 1e-37;
        if (isnan(want[i]) ? isnan(got[i]) : (double)got[i] == want[i])
            continue;
        if (!(error <= 8 * unit + op_half_error(&b->half, value, want[i], c->sharp ? 0 : bound[i])))
            fail_msg("%s, %s, batch %lld: %s[%lld] is %.9g, not %.9g (%.1f times eps * bound)",
                     t->op, c->text, (long long)run->count, name, (long long)i, (double)got[i],
                     want[i], error / unit);
        if (!b->half.precision && error / unit > t->worst)
            t->worst = error / unit;
    }
    free(got);
}

void op_poison(op_bound *b)
{
    OP_OK(clt_arena_poison(&b->arena, b->plan, 0));
    for (int i = 0; clt_test_oclgrind() && i < b->arena.n_slabs; i++) {
        const size_t bytes = (size_t)b->arena.bytes[i];
        unsigned char *host = malloc(bytes);
        assert_non_null(host);
        memset(host, 0xFF, bytes);
        assert_int_equal(clEnqueueWriteBuffer(op_devices[0]->queue, b->arena.slabs[i], CL_TRUE, 0,
                                              bytes, host, 0, NULL, NULL),
                         CL_SUCCESS);
        free(host);
    }
}

void op_run(op_test *t, const op_case *c, op_bound *b, int64_t n, const op_expected *e)
{
    clt_view inputs[OP_MAX_IN + OP_MAX_OUT] = {{0}};
    for (int i = 0; i < b->plan->n_inputs; i++) {
        inputs[i].buffer =
            op_upload(b->plan->inputs[i], op_numbers(b->plan->inputs[i], e->x, e->dy), n, c->lead);
        inputs[i].offset = c->lead * 4;
    }
    const clt_run run = op_run_of(n, inputs, c->trains);
    char name[OP_TEXT];
    op_poison(b);
    OP_OK(clt_exec_enqueue(b->exec, &run, 0, b->plan->n_nodes, 0, NULL));
    OP_OK(clt_device_finish(op_devices[0]));
    for (int o = 0; o < t->n_out; o++) {
        snprintf(name, sizeof name, "y%d", o);
        op_compare(t, c, b, &run, name, e->y[o], e->y_bound[o]);
    }
    for (int i = 0; i < c->n_in; i++)
        if (b->in[i] && c->in[i].gradient) {
            snprintf(name, sizeof name, "dx%d", i);
            op_compare(t, c, b, &run, name, e->dx[i], e->dx_bound[i]);
        }
    for (int i = 0; i < b->plan->n_inputs; i++)
        clt_release_buffer(inputs[i].buffer);
    if (n > 0)
        op_record_compared(b->plan);
}

static double op_dot(const op_test *t, const op_case *c, const op_bound *b, int64_t n,
                     const op_expected *e, double *const *y)
{
    double sum = 0;
    t->forward(c, n, e->x, y, NULL);
    for (int o = 0; o < t->n_out; o++)
        for (int64_t i = 0;
             !(t->no_gradient & 1u << o) && i < clt_type_elements(&b->out[o]->type, n); i++)
            sum += e->dy[o][i] * y[o][i];
    return sum;
}

/* Checks the gradient with central differences of <dy, y> along at most 40 elements of every
 * operand. */
static void op_differences(const op_test *t, const op_case *c, const op_bound *b, int64_t n,
                           const op_expected *e)
{
    const double h = 1e-5;
    double *y[OP_MAX_OUT];
    for (int o = 0; o < t->n_out; o++)
        y[o] = op_array(clt_type_elements(&b->out[o]->type, n));
    for (int i = 0; i < c->n_in; i++) {
        if (!b->in[i] || !c->in[i].gradient)
            continue;
        const int64_t count = op_count(c, i, n), step = count / 40 + 1;
        for (int64_t j = 0; j < count; j += step) {
            const double at = e->x[i][j];
            e->x[i][j] = at + h;
            const double above = op_dot(t, c, b, n, e, y);
            e->x[i][j] = at - h;
            const double below = op_dot(t, c, b, n, e, y);
            e->x[i][j] = at;
            const double slope = (above - below) / (2 * h), want = e->dx[i][j];
            if (!(fabs(slope - want) <= 1e-6 * fmax(1, fabs(want))))
                fail_msg("%s, %s: the reference's dx%d[%lld] is %.12g, by differences %.12g", t->op,
                         c->text, i, (long long)j, want, slope);
        }
    }
    for (int o = 0; o < t->n_out; o++)
        free(y[o]);
}

static bool op_has_batch(const op_case *c)
{
    for (int i = 0; i < c->n_in; i++)
        for (int j = 0; j < c->in[i].rank; j++)
            if (c->in[i].dims[j] < 0)
                return true;
    return false;
}

/* Sets the numbers of samples that a plan runs with. Returns how many there are. */
static int op_counts(const op_case *c, int64_t counts[4])
{
    int n = 0;
    counts[n++] = c->batch;
    if (op_has_batch(c) && c->batch >= 3 && !clt_test_oclgrind())
        counts[n++] = c->batch - 1;
    if (op_has_batch(c) && c->batch > 1 && !clt_test_oclgrind())
        counts[n++] = 1;
    if (op_has_batch(c))
        counts[n++] = 0;
    return n;
}

static void op_check_counts(op_test *t, const op_case *c, op_bound *b, op_memo *memo)
{
    int64_t counts[4];
    const int n = op_counts(c, counts);
    for (int i = 0; i < n; i++)
        op_run(t, c, b, counts[i], op_recall(t, c, b, counts[i], memo));
}

/* Compiles the plan's kernels and compares the plan at `n` of the counts, unless it is settled
 * (settled.h). */
static void op_run_plan(op_test *t, const op_case *c, op_bound *b, op_memo *memo,
                        const int64_t *counts, int n)
{
    uint64_t key = op_settled_path() ? op_hash_plan(b->plan) : 0;
    for (int i = 0; key && i < n; i++)
        key = op_hash_expected(t, c, b, op_recall(t, c, b, counts[i], memo), counts[i], key);
    if (key && op_is_settled(key)) {
        op_record_compared(b->plan);
    } else {
        op_make_exec(b);
        for (int i = 0; i < n; i++)
            op_run(t, c, b, counts[i], op_recall(t, c, b, counts[i], memo));
    }
    if (key)
        op_settle(key);
}

void op_check_bound(op_test *t, const op_case *c, op_bound *b)
{
    op_memo memo = {.count = 0};
    op_check_counts(t, c, b, &memo);
    op_memo_free(&memo);
}

/* Remakes the plan with a cheaper choice of the tuner's tiles. The new plan needs the fewest
 * kernels that are not compiled (on Oclgrind the fewest work-items), and has as many new features
 * as `worth`, the cost and benefit of the plan. */
static op_worth op_economise(const op_test *t, const op_case *c, const op_mode *mode, op_bound *b,
                             op_worth worth)
{
    op_mode other = *mode, best = *mode;
    if (mode->tile || mode->options || getenv("CLT_TEST_ALL"))
        return worth;
    double least = clt_test_oclgrind() ? op_work_of(b->plan) : worth.kernels;
    for (const int news = worth.news; worth.kernels;) {
        op_unbind(b);
        other.tile++;
        if (!op_make_plan(t, c, &other, b))
            break;
        const op_worth found = op_worth_of(b->plan, false);
        const double cost = clt_test_oclgrind() ? op_work_of(b->plan) : found.kernels;
        if (cost < least && found.news >= news) {
            least = cost;
            worth = found;
            best = other;
        }
    }
    op_unbind(b);
    assert_true(op_make_plan(t, c, &best, b));
    return worth;
}

static double op_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Compares the plan of one mode if it is worth its kernels (economy.h). `differences`: also checks
 * the reference gradient, whatever the plan is worth, but only on the usual device. With
 * CLT_TEST_TIMES in the environment, prints the core-seconds of each plan. */
static void op_check_plan(op_test *t, const op_case *c, const op_mode *mode, op_bound *b,
                          bool differences, op_memo *memo)
{
    if (differences && t->backward && !getenv("CLT_TEST_DEVICES"))
        op_differences(t, c, b, c->batch, op_recall(t, c, b, c->batch, memo));
    op_worth worth = op_worth_of(b->plan, false);
    if (worth.kernels)
        worth = op_economise(t, c, mode, b, worth);
    const int way = mode->as_gpu ? 1 : mode->portable ? 2 : 0;
    const bool runs = op_is_worth_it(worth, b->plan, way, mode->precision != 0, memo->number);
    op_plan_counts[runs]++;
    if (!runs)
        return;
    const double begin = op_seconds();
    op_worth_of(b->plan, true);
    op_is_new_to_case(b->plan, memo->number);
    int64_t counts[4];
    op_run_plan(t, c, b, memo, counts, op_counts(c, counts));
    if (getenv("CLT_TEST_TIMES"))
        print_message("%7.2f s: %s, %s%s%s %s; %d kernels, %d features, work %.0f\n",
                      op_seconds() - begin, t->op, c->text,
                      mode->as_gpu     ? ", as a GPU"
                      : mode->portable ? ", portable"
                                       : "",
                      mode->precision ? ", 16 bits" : "", mode->variants, worth.kernels, worth.news,
                      op_work_of(b->plan));
}

/* Checks the plans of all modes, then plans with every other variant by name. */
static void op_check_modes(op_test *t, const op_case *c, const op_mode *modes, int n_modes,
                           bool differences)
{
    static uint64_t cases;
    op_walk strided = {.count = 0};
    op_memo memo = {.count = 0, .number = ++cases};
    op_mode asked;
    op_bound b;
    for (int m = 0; m < n_modes; m++) {
        op_make_plan(t, c, &modes[m], &b);
        op_list_variants(b.plan, &strided);
        op_check_plan(t, c, &modes[m], &b, differences && !m, &memo);
        op_unbind(&b);
    }
    while (!(op_only_chosen && clt_test_oclgrind()) && op_ask(&strided, &asked)) {
        asked.precision = modes->precision;
        op_make_plan(t, c, &asked, &b);
        op_asked_for(&strided, b.plan);
        op_check_plan(t, c, &asked, &b, false, &memo);
        op_unbind(&b);
    }
    op_memo_free(&memo);
}

void op_check(op_test *t, const op_case *c, bool differences)
{
    enum { MODES = 3 };
    static const op_mode modes[] = {{.as_gpu = false}, {.as_gpu = true}, {.portable = true}};
    static int cases;
    op_check_modes(t, c, modes, MODES, differences);
    if (!c->kinks)
        op_check_modes(t, c, op_half_modes + (cases++ % 2 ? MODES : 0), MODES, false);
}

/* Returns how many nodes of the plan have a variant that `variants` asks for. */
static int op_count_asked(const clt_plan *plan, const char *variants)
{
    int count = 0;
    for (int i = 0; i < plan->n_nodes; i++) {
        const clt_plan_node *pn = &plan->nodes[i];
        count += pn->variant && clt_variant_wanted(pn->node->op, variants) == pn->variant;
    }
    return count;
}

void op_check_matrix(op_test *t, const op_case *c, const char *variants, int nodes, int tile)
{
    static int calls;
    calls++;
    for (int i = 0; i < 3; i++) {
        op_mode mode = {.as_gpu = true,
                        .precision = (calls + i) % 2 ? CLT_BF16 : CLT_F16,
                        .matrix = CLT_MATRIX_MMA + (clt_matrix_kind)i,
                        .tile = tile};
        op_memo memo = {.count = 0};
        op_bound b;
        int64_t counts[4];
        /* Tiles are measurements, which a request would override. */
        snprintf(mode.variants, sizeof mode.variants, "%s", tile ? "" : variants);
        assert_true(op_make_plan(t, c, &mode, &b));
        assert_int_equal(op_count_asked(b.plan, variants), nodes);
        op_worth_of(b.plan, true);
        op_run_plan(t, c, &b, &memo, counts, op_counts(c, counts));
        if (getenv("CLT_TEST_TIMES"))
            print_message("%s, %s, unit %d\n", t->op, c->text, i);
        op_unbind(&b);
        op_memo_free(&memo);
    }
}

void op_check_tiles(op_test *t, const op_case *c, bool as_gpu, int first, int step)
{
    op_memo memo = {.count = 0};
    for (int tile = first;; tile += step) {
        const op_mode mode = {.as_gpu = as_gpu, .tile = tile};
        op_bound b;
        const bool tiled = op_make_plan(t, c, &mode, &b);
        if (tiled && op_is_worth_it(op_worth_of(b.plan, false), b.plan, as_gpu, false, as_gpu)) {
            op_worth_of(b.plan, true);
            op_run_plan(t, c, &b, &memo, &c->batch, 1);
        }
        op_unbind(&b);
        if (!tiled)
            break;
    }
    op_memo_free(&memo);
}

void op_check_options(op_test *t, const op_case *c, const char *options)
{
    const op_mode mode = {.options = options};
    op_memo memo = {.count = 0};
    op_bound b;
    int64_t counts[4];
    assert_true(op_make_plan(t, c, &mode, &b));
    op_run_plan(t, c, &b, &memo, counts, op_counts(c, counts));
    op_memo_free(&memo);
    op_unbind(&b);
}

void op_report(const op_test *t)
{
    print_message(
        "%s: worst error %.3f of 8 eps sqrt(K) sum|terms|; so far %d plans were compared, "
        "%d were passed over\n",
        t->op, t->worst / 8, op_plan_counts[1], op_plan_counts[0]);
}
