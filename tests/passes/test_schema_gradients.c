/* Gradients of all operators, checked by central differences. The cases come from the schema:
 * operands from its dimensions, optional operands in turn, and other values for each attribute.
 * An operator, operand or attribute without a case fails the test, unless `exceptions` says why. */
#include "train/lab.h"

#include "exec/exec.h"
#include "ops/core/ops.h"
#include "ops/core/schema_cases.h"
#include "passes/passes.h"
#include "plan/plan.h"
#include "train/store/store.h"

enum { OUTPUTS = 32768, CHECKS = 8192, MOST = 1 << 14, STEPS = 2, DIRECTIONS = 2 };

/* The large step suits smooth functions. The small one passes no kink: see `number`. */
static const double steps[STEPS] = {0x1p-6, 0x1p-11};

static struct excepted_part {
    const char *op, *what, *why; /* `what`: an operand, attribute or result; NULL: the operator */
    bool used;
} exceptions[] = {
    {"all_reduce", NULL, "needs several devices: ops.all_reduce", false},
    {"all_gather", NULL, "needs several devices: passes.partition", false},
    {"reduce_scatter", NULL, "needs several devices: passes.partition", false},
    {"shift", NULL, "needs several devices: passes.space", false},
    {"hand_on", NULL, "needs several devices: passes.time", false},
    {"detach", NULL, "has a gradient of zero by definition: ops.recurrent", false},
    {"batch_norm", "running_mean", "is a state, which no gradient reaches", false},
    {"batch_norm", "running_var", "is a state, which no gradient reaches", false},
    {"batch_norm", "num_batches_tracked", "is a state, which no gradient reaches", false},
    {"layer_norm", "rstd", "is for the gradient operator, and has no gradient itself", false},
    {"layer_norm", "mean", "is for the gradient operator, and has no gradient itself", false},
    {"rms_norm", "rstd", "is for the gradient operator, and has no gradient itself", false},
    {"bce_with_logits", "pos_weight", "is a constant of the loss, without a gradient", false},
    {"embedding", "padding_idx", "takes a row's gradient by definition: ops.embedding", false},
    {"conv1d", "groups", "divides the weight's channels, not x's: ops.one_dimension", false},
    {"conv2d", "groups", "divides the weight's channels, not x's: ops.conv2d", false},
    {"conv3d", "groups", "divides the weight's channels, not x's: ops.conv3d", false},
    {"conv_transpose1d", "groups", "multiplies the bias, not o: ops.one_dimension", false},
    {"conv_transpose2d", "groups", "multiplies the bias, not o: ops.conv_transpose2d", false},
};

/* Operators whose functions need operands above 0. */
static const char *const positive[] = {"log", "sqrt",       "rsqrt", "reciprocal",
                                       "pow", "pow_scalar", "div",   "kl_div"};

/* A derivative of <dy, y> along one direction of an operand. */
typedef struct check {
    const clt_op *op;
    char text[SCHEMA_TEXT];
    int operand, direction;
    int n_out;
    int seeded[CLT_MAX_RESULTS];    /* results with a gradient dy */
    int up[STEPS], down[STEPS], dx; /* numbers of outputs; dx -1: zero */
    int64_t count;                  /* elements of the operand */
} check;

static struct bench {
    clt_graph *graph;
    int n_outputs, n_checks;
    clt_type types[OUTPUTS];
    float *values[OUTPUTS];
    check checks[CHECKS];
} b;

static bool excepted(const clt_op *op, const char *what)
{
    for (size_t i = 0; i < sizeof exceptions / sizeof *exceptions; i++) {
        struct excepted_part *e = &exceptions[i];
        if (strcmp(e->op, op->name) || !e->what != !what || (what && strcmp(e->what, what)))
            continue;
        e->used = true;
        return true;
    }
    return false;
}

/* --- numbers ---------------------------------------------------------------------------------- */

/* Element i of an array: an odd multiple of 2^-10 between -1 and 1. 1021 elements in a row differ
 * by at least 2^-9. So the small step neither swaps maxima nor passes 0 or 1/2. */
static double number(int array, int64_t i)
{
    return (double)(2 * ((i * (389 + 14 * array) + 5 * array) % 1021 - 510) + 1) / 1024;
}

/* Element i of a direction: a multiple of 1/4, so that sums with `number` are exact in f32. */
static double direction(int array, int64_t i)
{
    uint64_t bits = (uint64_t)(i + 1) * 0x9E3779B97F4A7C15u + (uint64_t)array * 0xD1B54A32D192ED03u;
    bits = (bits ^ bits >> 29) * 0xBF58476D1CE4E5B9u;
    const double size = (double)(1 + (bits >> 62)) / 4;
    return bits >> 61 & 1 ? -size : size;
}

static int direction_array(const check *c)
{
    return c->operand * DIRECTIONS + c->direction;
}

/* dy of result o. */
static double seed_of(int o, int64_t i)
{
    return number(20 + o, i);
}

static bool needs_positive(const clt_op *op)
{
    for (size_t i = 0; i < sizeof positive / sizeof *positive; i++)
        if (!strcmp(positive[i], op->name))
            return true;
    return false;
}

/* A constant operand. `c` not NULL: it is moved by `step` along the check's direction. */
static clt_value *constant(const clt_op *op, const schema_case *sc, const clt_type *type,
                           int operand, const check *c, double step)
{
    static union {
        float f32[MOST];
        int32_t i32[MOST];
        uint8_t u8[MOST];
    } data;
    const int64_t count = clt_type_elements(type, 1);
    /* Indices on an axis of 2 elements, else of 4. */
    const int range = sc->attributes && strstr(sc->attributes, "axis=0") ? 2 : 4;
    assert_true(count <= MOST);
    for (int64_t i = 0; i < count; i++) {
        double x = number(operand, i);
        x = needs_positive(op) ? 0.75 + x / 2 : x;
        if (type->dtype == CLT_F32)
            data.f32[i] = (float)(c ? x + step * direction(direction_array(c), i) : x);
        else if (type->dtype == CLT_I32)
            data.i32[i] = (int32_t)((3 * i + 1) % range);
        else
            data.u8[i] = x > 0;
    }
    return clt_constant(b.graph, type->dtype, type->rank, type->dims, &data);
}

/* --- cases ------------------------------------------------------------------------------------ */

/* Operators whose rule took part in a case. */
static bool seen[512];

static int index_of(const clt_op *op)
{
    int i = 0;
    while (clt_operator_at(i) != op)
        i++;
    return i;
}

/* Makes the value an output. Returns the output's number. */
static int add_output(clt_value *value)
{
    char name[32];
    assert_true(b.n_outputs < OUTPUTS);
    snprintf(name, sizeof name, "r%d", b.n_outputs);
    /* Constants, views of constants, and values with two names are no outputs. */
    const bool own =
        value->kind == CLT_VALUE_INTERMEDIATE && !value->name && clt_value_root(value) == value;
    if (!clt_output(own ? value : clt_copy(value), name))
        fail_msg("%s", clt_error_message());
    b.types[b.n_outputs] = value->type;
    return b.n_outputs++;
}

/* Whether the operator accepts the case and gives numbers that have gradients. Sets the types of
 * the operands; absent ones have rank -1. */
static bool accepts(const clt_op *op, const schema_case *sc, clt_type *types, int *count)
{
    clt_value *in[CLT_MAX_OPERANDS], *out[CLT_MAX_RESULTS];
    clt_graph *graph;
    ok(clt_graph_create(&graph));
    *count = schema_operands(graph, sc, op, in);
    const bool good = clt_apply_op(graph, op, in, *count, sc->attributes, out) == CLT_OK &&
                      out[0]->type.dtype == CLT_F32;
    for (int i = 0; i < *count; i++)
        types[i] = in[i] ? in[i]->type : (clt_type){.rank = -1};
    clt_graph_destroy(graph);
    return good;
}

/* Applies the operator and makes outputs of its results that have a gradient. Returns the number of
 * the first. */
static int add_results(const check *c, const schema_case *sc, clt_value *const *in, int count)
{
    clt_value *out[CLT_MAX_RESULTS];
    const int first = b.n_outputs;
    ok(clt_apply_op(b.graph, c->op, in, count, sc->attributes, out));
    for (int o = 0; o < c->n_out; o++)
        add_output(out[c->seeded[o]]);
    return first;
}

static void add_checks(const check *common, const schema_case *sc, const clt_type *types,
                       clt_value *const *in, int count, int operand, int dx, int streams)
{
    for (int d = 0; d < DIRECTIONS; d++) {
        check *c = &b.checks[b.n_checks++];
        assert_true(b.n_checks < CHECKS);
        *c = *common;
        c->operand = operand;
        c->direction = d;
        c->dx = dx;
        c->count = clt_type_elements(&types[operand], 1);
        for (int s = 0; s < STEPS; s++)
            for (int sign = -1; sign <= 1; sign += 2) {
                clt_value *moved[CLT_MAX_OPERANDS];
                memcpy(moved, in, sizeof moved);
                moved[operand] = constant(c->op, sc, &types[operand], operand, c, sign * steps[s]);
                b.graph->streams = streams; /* the same random numbers */
                *(sign > 0 ? &c->up[s] : &c->down[s]) = add_results(c, sc, moved, count);
            }
    }
}

/* Lists the results with a gradient, and makes their seeds. */
static void seed_results(check *c, clt_value *const *out, clt_value **from, clt_value **seeds)
{
    static float data[MOST];
    clt_operand_schema one;
    for (int o = 0; o < CLT_MAX_RESULTS && out[o]; o++) {
        const clt_type *type = &out[o]->type;
        const int64_t count = clt_type_elements(type, 1);
        if (!clt_operator_result(c->op, o, &one) || type->dtype != CLT_F32 ||
            excepted(c->op, one.name))
            continue;
        assert_true(count <= MOST);
        for (int64_t i = 0; i < count; i++)
            data[i] = (float)seed_of(o, i);
        from[c->n_out] = out[o];
        seeds[c->n_out] = clt_constant(b.graph, CLT_F32, type->rank, type->dims, data);
        c->seeded[c->n_out++] = o;
    }
}

static bool add_case(const clt_op *op, const schema_case *sc)
{
    clt_type types[CLT_MAX_OPERANDS];
    clt_value *in[CLT_MAX_OPERANDS] = {NULL}, *out[CLT_MAX_RESULTS], *from[CLT_MAX_RESULTS],
              *seeds[CLT_MAX_RESULTS], *wanted[CLT_MAX_OPERANDS], *dx[CLT_MAX_OPERANDS];
    int count, n_wanted = 0, number_of[CLT_MAX_OPERANDS];
    if (!accepts(op, sc, types, &count))
        return false;
    check c = {.op = op};
    snprintf(c.text, sizeof c.text, "%s", sc->attributes ? sc->attributes : "");
    for (int i = 0; i < count; i++) {
        clt_operand_schema one;
        if (types[i].rank < 0)
            continue;
        in[i] = constant(op, sc, &types[i], i, NULL, 0);
        if (types[i].dtype == CLT_F32 &&
            !(clt_operator_operand(op, i, &one) && excepted(op, one.name))) {
            number_of[n_wanted] = i;
            wanted[n_wanted++] = in[i];
        }
    }
    const int streams = b.graph->streams, before = b.graph->n_nodes;
    ok(clt_apply_op(b.graph, op, in, count, sc->attributes, out));
    for (int k = before; k < b.graph->n_nodes; k++)
        seen[index_of(b.graph->nodes[k]->op)] = true;
    seed_results(&c, out, from, seeds);
    if (clt_autodiff(b.graph, from, seeds, c.n_out, wanted, n_wanted, dx) != CLT_OK)
        fail_msg("%s %s: %s", op->name, c.text, clt_error_message());
    int outputs[CLT_MAX_OPERANDS];
    for (int w = 0; w < n_wanted; w++) {
        outputs[w] = -1;
        for (int other = 0; other < w; other++)
            if (dx[other] == dx[w])
                outputs[w] = outputs[other];
        if (dx[w] && outputs[w] < 0)
            outputs[w] = add_output(dx[w]);
        add_checks(&c, sc, types, in, count, number_of[w], outputs[w], streams);
    }
    return n_wanted > 0;
}

/* --- settings --------------------------------------------------------------------------------- */

/* Adds the base case with one attribute more, or with another value of it. */
static bool add_setting(const clt_op *op, const schema_case *base, const char *name,
                        const char *value)
{
    char text[SCHEMA_TEXT];
    schema_case sc = *base;
    if (!*value)
        return false;
    schema_set(base->attributes, name, value, text);
    sc.attributes = text;
    return add_case(op, &sc);
}

/* Adds a case that sets another attribute too. */
static bool add_pair(const clt_op *op, const schema_case *base, const clt_attribute *a)
{
    char value[SCHEMA_TEXT], other[SCHEMA_TEXT], text[SCHEMA_TEXT];
    for (const clt_attribute *o = op->attributes; o->name; o++)
        for (int k = 0; o != a && !o->internal && schema_value(o, k, other); k++) {
            schema_case sc = *base;
            if (!*other || schema_sets(base->attributes, o->name))
                continue;
            schema_set(base->attributes, o->name, other, text);
            sc.attributes = text;
            for (int i = 0; schema_value(a, i, value); i++)
                if (add_setting(op, &sc, a->name, value))
                    return true;
        }
    return false;
}

/* Every choice, the other value of a flag, and one other number, also as the first of two. */
static void add_settings(const clt_op *op, const schema_case *base)
{
    for (const clt_attribute *a = op->attributes; a && a->name; a++) {
        char value[SCHEMA_TEXT], pair[SCHEMA_TEXT + 32];
        bool found = false;
        if (a->internal || excepted(op, a->name))
            continue;
        for (int i = 0; schema_value(a, i, value); i++) {
            if ((found && a->kind != CLT_ATTRIBUTE_CHOICE) ||
                !add_setting(op, base, a->name, value))
                continue;
            found = true;
            snprintf(pair, sizeof pair, "%s,%g", value, a->default_value);
            if (a->count == 2 && !a->list)
                add_setting(op, base, a->name, pair);
        }
        schema_case flat = *base;
        flat.star = 3;
        for (int i = 0; !found && schema_value(a, i, value); i++)
            found = add_setting(op, &flat, a->name, value);
        if (!found && !schema_sets(base->attributes, a->name) && !add_pair(op, base, a))
            fail_msg("%s: no case with another %s: %s", op->name, a->name, clt_error_message());
    }
}

/* Adds a case with optional operand k; with its neighbours where the operator takes them together.
 */
static bool add_given(const clt_op *op, const schema_case *base, int k, unsigned all)
{
    const unsigned own = 1u << k,
                   given[] = {own, ((own - 1) & all) | own, (own | own << 1) & all, all};
    for (size_t i = 0; i < sizeof given / sizeof *given; i++)
        for (int star = 0; star < 3; star++) {
            schema_case sc = *base;
            sc.given = given[i];
            sc.star = star;
            if (add_case(op, &sc))
                return true;
        }
    return false;
}

/* The same, if necessary with a flag that the operand needs. */
static void add_optional(const clt_op *op, const schema_case *base, int k, unsigned all)
{
    bool found = add_given(op, base, k, all);
    for (const clt_attribute *a = op->attributes; !found && a && a->name; a++) {
        char value[SCHEMA_TEXT], text[SCHEMA_TEXT];
        schema_case sc = *base;
        if (a->internal || a->kind != CLT_ATTRIBUTE_FLAG)
            continue;
        schema_value(a, 0, value);
        schema_set(base->attributes, a->name, value, text);
        sc.attributes = text;
        found = add_given(op, &sc, k, all);
    }
    clt_operand_schema one;
    clt_operator_operand(op, k, &one);
    if (!found)
        fail_msg("%s: no case with the operand %s: %s", op->name, one.name, clt_error_message());
}

static void add_operator(const clt_op *op)
{
    const schema_case base = schema_case_of(op->name);
    const int before = b.n_checks;
    clt_operand_schema one;
    unsigned all = 0;
    add_case(op, &base);
    add_settings(op, &base);
    for (int k = 0; clt_operator_operand(op, k, &one); k++)
        if (one.optional && !excepted(op, one.name))
            all |= 1u << k;
    for (int k = 0; all >> k; k++)
        if (all >> k & 1)
            add_optional(op, &base, k, all);
    if (b.n_checks == before)
        fail_msg("%s has no case: %s", op->name, clt_error_message());
    seen[index_of(op)] = true;
}

/* --- computing -------------------------------------------------------------------------------- */

static void run(void)
{
    lab l = lab_on(clt_test_devices("pocl"), NULL);
    clt_plan_options options = clt_plan_options_default(CLT_PLAN_PREDICT, 1);
    options.as_in_training = options.portable = true;
    options.fuse = false; /* each fused expression would be a program of its own */
    clt_plan *plan;
    clt_exec *exec;
    lab_store(&l, b.graph, 1);
    ok(clt_plan_create(b.graph, &l.store->layout, &l.devices[0]->caps, NULL, &options, &plan));
    ok(clt_exec_create(l.devices[0], plan, &l.store->replicas[0], &l.store->arenas[0], &exec));
    const clt_run run = {.count = 1, .seed = 7, .step = 3};
    ok(clt_exec_enqueue(exec, &run, 0, plan->n_nodes, 0, NULL));
    ok(clt_device_finish(l.devices[0]));
    for (int i = 0; i < b.n_outputs; i++) {
        const size_t bytes = (size_t)clt_type_elements(&b.types[i], 1) * sizeof(float);
        char name[32];
        clt_view view;
        snprintf(name, sizeof name, "r%d", i);
        ok(clt_exec_locate(exec, &run, clt_graph_find(plan->graph, name), &view));
        b.values[i] = malloc(bytes);
        assert_non_null(b.values[i]);
        assert_int_equal(clEnqueueReadBuffer(l.devices[0]->queue, view.buffer, CL_TRUE,
                                             (size_t)view.offset, bytes, b.values[i], 0, NULL,
                                             NULL),
                         CL_SUCCESS);
    }
    clt_exec_destroy(exec);
    clt_plan_destroy(plan);
    lab_close(&l);
}

/* The slope of <dy, y> by differences. Adds to *noise how far rounding of y may move the slope. */
static double slope_of(const check *c, int s, double *noise)
{
    double sum = 0, squares = 0;
    for (int o = 0; o < c->n_out; o++) {
        const float *up = b.values[c->up[s] + o], *down = b.values[c->down[s] + o];
        const int64_t count = clt_type_elements(&b.types[c->up[s] + o], 1);
        for (int64_t i = 0; i < count; i++) {
            const double dy = seed_of(c->seeded[o], i);
            sum += dy * ((double)up[i] - (double)down[i]);
            squares += dy * (double)up[i] * dy * (double)up[i];
        }
    }
    *noise = 0x1p-23 * sqrt(squares) / steps[s];
    return sum / (2 * steps[s]);
}

/* Returns how far the gradient is from the differences, in units of what is allowed. */
static double compare(const check *c, double *size)
{
    double got = 0, squares = 0, best = INFINITY, nearest = NAN;
    for (int64_t i = 0; c->dx >= 0 && i < c->count; i++) {
        const double term = (double)b.values[c->dx][i] * direction(direction_array(c), i);
        got += term;
        squares += term * term;
    }
    *size = sqrt(squares);
    for (int s = 0; s < STEPS; s++) {
        double noise;
        const double slope = slope_of(c, s, &noise);
        const double ratio = fabs(slope - got) / (1e-3 * *size + noise + 1e-6);
        if (ratio < best) {
            best = ratio;
            nearest = slope;
        }
    }
    if (!(best <= 1))
        fail_msg("%s %s: along direction %d of operand %d the gradient's slope is %g, by "
                 "differences %g (%.1f times what is allowed)",
                 c->op->name, c->text, c->direction, c->operand, got, nearest, best);
    return best;
}

static bool has_gradient(const clt_op *op)
{
    clt_operand_schema one;
    assert_true(clt_operator_result(op, 0, &one));
    return clt_operator_differentiable(op) && strcmp(one.type, "u8") != 0 && !excepted(op, NULL);
}

static void test_gradients(void **state)
{
    (void)state;
    const int64_t one = 1;
    int cases = 0;
    double worst = 0, size;
    assert_true(clt_operator_count() <= (int)(sizeof seen / sizeof *seen));
    ok(clt_graph_create(&b.graph));
    clt_output(clt_relu(clt_parameter(b.graph, "p", 1, &one, (clt_init){CLT_INIT_ZERO, 0, 0})),
               "store");
    /* Callable operators first: most others are nodes that they add. */
    for (int callable = 1; callable >= 0; callable--)
        for (int i = 0; i < clt_operator_count(); i++) {
            const clt_op *op = clt_operator_at(i);
            if (clt_operator_callable(op) != callable || !has_gradient(op) ||
                (!callable && seen[i]))
                continue;
            if (clt_operator_find(op->name) != op)
                fail_msg("no case has the node %s", op->name);
            add_operator(op);
            cases++;
        }
    run();
    for (int i = 0; i < b.n_checks;) {
        /* A gradient that is zero in all directions would prove nothing. */
        const clt_op *op = b.checks[i].op;
        bool moved = false;
        for (; i < b.n_checks && b.checks[i].op == op; i++) {
            worst = fmax(worst, compare(&b.checks[i], &size));
            moved = moved || size > 1e-3;
        }
        if (!moved)
            fail_msg("%s: all gradients are zero", op->name);
    }
    for (size_t i = 0; i < sizeof exceptions / sizeof *exceptions; i++)
        if (!exceptions[i].used)
            fail_msg("the exception of %s, %s is not needed", exceptions[i].op,
                     exceptions[i].what ? exceptions[i].what : "itself");
    printf("%d operators, %d derivatives, %d outputs; the worst difference is %.2f of what is "
           "allowed\n",
           cases, b.n_checks, b.n_outputs, worst);
    for (int i = 0; i < b.n_outputs; i++)
        free(b.values[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gradients)};
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
