/* Functions that all benchmarks share. */
#ifndef CLTRAIN_COMMAND_BENCH_BENCH_H
#define CLTRAIN_COMMAND_BENCH_BENCH_H

#include <cltrain/ops.h>
#include <cltrain/unstable.h>
#include <jansson.h>

#include "options/options.h"

/* The subjects of `cltrain bench`. Each returns an exit code, after a message. */
int bench_train(const settings *s);
int bench_gemm(const settings *s);
int bench_conv(const settings *s);
int bench_op(const settings *s);
int bench_scaling(const settings *s);
int bench_allreduce(const settings *s);
int bench_meshes(const settings *s);
int bench_load(const settings *s);

/* An opened device and its measured limits. */
typedef struct bench_device {
    clt_runtime *runtime;
    clt_device **devices;
    int count;
    clt_meter *meter; /* NULL until bench_limits */
    clt_limits limits;
} bench_device;

/* bench_device_open opens --devices. bench_limits measures the limits of the first device, and
 * reports if --devices names more: only `bench scaling` and `bench allreduce` use all. Both return
 * exit codes. Call bench_device_close in any case. */
int bench_device_open(bench_device *d, const settings *s, int profiling);
int bench_limits(bench_device *d, const settings *s);
void bench_device_close(bench_device *d);

/* Measures the nodes of a graph as --blocks and --variant say. The caller frees *times. */
int bench_graph(const bench_device *d, const settings *s, const clt_graph *graph, int training,
                int64_t batch, clt_node_time **times, int *count);

/* Returns the options of measurements as the settings say, without a meter. */
clt_measure_options bench_options(const settings *s, int training, int64_t batch);

/* Prints which variants of --variant no graph uses, and why. Each graph has its own options.
 * bench_graph does not print this. */
clt_status bench_say_declined(const clt_device *device, const clt_graph *const *graphs,
                              const clt_measure_options *options, int count);

/* Shape of a convolution: x is NCHW, w is O, KH, KW. The two functions below make a graph for a
 * single kernel class, and return the status of clt_graph_status. */
typedef struct bench_conv_shape {
    int64_t x[4], w[3];
    int stride, padding, dilation, groups;
} bench_conv_shape;

clt_status bench_gemm_graph(const int64_t size[3], const char *trans, clt_graph **graph);
clt_status bench_conv_graph(const bench_conv_shape *shape, clt_graph **graph);

/* Makes a case of `bench op` by name. Sets `training` if its gradients are measured too. */
clt_status bench_op_graph(const char *name, clt_graph **graph, int *training, int64_t *batch);

/* A report with one row a measurement: a table, or a JSON array of objects. */
typedef struct bench_report {
    const settings *settings;
    const bench_device *device;
    const char *other; /* what rows are compared with; may be NULL */
    json_t *rows;      /* with --json */
} bench_report;

void bench_report_begin(bench_report *r, const bench_device *d, const settings *s,
                        const char *other);

/* Adds a row. The limit of the row is arithmetic or copying, whichever allows less. */
void bench_report_row(bench_report *r, const char *name, const clt_node_time *time);
/* Times of `other` for the same work. `ratio` is its time divided by ours, taken block by block. */
typedef struct bench_comparison {
    double other_seconds, ratio;
} bench_comparison;

void bench_report_compared(bench_report *r, const char *name, const clt_node_time *time,
                           const bench_comparison *with);
int bench_report_end(bench_report *r);

/* Returns the share of the device's limit that this work reaches in `seconds`: of arithmetic or of
 * copying, whichever is larger. */
double bench_share(const clt_limits *limits, double flops, double bytes, double seconds);

/* Returns seconds of a clock that only grows. */
double bench_clock(void);

/* Returns the median, and sorts `values`. The median of an even number of values is the mean of the
 * middle two. */
double bench_median(double *values, int count);

/* Returns an object with the median, min and max, and sorts `values`. The caller owns it. */
json_t *bench_spread(double *values, int count);

#endif
