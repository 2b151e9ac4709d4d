#include "ops/shape/move.h"

#include <string.h>

enum { DIMS = 8, CHUNK = 16 };

const char *clt_move_unit(clt_dtype dtype)
{
    switch (clt_dtype_size(dtype)) {
    case 1:
        return "uchar";
    case 2:
        return "ushort";
    case 8:
        return "ulong";
    default:
        return "uint";
    }
}

clt_move clt_move_of(const clt_type *from, const clt_type *to)
{
    clt_move move = {.strided = {.rank = from->rank, .n_arrays = 2},
                     .from = clt_fixed(0),
                     .to = clt_fixed(0),
                     .count = clt_extent_elements(from),
                     .dtype = from->dtype};
    memcpy(move.strided.dims, from->dims, (size_t)from->rank * sizeof(int64_t));
    clt_row_major(from->rank, from->dims, move.strided.strides[0]);
    clt_row_major(to->rank, to->dims, move.strided.strides[1]);
    return move;
}

void clt_move_shift(clt_extent *offset, int64_t index, int64_t stride)
{
    if (stride < 0) {
        offset->mul = (offset->pre ? offset->mul : 0) - index * stride;
        offset->pre = 1;
    } else if (offset->pre) {
        offset->add += index * stride;
    } else {
        /* A constant offset is kept in `add`, so that a multiple of the batch size can be added in
         * `mul`. */
        offset->add += offset->mul + index * stride;
        offset->mul = 0;
    }
}

void clt_move_emit(clt_move *move, int operand, const clt_target *target, clt_program *p)
{
    (void)target;
    clt_strided_merge(&move->strided);
    clt_launch_begin(p, "shape/portable/move.cl", "move", "-DT=%s", clt_move_unit(move->dtype));
    CLT_ARGS(p, CLT_IN(operand), CLT_OUT(move->output), CLT_LONG(move->from), CLT_LONG(move->to),
             CLT_LONG(move->count));
    clt_arg_strided_sizes(p, &move->strided, DIMS);
    clt_arg_strided_strides(p, &move->strided, 0, DIMS);
    clt_arg_strided_strides(p, &move->strided, 1, DIMS);
    clt_range1(p, clt_extent_ceil(move->count, CHUNK * 16, 16), 16);
}

void clt_fill_emit(const clt_node *node, uint64_t bits, const clt_target *target, clt_program *p)
{
    const clt_type *type = &node->out[0]->type;
    const clt_extent count = clt_extent_elements(type);
    (void)target;
    clt_launch_begin(p, "shape/portable/move.cl", "fill", "-DT=%s", clt_move_unit(type->dtype));
    CLT_ARGS(p, CLT_OUT(0), CLT_LONG(count), CLT_LONG(clt_fixed((int64_t)bits)));
    clt_range1(p, clt_extent_ceil(count, CHUNK * 16, 16), 16);
}
