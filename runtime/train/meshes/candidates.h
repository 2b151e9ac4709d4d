/* The meshes that devices can form, as plain numbers: what the planner considers before it looks at
 * the model. */
#ifndef CLT_TRAIN_MESHES_CANDIDATES_H
#define CLT_TRAIN_MESHES_CANDIDATES_H

#include <stdbool.h>
#include <stdint.h>

#include "graph/mesh.h"

/* A mesh, and how devices train on it. */
typedef struct clt_candidate {
    int size[CLT_AXES];
    bool sequence;  /* tp=N:sequence */
    int zero;       /* 0, 1 or 3 */
    int accumulate; /* micro-batches */
    int local;      /* 0; else so many such meshes train apart and average now and then */
    bool half;      /* gradients travel in 16 bits */
} clt_candidate;

/* What bounds the meshes. */
typedef struct clt_candidate_limits {
    int devices;
    int most[CLT_AXES]; /* places along an axis; 1: it divides nothing of the model */
    /* By axis: whether so many places divide the model, by number of places; NULL: all up to
     * `most`. */
    const bool *allowed[CLT_AXES];
    int64_t batch;  /* samples of a step on all devices */
    int accumulate; /* asked for; 1: pipelines choose */
    bool sequences; /* the model has sequences, which tp=N:sequence divides */
    bool shares;    /* local SGD is a choice too */
    bool halves;    /* 16 bits on the wire are a choice too: gradients are in f32 */
} clt_candidate_limits;

enum { CLT_CANDIDATE_TEXT = 96 };

/* Writes the mesh for clt_store_options.parallel: "pp=2,dp=4,tp=2". The axes that exchange most
 * vary fastest, so that their places lie next to each other. */
void clt_candidate_mesh(const clt_candidate *candidate, char text[CLT_CANDIDATE_TEXT]);

/* Returns the devices of one mesh: all, divided by `local`. */
int clt_candidate_devices(const clt_candidate *candidate);

/*
 * Lists every mesh of all devices within the limits:
 *
 * - each way to write the number of devices as a product of axes; tp also divided over sequences;
 * - with zero 1 where devices divide samples, with zero 3 where dp is the only axis;
 * - with `halves`: gradients in 16 bits where dp, space and time are the only axes;
 * - with `shares`: local SGD of each number of replicas of dp alone;
 * - pipelines of p stages with p, 2p, 4p and 8p micro-batches, or with those asked for.
 *
 * A place of dp has at least one sample of each micro-batch. Free *list with clt_free. Errors:
 * OUT_OF_MEMORY.
 */
clt_status clt_candidates_list(const clt_candidate_limits *limits, clt_candidate **list,
                               int *count);

#endif
