/*
 * How the holders of a parameter server divide a model.
 *
 * The parameters, in the graph's order, are one line of elements of four bytes. It is cut into as
 * many equal ranges as there are holders, wherever the cuts fall in a tensor. So two holders differ
 * by one element at most. States are whole, and belong to the first holder.
 *
 * Rows: a table that only embeddings read, by indices that are an input of the graph, has a
 * gradient in the rows of the batch alone. Only these rows travel, in both directions. Of a frozen
 * table they travel to the worker.
 */
#ifndef CLT_TRAIN_ASYNC_LAYOUT_H
#define CLT_TRAIN_ASYNC_LAYOUT_H

#include "graph/graph.h"

typedef struct clt_async_tensor {
    char *name;
    int64_t begin, elements; /* in the line of parameters, or in that of states */
    int64_t width;           /* elements of a row, if only rows travel; else 0 */
    char *indices;           /* with rows: the input that has them */
    clt_dtype dtype;
    bool trained;
} clt_async_tensor;

typedef struct clt_async_layout {
    clt_async_tensor *parameters, *states;
    int n_parameters, n_states;
    int64_t elements, state_elements; /* all of them */
    int holders;
    uint64_t hash; /* of the graph, its groups and the number of holders */
} clt_async_layout;

/* Part [from, to) of a tensor, in elements of the tensor. */
typedef struct clt_async_piece {
    int64_t from, to;
} clt_async_piece;

/* The rows of a batch in one table, in ascending order. */
typedef struct clt_async_rows {
    uint32_t *rows;
    int count, room;
} clt_async_rows;

/* Errors: INVALID_ARGUMENT (more holders than elements, or fewer than one), UNSUPPORTED (a carried
 * state, or one with rows of samples). */
clt_status clt_async_layout_make(const clt_graph *graph, int holders, clt_async_layout *layout);
void clt_async_layout_free(clt_async_layout *layout);

/* Returns the first element of a holder's range of the line; of number `holders`, the end. */
int64_t clt_async_cut(const clt_async_layout *layout, int holder);

/* Returns the holder's piece of a parameter; from == to if it has none. */
clt_async_piece clt_async_piece_of(const clt_async_layout *layout, int holder, int parameter);

/* Makes ascending rows without repetition of `count` indices. Errors: INVALID_ARGUMENT names the
 * index that is out of range. */
clt_status clt_async_rows_make(const clt_async_tensor *table, const int32_t *indices, int64_t count,
                               clt_async_rows *rows);

/* Returns how many elements of a holder's piece travel: with rows (may be NULL) those in the rows.
 */
int64_t clt_async_count(const clt_async_tensor *tensor, clt_async_piece piece,
                        const clt_async_rows *rows);

/* Copies these elements between the whole tensor, or what begins at element `origin` of it, and
 * a message without gaps. Returns the number of elements. */
int64_t clt_async_pick(const clt_async_tensor *tensor, clt_async_piece piece,
                       const clt_async_rows *rows, const float *tensor_data, int64_t origin,
                       float *message);
int64_t clt_async_place(const clt_async_tensor *tensor, clt_async_piece piece,
                        const clt_async_rows *rows, const float *message, float *tensor_data,
                        int64_t origin);

#endif
