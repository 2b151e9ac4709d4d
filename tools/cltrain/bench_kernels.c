/* `cltrain bench gemm` and `cltrain bench conv`. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "message.h"

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

static clt_status build_gemm(clt_graph *graph, const int64_t size[3], int trans_a, int trans_b)
{
    const int64_t m = size[0], n = size[1], k = size[2];
    const int64_t a[2] = {trans_a ? k : m, trans_a ? m : k};
    const int64_t b[2] = {trans_b ? n : k, trans_b ? k : n};
    clt_output(clt_matmul(clt_parameter(graph, "a", 2, a, uniform),
                          clt_parameter(graph, "b", 2, b, uniform), trans_a, trans_b),
               "c");
    return clt_graph_status(graph);
}

static int measure_gemm(bench_report *r, const int64_t size[3], const char *trans)
{
    char name[64];
    clt_graph *graph = NULL;
    clt_node_time *times = NULL;
    int count = 0, code = 0;
    clt_status status = clt_graph_create(&graph);
    if (status == CLT_OK)
        status = build_gemm(graph, size, trans[0] == 'T', trans[1] == 'T');
    if (status != CLT_OK)
        code = library_failure(status);
    if (!code)
        code = bench_graph(r->device, r->settings, graph, 0, 1, &times, &count);
    snprintf(name, sizeof name, "gemm %lldx%lldx%lld %s", (long long)size[0], (long long)size[1],
             (long long)size[2], trans);
    for (int i = 0; i < count; i++)
        bench_report_row(r, name, &times[i]);
    free(times);
    clt_graph_destroy(graph);
    return code;
}

int bench_gemm(const settings *s)
{
    static const char *const usual[] = {"NN", "NT", "TN"};
    bench_device d = {0};
    bench_report r;
    int64_t size[3];
    int code = 0;
    for (int i = 0; !code && i < 3; i++)
        code = read_size(s->names[1 + i], &size[i]);
    if (!code && s->trans && (strlen(s->trans) != 2 || strspn(s->trans, "NT") != 2))
        code = usage_error("--trans %s: must be NN, NT, TN or TT", s->trans);
    if (code)
        return code;
    code = bench_device_open(&d, s, 0);
    if (!code)
        code = bench_limits(&d);
    if (!code) {
        bench_report_begin(&r, &d, s);
        for (int i = 0; !code && i < (s->trans ? 1 : 3); i++)
            code = measure_gemm(&r, size, s->trans ? s->trans : usual[i]);
        if (!code)
            code = bench_report_end(&r);
    }
    bench_device_close(&d);
    return code;
}

/* --- conv ------------------------------------------------------------------------------------ */

/* Numbers with an x between them. */
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

/* The input is a product, so that the gradient by it is wanted too. */
static clt_status build_conv(clt_graph *graph, const int64_t x[4], const int64_t w[3],
                             const settings *s)
{
    clt_conv2d_options options;
    clt_conv2d_options_init(&options);
    for (int i = 0; i < 2; i++) {
        options.stride[i] = s->stride > 0 ? (int)s->stride : 1;
        options.padding[i] = s->padding > 0 ? (int)s->padding : 0;
    }
    options.groups = s->groups > 0 ? (int)s->groups : 1;
    const int64_t in[4] = {CLT_BATCH, x[1], x[2], x[3]}, one = 1;
    const int64_t weight[4] = {w[0], x[1] / options.groups, w[1], w[2]};
    clt_value *input = clt_mul(clt_input(graph, "x", CLT_F32, 4, in),
                               clt_parameter(graph, "scale", 1, &one, uniform));
    clt_value *y = clt_conv2d(input, clt_parameter(graph, "weight", 4, weight, uniform),
                              clt_parameter(graph, "bias", 1, w, uniform), &options);
    clt_output_gradient(clt_output(y, "y"), "dy");
    return clt_graph_status(graph);
}

int bench_conv(const settings *s)
{
    bench_device d = {0};
    bench_report r;
    int64_t x[4], w[3];
    clt_graph *graph = NULL;
    clt_node_time *times = NULL;
    int count = 0;
    int code = read_sizes(s->names[1], 4, x);
    if (!code)
        code = read_sizes(s->names[2], 3, w);
    if (code)
        return code;
    clt_status status = clt_graph_create(&graph);
    if (status == CLT_OK)
        status = build_conv(graph, x, w, s);
    if (status != CLT_OK)
        code = usage_error("%s", clt_error_message());
    if (!code)
        code = bench_device_open(&d, s, 0);
    if (!code)
        code = bench_limits(&d);
    if (!code)
        code = bench_graph(&d, s, graph, 1, x[0], &times, &count);
    if (!code) {
        bench_report_begin(&r, &d, s);
        for (int i = 0; i < count; i++)
            if (!strncmp(times[i].op, "conv2d", 6) || !strcmp(times[i].op, "layout"))
                bench_report_row(&r, times[i].op, &times[i]);
        code = bench_report_end(&r);
    }
    free(times);
    clt_graph_destroy(graph);
    bench_device_close(&d);
    return code;
}
