/*
 * The cost model: what a step takes on a set of devices, from what was measured on them. Plain
 * numbers, no device. Times are in seconds.
 *
 *     step = the longest of the devices' (compute + update) + the part of the reduction that stays
 *            exposed + what it costs that several devices meet in each step
 *
 * Devices whose memory and cores are the host's have their buckets reduced by the same cores that
 * compute, so nothing of it is hidden; otherwise a bucket's reduction begins once backward has
 * written it and the bucket before has been reduced, and what ends after backward is exposed.
 */
#ifndef CLT_TRAIN_PLANNER_COST_H
#define CLT_TRAIN_PLANNER_COST_H

#include <stdbool.h>
#include <stdint.h>

#include <cltrain/status.h>

enum { CLT_SPEED_POINTS = 2 };

/* One device. */
typedef struct clt_speed {
    int n_points;
    double samples[CLT_SPEED_POINTS]; /* of a micro-batch, ascending */
    double seconds[CLT_SPEED_POINTS]; /* of its forward and backward, while the others work too */
    double alone;                     /* that part of it while the others rest; 1: as much */
    double update;
    double
        status_time; /* before it, in a step of one device: norm and finiteness of the gradient */
} clt_speed;

/* The host of a device: cores of its process, and how many of them compute for the device. */
typedef struct clt_host_cores {
    int32_t cores, used;
} clt_host_cores;

/* An all-reduce of `bytes` among p devices: latency + p * bytes * byte. */
typedef struct clt_reduction_cost {
    double latency, byte;
} clt_reduction_cost;

/* A bucket of gradients, in the order in which backward writes them. */
typedef struct clt_bucket_cost {
    double bytes;
    double ready; /* the part of compute after which it is written */
} clt_bucket_cost;

typedef struct clt_cost {
    int64_t batch; /* of all devices */
    int accumulate;
    int n_devices;
    clt_speed *speeds;
    const int *rank_of; /* by device, ascending; NULL: all are of one rank */
    bool idle_ranks;    /* a rank none of whose devices has samples takes part in reductions */
    const clt_host_cores *hosts; /* by device; NULL: there are cores enough for all */
    double load; /* seconds of a core to assemble a sample, where no core of the host is free */
    clt_reduction_cost reduction;
    double together; /* of a step of several devices: that they wait for each other */
    bool on_host;    /* a device computes with the host's cores */
    int n_buckets;
    clt_bucket_cost *buckets;
} clt_cost;

/* A network between ranks. */
typedef struct clt_network {
    double bytes_per_second, latency; /* of one rank's link, each way; of one message */
} clt_network;

typedef enum clt_network_algorithm {
    CLT_NETWORK_NONE,    /* one rank */
    CLT_NETWORK_RING,    /* reduce-scatter and all-gather around a ring */
    CLT_NETWORK_HALVING, /* by recursive halving and doubling */
    CLT_NETWORK_ALGORITHMS
} clt_network_algorithm;

/* What a step is predicted to take. */
typedef struct clt_step_cost {
    double seconds;
    double compute, update; /* with `load`, with the status; of the device that takes longest */
    double reduction;       /* all of it */
    double exposed;         /* of that, and what it costs to meet */
    clt_network_algorithm algorithm; /* between ranks, of the largest bucket */
} clt_step_cost;

/* Forward and backward of `samples` in micro-batches, while the others work (or, `alone`, rest). */
double clt_speed_compute(const clt_speed *speed, double samples, int accumulate, bool alone);

/* Whether gradients are reduced in such a step: more than one device takes part. */
bool clt_cost_reduces(const clt_cost *cost, const double *samples);

/* A step of `samples` by device, 0 for one that takes no part. */
void clt_cost_step(const clt_cost *cost, const double *samples, clt_step_cost *step);

/* The division of `total` samples among the devices with use[d] that ends soonest on all of them:
 * samples[d], no integers. A device too slow for any sample gets none. */
void clt_cost_divide(const clt_cost *cost, const bool *use, double total, double *samples);

/* Which devices to use: the fastest, and each next one as long as it shortens the step by at least
 * `gain` (0.05: a twentieth). */
clt_status clt_cost_choose(const clt_cost *cost, double gain, bool *use);

/*
 * An all-reduce of `bytes` among `ranks`, by the better of two ways; additions are taken to be
 * hidden behind the transfers.
 *
 * Ring: 2 (W - 1) messages of bytes / W each, one after the other (Patarasuk and Yuan, Bandwidth
 * optimal all-reduce algorithms for clusters of workstations, 2009). Halving: 2 log2 W messages of
 * 2 (W - 1) / W * bytes in all; where W is no power of two, the ranks beyond the power below it
 * first give their data to others, and get the result at the end
 * (Thakur, Rabenseifner and Gropp, Optimization of collective communication operations in MPICH,
 * 2005).
 */
double clt_network_reduce(const clt_network *network, int ranks, double bytes,
                          clt_network_algorithm *algorithm);

/* The same step on each of `ranks`, whose gradients are reduced between the devices of each rank,
 * then between ranks. A network's transfers are hidden behind backward on all devices. */
void clt_cost_between(const clt_cost *cost, const double *samples, int ranks,
                      const clt_network *network, clt_step_cost *step);

/*
 * Whether devices of one kind differ at all. seconds[round * n + d]: one kind's times in the
 * rounds of a measurement. A device differs, and equal[d] is not set, where its time as a part of
 * the kind's median is beyond 1 + `tolerance` (or 1 / that) in the middle of the rounds, and on
 * the same side by a third of that in four rounds of five: noise does not do that, but a slow
 * device does.
 */
void clt_cost_equal(const double *seconds, int n, int rounds, double tolerance, bool *equal);

#endif
