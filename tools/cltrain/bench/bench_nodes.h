/* Prints a profile as a table of nodes, or writes it as a trace for viewers. */
#ifndef CLTRAIN_COMMAND_BENCH_BENCH_NODES_H
#define CLTRAIN_COMMAND_BENCH_BENCH_NODES_H

#include <cltrain/unstable.h>

/* Prints where device 0 spends the time of steps [from, to): a line (or a JSON object) for each
 * node, the longest first. Rows have the share of the device's limits. Unknown values are '-'
 * (null). `device` is the device's name. Returns an exit code. */
int print_by_node(const clt_profile_record *records, int count, int64_t from, int64_t to,
                  const clt_limits *limits, const char *device, int json);

/* Writes all records as a Chrome trace (JSON object format). Returns an exit code. */
int write_trace(const char *path, const clt_profile_record *records, int count,
                clt_device *const *devices, int n_devices, int rank);

#endif
