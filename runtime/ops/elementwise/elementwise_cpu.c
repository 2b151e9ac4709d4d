#include "ops/elementwise/elementwise_cpu.h"

enum { DIMS = CLT_ELEMENTWISE_DIMS };

bool clt_elementwise_cpu_accepts(const clt_node *node, const clt_target *target, char *why)
{
    const clt_strided strided = clt_elementwise_strided(node, target->lanes);
    const int width = target->caps->vector_width;
    if (!clt_accepts_vectors(target, why))
        return false;
    if (strided.rank < 1 || strided.rank > DIMS)
        return clt_decline(why, "an iteration over %d dimensions", strided.rank);
    const int64_t line = clt_dim(strided.dims[strided.rank - 1], target->max_batch);
    if (line < width)
        return clt_decline(why, "lines of %lld elements", (long long)line);
    return true;
}

/* Elements of a work-item: whole vectors, about 16 Ki elements, or fewer if compute units would
 * otherwise have no work. */
static int64_t share_of(const clt_target *target, clt_extent count)
{
    enum { ELEMENTS = 16384, LEAST = 256, ITEMS_A_UNIT = 4 };
    const int64_t items = ITEMS_A_UNIT * (int64_t)target->caps->compute_units;
    const int64_t share = clt_extent_at(count, target->max_batch) / items / LEAST * LEAST;
    return share > ELEMENTS ? ELEMENTS : share < LEAST ? LEAST : share;
}

void clt_elementwise_cpu_emit(const clt_node *node, const clt_target *target, clt_program *p,
                              const char *body)
{
    static const clt_elementwise_attr none;
    char kinds[CLT_ELEMENTWISE_KINDS];
    const clt_elementwise_attr *attr = node->op->attr_bytes ? node->attr : &none;
    const clt_strided strided = clt_elementwise_strided(node, target->lanes);
    const clt_extent count = clt_extent_stored(node->out[0], target->lanes);
    const int64_t share = share_of(target, count);
    int splat = 0;
    for (int i = 0; i < node->n_in; i++)
        splat |= (strided.strides[i][strided.rank - 1] == 0) << i;
    clt_launch_begin(p, "elementwise/cpu/elementwise.cl", "runs",
                     "-DVW=%d -DN_IN=%d -DSPLAT=%d -DBODY=%s%s", target->caps->vector_width,
                     node->n_in, splat, body, clt_elementwise_kinds(node, kinds));
    clt_args_in(p, node->n_in);
    CLT_ARGS(p, CLT_OUT(0), CLT_LONG(count), CLT_LONG(clt_fixed(share)));
    for (int i = 0; i < CLT_ELEMENTWISE_NUMBERS; i++)
        CLT_ARGS(p, CLT_FLOAT((double)attr->p[i]));
    CLT_ARGS(p, CLT_RUN(CLT_RUN_COUNT));
    clt_arg_strided_sizes(p, &strided, DIMS);
    for (int i = 0; i < node->n_in; i++)
        clt_arg_strided_strides(p, &strided, i, DIMS);
    clt_range1(p, clt_extent_ceil(count, share, 1), 1);
}
