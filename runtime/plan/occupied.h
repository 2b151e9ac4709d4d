/*
 * Which bytes of a plan's slabs are taken, and when. Answers where a block fits that lives from one
 * node to another, without looking at the blocks one by one.
 *
 * A segment tree over the nodes of the schedule: each of its vertices stands for a range of nodes
 * (Bentley, "Algorithms for Klee's rectangle problems", 1977). It keeps which bytes are taken
 * throughout its range, and which are taken somewhere in its range, as disjoint intervals that do
 * not touch each other. Blocks lie close together: few intervals are left of many blocks.
 */
#ifndef CLT_PLAN_OCCUPIED_H
#define CLT_PLAN_OCCUPIED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

typedef struct clt_occupied clt_occupied;

/* A block of memory. */
typedef struct clt_block {
    int64_t bytes;
    int born, dies; /* first and last node that touches it */
    int slab;
    int64_t offset; /* a multiple of CLT_TENSOR_ALIGN */
} clt_block;

/* For blocks that live between nodes 0 and `last`, in slabs of `limit` bytes. */
clt_status clt_occupied_create(int last, int64_t limit, clt_occupied **occupied);
void clt_occupied_destroy(clt_occupied *occupied);

/* Frees all bytes. */
void clt_occupied_clear(clt_occupied *occupied);

/*
 * Sets the block's slab and offset, and takes these bytes: in the first slab where it fits, the
 * lowest gap between the blocks that live at the same time, or, with `tightest`, the smallest;
 * behind all of them where no gap is large enough. A block of 0 bytes lies at the start of the
 * first slab and takes nothing. The block must not be larger than a slab.
 */
clt_status clt_occupied_place(clt_occupied *occupied, bool tightest, clt_block *block);

#endif
