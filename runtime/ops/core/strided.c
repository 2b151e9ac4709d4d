#include "ops/core/strided.h"

#include "base/error.h"

void clt_row_major(int rank, const int64_t *dims, int64_t *strides)
{
    int64_t stride = 1;
    for (int k = rank - 1; k >= 0; k--) {
        strides[k] = stride;
        stride *= dims[k];
    }
}

static void drop(clt_strided *w, int at)
{
    w->rank--;
    for (int k = at; k < w->rank; k++) {
        w->dims[k] = w->dims[k + 1];
        for (int i = 0; i < w->n_arrays; i++)
            w->strides[i][k] = w->strides[i][k + 1];
    }
}

static bool goes_on(const clt_strided *w, int k)
{
    for (int i = 0; i < w->n_arrays; i++)
        if (w->strides[i][k] != w->strides[i][k + 1] * w->dims[k + 1])
            return false;
    return true;
}

void clt_strided_merge(clt_strided *w)
{
    for (int k = w->rank - 1; k >= 0; k--)
        if (w->dims[k] == 1)
            drop(w, k);
    for (int k = w->rank - 2; k >= 0; k--)
        if (goes_on(w, k)) {
            w->dims[k + 1] *= w->dims[k];
            drop(w, k);
        }
}

bool clt_strided_flat(const clt_strided *w)
{
    if (w->rank > 1)
        return false;
    for (int i = 0; w->rank && i < w->n_arrays; i++)
        if (w->strides[i][0] != 1)
            return false;
    return true;
}

static bool fits(clt_program *p, const clt_strided *w, int count)
{
    if (w->rank > count && p->status == CLT_OK)
        p->status =
            clt_fail(CLT_UNSUPPORTED,
                     "the operands need an iteration over %d dimensions, and the kernel has %d: "
                     "broadcast some of them first (clt_expand)",
                     w->rank, count);
    return w->rank <= count;
}

void clt_arg_strided_sizes(clt_program *p, const clt_strided *w, int count)
{
    if (!fits(p, w, count))
        return;
    for (int k = w->rank - count; k < w->rank; k++) {
        clt_extent size = k < 0 ? clt_fixed(1) : clt_extent_dim(w->dims[k]);
        if (size.pre && w->lanes)
            size.div = w->lanes;
        CLT_ARGS(p, CLT_LONG(size));
    }
}

void clt_arg_strided_strides(clt_program *p, const clt_strided *w, int array, int count)
{
    if (!fits(p, w, count))
        return;
    for (int k = w->rank - count; k < w->rank; k++)
        CLT_ARGS(p, CLT_LONG(k < 0 ? clt_fixed(0) : clt_extent_dim(w->strides[array][k])));
}
