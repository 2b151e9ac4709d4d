#include "ops/shape/move_gpu.h"

enum { DIMS = 8, UNIT = 16 }; /* the most bytes that a work-item moves */

/* A sample within an input begins at a multiple of the sample's size. */
static bool images_fit(const clt_node *node, int operand, int output, int v)
{
    const clt_type *types[] = {&node->in[operand]->type, &node->out[output]->type};
    for (int i = 0; i < 2; i++)
        if (clt_type_has_batch(types[i]) && clt_type_coefficient(types[i]) % v)
            return false;
    return true;
}

static bool move_fits(const clt_node *node, const clt_move *move, int operand, int v)
{
    const clt_strided *w = &move->strided;
    const int last = w->rank - 1;
    if (last < 0 || w->dims[last] % v || !images_fit(node, operand, move->output, v) ||
        move->from.mul % v || move->from.add % v || move->to.mul % v || move->to.add % v)
        return false;
    for (int a = 0; a < 2; a++)
        for (int k = 0; k <= last; k++)
            if (k < last ? w->strides[a][k] % v : w->strides[a][k] != 1)
                return false;
    return true;
}

static const char *type_of(int bytes)
{
    return bytes == 16  ? "uint4"
           : bytes == 8 ? "uint2"
           : bytes == 4 ? "uint"
           : bytes == 2 ? "ushort"
                        : "uchar";
}

static const char *element_of(int bytes)
{
    return bytes == 8 ? "ulong" : type_of(bytes);
}

/* Adds DIMS arguments: the numbers are the last `rank`; those before are `default_value`. */
static void arg_dims(clt_program *p, const int64_t *numbers, int rank, int default_value)
{
    for (int k = rank - DIMS; k < rank; k++)
        CLT_ARGS(p, CLT_INT(k < 0 ? clt_fixed(default_value) : clt_extent_dim(numbers[k])));
}

void clt_move_gpu_emit(const clt_node *node, clt_move *move, int operand, clt_program *p)
{
    const int bytes = clt_dtype_size(move->dtype);
    clt_strided *w = &move->strided;
    int v = UNIT / bytes;
    clt_strided_merge(w);
    while (v > 1 && !move_fits(node, move, operand, v))
        v /= 2;
    clt_launch_begin(p, "shape/gpu/move.cl", "move", "-DE=%s -DT=%s -DV=%d -DRANK=%d",
                     element_of(bytes), type_of(bytes * v), v, w->rank);
    CLT_ARGS(p, CLT_IN(operand), CLT_OUT(move->output), CLT_INT(move->from), CLT_INT(move->to),
             CLT_INT(move->count));
    arg_dims(p, w->dims, w->rank, 1);
    arg_dims(p, w->strides[0], w->rank, 0);
    arg_dims(p, w->strides[1], w->rank, 0);
    clt_range_gpu(p, move->count, v);
}

/* The axes of a result in the order of the kernel's iteration. */
typedef struct placing {
    int rank;
    int64_t n[DIMS], start[DIMS], size[DIMS], step[DIMS], stride[DIMS];
} placing;

static bool is_whole(const placing *a, int k)
{
    return !a->start[k] && a->step[k] == 1 && a->size[k] == a->n[k];
}

/* Merges each axis with the axes after it if those are copied completely. */
static placing placing_of(const clt_node *node, const int64_t *start, const int64_t *step)
{
    const clt_type *in = &node->in[0]->type, *out = &node->out[0]->type;
    placing a = {.rank = 0};
    clt_row_major(in->rank, in->dims, a.stride);
    for (int k = 0; k < in->rank; k++) {
        int at = a.rank++;
        a.n[at] = out->dims[k];
        a.start[at] = start[k];
        a.size[at] = in->dims[k];
        a.step[at] = step[k];
        a.stride[at] = a.stride[k];
    }
    for (int k = a.rank - 2; k >= 0; k--) {
        if (a.step[k] != 1 || !is_whole(&a, k + 1))
            continue;
        a.start[k] *= a.n[k + 1];
        a.size[k] *= a.n[k + 1];
        a.n[k] *= a.n[k + 1];
        a.stride[k] = a.stride[k + 1];
        a.rank--;
        for (int j = k + 1; j < a.rank; j++) {
            a.n[j] = a.n[j + 1];
            a.start[j] = a.start[j + 1];
            a.size[j] = a.size[j + 1];
            a.step[j] = a.step[j + 1];
            a.stride[j] = a.stride[j + 1];
        }
    }
    return a;
}

static bool place_fits(const clt_node *node, const placing *a, int v)
{
    const int last = a->rank - 1;
    if (last < 0 || a->step[last] != 1 || a->n[last] % v || a->start[last] % v ||
        a->size[last] % v || !images_fit(node, 0, 0, v))
        return false;
    for (int k = 0; k < last; k++)
        if (a->stride[k] % v)
            return false;
    return true;
}

void clt_place_gpu_emit(const clt_node *node, const int64_t *start, const int64_t *step,
                        uint32_t bits, clt_program *p)
{
    const int bytes = clt_dtype_size(node->out[0]->type.dtype);
    const clt_extent count = clt_extent_elements(&node->out[0]->type);
    const placing a = placing_of(node, start, step);
    bool stepped = false;
    int v = UNIT / bytes;
    while (v > 1 && !place_fits(node, &a, v))
        v /= 2;
    for (int k = 0; k < a.rank; k++)
        stepped = stepped || a.step[k] != 1;
    clt_launch_begin(p, "shape/gpu/move.cl", "place", "-DE=%s -DT=%s -DV=%d -DRANK=%d -DSTEPPED=%d",
                     element_of(bytes), type_of(bytes * v), v, a.rank, stepped);
    CLT_ARGS(p, CLT_IN(0), CLT_OUT(0), CLT_INT(count), CLT_FIXED((int32_t)bits));
    arg_dims(p, a.n, a.rank, 1);
    arg_dims(p, a.start, a.rank, 0);
    arg_dims(p, a.size, a.rank, 1);
    arg_dims(p, a.step, a.rank, 1);
    arg_dims(p, a.stride, a.rank, 0);
    clt_range_gpu(p, count, v);
}
