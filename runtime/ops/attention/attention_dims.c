/* Division of attention by samples, by heads and by rows. */
#include <string.h>

#include "base/error.h"
#include "graph/mesh.h"
#include "ops/attention/attention.h"
#include "ops/core/dims.h"

enum { BATCH, HEADS }; /* labels */
enum { NO_DIM = CLT_MAX_RANK, Q_GRADIENT = 0 };

static void label(const clt_type *type, int heads_dim, int blocks, signed char *labels,
                  unsigned char *label_blocks)
{
    labels[0] = BATCH;
    if (heads_dim >= type->rank)
        return;
    labels[heads_dim] = HEADS;
    label_blocks[heads_dim] = (unsigned char)blocks;
}

/* A dimension over which the mask is broadcast sums up in the mask's gradient. */
static void label_mask(const clt_node *node, int mask, bool is_gradient, clt_node_dims *dims)
{
    for (int i = BATCH; i <= HEADS; i++) {
        const clt_type *type = &node->in[mask]->type;
        const int at = type->rank - 4 + i;
        if (at >= 0 && type->dims[at] != 1)
            dims->in[mask][at] = (signed char)i;
        else if (is_gradient && dims->behaviour[i] == CLT_DIM_PARALLEL)
            dims->behaviour[i] = CLT_DIM_SUMMED;
    }
    if (is_gradient)
        memcpy(dims->out[0], dims->in[mask], sizeof dims->out[0]);
}

/* Samples and heads are independent. In the packed form, a part of the heads is a part of q, of k
 * and of v, if all three have as many heads. A single head of k and v is whole at all places, since
 * all heads of q read it. Its gradient is then the sum over the places. */
void clt_attention_dims(const clt_node *node, clt_node_dims *dims)
{
    const clt_attention_shape s = clt_attention_shape_of(node);
    const clt_attention_attr *attr = node->attr;
    const bool packed = attr->form == CLT_ATTENTION_PACKED, forward = s.q.operand == 0;
    const bool of_mask = node->op == &clt_op_attention_mask_grad;
    const bool lone_key = !packed && s.kv_heads == 1 && s.heads > 1;
    const int blocks = packed ? 3 : 1, heads_dim = attr->form == CLT_ATTENTION_HEADS ? 1 : 2;
    clt_dims_clear(dims);
    dims->behaviour[BATCH] = CLT_DIM_PARALLEL;
    dims->behaviour[HEADS] = packed && s.heads != s.kv_heads ? CLT_DIM_WHOLE : CLT_DIM_PARALLEL;
    for (int i = 0; i < node->n_in && i < s.q.operand + 3; i++)
        if (node->in[i])
            label(&node->in[i]->type,
                  !forward && i == s.log_sum    ? 1
                  : lone_key && i > s.q.operand ? NO_DIM
                                                : heads_dim,
                  i < s.q.operand ? 1 : blocks, dims->in[i], dims->in_blocks[i]);
    for (int i = 0; i < node->n_out && !of_mask; i++) {
        const bool of_key = lone_key && !forward && i > Q_GRADIENT;
        label(&node->out[i]->type,
              forward && i == s.log_sum ? 1
              : of_key                  ? NO_DIM
                                        : heads_dim,
              forward ? 1 : blocks, dims->out[i], dims->out_blocks[i]);
        dims->adds[i] = of_key;
    }
    if (s.mask >= 0)
        label_mask(node, s.mask, of_mask, dims);
}

/* Every place has as many heads, so that no head is cut. */
clt_status clt_attention_localise(const clt_node *node, const clt_node_part *part, void *copy)
{
    const clt_attention_shape s = clt_attention_shape_of(node);
    const int places = part->at.places;
    clt_attention_attr *attr = copy;
    if (part->label != HEADS)
        return CLT_OK;
    const bool of_keys = s.heads % places == 0 && s.kv_heads > 1;
    const int64_t heads = of_keys ? s.kv_heads : s.heads;
    if (heads % places || part->blocks != 1)
        return clt_fail(CLT_UNSUPPORTED,
                        "node %s: %lld heads%s cannot be divided over %d places of %s: the "
                        "number of places must divide theirs",
                        node->name, (long long)heads, of_keys ? " of k and v" : "", places,
                        clt_axis_name(part->axis));
    attr->heads /= places;
    attr->kv_heads /= places;
    attr->all_heads = attr->all_heads ? attr->all_heads : (int)s.heads;
    attr->first_head += (int)(s.heads / places) * part->at.place;
    return CLT_OK;
}

clt_value *clt_attention_rows(const clt_node *node, clt_value *const in[4], int64_t begin,
                              int64_t end)
{
    clt_attention_attr attr = *(const clt_attention_attr *)node->attr;
    /* The gradient reads all operands, of which the last, earlier positions, is not given. */
    clt_value *operands[] = {in[0], in[1], in[2], in[3], NULL};
    if (!in[0] || !in[1] || !in[2])
        return NULL;
    attr.past += attr.is_causal ? begin : 0;
    if (attr.dropout > 0) {
        attr.all_rows = attr.all_rows ? attr.all_rows : (int)clt_attention_shape_of(node).rows;
        attr.first_row += (int)begin;
    }
    const int rows_dim = in[3] ? in[3]->type.rank - 2 : -1;
    if (rows_dim >= 0 && in[3]->type.dims[rows_dim] != 1)
        operands[3] = clt_window_cut(in[3], rows_dim, begin, end);
    if (attr.form == CLT_ATTENTION_PACKED) {
        attr.form = CLT_ATTENTION_ROWS;
        attr.kv_heads = 0;
    }
    const clt_node *rows = clt_graph_add(node->graph, node->op, operands, 5, &attr);
    return rows ? rows->out[0] : NULL;
}
