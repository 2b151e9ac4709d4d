#include "ops/collective/transfer.h"

#include <string.h>

#include "graph/mesh.h"
#include "ops/core/ops.h"

static clt_status infer(const clt_node *node, clt_type *out)
{
    const clt_transfer_attr *attr = node->attr;
    *out = attr->type;
    return CLT_OK;
}

static void describe(const clt_node *node, clt_str *text)
{
    const clt_transfer_attr *attr = node->attr;
    clt_str_add(text, "%s %s %d", node->n_in ? "to" : "from", clt_axis_name((clt_axis)attr->axis),
                attr->peer);
}

const clt_op clt_op_send = {.name = "send",
                            .doc = "Sends x to another place of an axis.",
                            .attr_bytes = sizeof(clt_transfer_attr),
                            .operands = "x *",
                            .results = "y *",
                            .infer = infer,
                            .describe = describe,
                            .flops = clt_no_flops,
                            .view = true,
                            .effect = true,
                            .collective = CLT_OP_SEND};

const clt_op clt_op_receive = {.name = "receive",
                               .doc = "Receives a value from another place of an axis.",
                               .attr_bytes = sizeof(clt_transfer_attr),
                               .operands = "",
                               .results = "y *",
                               .infer = infer,
                               .describe = describe,
                               .flops = clt_no_flops,
                               .effect = true,
                               .collective = CLT_OP_RECEIVE};

/* Bytes between the fields are 0, because equal attributes are compared as memory. */
static clt_value *add(clt_graph *graph, const clt_op *op, clt_value *x, const clt_type *type,
                      clt_axis axis, int peer, bool half, const char *name)
{
    clt_transfer_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.axis = (int)axis;
    attr.peer = peer;
    attr.half = half;
    attr.type = *type;
    clt_node *node = clt_graph_add(graph, op, &x, x ? 1 : 0, &attr);
    return node ? clt_label(node->out[0], name) : NULL;
}

clt_value *clt_send(clt_value *x, clt_axis axis, int peer, bool half, const char *name)
{
    return x ? add(x->graph, &clt_op_send, x, &x->type, axis, peer, half, name) : NULL;
}

clt_value *clt_receive(clt_graph *graph, const clt_type *type, clt_axis axis, int peer, bool half,
                       const char *name)
{
    return add(graph, &clt_op_receive, NULL, type, axis, peer, half, name);
}
