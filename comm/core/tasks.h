/* The host's part of a request as a list of reductions and copies of arrays, cut into pieces that
 * several threads do in any order. */
#ifndef CLT_COMM_TASKS_H
#define CLT_COMM_TASKS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cltrain/comm.h>

/* out = reduction of all in, or each out = in. */
typedef struct clt_task {
    bool copy;          /* bytes of one input; else a reduction */
    clt_dtype from, to; /* of inputs and outputs, as clt_reduce_for */
    clt_comm_reduction reduction;
    int divisor; /* of a mean; 0: the number of inputs */
    bool measure;
    int64_t count;                  /* elements; bytes if it copies */
    int first, in_count, out_count; /* in the list's pointers: inputs, then outputs */
    int64_t first_piece, piece;     /* elements of a piece */
    clt_comm_kind kind;             /* of the operation, for counts */
} clt_task;

/* One partial result of CLT_COMM_MEASURE. */
typedef struct clt_task_partial {
    double sum_squares;
    bool finite;
} clt_task_partial;

/* Zero-initialised; memory is kept from request to request. */
typedef struct clt_task_list {
    clt_task *tasks;
    int count, room;
    void **pointers;
    int pointer_count, pointer_room;
    int64_t pieces;
    clt_task_partial *partials; /* by piece */
    int64_t partial_room;
} clt_task_list;

void clt_tasks_clear(clt_task_list *list);
void clt_tasks_free(clt_task_list *list);

/* Adds a task without pointers. */
clt_status clt_tasks_add(clt_task_list *list, const clt_task *task);

/* Adds to the task added last: inputs before outputs. */
clt_status clt_tasks_in(clt_task_list *list, const void *from);
clt_status clt_tasks_out(clt_task_list *list, void *to);

/* Fixes the pieces: their layout depends on the tasks' sizes alone, and so does the order in which
 * partial sums of squares are added. */
clt_status clt_tasks_cut(clt_task_list *list);

/* Elements of a piece of a reduction of `count`. */
int64_t clt_tasks_piece(int64_t count);

/* Consecutive pieces of one task. */
typedef struct clt_task_span {
    const clt_task *task;
    void *const *in, *const *out; /* where the task's first elements are */
    size_t from, to;              /* bytes from there on */
} clt_task_span;

/* The span that begins at `piece` and ends before `end`; returns the piece behind it. */
int64_t clt_tasks_span(const clt_task_list *list, int64_t piece, int64_t end, clt_task_span *span);

/* Bytes that one piece reads of an input. */
size_t clt_tasks_piece_bytes(const clt_task_list *list, int64_t piece);

/* Does one piece. Any thread. */
void clt_tasks_do(clt_task_list *list, int64_t piece);

/* Adds the partial results of all pieces. */
void clt_tasks_measured(const clt_task_list *list, double *sum_squares, bool *finite);

#ifdef CLT_TESTING
/* Elements of a piece; 0: as in use. */
extern atomic_llong clt_tasks_testing_piece;
#endif

#endif
