/* What the benchmarks share. */
#ifndef CLTRAIN_COMMAND_BENCH_BENCH_H
#define CLTRAIN_COMMAND_BENCH_BENCH_H

#include <cltrain/ops.h>
#include <cltrain/unstable.h>
#include <jansson.h>

#include "options/options.h"

/* The subjects of `cltrain bench`; each returns an exit code, after a message. */
int bench_train(const settings *s);
int bench_gemm(const settings *s);
int bench_conv(const settings *s);
int bench_op(const settings *s);
int bench_scaling(const settings *s);
int bench_allreduce(const settings *s);

/* A device opened for measuring, with its limits. */
typedef struct bench_device {
    clt_runtime *runtime;
    clt_device **devices;
    int count;
    clt_meter *meter; /* NULL until bench_limits */
    clt_limits limits;
} bench_device;

/* Opens --devices, of which all but `bench scaling` and `bench allreduce` measure the first:
 * bench_limits measures its limits, and says so if there are more. They return exit codes.
 * bench_device_close always. */
int bench_device_open(bench_device *d, const settings *s, int profiling);
int bench_limits(bench_device *d);
void bench_device_close(bench_device *d);

/* The graph's nodes measured as --blocks and --variant say; *times is the caller's. */
int bench_graph(const bench_device *d, const settings *s, const clt_graph *graph, int training,
                int64_t batch, clt_node_time **times, int *count);

/* clt_measure_options as the settings say; without a meter. */
clt_measure_options bench_options(const settings *s, int training, int64_t batch);

/* Says which variants of --variant none of the command's graphs takes, and why; each graph has
 * options of its own. bench_graph does not. */
clt_status bench_say_declined(const clt_device *device, const clt_graph *const *graphs,
                              const clt_measure_options *options, int count);

/* Graphs of one kernel class; status as clt_graph_status. In `conv` x is NCHW, w is O, KH, KW. */
typedef struct bench_conv_shape {
    int64_t x[4], w[3];
    int stride, padding, dilation, groups;
} bench_conv_shape;

clt_status bench_gemm_graph(const int64_t size[3], const char *trans, clt_graph **graph);
clt_status bench_conv_graph(const bench_conv_shape *shape, clt_graph **graph);

/* A case of `bench op` by name; `training`: its gradients are measured too. */
clt_status bench_op_graph(const char *name, clt_graph **graph, int *training, int64_t *batch);

/* A report: lines of a table, or objects of a JSON array, a row a measurement. */
typedef struct bench_report {
    const settings *settings;
    const bench_device *device;
    const char *other; /* what each row is compared with; NULL: nothing */
    json_t *rows;      /* --json */
} bench_report;

void bench_report_begin(bench_report *r, const bench_device *d, const settings *s,
                        const char *other);

/* The bound is the limit that the work could reach: arithmetic or copying, whichever is lower. */
void bench_report_row(bench_report *r, const char *name, const clt_node_time *time);
/* With what `other` took for the same, and the ratio of its times to ours, block by block. */
typedef struct bench_comparison {
    double other_seconds, ratio;
} bench_comparison;

void bench_report_compared(bench_report *r, const char *name, const clt_node_time *time,
                           const bench_comparison *with);
int bench_report_end(bench_report *r);

/* The share of the device's limit that doing this in `seconds` is: arithmetic or copying, whichever
 * is larger. */
double bench_share(const clt_limits *limits, double flops, double bytes, double seconds);

/* Sorts; the median of an even number is the mean of the middle two. */
double bench_median(double *values, int count);

#endif
