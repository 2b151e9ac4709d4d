/* Convolutions of a part of an image: the rows that a part of the result needs, and the node that
 * computes the part. */
#include <string.h>

#include "ops/conv/conv.h"

static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

static int64_t at_most(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The convolution along the window's dimension. */
typedef struct one_axis {
    int64_t stride, padding,
        reach;       /* reach: distance between the kernel's first and last element */
    int64_t operand; /* elements of operand 0 */
} one_axis;

static one_axis axis_of(const clt_node *node, int dim)
{
    const clt_conv_shape s = clt_conv_shape_of(node);
    const int i = dim - 2;
    return (one_axis){.stride = s.stride[i],
                      .padding = s.padding[i],
                      .reach = (int64_t)s.dilation[i] * (s.kernel[i] - 1),
                      .operand = node->in[0]->type.dims[dim]};
}

/* Rows of dy that the rows of dx need. Rows beyond dy would be zeros, so the window leaves them
 * out. The first row of dy lies at or before the first row of dx, even if the stride is larger than
 * the kernel. */
static void reach_data_grad(const one_axis *a, clt_window *w)
{
    const int64_t last = floor_div(w->end - 1 + a->padding, a->stride);
    const int64_t first = -floor_div(a->reach - w->begin - a->padding, a->stride);
    w->from = at_most(first, floor_div(w->begin + a->padding, a->stride));
    w->from = at_most(w->from < 0 ? 0 : w->from, a->operand - 1);
    w->to = at_most(last, a->operand - 1) + 1;
}

bool clt_conv_reach(const clt_node *node, clt_window *w)
{
    if (w->dim < 2 || clt_conv_is_weight_grad(node))
        return false;
    const one_axis a = axis_of(node, w->dim);
    if (clt_conv_is_data_grad(node)) {
        reach_data_grad(&a, w);
    } else {
        w->from = w->begin * a.stride - a.padding;
        w->to = (w->end - 1) * a.stride - a.padding + a.reach + 1;
    }
    return true;
}

/* Sets the attributes of one axis: no padding, and the size of dx. */
static void set_axis(const clt_op *op, void *attr, int i, int size)
{
    clt_conv2d_attr *two = attr;
    clt_conv3d_attr *three = attr;
    const bool is_3d = clt_is_conv3d(op);
    (is_3d ? three->padding : two->padding)[i] = 0;
    (is_3d ? three->in : two->in)[i] = size;
}

clt_value *clt_conv_within(const clt_node *node, const clt_window *w, clt_value *const *in)
{
    union {
        clt_conv2d_attr two;
        clt_conv3d_attr three;
    } attr;
    const one_axis a = axis_of(node, w->dim);
    const bool data_grad = clt_conv_is_data_grad(node);
    /* Without padding, dx begins at the position of dy's first row. */
    const int64_t skipped = data_grad ? w->begin - (w->from * a.stride - a.padding) : 0;
    const int64_t least = (w->to - w->from - 1) * a.stride + a.reach + 1;
    const int64_t wanted = skipped + w->end - w->begin;
    const int64_t size = data_grad ? (least > wanted ? least : wanted) : 0;
    memcpy(&attr, node->attr, node->op->attr_bytes);
    set_axis(node->op, &attr, w->dim - 2, (int)size);
    clt_node *local = clt_graph_add(node->graph, node->op, in, node->n_in, &attr);
    if (!local || !data_grad)
        return local ? local->out[0] : NULL;
    return clt_window_cut(local->out[0], w->dim, skipped, wanted);
}
