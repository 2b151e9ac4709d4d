/* Parts of operands and attributes, for test_dims.c. */
#ifndef TESTS_TRAIN_DIMS_PARTS_H
#define TESTS_TRAIN_DIMS_PARTS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"
#include "ops/core/dims.h"

enum { MOST = 1 << 14 };

static uint64_t random_state = 1;

static inline void fill(const clt_type *type, char *data)
{
    const int64_t count = clt_type_elements(type, 1);
    assert_true(count <= MOST);
    for (int64_t i = 0; i < count; i++) {
        random_state = random_state * 6364136223846793005u + 1442695040888963407u;
        const uint32_t bits = (uint32_t)(random_state >> 33);
        if (type->dtype == CLT_F32)
            ((float *)(void *)data)[i] = 0.25f + (float)(bits % 1000) / 1000;
        else if (type->dtype == CLT_I32)
            ((int32_t *)(void *)data)[i] = (int32_t)(bits % 4);
        else
            data[i] = (char)(bits % 2);
    }
}

/* Copies rows [first, first + rows) of dimension `axis` from `data` into `part`. */
static inline void cut(const clt_type *type, int axis, int64_t first, int64_t rows,
                       const char *data, char *part)
{
    const size_t bytes = (size_t)clt_dtype_size(type->dtype);
    size_t outer = 1, inner = bytes;
    for (int k = 0; k < axis; k++)
        outer *= (size_t)type->dims[k];
    for (int k = axis + 1; k < type->rank; k++)
        inner *= (size_t)type->dims[k];
    const size_t whole = (size_t)type->dims[axis] * inner, size = (size_t)rows * inner;
    for (size_t i = 0; i < outer; i++)
        memcpy(part + i * size, data + i * whole + (size_t)first * inner, size);
}

static inline int axis_of(const signed char *labels, int rank, int label)
{
    for (int k = 0; k < rank; k++)
        if (labels[k] == label)
            return k;
    return -1;
}

/* How a node is split along a dimension. */
typedef struct split {
    int label; /* -1: whole */
    int places, blocks;
    clt_dim_behaviour behaviour;
    int64_t least, most; /* sizes of the dimension in operands and results */
    bool kept;           /* the results have it */
} split;

/* Sets the sizes of a split. Returns false if the dimension does not exist or is too small. */
static inline bool find_split(const clt_node *node, const clt_node_dims *dims, split *s)
{
    const bool halo = s->behaviour == CLT_DIM_HALO;
    s->least = INT64_MAX;
    for (int i = 0; i < node->n_in + node->n_out; i++) {
        const int o = i - node->n_in;
        const clt_value *value = o >= 0 ? node->out[o] : node->in[i];
        const int axis =
            !value ? -1 : axis_of(o >= 0 ? dims->out[o] : dims->in[i], value->type.rank, s->label);
        if (axis < 0)
            continue;
        const int64_t size = value->type.dims[axis];
        const int blocks =
            s->blocks * (o >= 0 ? dims->out_blocks[o][axis] : dims->in_blocks[i][axis]);
        if (!halo && (size % blocks || size / blocks < s->places))
            return false;
        s->least = size < s->least ? size : s->least;
        s->most = size > s->most ? size : s->most;
        s->kept = s->kept || o >= 0;
    }
    return s->most > 0 &&
           (halo ? s->least >= 4 : clt_dims_divide(dims, s->label, s->blocks, s->places));
}

/* The rows of a part with a halo, of `size` rows. */
static inline void rows_of(const split *s, int64_t size, int half, int64_t *first, int64_t *rows)
{
    if (s->kept) {
        /* Each part lacks one row of the smaller size, and two of the larger with a stride of 2. */
        const int64_t missing = s->most == 2 * s->least ? 2 * size / s->most : 1;
        *rows = size - missing;
        *first = half ? missing : 0;
    } else {
        const int64_t upper = (s->least + 1) / 2;
        *rows = (half ? s->least - upper : upper) + size - s->least;
        *first = half ? upper : 0;
    }
}

/* Copies a part of `data` along dimension `axis`, and sets its type. */
static inline void take_part(const split *s, const clt_type *whole, int axis, int blocks, int place,
                             const char *data, clt_type *type, char *part)
{
    const clt_sharding by = {axis, s->blocks * blocks};
    const clt_coordinate at = {place, s->places};
    const size_t bytes = (size_t)clt_dtype_size(whole->dtype);
    *type = *whole;
    if (s->behaviour == CLT_DIM_HALO) {
        int64_t first;
        rows_of(s, whole->dims[axis], place, &first, &type->dims[axis]);
        cut(whole, axis, first, type->dims[axis], data, part);
        return;
    }
    assert_int_equal(clt_sharding_type("value", whole, by, at, type), CLT_OK);
    for (int64_t i = 0; i < clt_sharding_pieces(whole, by); i++) {
        const clt_piece piece = clt_sharding_piece(whole, by, at, i);
        memcpy(part + (size_t)piece.part * bytes, data + (size_t)piece.whole * bytes,
               (size_t)piece.count * bytes);
    }
}

/* The attributes of a part. Returns false if the operator refuses the split. */
static inline bool part_attributes(const clt_node *node, const split *s, int place, char *attr)
{
    const clt_node_part part = {CLT_AXIS_TENSOR, s->label, s->blocks, {place, s->places}};
    memcpy(attr, node->attr ? node->attr : "", node->op->attr_bytes);
    if (s->label < 0)
        return true;
    if (s->behaviour != CLT_DIM_HALO) {
        const bool fits = !node->op->localise || node->op->localise(node, &part, attr) == CLT_OK;
        assert_true(fits || strstr(clt_error_message(), "cannot be divided"));
        return fits;
    }
    clt_node_dims dims;
    clt_node_dims_of(node, &dims);
    const int axis = axis_of(dims.out[0], node->out[0]->type.rank, s->label);
    for (const clt_attribute *a = node->op->attributes; axis >= 0 && a && a->name; a++)
        if (!strcmp(a->name, "in")) {
            int64_t first, rows;
            int *size = (int *)(void *)(attr + a->offset) + axis - 2;
            rows_of(s, *size, 0, &first, &rows);
            *size = *size ? (int)rows : 0;
        }
    return true;
}

#endif
