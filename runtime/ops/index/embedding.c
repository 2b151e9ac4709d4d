/* Slices of an array by indices: embedding and index_select. */
#include <string.h>

#include "base/error.h"
#include "ops/core/group_gpu.h"
#include "ops/index/index.h"
#include "ops/core/nn.h"
#include "ops/core/ops.h"
#include <cltrain/ops/index.h>

static clt_status infer(const clt_node *node, clt_type *out)
{
    const clt_type *x = &node->in[1]->type;
    CLT_TRY(clt_index_check(node, 1));
    CLT_TRY(clt_index_check_batch(node, x));
    return clt_index_picked_type(node, x, out);
}

static clt_status gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                           clt_value **dx)
{
    clt_index_attr attr = *(const clt_index_attr *)node->attr;
    attr.type = node->in[1]->type;
    if (wanted[1])
        dx[1] = clt_emit1(&clt_op_index_add, &attr, 3, node->in[0], dy[0], NULL);
    return clt_graph_status(node->graph);
}

static void emit_portable(const clt_node *node, const clt_target *target, clt_program *p)
{
    const clt_index_shape s = clt_index_shape_of(node);
    clt_launch_begin(p, "index/portable/index.cl", "index_select", "");
    CLT_ARGS(p, CLT_IN(0), CLT_IN(1), CLT_OUT(0), CLT_LONG(clt_index_picked(&s)),
             CLT_INDEX_SHAPE(&s), CLT_INDEX_PART(&s));
    clt_range_items(p, target, clt_index_picked(&s));
}

static void emit_cpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    enum { ELEMENTS = 16384, ITEMS_A_UNIT = 4 };
    const clt_index_shape s = clt_index_shape_of(node);
    const int64_t slices = clt_index_most(&s, target) / s.inner;
    const int64_t piece = clt_index_piece(&s, target, slices),
                  pieces = (s.inner + piece - 1) / piece;
    const int64_t most = slices * pieces / (ITEMS_A_UNIT * (int64_t)target->caps->compute_units);
    int64_t share = ELEMENTS / (s.inner < piece ? s.inner : piece);
    share = share > most ? most : share;
    share = share < 1 ? 1 : share;
    const clt_extent units =
        clt_index_picked(&(clt_index_shape){.outer = s.outer, .picks = s.picks, .inner = pieces});
    clt_launch_begin(p, "index/cpu/index.cl", "index_select", "-DVW=%d",
                     target->caps->vector_width);
    CLT_ARGS(p, CLT_IN(0), CLT_IN(1), CLT_OUT(0), CLT_LONG(units), CLT_INDEX_SHAPE(&s),
             CLT_INDEX_PART(&s), CLT_FIXED(piece), CLT_FIXED(pieces), CLT_FIXED(share));
    clt_range1(p, clt_extent_ceil(units, share, 1), 1);
}

static void emit_gpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    const clt_index_shape s = clt_index_shape_of(node);
    const int v = clt_index_vector(node, &s);
    (void)target;
    clt_launch_begin(p, "index/gpu/index.cl", "index_select", "-DV=%d", v);
    CLT_ARGS(p, CLT_IN(0), CLT_IN(1), CLT_OUT(0), CLT_INT(clt_index_picked(&s)),
             CLT_INDEX_SHAPE(&s), CLT_INDEX_PART(&s));
    clt_range_gpu(p, clt_index_picked(&s), v);
}

/* The array and the picked elements may be stored in 16 bits. */
static bool half(const clt_node *node, const clt_target *target, int index, bool output)
{
    (void)node;
    (void)target;
    return output || index == 1;
}

static const clt_variant variants[] = {
    {"slices_cpu", clt_accepts_cpu_vectors, emit_cpu},
    {"slices_gpu", clt_gpu_elements_accepts, emit_gpu},
    {"portable", clt_accepts_plain, emit_portable},
    {0},
};

static clt_status infer_embedding(const clt_node *node, clt_type *out)
{
    const clt_type *weight = &node->in[1]->type;
    char text[CLT_TYPE_TEXT];
    if (weight->rank != 2 || weight->dims[0] < 0 || weight->dims[1] < 0)
        return clt_fail(CLT_SHAPE, "embedding: the weight must be [V, D] of constant size, not %s",
                        clt_operand_text(node, 1, text));
    return infer(node, out);
}

const clt_op clt_op_embedding = {.name = "embedding",
                                 .doc = "The rows of the weight that the indices name.",
                                 .operands = "indices * i32, weight vd",
                                 .results = "y *d",
                                 .by_node = "v",
                                 CLT_INDEX_MEMBERS,
                                 .infer = infer_embedding,
                                 .gradient = gradient,
                                 .flops = clt_no_flops,
                                 .half = half,
                                 .variants = variants};

const clt_op clt_op_index_select = {.name = "index_select",
                                    .doc = "The slices of x along an axis that the indices name.",
                                    .operands = "index i i32, x *",
                                    .results = "y *",
                                    .by_node = "*i",
                                    CLT_INDEX_MEMBERS,
                                    .infer = infer,
                                    .gradient = gradient,
                                    .flops = clt_no_flops,
                                    .half = half,
                                    .variants = variants};

clt_value *clt_embedding(clt_value *indices, clt_value *weight, int64_t padding_idx)
{
    char text[CLT_TYPE_TEXT];
    clt_index_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.padding = -1;
    if (!indices || !weight)
        return NULL;
    const int64_t rows = weight->type.rank ? weight->type.dims[0] : 0;
    if (padding_idx != CLT_NO_PADDING) {
        attr.padding = padding_idx < 0 ? padding_idx + rows : padding_idx;
        if (rows > 0 && (attr.padding < 0 || attr.padding >= rows))
            return clt_graph_failed(
                weight->graph,
                clt_fail(CLT_INVALID_ARGUMENT,
                         "embedding: padding_idx %lld is no row of the weight %s",
                         (long long)padding_idx, clt_type_text(&weight->type, text)));
    }
    return clt_emit1(&clt_op_embedding, &attr, 2, indices, weight);
}

bool clt_index_attr_of(const char *op, clt_value *x, int axis, const clt_value *index,
                       clt_index_attr *attr)
{
    char text[CLT_TYPE_TEXT];
    memset(attr, 0, sizeof *attr);
    attr->padding = -1;
    attr->type = x->type;
    clt_status status = clt_index_axis(op, x, axis, &attr->axis);
    if (status == CLT_OK && index->type.rank != 1)
        status = clt_fail(CLT_SHAPE, "%s: the index must have one dimension, not %s", op,
                          clt_type_text(&index->type, text));
    if (status != CLT_OK)
        clt_graph_failed(x->graph, status);
    return status == CLT_OK;
}

clt_value *clt_index_select(clt_value *x, int axis, clt_value *index)
{
    clt_index_attr attr;
    if (!x || !index || !clt_index_attr_of("index_select", x, axis, index, &attr))
        return NULL;
    return clt_emit1(&clt_op_index_select, &attr, 2, index, x);
}

CLT_INDEX_CALL(index_select, "The slices of x along an axis that the indices name.",
               "x *, index i i32", "*", c->in[1]);

typedef struct embedding_call {
    int64_t padding_idx;
} embedding_call;

CLT_CALLABLE(
    embedding, embedding_call, c->out[0] = clt_embedding(c->in[0], c->in[1], a->padding_idx),
    .doc = "The rows of the weight that the indices name.", .operands = "indices * i32, weight vd",
    .results = "y *d",
    CLT_ATTRIBUTES(
        embedding_call,
        {CLT_ATTRIBUTE(INT, "padding_idx", embedding_call, padding_idx,
                       "The row that gets no gradient; a negative number counts from the end. "
                       "Default: none."),
         .least = (double)INT64_MIN, .most = INT_MAX, .default_value = (double)CLT_NO_PADDING}),
    .whole = "v");
