/*
 * Records which bytes of a plan's slabs are taken, and when. Finds a place for a block that lives
 * from one node to another, without looking at all blocks.
 *
 * The data structure is a segment tree over the nodes of the schedule, in which a vertex stands for
 * a range of nodes (Bentley, "Algorithms for Klee's rectangle problems", 1977). A vertex keeps
 * which bytes are taken in its whole range, and which are taken somewhere in its range, as disjoint
 * intervals that do not touch. Blocks lie close together, so many blocks merge to few intervals.
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
    bool flight;    /* exists once for each micro-batch in flight */
    bool own;       /* nothing else may be in the slab as long as it lives */
    int slab;
    int64_t offset; /* a multiple of CLT_TENSOR_ALIGN */
} clt_block;

/* Creates a record for blocks that live between nodes 0 and `last`, in slabs of `limit` bytes. */
clt_status clt_occupied_create(int last, int64_t limit, clt_occupied **occupied);
void clt_occupied_destroy(clt_occupied *occupied);

/* Frees all bytes. */
void clt_occupied_clear(clt_occupied *occupied);

/*
 * Places a block: sets its slab and offset, and marks its bytes as taken. The block goes to the
 * first slab where it fits. There it takes the lowest gap between blocks that live at the same
 * time, or the smallest one if `tightest`. If no gap is large enough, it goes after all of them. A
 * block of 0 bytes lies at the start of the first slab and takes nothing. The block must not be
 * larger than a slab.
 */
clt_status clt_occupied_place(clt_occupied *occupied, bool tightest, clt_block *block);

#endif
