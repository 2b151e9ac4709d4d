/* attention: scaled dot products, softmax and weighted sums without a T x S matrix; and its
 * gradients. */
#include "ops/attention/attention.h"

#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/philox.h"
#include "ops/core/nn.h"
#include "ops/core/ops.h"

enum { Q, K, V, ATTN_MASK, PAST_VALUE, OPERANDS };
enum { DOUT, OUT, LOG_SUM, BEFORE_Q };

static bool is_forward(const clt_node *node)
{
    return node->op == &clt_op_attention;
}

static const clt_type *type_of(const clt_node *node, int which)
{
    const int at = which + (is_forward(node) ? 0 : BEFORE_Q);
    return at < node->n_in && node->in[at] ? &node->in[at]->type : NULL;
}

/* Strides of a tensor of `heads` heads in its form. In the packed form its heads begin at head
 * `first`. */
static clt_attention_view view_of(const clt_attention_attr *attr, int operand, const clt_type *type,
                                  int64_t size, int64_t first)
{
    clt_attention_view view = {.operand = operand, .at = first * size};
    if (attr->form == CLT_ATTENTION_HEADS) {
        view.row = size;
        view.head = type->dims[2] * size;
        view.batch = type->dims[1] * view.head;
    } else {
        view.head = size;
        view.row = type->dims[2];
        view.batch = type->dims[1] * view.row;
    }
    return view;
}

static void place_mask(const clt_type *mask, clt_attention_shape *s)
{
    int64_t step = 1;
    for (int i = 0; i < 4; i++) {
        s->mask_strides[i] = 0;
        s->mask_dims[i] = 1;
    }
    for (int i = mask->rank - 1; i >= 0; i--) {
        const int at = i + 4 - mask->rank;
        s->mask_dims[at] = mask->dims[i];
        s->mask_strides[at] = mask->dims[i] == 1 ? 0 : step;
        step *= mask->dims[i];
    }
}

clt_attention_shape clt_attention_shape_of(const clt_node *node)
{
    const clt_attention_attr *attr = node->attr;
    const bool packed = attr->form == CLT_ATTENTION_PACKED;
    const int before = is_forward(node) ? 0 : BEFORE_Q;
    const clt_type *q = type_of(node, Q), *k = packed ? q : type_of(node, K);
    const clt_type *v = packed ? q : type_of(node, V), *mask = type_of(node, ATTN_MASK);
    const clt_type *out = is_forward(node) ? &node->out[0]->type : &node->in[OUT]->type;
    clt_attention_shape s = {.batch = q->dims[0],
                             .mask = mask ? before + ATTN_MASK : -1,
                             .past = type_of(node, PAST_VALUE) ? before + PAST_VALUE : -1,
                             .log_sum = is_forward(node) ? 1 : LOG_SUM};
    if (attr->form == CLT_ATTENTION_HEADS) {
        s.heads = q->dims[1];
        s.kv_heads = k->dims[1];
        s.rows = q->dims[2];
        s.keys = k->dims[2];
        s.size = q->dims[3];
    } else {
        s.heads = attr->heads;
        s.size = q->dims[2] / (attr->heads + (packed ? 2 * attr->kv_heads : 0));
        s.kv_heads = packed ? attr->kv_heads : k->dims[2] / s.size;
        s.rows = q->dims[1];
        s.keys = k->dims[1];
    }
    s.scale = attr->scale != 0 ? attr->scale : 1 / sqrt((double)s.size);
    s.q = view_of(attr, before + Q, q, s.size, 0);
    s.k = view_of(attr, before + (packed ? Q : K), k, s.size, packed ? s.heads : 0);
    s.v = view_of(attr, before + (packed ? Q : V), v, s.size, packed ? s.heads + s.kv_heads : 0);
    s.out = view_of(attr, is_forward(node) ? 0 : DOUT, out, s.size, 0);
    s.dq = s.q;
    s.dk = s.k;
    s.dv = s.v;
    s.dq.operand = 0;
    s.dk.operand = packed ? 0 : 1;
    s.dv.operand = packed ? 0 : 2;
    if (mask)
        place_mask(mask, &s);
    return s;
}

/* --- checks ---------------------------------------------------------------------------------- */

static clt_status check_mask(const clt_node *node, const clt_attention_shape *s)
{
    const clt_type *mask = type_of(node, ATTN_MASK), *past = type_of(node, PAST_VALUE);
    const clt_attention_attr *attr = node->attr;
    const int64_t to[4] = {s->batch, s->heads, s->rows, s->keys};
    const clt_type scores = {.dtype = CLT_F32, .rank = 4, .dims = {to[0], to[1], to[2], to[3]}};
    char tm[CLT_TYPE_TEXT], ts[CLT_TYPE_TEXT];
    if (past && (past->dtype != CLT_I32 || clt_type_has_batch(past) ||
                 clt_type_elements(past, 1) != 1 || !attr->is_causal))
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "attention: past_value must be one i32, with is_causal: it is %s%s",
                        clt_type_text(past, tm), attr->is_causal ? "" : " without");
    if (!mask)
        return CLT_OK;
    clt_type_text(mask, tm);
    if (mask->dtype != CLT_F32 && mask->dtype != CLT_U8)
        return clt_fail(CLT_INVALID_ARGUMENT, "attention: the mask must be f32 or u8, not %s", tm);
    bool fits = mask->rank <= 4;
    for (int i = 0; fits && i < mask->rank; i++) {
        const int64_t dim = mask->dims[i];
        fits = dim == 1 || dim == to[i + 4 - mask->rank];
    }
    return fits ? CLT_OK
                : clt_fail(CLT_SHAPE, "attention: the mask %s does not broadcast to the scores %s",
                           tm, clt_type_text(&scores, ts));
}

/* Checks ranks, types and the sizes that must be equal. clt_attention_shape_of then returns the
 * sizes. */
static clt_status check_operands(const clt_node *node)
{
    const clt_attention_attr *attr = node->attr;
    const bool packed = attr->form == CLT_ATTENTION_PACKED;
    const int rank = attr->form == CLT_ATTENTION_HEADS ? 4 : 3;
    char text[3][CLT_TYPE_TEXT];
    for (int i = 0; i < (packed ? 1 : 3); i++) {
        if (!type_of(node, i))
            return clt_fail(CLT_INVALID_ARGUMENT, "attention: operand %d is missing", i);
        CLT_TRY(clt_check_f32(node, i));
        clt_operand_text(node, i, text[i]);
        const clt_type *t = type_of(node, i);
        if (t->rank != rank)
            return clt_fail(CLT_SHAPE, "attention: operand %d must have %d dimensions, not %s", i,
                            rank, text[i]);
        CLT_TRY(clt_check_image(node, i, 1));
        for (int d = 1; d < rank; d++)
            if (t->dims[d] < 1)
                return clt_fail(CLT_SHAPE, "attention: dimension %d of %s is empty", d, text[i]);
    }
    const clt_type *q = type_of(node, Q), *k = type_of(node, K), *v = type_of(node, V);
    const int64_t width = q->dims[rank - 1];
    if (rank == 3 && (attr->heads < 1 || (packed && attr->kv_heads < 1)))
        return clt_fail(CLT_INVALID_ARGUMENT, "attention: %d heads, %d of k and v: of %s",
                        attr->heads, attr->kv_heads, text[0]);
    const int64_t parts = rank == 4 ? 1 : attr->heads + (packed ? 2 * (int64_t)attr->kv_heads : 0);
    if (width % parts)
        return clt_fail(CLT_SHAPE, "attention: the width of %s is no multiple of its %lld heads",
                        text[0], (long long)parts);
    if (packed)
        return attr->heads % attr->kv_heads == 0
                   ? CLT_OK
                   : clt_fail(CLT_SHAPE, "attention: %d heads of k and v do not divide %d of q",
                              attr->kv_heads, attr->heads);
    const int64_t size = width / parts;
    const int64_t heads = rank == 4 ? q->dims[1] : attr->heads;
    const int64_t kv_heads = rank == 4 ? k->dims[1] : k->dims[2] / size;
    const bool sized = rank == 4 ? k->dims[3] == size : k->dims[2] % size == 0 && kv_heads > 0;
    if (!clt_type_equal(k, v) || q->dims[0] != k->dims[0] || !sized)
        return clt_fail(CLT_SHAPE,
                        "attention: q %s, k %s and v %s do not fit: all have one batch and size of "
                        "heads (%lld), k and v one shape",
                        text[0], text[1], text[2], (long long)size);
    if (heads % kv_heads)
        return clt_fail(CLT_SHAPE,
                        "attention: %lld heads of k and v do not divide %lld of q: q %s, k %s",
                        (long long)kv_heads, (long long)heads, text[0], text[1]);
    return CLT_OK;
}

static clt_status infer(const clt_node *node, clt_type *out)
{
    const clt_attention_attr *attr = node->attr;
    const clt_value *first = node->in[0];
    CLT_TRY(check_operands(node));
    out[0] = first->type;
    /* The shape's views need the result's type. It is q's type, except for the width of the packed
     * form. */
    clt_value value = {.type = out[0]};
    if (attr->form == CLT_ATTENTION_PACKED)
        value.type.dims[2] = out[0].dims[2] / (attr->heads + 2 * attr->kv_heads) * attr->heads;
    clt_node own = *node;
    own.out[0] = &value;
    const clt_attention_shape s = clt_attention_shape_of(&own);
    CLT_TRY(check_mask(node, &s));
    out[0] = value.type;
    out[1] = (clt_type){.dtype = CLT_F32, .rank = 3, .dims = {s.batch, s.heads, s.rows}};
    return CLT_OK;
}

static clt_status infer_grad(const clt_node *node, clt_type *out)
{
    for (int i = 0; i < node->n_out; i++)
        out[i] = node->in[BEFORE_Q + i]->type;
    return CLT_OK;
}

static clt_status infer_mask_grad(const clt_node *node, clt_type *out)
{
    out[0] = node->in[BEFORE_Q + ATTN_MASK]->type;
    return CLT_OK;
}

static clt_status gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                           clt_value **dx)
{
    const clt_attention_attr *attr = node->attr;
    const bool packed = attr->form == CLT_ATTENTION_PACKED;
    if (!dy[0])
        return CLT_OK;
    clt_value *in[BEFORE_Q + OPERANDS] = {dy[0], node->out[0], node->out[1]};
    for (int i = 0; i < OPERANDS; i++)
        in[BEFORE_Q + i] = node->in[i];
    if (wanted[Q] || wanted[K] || wanted[V]) {
        const clt_op *op = packed ? &clt_op_attention_packed_grad : &clt_op_attention_grad;
        const clt_node *grad = clt_graph_add(node->graph, op, in, BEFORE_Q + OPERANDS, attr);
        for (int i = 0; grad && i < grad->n_out; i++)
            if (wanted[i])
                dx[i] = grad->out[i];
    }
    if (wanted[ATTN_MASK] && node->in[ATTN_MASK]->type.dtype == CLT_F32) {
        const clt_node *grad =
            clt_graph_add(node->graph, &clt_op_attention_mask_grad, in, BEFORE_Q + OPERANDS, attr);
        dx[ATTN_MASK] = grad ? grad->out[0] : NULL;
    }
    return clt_graph_status(node->graph);
}

static void describe(const clt_node *node, clt_str *text)
{
    static const char *const forms[] = {"heads", "rows", "packed"};
    const clt_attention_attr *attr = node->attr;
    const clt_attention_shape s = clt_attention_shape_of(node);
    clt_str_add(text, "%s, %lldx%lld", forms[attr->form], (long long)s.heads, (long long)s.size);
    if (s.kv_heads != s.heads)
        clt_str_add(text, ", k and v %lldx%lld", (long long)s.kv_heads, (long long)s.size);
    if (attr->is_causal)
        clt_str_add(text, ", causal");
    if (attr->past)
        clt_str_add(text, ", past %lld", (long long)attr->past);
    if (attr->scale != 0)
        clt_str_add(text, ", scale %g", attr->scale);
    if (attr->dropout > 0)
        clt_str_add(text, ", dropout %g", attr->dropout);
}

static clt_value *evaluate(const clt_node *node)
{
    clt_attention_attr attr = *(const clt_attention_attr *)node->attr;
    if (attr.dropout <= 0)
        return node->out[0];
    attr.dropout = 0;
    attr.stream = 0;
    clt_value *in[OPERANDS] = {NULL};
    for (int i = 0; i < node->n_in; i++)
        in[i] = node->in[i];
    const clt_node *own = clt_graph_add(node->graph, node->op, in, OPERANDS, &attr);
    return own ? own->out[0] : NULL;
}

const char *clt_attention_types(const clt_node *node, const clt_attention_shape *s, char *text)
{
    static const char *const names[] = {"X_T", "DY_T", "Y_T", "DQ_T", "DK_T", "DV_T"};
    const bool forward = is_forward(node);
    const bool gradients = !forward && node->op != &clt_op_attention_mask_grad;
    const clt_value *values[] = {node->in[s->q.operand],
                                 forward ? NULL : node->in[DOUT],
                                 forward ? node->out[0] : node->in[OUT],
                                 gradients ? node->out[s->dq.operand] : NULL,
                                 gradients ? node->out[s->dk.operand] : NULL,
                                 gradients ? node->out[s->dv.operand] : NULL};
    int length = 0;
    text[0] = 0;
    for (int i = 0; i < 6; i++)
        if (values[i] && clt_is_half(values[i]->type.dtype))
            length += snprintf(text + length, (size_t)(CLT_ATTENTION_OPTIONS - length), " -D%s=%s",
                               names[i], clt_storage_name(values[i]->type.dtype));
    const clt_attention_attr *attr = node->attr;
    if (attr->dropout > 0)
        snprintf(text + length, (size_t)(CLT_ATTENTION_OPTIONS - length), " -DDROPOUT=%d",
                 CLT_STREAM_DROPOUT);
    return text;
}

/* All operands and outputs may be stored in 16 bits, except the mask, its gradient and log_sum. q,
 * k and v must all be 16-bit or none of them. */
static bool half(const clt_node *node, const clt_target *target, int index, bool output)
{
    const int before = is_forward(node) ? 0 : BEFORE_Q;
    (void)target;
    if (output)
        return is_forward(node) ? index == 0 : node->op != &clt_op_attention_mask_grad;
    if (index < before)
        return index != LOG_SUM;
    for (int i = Q; i <= V; i++) {
        const clt_type *type = type_of(node, i);
        if (type && !clt_is_half(type->dtype))
            return false;
    }
    return index <= before + V;
}

/* Returns the number of pairs of a row and a key that it may attend to, for one head of one
 * sample. */
static double attention_pairs(const clt_node *node)
{
    const clt_attention_attr *attr = node->attr;
    const clt_attention_shape s = clt_attention_shape_of(node);
    double pairs = 0;
    if (!attr->is_causal || s.past >= 0)
        return (double)s.rows * (double)s.keys;
    for (int64_t t = 0; t < s.rows; t++)
        pairs += (double)(attr->past + t + 1 < s.keys ? attr->past + t + 1 : s.keys);
    return pairs;
}

/* Counts matrix products over the pairs of rows and keys: two in the forward and in the mask's
 * gradient, five in the other gradients. */
static double flops(const clt_node *node, int64_t n)
{
    const clt_attention_shape s = clt_attention_shape_of(node);
    const bool two = is_forward(node) || node->op == &clt_op_attention_mask_grad;
    return (two ? 4.0 : 10.0) * attention_pairs(node) * (double)s.size * (double)s.heads *
           (double)clt_dim(s.batch, n);
}

static const clt_variant grad_variants[] = {
    {"tiles_cpu", clt_attention_cpu_accepts, clt_attention_grad_cpu},
    {"matrix_units", clt_attention_matrix_accepts, clt_attention_grad_matrix},
    {"tiles_gpu", clt_attention_gpu_accepts, clt_attention_grad_gpu},
    {"portable", clt_accepts_plain, clt_attention_grad_portable},
    {0},
};

static const char *const forms[] = {"heads", "rows", "packed", NULL};

static const clt_attribute attributes[] = {
    {CLT_ATTRIBUTE(REAL, "scale", clt_attention_attr, scale,
                   "The factor of the scores; 0: 1 / sqrt(D)."),
     .least = -DBL_MAX, .most = DBL_MAX},
    {CLT_ATTRIBUTE(FLAG, "causal", clt_attention_attr, is_causal,
                   "Row t attends only to keys 0 to past + t.")},
    {CLT_ATTRIBUTE(INT, "past", clt_attention_attr, past, "Keys that precede row 0."),
     .most = INT_MAX / 2},
    {CLT_ATTRIBUTE(REAL, "dropout", clt_attention_attr, dropout,
                   "In training, the probability that a weight becomes 0."),
     .most = 1},
    {CLT_ATTRIBUTE(INT, "heads", clt_attention_attr, heads, "The number of heads of q."),
     .most = INT_MAX, .internal = 1},
    {CLT_ATTRIBUTE(INT, "kv_heads", clt_attention_attr, kv_heads, "Heads of k and v."),
     .most = INT_MAX, .internal = 1},
    {CLT_ATTRIBUTE(CHOICE, "form", clt_attention_attr, form, "How the heads are stored."),
     .choices = forms, .internal = 1},
    {CLT_ATTRIBUTE(INT, "stream", clt_attention_attr, stream,
                   "The node's number among the random nodes of the graph."),
     .internal = 1, .untuned = 1},
    {CLT_ATTRIBUTE(INT, "first_head", clt_attention_attr, first_head,
                   "The number of the node's first head among all_heads."),
     .internal = 1, .untuned = 1},
    {CLT_ATTRIBUTE(INT, "all_heads", clt_attention_attr, all_heads,
                   "Heads of all devices that share the heads; 0: the node has them all."),
     .internal = 1, .untuned = 1},
    {CLT_ATTRIBUTE(INT, "first_row", clt_attention_attr, first_row,
                   "The number of the node's first row among all_rows."),
     .internal = 1, .untuned = 1},
    {CLT_ATTRIBUTE(INT, "all_rows", clt_attention_attr, all_rows,
                   "Rows of all devices that share the rows; 0: the node has them all."),
     .internal = 1, .untuned = 1},
    {0},
};

const clt_op clt_op_attention = {
    .name = "attention",
    .doc = "Sums of v, weighted by the softmax of the products of q and k.",
    .operands = "q b*, k b*?, v b*?, mask *?, past_value 1? i32",
    .results = "y b*, log_sum bht",
    .whole = "*ht",
    .dims = clt_attention_dims,
    .localise = clt_attention_localise,
    .attributes = attributes,
    .attr_bytes = sizeof(clt_attention_attr),
    .infer = infer,
    .gradient = gradient,
    .describe = describe,
    .flops = flops,
    .evaluate = evaluate,
    .half = half,
    CLT_VARIANTS({"rows_cpu", clt_attention_few_accepts, clt_attention_few},
                 {"tiles_cpu", clt_attention_cpu_accepts, clt_attention_cpu},
                 {"matrix_units", clt_attention_matrix_accepts, clt_attention_matrix},
                 {"tiles_gpu", clt_attention_gpu_accepts, clt_attention_gpu},
                 {"portable", clt_accepts_plain, clt_attention_portable}),
};

static const char in_grad[] =
    "dy b*, y b*, log_sum bht, q b*, k b*?, v b*?, mask *?, past_value 1? i32",
                  out_qkv[] = "dq b*, dk b*, dv b*", out_packed[] = "dqkv b*",
                  out_mask[] = "dmask *";

#define GRAD_OP(NAME, DOC, RESULTS, INFER, ROUNDS, VARIANTS)                                       \
    const clt_op clt_op_##NAME = {                                                                 \
        .name = #NAME,                                                                             \
        .doc = DOC,                                                                                \
        .operands = in_grad,                                                                       \
        .results = RESULTS,                                                                        \
        .whole = "*ht",                                                                            \
        .dims = clt_attention_dims,                                                                \
        .localise = clt_attention_localise,                                                        \
        .attributes = attributes,                                                                  \
        .attr_bytes = sizeof(clt_attention_attr),                                                  \
        .infer = INFER,                                                                            \
        .describe = describe,                                                                      \
        .flops = flops,                                                                            \
        .rounding = ROUNDS,                                                                        \
        .half = half,                                                                              \
        .variants = VARIANTS,                                                                      \
    }

GRAD_OP(attention_grad, "The gradients of attention for q, k and v.", out_qkv, infer_grad,
        CLT_ROUNDS_ALL, grad_variants);
GRAD_OP(attention_packed_grad, "The gradient of attention for packed q, k and v.", out_packed,
        infer_grad, CLT_ROUNDS_ALL, grad_variants);
GRAD_OP(attention_mask_grad, "The gradient of attention for the mask.", out_mask, infer_mask_grad,
        CLT_ROUNDS_NONE, clt_attention_mask_variants);

/* --- builders -------------------------------------------------------------------------------- */

void clt_attention_options_init(clt_attention_options *options)
{
    memset(options, 0, sizeof *options);
    options->struct_size = sizeof *options;
}

static clt_value *build(clt_value *q, clt_value *k, clt_value *v, clt_attention_attr attr,
                        const clt_attention_options *given)
{
    clt_attention_options o;
    clt_attention_options_init(&o);
    if (!q || (attr.form != CLT_ATTENTION_PACKED && (!k || !v)) ||
        !clt_options_given("attention", q, &o, sizeof o, given))
        return NULL;
    attr.scale = o.scale;
    attr.past = o.past;
    attr.is_causal = o.is_causal != 0;
    attr.dropout = o.dropout;
    if (o.dropout > 0)
        attr.stream = q->graph->streams++;
    clt_value *in[OPERANDS] = {q, k, v, o.attn_mask, o.past_value};
    const clt_node *node = clt_graph_add(q->graph, &clt_op_attention, in, OPERANDS, &attr);
    return node ? node->out[0] : NULL;
}

clt_value *clt_scaled_dot_product_attention(clt_value *q, clt_value *k, clt_value *v,
                                            const clt_attention_options *options)
{
    return build(q, k, v, (clt_attention_attr){.form = CLT_ATTENTION_HEADS}, options);
}

clt_value *clt_attention(clt_value *q, clt_value *k, clt_value *v, int heads,
                         const clt_attention_options *options)
{
    return build(q, k, v, (clt_attention_attr){.form = CLT_ATTENTION_ROWS, .heads = heads},
                 options);
}

clt_value *clt_attention_packed(clt_value *qkv, int heads, int kv_heads,
                                const clt_attention_options *options)
{
    return build(qkv, NULL, NULL,
                 (clt_attention_attr){.form = CLT_ATTENTION_PACKED,
                                      .heads = heads,
                                      .kv_heads = kv_heads ? kv_heads : heads},
                 options);
}

/* The attributes of the three callable operators. `heads` is for rows and packed, `kv_heads` for
 * packed; the other attributes are for all. */
typedef struct attention_call {
    clt_attention_options options;
    int heads, kv_heads;
} attention_call;

static const clt_attribute call_attributes[] = {
    {CLT_ATTRIBUTE(INT, "heads", attention_call, heads, "The number of heads of q."), .least = 1,
     .most = INT_MAX, .required = 1, .default_value = 1},
    {CLT_ATTRIBUTE(INT, "kv_heads", attention_call, kv_heads,
                   "For packed rows, the number of heads of k and v; 0: as many as q has."),
     .most = INT_MAX},
    {CLT_ATTRIBUTE(REAL, "scale", attention_call, options.scale,
                   "The factor of the scores; 0: 1 / sqrt(D)."),
     .least = -DBL_MAX, .most = DBL_MAX},
    {CLT_ATTRIBUTE(FLAG, "causal", attention_call, options.is_causal,
                   "Row t attends only to keys 0 to past + t.")},
    {CLT_ATTRIBUTE(INT, "past", attention_call, options.past, "Keys that precede row 0."),
     .most = INT_MAX / 2},
    {CLT_ATTRIBUTE(REAL, "dropout", attention_call, options.dropout,
                   "In training, the probability that a weight becomes 0."),
     .most = 1},
    {0},
};

static const clt_attention_options *call_options(attention_call *call, clt_value *mask,
                                                 clt_value *past)
{
    call->options.struct_size = sizeof call->options;
    call->options.attn_mask = mask;
    call->options.past_value = past;
    return &call->options;
}

static void call_attention(const clt_op_call *c)
{
    attention_call call = *(const attention_call *)c->attr;
    const clt_attention_options *options = call_options(&call, c->in[ATTN_MASK], c->in[PAST_VALUE]);
    c->out[0] = c->in[K] ? clt_attention(c->in[Q], c->in[K], c->in[V] ? c->in[V] : c->in[K],
                                         call.heads, options)
                         : clt_attention_packed(c->in[Q], call.heads, call.kv_heads, options);
}

const clt_op clt_call_attention = {
    .name = "attention",
    .doc = "Attention of rows [T, heads * D]. v is k by default; without k, q has q, k, v packed.",
    .operands = "q btw, k bsv?, v bsv?, mask *?, past_value 1? i32",
    .results = "y btw",
    .attributes = call_attributes,
    .whole = "tsvw*",
    .attr_bytes = sizeof(attention_call),
    .callable = true,
    .build = call_attention};

static void call_scaled_dot_product_attention(const clt_op_call *c)
{
    attention_call call = *(const attention_call *)c->attr;
    const clt_attention_options *options = call_options(&call, c->in[ATTN_MASK], c->in[PAST_VALUE]);
    c->out[0] = clt_scaled_dot_product_attention(c->in[Q], c->in[K], c->in[V], options);
}

const clt_op clt_call_scaled_dot_product_attention = {
    .name = "scaled_dot_product_attention",
    .doc = "Attention of tensors [heads, T, D].",
    .operands = "q bhtd, k bgsd, v bgsd, mask *?, past_value 1? i32",
    .results = "y bhtd",
    .attributes = call_attributes + 2,
    .whole = "hgtsd*",
    .attr_bytes = sizeof(attention_call),
    .callable = true,
    .build = call_scaled_dot_product_attention};
