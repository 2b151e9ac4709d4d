#include "ops/elementwise/elementwise_gpu.h"

#include "ops/core/group_gpu.h"

enum { DIMS = CLT_ELEMENTWISE_DIMS };

bool clt_elementwise_gpu_accepts(const clt_node *node, const clt_target *target, char *why)
{
    enum { MOST = 1 << 30 };
    if (!clt_gpu_group_accepts(node, target, why))
        return false;
    const clt_strided strided = clt_elementwise_strided(node, target->lanes);
    if (clt_type_elements(&node->out[0]->type, target->max_batch) > MOST)
        return clt_decline(why, "more than %d elements", MOST);
    return strided.rank <= DIMS ||
           clt_decline(why, "an iteration over %d dimensions", strided.rank);
}

/* Whether the result and every operand that is not broadcast can be read as float4. Values begin at
 * multiples of 16 bytes. A sample within an input begins at a multiple of the sample's size. */
static bool fits_vectors(const clt_strided *strided, const clt_type *result)
{
    const int last = strided->rank - 1;
    if (clt_strided_flat(strided))
        return !clt_type_has_batch(result) || clt_type_coefficient(result) % 4 == 0;
    for (int i = 0; i < strided->n_arrays; i++)
        for (int k = 0; k <= last; k++) {
            const int64_t stride = strided->strides[i][k];
            if (strided->strides[i][last] && (k < last ? stride % 4 : stride != 1))
                return false;
        }
    return strided->dims[last] % 4 == 0;
}

void clt_elementwise_gpu_emit(const clt_node *node, const clt_target *target, clt_program *p,
                              const char *body)
{
    static const clt_elementwise_attr none;
    char kinds[CLT_ELEMENTWISE_KINDS];
    const clt_elementwise_attr *attr = node->op->attr_bytes ? node->attr : &none;
    const clt_strided strided = clt_elementwise_strided(node, target->lanes);
    const bool flat = clt_strided_flat(&strided);
    const clt_extent count = clt_extent_elements(&node->out[0]->type);
    const int v = fits_vectors(&strided, &node->out[0]->type) ? 4 : 1;
    unsigned repeated = 0;
    for (int i = 0; !flat && i < node->n_in; i++)
        if (!strided.strides[i][strided.rank - 1])
            repeated |= 1u << i;
    clt_launch_begin(p, "elementwise/gpu/elementwise.cl", flat ? "flat" : "spread",
                     "-DN_IN=%d -DV=%d -DSPREAD=%d -DREPEAT=%u -DBODY=%s%s", node->n_in, v,
                     flat ? 0 : strided.rank, repeated, body, clt_elementwise_kinds(node, kinds));
    clt_args_in(p, node->n_in);
    CLT_ARGS(p, CLT_OUT(0), CLT_LONG(count));
    for (int i = 0; i < CLT_ELEMENTWISE_NUMBERS; i++)
        CLT_ARGS(p, CLT_FLOAT((double)attr->p[i]));
    CLT_ARGS(p, CLT_RUN(CLT_RUN_COUNT));
    if (!flat) {
        clt_arg_strided_sizes(p, &strided, DIMS);
        for (int i = 0; i < node->n_in; i++)
            clt_arg_strided_strides(p, &strided, i, DIMS);
    }
    clt_range_gpu(p, count, v);
}
