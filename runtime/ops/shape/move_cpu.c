/* Launches of clkernels/shape/cpu/move.cl. */
#include "ops/shape/move.h"

enum { DIMS = 8 };

/* Elements moved for one index of the iteration's first dimension. */
static int64_t inner_of(const clt_strided *strided)
{
    int64_t inner = 1;
    for (int k = 1; k < strided->rank; k++)
        inner *= strided->dims[k];
    return inner;
}

bool clt_move_cpu_fills(const clt_node *node, const clt_target *target, const clt_move *move,
                        char *why)
{
    clt_strided strided = move->strided;
    if (!clt_accepts_cpu_vectors(node, target, why))
        return false;
    clt_strided_merge(&strided);
    for (int k = 1; k < strided.rank; k++)
        if (strided.dims[k] < 0)
            return clt_decline(why, "the batch is not the first dimension");
    const int64_t all = clt_type_coefficient(&node->out[0]->type);
    const bool batch = clt_type_has_batch(&node->out[0]->type);
    if (strided.rank < 1 || strided.strides[1][0] < 0 || move->to.pre ||
        strided.dims[0] * strided.strides[1][0] != (batch ? -all : all))
        return clt_decline(why, "the result's first dimension is filled too");
    return true;
}

/* Elements of a work-item: about 16 Ki, or fewer if compute units would otherwise have no work. */
static int64_t share_of(const clt_target *target, clt_extent count, int64_t unit)
{
    enum { ELEMENTS = 16384, ITEMS_A_UNIT = 4 };
    const int64_t items = ITEMS_A_UNIT * (int64_t)target->caps->compute_units;
    const int64_t most = clt_extent_at(count, target->max_batch) / items / unit;
    const int64_t units = ELEMENTS / unit < most ? ELEMENTS / unit : most;
    return unit * (units > 1 ? units : 1);
}

void clt_move_emit_cpu(clt_move *move, int operand, const uint64_t *bits, const clt_target *target,
                       clt_program *p)
{
    enum { LEAST = 1024 };
    const int size = clt_dtype_size(move->dtype);
    clt_strided_merge(&move->strided);
    const int64_t inner = bits ? inner_of(&move->strided) : LEAST;
    const int64_t share = share_of(target, move->count, inner);
    int vector = target->caps->vector_width * 4 / size;
    vector = vector > 16 ? 16 : vector < 8 ? 8 : vector;
    clt_launch_begin(p, "shape/cpu/move.cl", "move", "-DT=%s -DVT=%d -DFILL=%d",
                     clt_move_unit(move->dtype), vector, bits != NULL);
    CLT_ARGS(p, CLT_IN(operand), CLT_OUT(move->output), CLT_LONG(move->from), CLT_LONG(move->to),
             CLT_LONG(move->count), CLT_LONG(clt_fixed(share)));
    if (bits) {
        CLT_ARGS(p, CLT_LONG(clt_fixed((int64_t)*bits)), CLT_LONG(clt_fixed(inner)),
                 CLT_LONG(clt_fixed(move->strided.strides[1][0])));
    }
    clt_arg_strided_sizes(p, &move->strided, DIMS);
    clt_arg_strided_strides(p, &move->strided, 0, DIMS);
    clt_arg_strided_strides(p, &move->strided, 1, DIMS);
    clt_range1(p, clt_extent_ceil(move->count, share, 1), 1);
}
