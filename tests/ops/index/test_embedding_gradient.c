/*
 * The gradient of a table of rows in its bucket: from one embedding, from several that share the
 * table, and from a linear layer whose weight is the table too. All numbers are integers, so every
 * sum in f32 is exact. So it is known to the bit where and when sums are rounded to 16 bits: each
 * of at most four sums is rounded once, for any number of rows.
 */
#include "ops/harness/harness.h"

enum { MOST_USES = 4, MOST_PARTS = 4 };

typedef struct table {
    const char *text;
    int64_t words, width, batch, length, padding; /* padding -1: none */
    int uses;                                     /* number of embeddings */
    bool tied;                                    /* also a linear layer's weight */
    bool wide;                                    /* added values are in f32 */
    bool outside;                                 /* some indices are outside the table */
    bool small;                                   /* also for Oclgrind */
} table;

static const table tables[] = {
    {"one", 9, 16, 5, 3, -1, 1, .small = true},
    {"one, of f32", 7, 19, 4, 6, 2, 1, .wide = true},
    {"tied", 11, 24, 6, 4, -1, 1, .tied = true},
    {"tied, two with padding", 11, 21, 6, 4, 3, 2, .tied = true, .small = true},
    {"tied, three", 8, 20, 7, 3, -1, 3, .tied = true, .wide = true},
    {"tied, four: rounded at the end", 8, 20, 7, 3, -1, 4, .tied = true},
    {"two", 12, 33, 3, 5, 0, 2, .tied = false},
    {"tied, rows in pieces", 5, 1100, 3, 7, 0, 1, .tied = true},
    {"tied, many picks of few rows", 3, 40, 33, 31, -1, 1, .tied = true},
    {"tied, a long product", 37, 48, 450, 1, -1, 1, .tied = true},
    {"one row", 1, 130, 9, 2, -1, 1, .tied = false},
    {"outside", 6, 17, 4, 5, -1, 1, .tied = true, .outside = true},
    {"outside, padding 0", 6, 35, 4, 5, 0, 1, .outside = true, .small = true},
};

/* The graph of a table, its plan, and its buffers. */
typedef struct bound {
    const table *t;
    clt_dtype precision;
    op_bound on;
} bound;

static int64_t number(uint64_t seed, int64_t i, int64_t most)
{
    uint64_t state = seed * 0x9E3779B97F4A7C15u + (uint64_t)i;
    op_uniform(&state);
    return (int64_t)(state >> 33) % (2 * most + 1) - most;
}

/* Every third index picks the same row. */
static int64_t index_of(const table *t, int use, int64_t i)
{
    if (t->outside && i % 7 == 2)
        return i % 2 ? -1 : t->words;
    return i % 3 ? (number(17 + (uint64_t)use, i, 1 << 20) + (1 << 20)) % t->words
                 : (1 + use) % t->words;
}

/* Makes the numbers of an input of the graph, which depend on its name. */
static double *numbers_of(const table *t, const clt_value *input, int64_t n)
{
    const int64_t count = clt_type_elements(&input->type, n);
    double *numbers = op_array(count);
    const int which = input->name[1] - '0';
    for (int64_t i = 0; i < count; i++)
        numbers[i] = input->name[0] == 'i'   ? (double)index_of(t, which, i)
                     : input->name[0] == 'd' ? (double)number(3 + (uint64_t)which, i, 120)
                                             : (double)number(input->name[0] == 'x', i, 31);
    return numbers;
}

static void build(bound *b)
{
    const table *t = b->t;
    const int64_t tokens[] = {CLT_BATCH, t->length}, rows[] = {CLT_BATCH, t->width};
    const int64_t size[] = {t->words, t->width};
    const clt_init zero = {.kind = CLT_INIT_ZERO};
    char name[OP_TEXT];
    OP_OK(clt_graph_create(&b->on.graph));
    clt_value *w = clt_parameter(b->on.graph, "w", 2, size, zero);
    for (int u = 0; u < t->uses; u++) {
        snprintf(name, sizeof name, "i%d", u);
        clt_value *index = clt_input(b->on.graph, name, CLT_I32, 2, tokens);
        clt_value *y = clt_embedding(index, w, t->padding < 0 ? CLT_NO_PADDING : t->padding);
        if (!t->wide)
            y = clt_scale(y, 1);
        snprintf(name, sizeof name, "y%d", u);
        clt_output(y, name);
        snprintf(name, sizeof name, "d%d", u);
        clt_output_gradient(y, name);
    }
    if (t->tied) {
        clt_value *x = clt_scale(clt_input(b->on.graph, "x", CLT_F32, 2, rows), 1);
        clt_value *z = clt_scale(clt_linear(x, w, NULL), 1);
        clt_output(z, "z");
        clt_output_gradient(z, "g");
    }
    OP_OK(clt_graph_status(b->on.graph));
}

/* Writes zeros from the host, because Oclgrind otherwise takes them for uninitialised. */
static void write_table(bound *b)
{
    const int64_t bytes = b->on.buckets.buckets[0].bytes;
    void *zeros = calloc(1, (size_t)bytes);
    assert_non_null(zeros);
    OP_OK(clt_replica_write(&b->on.replica, b->on.replica.values[0], 0, bytes, zeros));
    free(zeros);
}

static void bind(const table *t, const op_mode *mode, bool separate, bound *b)
{
    const clt_bucket_sizes sizes = clt_bucket_sizes_default();
    clt_plan_options options = clt_plan_options_default(CLT_PLAN_TRAIN, t->batch);
    clt_caps caps = op_devices[0]->caps;
    *b = (bound){.t = t, .precision = mode->precision ? mode->precision : CLT_F32};
    build(b);
    if (mode->as_gpu)
        caps.kind = CLT_KIND_GPU;
    caps.clblast = false;
    options.portable = mode->portable;
    options.variants = mode->variants;
    options.precision = b->precision;
    options.separate = separate;
    options.fuse = false;
    OP_OK(clt_buckets_create(b->on.graph, &sizes, &b->on.buckets));
    OP_OK(clt_plan_create(b->on.graph, &b->on.buckets, &caps, NULL, &options, &b->on.plan));
    OP_OK(clt_replica_create(op_devices[0], &b->on.buckets, &b->on.replica));
    OP_OK(clt_replica_for_training(&b->on.replica, b->precision, 0, 0, 1));
    write_table(b);
    clt_arena_init(&b->on.arena, op_devices[0]);
    op_build_programs(b->on.plan);
    OP_OK(clt_exec_create(op_devices[0], b->on.plan, &b->on.replica, &b->on.arena, &b->on.exec));
}

/* --- expected results ------------------------------------------------------------------------- */

static void round_all(const clt_value *value, double *sums, int64_t count)
{
    for (int64_t i = 0; op_is_half(value) && i < count; i++)
        sums[i] = op_half_nearest(value->type.dtype, sums[i]);
}

static const clt_value *operand_input(const clt_value *value)
{
    while (value->producer)
        value = value->producer->in[0];
    return value;
}

/* Adds the node's contribution to the table's gradient, or the product that it begins with. */
static void add_part(bound *b, const clt_node *node, int64_t n, double *sums)
{
    const table *t = b->t;
    const bool product = strcmp(node->op->name, "index_add") != 0;
    const clt_value *in[] = {operand_input(node->in[0]), operand_input(node->in[1])};
    double *x = numbers_of(t, in[0], n), *dy = numbers_of(t, in[1], n);
    for (int64_t i = 0; product && i < n; i++)
        for (int64_t v = 0; v < t->words; v++)
            for (int64_t d = 0; d < t->width; d++)
                sums[v * t->width + d] += dy[i * t->words + v] * x[i * t->width + d];
    for (int64_t i = 0; !product && i < n * t->length; i++) {
        const bool good = x[i] >= 0 && x[i] < (double)t->words;
        const int64_t row = good ? (int64_t)x[i] : 0;
        for (int64_t d = 0; d < t->width && !(good && row == t->padding); d++)
            sums[row * t->width + d] += good ? dy[i * t->width + d] : NAN;
    }
    free(x);
    free(dy);
}

/* Adds in the plan's order, and rounds where the plan's values are rounded. */
static double *expect(bound *b, const clt_value *gradient, int64_t n)
{
    const int64_t count = b->t->words * b->t->width;
    const clt_value *parts[MOST_USES + 2];
    int n_parts = 0;
    const bool last = !strcmp(gradient->producer->op->name, "cast");
    double *sums = op_array(count);
    for (const clt_value *v = last ? gradient->producer->in[0] : gradient; v;) {
        assert_true(n_parts < MOST_USES + 2);
        parts[n_parts++] = v;
        v = !strcmp(v->producer->op->name, "index_add") ? v->producer->in[2] : NULL;
    }
    assert_int_equal(n_parts, b->t->uses + b->t->tied);
    assert_int_equal(last, b->precision != CLT_F32 && n_parts > MOST_PARTS);
    while (n_parts--) {
        const bool whole = b->precision == CLT_F32 || last;
        assert_int_equal(parts[n_parts]->type.dtype, whole ? CLT_F32 : b->precision);
        add_part(b, parts[n_parts]->producer, n, sums);
        round_all(parts[n_parts], sums, count);
        if (!b->on.plan->options.separate && !last)
            assert_memory_equal(&b->on.plan->places[parts[n_parts]->id],
                                &b->on.plan->places[gradient->id], sizeof(clt_place));
    }
    round_all(gradient, sums, count);
    return sums;
}

/* --- actual results --------------------------------------------------------------------------- */

static double read_number(clt_dtype dtype, const void *from, int64_t i)
{
    if (dtype == CLT_F32)
        return ((const float *)from)[i];
    const uint16_t bits = ((const uint16_t *)from)[i];
    const int places = dtype == CLT_F16 ? 10 : 7, most = dtype == CLT_F16 ? 31 : 255;
    const int exponent = bits >> places & most, fraction = bits & ((1 << places) - 1);
    const double size = exponent == most ? fraction ? NAN : INFINITY
                        : exponent ? ldexp((1 << places) + fraction, exponent - most / 2 - places)
                                   : ldexp(fraction, 1 - most / 2 - places);
    return bits >> 15 ? -size : size;
}

static void run(bound *b, int64_t n, void *host, int64_t bytes, const clt_place *place)
{
    clt_view inputs[2 * MOST_USES + 2] = {{0}};
    cl_mem *gradients = clt_replica_gradients(&b->on.replica, b->precision);
    for (int i = 0; i < b->on.plan->n_inputs; i++) {
        double *numbers = numbers_of(b->t, b->on.plan->inputs[i], n);
        inputs[i].buffer = op_upload(b->on.plan->inputs[i], numbers, n, 0);
        free(numbers);
    }
    const clt_run how = {.count = n, .inputs = inputs, .gradients = gradients};
    memset(host, 0xFF, (size_t)bytes);
    OP_OK(clt_replica_write(&b->on.replica, gradients[place->index], place->offset, bytes, host));
    op_poison(&b->on);
    OP_OK(clt_exec_enqueue(b->on.exec, &how, 0, b->on.plan->n_nodes, 0, NULL));
    OP_OK(clt_device_finish(op_devices[0]));
    OP_OK(clt_replica_read(&b->on.replica, gradients[place->index], place->offset, bytes, host));
    for (int i = 0; i < b->on.plan->n_inputs; i++)
        clt_release_buffer(inputs[i].buffer);
}

static void check_run(bound *b, int64_t n)
{
    const table *t = b->t;
    const clt_value *gradient = b->on.plan->gradients[0];
    const clt_place *place = &b->on.plan->places[gradient->id];
    const int64_t count = t->words * t->width;
    const int64_t bytes = count * clt_dtype_size(b->precision);
    void *got = malloc((size_t)bytes);
    assert_non_null(got);
    assert_true(clt_plan_in_gradients(b->on.plan, gradient));
    double *want = expect(b, gradient, n);
    run(b, n, got, bytes, place);
    for (int64_t i = 0; i < count; i++) {
        const double is = read_number(b->precision, got, i);
        if (!(isnan(want[i]) ? isnan(is) : is == want[i]))
            fail_msg("%s, %s%s, batch %lld, %s: element %lld is %.9g, not %.9g", t->text,
                     clt_dtype_name(b->precision), b->on.plan->options.separate ? ", separate" : "",
                     (long long)n, b->on.plan->gradients[0]->producer->name, (long long)i, is,
                     want[i]);
    }
    free(want);
    free(got);
}

static void check_bound(bound *b)
{
    check_run(b, b->t->batch);
    if (!clt_test_oclgrind() && b->t->batch > 1)
        check_run(b, b->t->batch / 2);
    check_run(b, 0);
    op_record_compared(b->on.plan);
}

static void check(const table *t, const op_mode *mode, op_walk *strided)
{
    for (int separate = 0; separate < 2; separate++) {
        bound b;
        bind(t, mode, separate, &b);
        if (!*mode->variants)
            op_list_variants(b.on.plan, strided);
        else if (separate)
            op_asked_for(strided, b.on.plan);
        check_bound(&b);
        op_unbind(&b.on);
    }
}

/* Tests the device's choice, a GPU's choice, the portable variants and all other variants. Each
 * kernel must be compiled, so cases alternate between the 16-bit types; some run in f32. */
static void test_gradients(void **state)
{
    static const clt_dtype types[] = {CLT_BF16, CLT_F16, CLT_F32};
    (void)state;
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        for (int k = 0; k < 3; k++) {
            op_walk strided = {.count = 0};
            op_mode asked;
            if (k == 2 ? i % 5 > 0 : (i + (size_t)k) % 2 > 0)
                continue;
            if (clt_test_oclgrind() && (!tables[i].small || k == 2))
                continue;
            for (int m = 0; m < 3; m++) {
                const op_mode mode = {.as_gpu = m == 1, .portable = m == 2, .precision = types[k]};
                check(&tables[i], &mode, &strided);
            }
            while (op_ask(&strided, &asked)) {
                asked.precision = types[k];
                check(&tables[i], &asked, &strided);
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gradients)};
    return cmocka_run_group_tests(tests, op_setup, op_teardown);
}
