/* `cltrain bench gemm` and `cltrain bench conv`. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/bench.h"
#include "text/message.h"
#include "bench/openblas.h"

static const double MIB = 1 << 20;
static const clt_init uniform = {CLT_INIT_UNIFORM, 1, 0};

/* --- gemm ------------------------------------------------------------------------------------ */

static int read_size(const char *text, int64_t *size)
{
    char *end;
    errno = 0;
    *size = strtoll(text, &end, 10);
    return errno || *end || *size < 1 || *size > INT32_MAX
               ? usage_error("%s: must be a whole number from 1 to %d", text, INT32_MAX)
               : 0;
}

/* Reads the sizes of the product whose first one is names[at]. */
static int read_product(const settings *s, int at, int64_t size[3])
{
    int code = 0;
    for (int i = 0; !code && i < 3; i++)
        code = read_size(s->names[at + i], &size[i]);
    return code;
}

clt_status bench_gemm_graph(const int64_t size[3], const char *trans, clt_graph **graph)
{
    const int64_t m = size[0], n = size[1], k = size[2];
    const int trans_a = trans[0] == 'T', trans_b = trans[1] == 'T';
    const int64_t a[2] = {trans_a ? k : m, trans_a ? m : k};
    const int64_t b[2] = {trans_b ? n : k, trans_b ? k : n};
    const clt_status status = clt_graph_create(graph);
    if (status != CLT_OK)
        return status;
    clt_output(clt_matmul(clt_parameter(*graph, "a", 2, a, uniform),
                          clt_parameter(*graph, "b", 2, b, uniform), trans_a, trans_b),
               "c");
    return clt_graph_status(*graph);
}

/* The product of a layer whose values are stored in 16 bits, as training with --precision has it.
 * Only values for samples are stored so, and only if another node made them. So the rows of A, or
 * with TN of A and B, are the samples, and products of an input with itself stand for the layers
 * before. NN and NT read a weight in f32. They write 16 bits, because the node behind them makes
 * the graph's output, which is f32. TN reads 16 bits only, and writes a gradient of weights in f32.
 */
static clt_status half_gemm_graph(const int64_t size[3], const char *trans, clt_graph **graph)
{
    const int64_t m = size[0], n = size[1], k = size[2];
    const int trans_a = trans[0] == 'T', trans_b = trans[1] == 'T';
    const int64_t a[2] = {CLT_BATCH, trans_a ? m : k};
    const int64_t b[2] = {trans_a ? CLT_BATCH : trans_b ? n : k, trans_b ? k : n};
    const clt_status status = clt_graph_create(graph);
    if (status != CLT_OK)
        return status;
    clt_value *left = clt_input(*graph, "a", CLT_F32, 2, a);
    clt_value *right =
        trans_a ? clt_input(*graph, "b", CLT_F32, 2, b) : clt_parameter(*graph, "b", 2, b, uniform);
    left = clt_mul(left, left);
    if (trans_a)
        right = clt_mul(right, right);
    clt_value *product = clt_matmul(left, right, trans_a, trans_b);
    clt_output(trans_a ? product : clt_mul(product, product), "c");
    return clt_graph_status(*graph);
}

/* OpenBLAS on the same product. A block of its runs precedes each block of ours. */
typedef struct rival {
    openblas blas;
    const int64_t *size;
    const char *trans;
    float *a, *b, *c;
    int runs;                     /* runs in a block; 0 if not known yet */
    double times[99], ratios[99]; /* by block: seconds a run, and their ratio to ours */
    int count;                    /* number of blocks so far */
} rival;

static double time_rival(const rival *o, int runs)
{
    const double began = bench_clock();
    for (int i = 0; i < runs; i++)
        openblas_multiply(&o->blas, o->size, o->trans, o->a, o->b, o->c);
    return bench_clock() - began;
}

/* Runs a block of OpenBLAS before each block of ours. Its threads spin for 2^28 cycles after the
 * last call, so ours wait until they sleep. A block that is not timed warms up either library. */
static int before_block(void *user, int runs)
{
    rival *o = user;
    const struct timespec pause = {.tv_nsec = 250000000};
    if (!o->runs) {
        double spent = time_rival(o, 1);
        for (o->runs = 1; (spent = time_rival(o, o->runs)) < 0.05 && o->runs < 1 << 20;)
            o->runs *= 2;
        o->runs = (int)(o->runs * (spent > 0.1 ? 1 : 0.1 / spent));
    }
    time_rival(o, o->runs);
    if (o->count < (int)(sizeof o->times / sizeof *o->times))
        o->times[o->count++] = time_rival(o, o->runs) / o->runs;
    nanosleep(&pause, NULL);
    return runs;
}

static void after_block(void *user, double seconds)
{
    rival *o = user;
    if (o->count)
        o->ratios[o->count - 1] = o->times[o->count - 1] / seconds;
}

static float *random_matrix(int64_t rows, int64_t columns)
{
    float *numbers = malloc((size_t)(rows * columns) * sizeof *numbers);
    uint32_t state = 1;
    for (int64_t i = 0; numbers && i < rows * columns; i++)
        numbers[i] = (float)((state = state * 1664525u + 1013904223u) >> 8) * 0x1p-23f - 1;
    return numbers;
}

static int rival_prepare(rival *o, const int64_t size[3], const char *trans)
{
    o->size = size;
    o->trans = trans;
    o->runs = o->count = 0;
    free(o->a);
    free(o->b);
    free(o->c);
    o->a = random_matrix(size[0], size[2]);
    o->b = random_matrix(size[2], size[1]);
    o->c = random_matrix(size[0], size[1]);
    return o->a && o->b && o->c ? 0 : failure("memory does not suffice");
}

/* Checks that the device's memory suffices for the product, and for OpenBLAS' product with
 * --compare. Gives OpenBLAS as many threads as the device has compute units. */
static int check_fit(const rival *o, const bench_device *d, const int64_t size[3])
{
    clt_device_info info;
    clt_device_info_init(&info);
    TRY(library_failure(clt_device_get_info(d->devices[0], &info)));
    if (o && info.kind)
        return failure("--compare: %s is not a CPU, and OpenBLAS computes on those alone",
                       clt_device_label(d->devices[0]));
    if (o)
        o->blas.set_threads(info.compute_units);
    const char *what = o ? "--compare" : "bench gemm";
    /* The host fills its own three matrices later, in the same memory. */
    double elements = 0;
    for (int i = 0; i < 3; i++) {
        const double matrix = (double)size[i] * (double)size[(i + 1) % 3];
        if (4 * matrix > (double)info.max_alloc_bytes)
            return failure("%s: a matrix of %.0f MiB, but a buffer of %s has at most %.0f", what,
                           4 * matrix / MIB, clt_device_label(d->devices[0]),
                           (double)info.max_alloc_bytes / MIB);
        elements += matrix;
    }
    const double bytes = (o ? 2 : 1) * 4 * elements;
    if (bytes > (double)info.memory_bytes)
        return failure("%s: %s %.0f MiB, but %s has %.0f", what,
                       o ? "both products need" : "the matrices need", bytes / MIB,
                       clt_device_label(d->devices[0]), (double)info.memory_bytes / MIB);
    return 0;
}

static void rival_close(rival *o)
{
    openblas_close(&o->blas);
    free(o->a);
    free(o->b);
    free(o->c);
}

/* Times the graph's nodes for `batch` samples, in turns with `other` (may be NULL; else the graph
 * has one node). `say`: print which
 * variants are not used. */
static int time_gemm(const bench_report *r, const clt_graph *graph, int64_t batch, rival *other,
                     int say, clt_node_time **times, int *count)
{
    clt_measure_options options = bench_options(r->settings, 0, batch);
    options.meter = r->device->meter;
    if (other) {
        options.before = before_block;
        options.after = after_block;
        options.user = other;
        options.warm = 1;
    }
    clt_status status = CLT_OK;
    if (say)
        status = bench_say_declined(r->device->devices[0], &graph, &options, 1);
    NEXT(status, clt_measure_graph(graph, r->device->devices[0], &options, times, count));
    return name_failure(status);
}

/* Keeps the products, without the nodes beside them. Returns their number. */
static int products_of(clt_node_time *times, int count)
{
    int kept = 0;
    for (int i = 0; i < count; i++)
        if (times[i].schema == clt_operator_find("matmul"))
            times[kept++] = times[i];
    return kept;
}

static int measure_gemm(bench_report *r, const int64_t size[3], const char *trans, rival *other,
                        int say)
{
    char name[64];
    clt_graph *graph = NULL;
    clt_node_time *times = NULL;
    int count = 0, code = 0;
    const int half = bench_options(r->settings, 0, 1).precision != CLT_F32;
    const int64_t batch = half ? size[trans[0] == 'T' ? 2 : 0] : 1;
    const clt_status status =
        half ? half_gemm_graph(size, trans, &graph) : bench_gemm_graph(size, trans, &graph);
    if (status != CLT_OK)
        code = library_failure(status);
    if (!code && other)
        code = rival_prepare(other, size, trans);
    NEXT(code, time_gemm(r, graph, batch, other, say, &times, &count));
    if (half)
        count = products_of(times, count);
    snprintf(name, sizeof name, "gemm %lldx%lldx%lld %s", (long long)size[0], (long long)size[1],
             (long long)size[2], trans);
    if (count > 1 && other)
        code = failure("--compare: the product is %d kernels of %s", count,
                       clt_device_label(r->device->devices[0]));
    if (!code && other) {
        const bench_comparison with = {bench_median(other->times, other->count),
                                       bench_median(other->ratios, other->count)};
        bench_report_compared(r, name, &times[0], &with);
    }
    for (int i = 0; !code && !other && i < count; i++)
        bench_report_row(r, name, &times[i]);
    free(times);
    clt_graph_destroy(graph);
    return code;
}

static int measure_gemms(bench_report *r, const settings *s, rival *other)
{
    static const char *const usual[] = {"NN", "NT", "TN"};
    int code = 0;
    for (int at = 1; !code && at + 2 < s->n_names; at += 3) {
        int64_t size[3];
        code = read_product(s, at, size);
        for (int i = 0; !code && i < (s->trans ? 1 : 3); i++)
            code = measure_gemm(r, size, s->trans ? s->trans : usual[i], other, at == 1 && i == 0);
    }
    return code;
}

int bench_gemm(const settings *s)
{
    bench_device d = {0};
    bench_report r;
    rival other = {.runs = 0};
    int64_t size[3];
    if ((s->n_names - 1) % 3)
        return usage_error("bench gemm takes three sizes for each product, M N K; %d were given",
                           s->n_names - 1);
    int code = 0;
    for (int at = 1; !code && at < s->n_names; at += 3)
        code = read_product(s, at, size);
    if (!code && s->trans && (strlen(s->trans) != 2 || strspn(s->trans, "NT") != 2))
        code = usage_error("--trans %s: must be NN, NT, TN or TT", s->trans);
    if (!code && bench_options(s, 0, 1).precision != CLT_F32) {
        if (s->compare)
            code = usage_error("--compare: OpenBLAS multiplies f32; leave out --precision %s",
                               s->precision);
        else if (s->trans && !strcmp(s->trans, "TT"))
            code = usage_error("--trans TT: no layer has this product in 16 bits; leave out "
                               "--precision %s",
                               s->precision);
    }
    if (code)
        return code;
    if (s->compare)
        code = openblas_open(&other.blas);
    NEXT(code, bench_device_open(&d, s, 0));
    for (int at = 1; !code && at < s->n_names; at += 3) {
        code = read_product(s, at, size);
        NEXT(code, check_fit(s->compare ? &other : NULL, &d, size));
    }
    NEXT(code, bench_limits(&d, s));
    if (!code) {
        bench_report_begin(&r, &d, s, s->compare ? other.blas.name : NULL);
        code = measure_gemms(&r, s, s->compare ? &other : NULL);
        NEXT(code, bench_report_end(&r));
    }
    rival_close(&other);
    bench_device_close(&d);
    return code;
}

/* --- conv ------------------------------------------------------------------------------------ */

/* Reads numbers that are separated by x. */
static int read_sizes(const char *text, int count, int64_t *sizes)
{
    const char *at = text;
    for (int i = 0; i < count; i++) {
        char *end;
        errno = 0;
        sizes[i] = strtoll(at, &end, 10);
        if (errno || end == at || sizes[i] < 1 || sizes[i] > INT32_MAX ||
            *end != (i + 1 < count ? 'x' : '\0'))
            return usage_error("%s: must be %d numbers with x between them, as in %s", text, count,
                               count == 4 ? "32x64x32x32" : "64x3x3");
        at = end + 1;
    }
    return 0;
}

/* Makes the input a product, so that its gradient is computed too. */
clt_status bench_conv_graph(const bench_conv_shape *shape, clt_graph **graph)
{
    clt_conv2d_options options;
    clt_conv2d_options_init(&options);
    for (int i = 0; i < 2; i++) {
        options.stride[i] = shape->stride;
        options.padding[i] = shape->padding;
        options.dilation[i] = shape->dilation;
    }
    options.groups = shape->groups;
    const int64_t *x = shape->x, *w = shape->w, one = 1;
    const int64_t in[4] = {CLT_BATCH, x[1], x[2], x[3]};
    const int64_t weight[4] = {w[0], x[1] / options.groups, w[1], w[2]};
    const clt_status status = clt_graph_create(graph);
    if (status != CLT_OK)
        return status;
    clt_value *input = clt_mul(clt_input(*graph, "x", CLT_F32, 4, in),
                               clt_parameter(*graph, "scale", 1, &one, uniform));
    clt_value *y = clt_conv2d(input, clt_parameter(*graph, "weight", 4, weight, uniform),
                              clt_parameter(*graph, "bias", 1, w, uniform), &options);
    clt_output_gradient(clt_output(y, "y"), "dy");
    return clt_graph_status(*graph);
}

static int read_option(const char *name, int64_t given, int default_value, int *out)
{
    if (given > INT32_MAX)
        return usage_error("--%s %lld: must be at most %d", name, (long long)given, INT32_MAX);
    *out = given < 0 ? default_value : (int)given;
    return 0;
}

/* Reads the shape. The library checks whether the sizes fit each other. */
static int read_shape(const settings *s, bench_conv_shape *shape)
{
    int code = read_sizes(s->names[1], 4, shape->x);
    NEXT(code, read_sizes(s->names[2], 3, shape->w));
    NEXT(code, read_option("stride", s->stride, 1, &shape->stride));
    NEXT(code, read_option("padding", s->padding, 0, &shape->padding));
    NEXT(code, read_option("dilation", s->dilation, 1, &shape->dilation));
    return code ? code : read_option("groups", s->groups, 1, &shape->groups);
}

/* Returns whether the node belongs to the convolution. The graph also scales its input. */
static int is_of_conv(const clt_node_time *time)
{
    static const char *const names[] = {"conv2d", "conv2d_data_grad", "conv2d_weight_grad",
                                        "layout"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (time->schema == clt_operator_find(names[i]))
            return 1;
    return 0;
}

int bench_conv(const settings *s)
{
    bench_device d = {0};
    bench_report r;
    bench_conv_shape shape;
    clt_graph *graph = NULL;
    clt_node_time *times = NULL;
    int count = 0;
    int code = read_shape(s, &shape);
    if (code)
        return code;
    const clt_status status = bench_conv_graph(&shape, &graph);
    if (status != CLT_OK)
        code = usage_error("%s", clt_error_message());
    NEXT(code, bench_device_open(&d, s, 0));
    NEXT(code, bench_limits(&d, s));
    if (!code) {
        const clt_measure_options options = bench_options(s, 1, shape.x[0]);
        const clt_status said =
            bench_say_declined(d.devices[0], (const clt_graph *const *)&graph, &options, 1);
        code = said == CLT_OK ? 0 : name_failure(said);
    }
    NEXT(code, bench_graph(&d, s, graph, 1, shape.x[0], &times, &count));
    if (!code) {
        bench_report_begin(&r, &d, s, NULL);
        for (int i = 0; i < count; i++)
            if (is_of_conv(&times[i]))
                bench_report_row(&r, times[i].op, &times[i]);
        code = bench_report_end(&r);
    }
    free(times);
    clt_graph_destroy(graph);
    bench_device_close(&d);
    return code;
}
