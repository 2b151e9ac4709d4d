#include "comm/core/tasks.h"

#include <string.h>

#include "base/error.h"
#include "base/vec.h"
#include "comm/core/reduction.h"
#include "comm/core/tree.h"

/* A piece has 64 KB of f32 from each device, which fit the second-level cache. A task has at most
 * MOST_PIECES pieces. */
enum { PIECE_ELEMENTS = 16384, PIECE_BYTES = 65536, MOST_PIECES = 8192 };

void clt_tasks_clear(clt_task_list *list)
{
    list->count = list->pointer_count = 0;
    list->pieces = 0;
}

void clt_tasks_free(clt_task_list *list)
{
    CLT_FREE(list->tasks, list->pointers, list->levels, list->partials);
    *list = (clt_task_list){0};
}

clt_status clt_tasks_add(clt_task_list *list, const clt_task *task)
{
    clt_task added = *task;
    added.first = list->pointer_count;
    added.in_count = added.out_count = 0;
    return CLT_PUSH(list->tasks, list->count, list->room, added);
}

static clt_status add_pointer(clt_task_list *list, void *pointer, int level)
{
    CLT_TRY(CLT_RESERVE(list->levels, list->pointer_count, list->level_room, 1));
    list->levels[list->pointer_count] = (int8_t)level;
    return CLT_PUSH(list->pointers, list->pointer_count, list->pointer_room, pointer);
}

const int8_t *clt_tasks_levels(const clt_task_list *list, const clt_task *task)
{
    return list->levels + task->first;
}

clt_status clt_tasks_in_block(clt_task_list *list, const void *from, int level)
{
    CLT_TRY(add_pointer(list, (void *)(uintptr_t)from, level));
    list->tasks[list->count - 1].in_count++;
    return CLT_OK;
}

clt_status clt_tasks_in(clt_task_list *list, const void *from)
{
    return clt_tasks_in_block(list, from, 0);
}

clt_status clt_tasks_out(clt_task_list *list, void *to)
{
    CLT_TRY(add_pointer(list, to, 0));
    list->tasks[list->count - 1].out_count++;
    return CLT_OK;
}

#ifdef CLT_TESTING
atomic_llong clt_tasks_testing_piece;
#endif

static int64_t piece_of(bool copy, int64_t count)
{
    int64_t piece = copy ? PIECE_BYTES : PIECE_ELEMENTS;
#ifdef CLT_TESTING
    const int64_t asked = atomic_load(&clt_tasks_testing_piece);
    piece = asked ? asked : piece;
#endif
    while ((count + piece - 1) / piece > MOST_PIECES)
        piece *= 2;
    return piece;
}

int64_t clt_tasks_piece(int64_t count)
{
    return piece_of(false, count);
}

clt_status clt_tasks_cut(clt_task_list *list)
{
    list->pieces = 0;
    for (int i = 0; i < list->count; i++) {
        clt_task *t = &list->tasks[i];
        t->piece = piece_of(t->copy, t->count);
        t->first_piece = list->pieces;
        list->pieces += (t->count + t->piece - 1) / t->piece;
    }
    if (list->pieces > list->partial_room) {
        clt_task_partial *more =
            clt_realloc(list->partials, (size_t)list->pieces * sizeof *list->partials);
        CLT_TRY_MEMORY(more);
        list->partials = more;
        list->partial_room = list->pieces;
    }
    return CLT_OK;
}

/* Finds the task of a piece: the last task that begins at it or before. */
static const clt_task *task_of(const clt_task_list *list, int64_t piece)
{
    int low = 0, high = list->count - 1;
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (list->tasks[middle].first_piece <= piece)
            low = middle;
        else
            high = middle - 1;
    }
    return &list->tasks[low];
}

static size_t size_of(const clt_task *t)
{
    return t->copy ? 1 : (size_t)clt_dtype_size(t->from);
}

int64_t clt_tasks_span(const clt_task_list *list, int64_t piece, int64_t end, clt_task_span *span)
{
    const clt_task *t = task_of(list, piece);
    const int64_t pieces = (t->count + t->piece - 1) / t->piece;
    const int64_t last = t->first_piece + pieces < end ? t->first_piece + pieces : end;
    const int64_t to = (last - t->first_piece) * t->piece;
    span->task = t;
    span->in = list->pointers + t->first;
    span->out = span->in + t->in_count;
    span->from = (size_t)((piece - t->first_piece) * t->piece) * size_of(t);
    span->to = (size_t)(to < t->count ? to : t->count) * size_of(t);
    return last;
}

size_t clt_tasks_piece_bytes(const clt_task_list *list, int64_t piece)
{
    const clt_task *t = task_of(list, piece);
    return (size_t)t->piece * size_of(t);
}

static void copy(const clt_task *t, char *const *pointers, int64_t from, int64_t n)
{
    for (int k = 0; k < t->out_count && t->in_count; k++)
        if (pointers[1 + k] != pointers[0])
            memcpy(pointers[1 + k] + from, pointers[0] + from, (size_t)n);
}

void clt_tasks_do(clt_task_list *list, int64_t piece)
{
    const clt_task *t = task_of(list, piece);
    char *const *pointers = (char *const *)list->pointers + t->first;
    const int64_t from = (piece - t->first_piece) * t->piece;
    const int64_t n = t->count - from < t->piece ? t->count - from : t->piece;
    clt_task_partial *partial = &list->partials[piece];
    *partial = (clt_task_partial){0, true};
    if (t->copy) {
        copy(t, pointers, from, n);
        return;
    }
    const void *in[CLT_COMM_MAX_DEVICES];
    void *out[CLT_COMM_MAX_DEVICES];
    for (int k = 0; k < t->in_count; k++)
        in[k] = pointers[k] + from * clt_dtype_size(t->from);
    for (int k = 0; k < t->out_count; k++)
        out[k] = pointers[t->in_count + k] + from * clt_dtype_size(t->to);
    double *squares = t->measure ? &partial->sum_squares : NULL;
    const clt_rounding rounding = clt_rounding_from(&t->round, from);
    if (t->tree) {
        clt_tree_sum(t->from, in, clt_tasks_levels(list, t), t->in_count, out, t->out_count, n,
                     squares, &partial->finite);
        return;
    }
    if (rounding.before) {
        const clt_reduce_sum sum = {t->from, t->to, in, t->in_count, out, t->out_count};
        clt_reduce_rounded(&sum, n, &rounding, squares, &partial->finite);
        return;
    }
    clt_reduce_for(t->from, t->to)(in, t->in_count, out, t->out_count, n, t->reduction,
                                   t->divisor    ? t->divisor
                                   : t->in_count ? t->in_count
                                                 : 1,
                                   squares, &partial->finite);
}

void clt_tasks_measured(const clt_task_list *list, double *sum_squares, bool *finite)
{
    for (int64_t i = 0; i < list->pieces; i++) {
        *sum_squares += list->partials[i].sum_squares;
        *finite &= list->partials[i].finite;
    }
}
