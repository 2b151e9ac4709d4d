/*
 * The cost model predicts the time of a step on a set of devices from measurements. It works on
 * plain numbers, without devices. Times are in seconds.
 *
 *     step = longest (compute + update) of all devices + exposed part of the reduction
 *            + cost of synchronizing several devices in each step
 *
 * Devices that use the host's memory and cores reduce with the cores that compute, so no part of
 * the reduction is hidden. On other devices, the reduction of a bucket begins once backward has
 * written the bucket and the previous bucket is reduced. The part after backward is exposed.
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
    double samples[CLT_SPEED_POINTS]; /* samples of a micro-batch, ascending */
    double
        seconds[CLT_SPEED_POINTS]; /* its forward and backward, while the other devices work too */
    double solo_fraction; /* fraction of that time while the others are idle; 1: no difference */
    double update;
    /* Norm and finiteness of the gradient before the update, in a step of one device. */
    double status_time;
} clt_speed;

/* The host of a device: cores of its process, and the cores that compute for the device. */
typedef struct clt_host_cores {
    int32_t cores, used;
} clt_host_cores;

/* An all-reduce of `bytes` among p devices takes latency + p * bytes * byte seconds. */
typedef struct clt_reduction_cost {
    double latency, byte;
} clt_reduction_cost;

/* A bucket of gradients, in the order in which backward writes them. */
typedef struct clt_bucket_cost {
    double bytes;
    double ready; /* fraction of compute after which the bucket is written */
} clt_bucket_cost;

typedef struct clt_cost {
    int64_t batch; /* samples of all devices */
    int accumulate;
    int n_devices;
    clt_speed *speeds;
    const int *rank_of;          /* by device, ascending; NULL: all devices belong to one rank */
    bool idle_ranks;             /* a rank without samples still takes part in reductions */
    const clt_host_cores *hosts; /* by device; NULL: there are enough cores for all */
    double load; /* core seconds to assemble a sample if the host has no free core */
    clt_reduction_cost reduction;
    double together; /* synchronization of several devices, per step */
    bool on_host;    /* a device uses the host's cores */
    int n_buckets;
    clt_bucket_cost *buckets;
} clt_cost;

/* A network between ranks. */
typedef struct clt_network {
    double bytes_per_second, latency; /* of one rank's link in each direction; of one message */
} clt_network;

typedef enum clt_network_algorithm {
    CLT_NETWORK_NONE,    /* one rank */
    CLT_NETWORK_RING,    /* reduce-scatter and all-gather around a ring */
    CLT_NETWORK_HALVING, /* recursive halving and doubling */
    CLT_NETWORK_ALGORITHMS
} clt_network_algorithm;

/* The predicted time of a step. */
typedef struct clt_step_cost {
    double seconds;
    double compute, update; /* of the slowest device: compute with `load`, update with the status */
    double reduction;       /* the whole reduction */
    double exposed;         /* the exposed part, and the synchronization */
    clt_network_algorithm algorithm; /* for the largest bucket, between ranks */
} clt_step_cost;

/* Returns true if gradients are reduced in a step of `samples`: more than one device takes part. */
bool clt_cost_reduces(const clt_cost *cost, const double *samples);

/* Predicts a step with samples[d] on each device; 0 for a device that takes no part. */
void clt_cost_step(const clt_cost *cost, const double *samples, clt_step_cost *step);

/* Divides `total` samples among the devices with use[d], so that the slowest ends soonest.
 * samples[d] need not be whole. A device that is too slow for any sample gets none. */
void clt_cost_divide(const clt_cost *cost, const bool *use, double total, double *samples);

/* Chooses devices: the fastest, then each next one while it shortens the step by at least `gain`
 * (0.05: a twentieth). */
clt_status clt_cost_choose(const clt_cost *cost, double gain, bool *use);

/*
 * Predicts an all-reduce of `bytes` among `ranks` by the better of two algorithms. Additions are
 * assumed to be hidden behind the transfers.
 *
 * Ring: 2 (W - 1) messages of bytes / W each, one after the other (Patarasuk and Yuan, Bandwidth
 * optimal all-reduce algorithms for clusters of workstations, 2009). Halving: 2 log2 W messages of
 * 2 (W - 1) / W * bytes in total. If W is not a power of two, the ranks beyond the lower power
 * first send their data to others and get the result at the end (Thakur, Rabenseifner and Gropp,
 * Optimization of collective communication operations in MPICH, 2005).
 */
double clt_network_reduce(const clt_network *network, int ranks, double bytes,
                          clt_network_algorithm *algorithm);

/* Predicts the same step on each of `ranks`. Gradients are reduced between the devices of each
 * rank, then between ranks. Transfers of the network are hidden behind backward on all devices. */
void clt_cost_between(const clt_cost *cost, const double *samples, int ranks,
                      const clt_network *network, clt_step_cost *step);

/* Finds which devices of one kind are equally fast. seconds[round * n + d] are times of the rounds
 * of a measurement. equal[d] becomes false if device d differs: the median of its ratios to the
 * kind's median is beyond 1 + `tolerance` (or 1 / that), and four rounds of five are beyond a third
 * of the tolerance on the same side. Noise seldom meets both conditions; a slow device does. */
void clt_cost_equal(const double *seconds, int n, int rounds, double tolerance, bool *equal);

#endif
