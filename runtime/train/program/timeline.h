/*
 * Predicts the time of a step by running the programs of its devices on a clock. Overlap, pipeline
 * bubbles, waiting for slower devices and the order of buckets follow from the programs. It works
 * on plain numbers, without devices. Times are in seconds.
 *
 * Devices that do the same as others may be left out: a group's collective begins when those of its
 * members that are listed have come to it.
 */
#ifndef CLT_TRAIN_PROGRAM_TIMELINE_H
#define CLT_TRAIN_PROGRAM_TIMELINE_H

#include "train/program/program.h"

/* A device, its program of a step, and the times of its parts. */
typedef struct clt_timeline_device {
    const clt_step_program_input *input;
    const clt_step_program *program;
    int rounds;          /* micro-batches */
    int64_t samples;     /* of a micro-batch */
    const double *nodes; /* n_nodes + 1: the time of the plan's nodes before node i */
    double fixed;        /* the rest of a step, once */
    double update;       /* of all that the device updates */
    double add;          /* adds the gradients of a further micro-batch, where the program does */
    double status;       /* norm and finiteness of its gradients, where no reduction finds them */
    /* Virtual shards. merge: adds two nodes of their tree. `pairs`: the second shard of a pair is
     * added to the first one's gradients, in the time `add`, and the pair is a leaf of the tree. */
    double merge;
    bool pairs;
    /* Seconds a byte of gradients in f32. round: to 16 bits for the exchange, of each bucket before
     * its reduction, or of sums of 16-bit gradients where the program rounds them. keep: replaces
     * the residuals, with the update. 0: the device does not round. */
    double round, keep;
} clt_timeline_device;

/* A collective of a group, as its first listed member describes it. */
typedef struct clt_timeline_exchange {
    clt_operand on;
    int kind;           /* clt_op_collective */
    clt_axis axis;      /* of CLT_ON_NODE */
    int group, members; /* the program's group, and how many devices are in it */
    int participant;    /* one of them */
    int stride;         /* between the numbers of members that follow each other */
    int64_t bytes;      /* of the whole tensor, of all messages in a shift */
    const clt_step_program_input *input;
} clt_timeline_exchange;

/* What a collective costs. `local` keeps each member's own cores busy. `network` passes while they
 * compute. */
typedef struct clt_timeline_cost {
    double local, network;
} clt_timeline_cost;

typedef clt_timeline_cost (*clt_timeline_price)(void *user, const clt_timeline_exchange *exchange);

typedef struct clt_timeline {
    double seconds;  /* until the last device ends */
    double compute;  /* of the device that ends last: nodes, and `fixed` */
    double update;   /* of this device: update, status, additions, merges and rounding */
    double exchange; /* local and network time of the collectives of the first device */
    double exposed;  /* seconds - compute - update */
} clt_timeline;

/* Bytes of the whole tensors in the collectives that a device takes part in. Losses, norms, votes
 * and means of states are left out. */
typedef struct clt_timeline_bytes {
    int64_t axes[CLT_AXES]; /* values of the graph, by axis; messages count where they are sent */
    int64_t shifts;         /* all messages of the shifts that this device was the first to begin */
    int64_t gradients, parameters, tied;
} clt_timeline_bytes;

/*
 * Runs the programs. Every device executes its program in order:
 *
 * - A run of nodes, an update and the rest of a step take their time.
 * - A collective begins when its listed members have started it and the group's collective before
 *   it has ended.
 * - Completing it waits for its end, and then takes its local time.
 *
 * `bytes` has an entry for each device, or is NULL. Errors: INTERNAL if devices wait for each other
 * for ever; OUT_OF_MEMORY.
 */
clt_status clt_timeline_run(const clt_timeline_device *devices, int count, clt_timeline_price price,
                            void *user, clt_timeline *timeline, clt_timeline_bytes *bytes);

#endif
