#include "comm/core/tree.h"

#include <stddef.h>

#include "comm/core/reduction.h"

/* Elements that are summed at once. The partial sums of all levels stay in the first-level cache.
 */
enum { BLOCK = 256, ELEMENT = 8 };

int clt_tree_level(int64_t leaves)
{
    int level = 0;
    while (level < CLT_TREE_LEVELS && (int64_t)1 << level < leaves)
        level++;
    return leaves > 0 && level < CLT_TREE_LEVELS && (int64_t)1 << level == leaves ? level : -1;
}

int clt_tree_join(const int8_t *levels, int count)
{
    int8_t stack[CLT_COMM_MAX_DEVICES];
    int n = 0;
    for (int k = 0; k < count; k++) {
        int8_t level = levels[k];
        for (; n && stack[n - 1] == level; n--)
            level++;
        if (n && stack[n - 1] < level)
            return -1;
        stack[n++] = level;
    }
    return n == 1 ? stack[0] : -1;
}

typedef struct scratch {
    _Alignas(64) char sums[CLT_TREE_LEVELS][BLOCK * ELEMENT];
} scratch;

/* Adds up n elements. The stack holds the nodes whose neighbour has not come yet, as the digits of
 * a binary counter. The last node's neighbour is added into the outputs. */
static void sum_block(clt_reduce_fn add, const void *const *in, const int8_t *levels, int in_count,
                      void *const *out, int out_count, int64_t n, double *squares, bool *finite)
{
    scratch s;
    const void *stack[CLT_TREE_LEVELS + 1];
    int8_t level[CLT_TREE_LEVELS + 1];
    int depth = 0;
    for (int k = 0; k < in_count; k++) {
        stack[depth] = in[k];
        level[depth++] = levels[k];
        while (depth > 1 && level[depth - 1] == level[depth - 2]) {
            const bool last = depth == 2 && k == in_count - 1;
            void *const own = s.sums[depth - 2];
            depth--;
            if (last)
                add(stack, 2, out, out_count, n, CLT_COMM_SUM, 1, squares, finite);
            else
                add(stack + depth - 1, 2, &own, 1, n, CLT_COMM_SUM, 1, NULL, finite);
            if (last)
                return;
            stack[depth - 1] = own;
            level[depth - 1]++;
        }
    }
    add(stack, 1, out, out_count, n, CLT_COMM_SUM, 1, squares, finite);
}

void clt_tree_sum(clt_dtype dtype, const void *const *in, const int8_t *levels, int in_count,
                  void *const *out, int out_count, int64_t n, double *squares, bool *finite)
{
    const clt_reduce_fn add = clt_reduce_for(dtype, dtype);
    const int64_t size = clt_dtype_size(dtype);
    const int64_t most = in_count > 2 || squares ? BLOCK : n;
    const void *from[CLT_COMM_MAX_DEVICES];
    void *to[CLT_COMM_MAX_DEVICES];
    double all = 0;
    bool finite_all = true;
    for (int64_t at = 0; at < n; at += most) {
        const int64_t count = n - at < most ? n - at : most;
        double of_block = 0;
        bool is_finite = true;
        for (int k = 0; k < in_count; k++)
            from[k] = (const char *)in[k] + at * size;
        for (int k = 0; k < out_count; k++)
            to[k] = (char *)out[k] + at * size;
        sum_block(add, from, levels, in_count, to, out_count, count, squares ? &of_block : NULL,
                  &is_finite);
        all += of_block;
        finite_all = finite_all && is_finite;
    }
    if (squares) {
        *squares = all;
        *finite = finite_all;
    }
}
