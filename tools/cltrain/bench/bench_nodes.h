/* What a profile says: a table by node, and a trace for viewers. */
#ifndef CLTRAIN_COMMAND_BENCH_BENCH_NODES_H
#define CLTRAIN_COMMAND_BENCH_BENCH_NODES_H

#include <cltrain/unstable.h>

/* Prints where the time of steps [from, to) goes on device 0, a line (`json`: an object) a node,
 * most time first, with its share of the limits of that device, whose name is given. What is not
 * known is '-' (null). Returns an exit code. */
int print_by_node(const clt_profile_record *records, int count, int64_t from, int64_t to,
                  const clt_limits *limits, const char *device, int json);

/* Writes all records as a Chrome trace (JSON object format). Returns an exit code. */
int write_trace(const char *path, const clt_profile_record *records, int count,
                clt_device *const *devices, int n_devices, int rank);

#endif
