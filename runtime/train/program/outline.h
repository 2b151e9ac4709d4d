/* The parts of a plan that generators and the checker of programs read. An outline is plain
 * numbers, which ranks can exchange. */
#ifndef CLT_TRAIN_PROGRAM_OUTLINE_H
#define CLT_TRAIN_PROGRAM_OUTLINE_H

#include "plan/plan.h"

typedef struct clt_outline_collective {
    int node, needed; /* as clt_plan_collective */
    int kind, axis, peer;
    int64_t count; /* elements, for each sample if `per_sample` */
    bool per_sample;
    uint64_t name; /* hash of the node's name */
    int dtype;
} clt_outline_collective;

typedef struct clt_outline {
    int n_nodes, n_forward;
    int n_segments, n_ready, n_collectives;
    int n_assigns;
    int in_flight;         /* as clt_plan_options */
    bool output_gradients; /* the caller passes gradients of outputs */
    bool input_gradients;  /* the caller reads gradients of inputs */
    bool unwritten;        /* some parameters get no gradient from this plan */
    clt_segment *segments;
    int *ready; /* buckets in the order in which their gradients become ready */
    clt_outline_collective *collectives;
} clt_outline;

clt_status clt_outline_create(const clt_plan *plan, clt_outline *outline);

/* Frees an outline. An empty outline may be passed. */
void clt_outline_free(clt_outline *outline);

/* Whether devices with different samples meet in collectives of the plan. They then run it equally
 * often. */
bool clt_outline_joins_data(const clt_outline *outline);

/* Whether the collective passes a value to another place, or gets one from there. */
bool clt_outline_sends(const clt_outline *outline, int collective);
bool clt_outline_receives(const clt_outline *outline, int collective);

/* Sets used[from * stages + to] for the stages between which the plan of a stage passes values. */
void clt_outline_mark_edges(const clt_outline *outline, int stage, int stages, bool *used);

/* Raises after[b] to the number of the plan's collectives that have begun when bucket b is ready.
 * Every device reduces a bucket after the maximum over all devices. */
void clt_outline_places(const clt_outline *outline, int *after);

/* Appends an outline as numbers to an array with `room`, as CLT_PUSH does. */
clt_status clt_outline_pack(const clt_outline *outline, int64_t **numbers, int *count, int *room);

/* Reads an outline from numbers[*at] on and moves *at behind it. Fails with FORMAT if the array of
 * `count` numbers ends too early. */
clt_status clt_outline_unpack(const int64_t *numbers, int count, int *at, clt_outline *outline);

#endif
