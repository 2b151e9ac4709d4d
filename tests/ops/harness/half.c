#include "ops/harness/half.h"

double op_half_nearest(clt_dtype dtype, double v)
{
    const int bits = dtype == CLT_F16 ? 11 : 8, least = dtype == CLT_F16 ? -24 : -133;
    int exponent;
    if (v == 0 || !isfinite(v))
        return v;
    frexp(v, &exponent);
    const int last = exponent - bits > least ? exponent - bits : least;
    const double rounded = ldexp(nearbyint(ldexp(v, -last)), last);
    return dtype == CLT_F16 && fabs(rounded) > 65504 ? copysign(INFINITY, v) : rounded;
}

/* Whether a variant that reads the value rounds it to the 16 bits of another operand. */
static bool op_is_narrowed(const clt_plan *plan, const clt_value *value)
{
    for (int i = 0; i < plan->n_nodes; i++) {
        const clt_plan_node *pn = &plan->nodes[i];
        bool reads = false, half = false;
        for (int j = 0; j < pn->node->n_in; j++) {
            reads = reads || (j < 2 && pn->node->in[j] == value); /* a bias stays f32 */
            half = half || op_is_half(pn->node->in[j]);
        }
        if (reads && half && pn->variant && (pn->variant->traits & CLT_NARROWS))
            return true;
    }
    return false;
}

bool op_half_rounds(const op_half *h, const clt_plan *plan, const char *name, int index)
{
    char text[32];
    snprintf(text, sizeof text, "%s%d", name, index);
    for (int i = 0; h->precision && i < plan->graph->n_nodes; i++) {
        const clt_node *node = plan->graph->nodes[i];
        if (!strcmp(node->op->name, "scale") && node->in[0]->name &&
            !strcmp(node->in[0]->name, text) &&
            (op_is_half(node->out[0]) || op_is_narrowed(plan, node->out[0])))
            return true;
    }
    return false;
}

void op_half_round(const op_half *h, const clt_plan *plan, const char *name, int index,
                   int64_t count, double *numbers)
{
    if (op_half_rounds(h, plan, name, index))
        for (int64_t k = 0; k < count; k++)
            numbers[k] = op_half_nearest(h->precision, numbers[k]);
}

double op_half_error(const op_half *h, const clt_value *value, double want, double bound)
{
    if (!h->precision)
        return 0;
    const double eps = h->precision == CLT_F16 ? 0x1p-11 : 0x1p-8;
    const double least = h->precision == CLT_F16 ? 0x1p-24 : 0;
    (void)value;
    return eps * fabs(want) + 4 * eps * bound + 4 * least;
}
