/* The host's part of a request as a list of tasks: reductions and copies of arrays. Tasks are cut
 * into pieces, which several threads do in any order. */
#ifndef CLT_COMM_TASKS_H
#define CLT_COMM_TASKS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cltrain/comm.h>

#include "comm/core/rounding.h"

/* Sets each out to the reduction of all in, or to the only in. */
typedef struct clt_task {
    bool copy;          /* copies the bytes of one input; otherwise a reduction */
    clt_dtype from, to; /* types of inputs and outputs, see clt_reduce_for */
    clt_comm_reduction reduction;
    int divisor; /* divisor of a mean; 0: the number of inputs */
    bool measure;
    bool tree;                      /* a sum in the order of comm/core/tree.h; from == to */
    int64_t count;                  /* elements; bytes of a copy */
    int first, in_count, out_count; /* range in the list's pointers: inputs, then outputs */
    int64_t first_piece, piece;     /* number of the task's first piece; elements per piece */
    clt_comm_kind kind;             /* kind of the operation, for counts */
    bool narrow;                    /* 16-bit types stay in 16 bits between ranks of a node */
    /* Error feedback of the result, of the sum that this rank gives to its node, and of the sum
     * that the node gives to others. */
    clt_rounding round, rank_round, node_round;
} clt_task;

/* The part of CLT_COMM_MEASURE's result that belongs to a piece. */
typedef struct clt_task_partial {
    double sum_squares;
    bool finite;
} clt_task_partial;

/* A list of tasks. Initialise it with zeros. Its memory is kept from request to request. */
typedef struct clt_task_list {
    clt_task *tasks;
    int count, room;
    void **pointers;
    int8_t *levels; /* by pointer: the level of an input of a tree */
    int pointer_count, pointer_room, level_room;
    int64_t pieces;
    clt_task_partial *partials; /* by piece */
    int64_t partial_room;
} clt_task_list;

void clt_tasks_clear(clt_task_list *list);
void clt_tasks_free(clt_task_list *list);

/* Adds a task without pointers. */
clt_status clt_tasks_add(clt_task_list *list, const clt_task *task);

/* Adds a pointer to the task that was added last. Inputs come before outputs. */
clt_status clt_tasks_in(clt_task_list *list, const void *from);
clt_status clt_tasks_in_block(clt_task_list *list, const void *from, int level); /* of a tree */
clt_status clt_tasks_out(clt_task_list *list, void *to);

/* Returns the levels of a task's inputs. */
const int8_t *clt_tasks_levels(const clt_task_list *list, const clt_task *task);

/* Cuts the tasks into pieces. The pieces, and so the order in which partial sums of squares are
 * added, depend only on the tasks' sizes. */
clt_status clt_tasks_cut(clt_task_list *list);

/* Returns the elements per piece of a reduction of `count` elements. */
int64_t clt_tasks_piece(int64_t count);

/* Consecutive pieces of one task. */
typedef struct clt_task_span {
    const clt_task *task;
    void *const *in, *const *out; /* pointers to the task's first elements */
    size_t from, to;              /* bytes behind these pointers */
} clt_task_span;

/* Finds the span that begins at `piece` and ends before `end`. Returns the piece behind it. */
int64_t clt_tasks_span(const clt_task_list *list, int64_t piece, int64_t end, clt_task_span *span);

/* Returns the bytes that a piece reads of an input. */
size_t clt_tasks_piece_bytes(const clt_task_list *list, int64_t piece);

/* Does one piece. Any thread may call it. */
void clt_tasks_do(clt_task_list *list, int64_t piece);

/* Adds the partial results of all pieces. */
void clt_tasks_measured(const clt_task_list *list, double *sum_squares, bool *finite);

#ifdef CLT_TESTING
/* Elements per piece, for tests; 0: the default. */
extern atomic_llong clt_tasks_testing_piece;
#endif

#endif
