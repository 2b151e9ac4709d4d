/*
 * Lets operators read states in 16 bits themselves. A graph converts such a state to f32 before its
 * readers. A reader whose kernels widen that operand takes the state instead, so that memory is
 * read once and in 16 bits. The numbers stay the same. This is how decoders have weights in 16
 * bits.
 */
#include "base/error.h"
#include "ops/core/nn.h"
#include "ops/core/ops.h"
#include "passes/passes.h"

/* Returns the state in 16 bits that the value is a conversion of; NULL if it is none. */
static clt_value *stored_as(const clt_value *value)
{
    const clt_node *node = value ? value->producer : NULL;
    if (!node || node->op != &clt_op_cast || value->type.dtype != CLT_F32)
        return NULL;
    clt_value *from = node->in[0];
    return from->kind == CLT_VALUE_STATE && clt_is_half(from->type.dtype) ? from : NULL;
}

clt_status clt_pass_read_halves(clt_graph *graph, const clt_target *target)
{
    for (int i = 0; i < graph->n_nodes; i++) {
        clt_node *node = graph->nodes[i];
        for (int j = 0; j < node->n_in && !node->op->view && node->op->half; j++) {
            clt_value *state = stored_as(node->in[j]);
            if (state && node->op->half(node, target, j, false))
                node->in[j] = state;
        }
    }
    return clt_graph_status(graph);
}
