/* rotary: rotates pairs of elements by angles that grow with the row. Its gradient rotates them
 * back. */
#include <float.h>
#include <limits.h>
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "ops/core/group_gpu.h"
#include "ops/core/nn.h"
#include "ops/core/ops.h"
#include <cltrain/ops/attention.h>

typedef struct rotary_attr {
    double base;
    int64_t offset, size, heads; /* size and heads as in the shape */
    int halves, back;            /* back: rotate by the negative angles */
} rotary_attr;

static clt_status infer(const clt_node *node, clt_type *out)
{
    const rotary_attr *attr = node->attr;
    const clt_type *x = &node->in[0]->type;
    char text[CLT_TYPE_TEXT];
    CLT_TRY(clt_check_f32(node, 0));
    clt_operand_text(node, 0, text);
    if (x->rank < 2)
        return clt_fail(CLT_SHAPE, "rotary: %s has no rows: at least two dimensions", text);
    CLT_TRY(clt_check_image(node, 0, x->rank - 2));
    const int64_t width = x->dims[x->rank - 1];
    if (attr->size < 2 || attr->size % 2 || width % attr->size || attr->heads < 0 ||
        attr->heads > width / attr->size)
        return clt_fail(CLT_SHAPE,
                        "rotary: %s has no %lld parts of %lld elements, an even number, in a row",
                        text, (long long)attr->heads, (long long)attr->size);
    if (node->n_in > 1 && node->in[1]) {
        const clt_type *position = &node->in[1]->type;
        if (position->dtype != CLT_I32 || clt_type_has_batch(position) ||
            clt_type_elements(position, 1) != 1)
            return clt_fail(CLT_INVALID_ARGUMENT, "rotary: offset_value must be one i32, not %s",
                            clt_type_text(position, text));
    }
    out[0] = *x;
    return CLT_OK;
}

static clt_status gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                           clt_value **dx)
{
    rotary_attr attr;
    memcpy(&attr, node->attr, sizeof attr);
    attr.back = !attr.back;
    if (wanted[0])
        dx[0] = clt_emit1(&clt_op_rotary, &attr, 2, dy[0], node->in[1]);
    return clt_graph_status(node->graph);
}

static void describe(const clt_node *node, clt_str *text)
{
    const rotary_attr *attr = node->attr;
    clt_str_add(text, "%lld of %lld, %s, base %g", (long long)attr->heads, (long long)attr->size,
                attr->halves ? "halves" : "neighbours", attr->base);
    if (attr->offset)
        clt_str_add(text, ", offset %lld", (long long)attr->offset);
    if (attr->back)
        clt_str_add(text, ", back");
}

/* Four multiplications and two additions for each pair. */
static double flops(const clt_node *node, int64_t n)
{
    return 3.0 * (double)clt_type_elements(&node->in[0]->type, n);
}

/* Writes the table of cosines and sines to a scratch block and returns its index. */
static int emit_table(const clt_node *node, const clt_target *target, clt_program *p)
{
    const rotary_attr *attr = node->attr;
    const clt_type *x = &node->in[0]->type;
    const int64_t items = x->dims[x->rank - 2] * attr->size / 2;
    const bool given = node->n_in > 1 && node->in[1];
    const int table = clt_scratch_add(p, clt_fixed(items * 2 * (int64_t)sizeof(float)));
    clt_launch_begin(p, "attention/portable/rotary.cl", "rotary_table", "");
    CLT_ARGS(p, CLT_SCRATCH(table), CLT_IN(given ? 1 : 0), CLT_FIXED(given),
             CLT_FIXED(attr->offset), CLT_FIXED(items), CLT_FIXED(attr->size / 2),
             CLT_FLOAT(log2(attr->base)), CLT_FLOAT(attr->back ? -1.0 : 1.0));
    clt_range_items(p, target, clt_fixed(items));
    return table;
}

static void arg_sizes(const clt_node *node, clt_program *p)
{
    const rotary_attr *attr = node->attr;
    const clt_type *x = &node->in[0]->type;
    CLT_ARGS(p, CLT_FIXED(x->dims[x->rank - 2]), CLT_FIXED(x->dims[x->rank - 1]),
             CLT_FIXED(attr->heads), CLT_FIXED(attr->size / 2), CLT_FIXED(attr->halves));
}

static void emit_portable(const clt_node *node, const clt_target *target, clt_program *p)
{
    const int table = emit_table(node, target, p);
    clt_type pairs = node->in[0]->type;
    pairs.dims[pairs.rank - 1] /= 2;
    clt_launch_begin(p, "attention/portable/rotary.cl", "rotary", "");
    CLT_ARGS(p, CLT_IN(0), CLT_OUT(0), CLT_SCRATCH(table), CLT_LONG(clt_extent_elements(&pairs)));
    arg_sizes(node, p);
    clt_range_items(p, target, clt_extent_elements(&pairs));
}

static void emit_cpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    enum { ROWS_EACH = 8 }; /* of a work item */
    const int table = emit_table(node, target, p);
    const clt_type *x = &node->in[0]->type;
    clt_launch_begin(p, "attention/cpu/rotary.cl", "rotary", "-DVW=%d -DROWS=%d",
                     target->caps->vector_width > 8 ? 8 : 4, ROWS_EACH);
    CLT_ARGS(p, CLT_IN(0), CLT_OUT(0), CLT_SCRATCH(table));
    arg_sizes(node, p);
    clt_range3(p, clt_fixed((x->dims[x->rank - 2] + ROWS_EACH - 1) / ROWS_EACH),
               clt_extent_dim(clt_dims_product(x, 0, x->rank - 2)), clt_fixed(1), 1, 1, 1);
}

/* Rows of a matrix begin at multiples of `size`. */
static bool accepts_gpu(const clt_node *node, const clt_target *target, char *why)
{
    const rotary_attr *attr = node->attr;
    if (!clt_gpu_group_accepts(node, target, why))
        return false;
    return attr->size % 8 == 0 ||
           clt_decline(why, "parts of %lld elements, not a multiple of 8", (long long)attr->size);
}

static void emit_gpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    const int table = emit_table(node, target, p);
    clt_type items = node->in[0]->type;
    items.dims[items.rank - 1] /= 8;
    clt_launch_begin(p, "attention/gpu/rotary.cl", "rotary", "");
    CLT_ARGS(p, CLT_IN(0), CLT_OUT(0), CLT_SCRATCH(table), CLT_LONG(clt_extent_elements(&items)));
    arg_sizes(node, p);
    clt_range_gpu(p, clt_extent_elements(&items), 1);
}

enum { ROWS = 't' - 'a', WIDTH = 'w' - 'a' };

/* Rows and parts of rows are independent. A position that varies is for inference. */
static void dims_of(const clt_node *node, clt_node_dims *dims)
{
    const clt_type *x = &node->in[0]->type;
    dims->behaviour[ROWS] = node->n_in > 1 && node->in[1] ? CLT_DIM_WHOLE : CLT_DIM_PARALLEL;
    dims->units[WIDTH] = x->dims[x->rank - 1] / ((const rotary_attr *)node->attr)->size;
    dims->behaviour[WIDTH] = dims->units[WIDTH] > 1 ? CLT_DIM_PARALLEL : CLT_DIM_WHOLE;
}

/* The first `heads` parts are rotated. They are the first ones of the place too, because its parts
 * have the same order. */
static clt_status localise(const clt_node *node, const clt_node_part *part, void *copy)
{
    rotary_attr *attr = copy;
    clt_type type;
    CLT_TRY(clt_part_of_result(node, part, &type));
    if (part->label == ROWS) {
        const clt_type *x = &node->in[0]->type;
        if (part->blocks > 1) /* rows of one node follow one another */
            return clt_fail(CLT_UNSUPPORTED,
                            "node %s: rotary cannot be divided by %d blocks of rows", node->name,
                            part->blocks);
        attr->offset += clt_part_begin(x->dims[x->rank - 2], part->at.places, part->at.place);
    }
    if (part->label != WIDTH)
        return CLT_OK;
    const int64_t own = type.dims[type.rank - 1] / attr->size / part->blocks;
    int64_t rotated = 0;
    for (int i = 0; i < part->blocks; i++) {
        const int64_t before = (i * part->at.places + part->at.place) * own;
        const int64_t left = attr->heads > before ? attr->heads - before : 0;
        rotated += left < own ? left : own;
    }
    attr->heads = rotated;
    return CLT_OK;
}

static void build(const clt_op_call *c)
{
    const rotary_attr *given = c->attr;
    clt_rotary_options o;
    clt_rotary_options_init(&o);
    o.base = given->base;
    o.offset = given->offset;
    o.offset_value = c->in[1];
    o.halves = given->halves;
    o.size = given->size;
    o.heads = given->heads;
    c->out[0] = clt_rotary(c->in[0], &o);
}

const clt_op clt_op_rotary = {
    .name = "rotary",
    .doc = "Rotates pairs of elements of each row by angles that grow with the row's position.",
    .operands = "x *tw, offset_value 1? i32",
    .results = "y *tw",
    .by_node = "tw",
    .dims = dims_of,
    .localise = localise,
    .callable = true,
    .build = build,
    CLT_ATTRIBUTES(
        rotary_attr,
        {CLT_ATTRIBUTE(REAL, "base", rotary_attr, base,
                       "Row t's pair i turns by t * base^(-2 i / size)."),
         .most = DBL_MAX, .above = 1, .default_value = 10000},
        {CLT_ATTRIBUTE(INT, "offset", rotary_attr, offset, "The position of row 0."),
         .most = INT_MAX / 2},
        {CLT_ATTRIBUTE(FLAG, "halves", rotary_attr, halves,
                       "The elements of a pair are half a part apart, not neighbours.")},
        {CLT_ATTRIBUTE(INT, "size", rotary_attr, size,
                       "The number of elements of a part, even; 0: the whole row."),
         .most = INT_MAX},
        {CLT_ATTRIBUTE(INT, "heads", rotary_attr, heads, "Parts that are rotated; 0: all."),
         .most = INT_MAX},
        {CLT_ATTRIBUTE(FLAG, "back", rotary_attr, back, "Rotates by the negative angles."),
         .internal = 1}),
    .infer = infer,
    .gradient = gradient,
    .describe = describe,
    .flops = flops,
    CLT_VARIANTS({"rows_cpu", clt_accepts_cpu_vectors, emit_cpu},
                 {"vectors_gpu", accepts_gpu, emit_gpu},
                 {"portable", clt_accepts_plain, emit_portable}),
};

void clt_rotary_options_init(clt_rotary_options *options)
{
    rotary_attr attr;
    clt_attributes_init(&clt_op_rotary, &attr);
    *options = (clt_rotary_options){.struct_size = sizeof *options, .base = attr.base};
}

clt_value *clt_rotary(clt_value *x, const clt_rotary_options *given)
{
    clt_rotary_options o;
    clt_rotary_options_init(&o);
    if (!x || !clt_options_given("rotary", x, &o, sizeof o, given))
        return NULL;
    rotary_attr attr;
    memset(&attr, 0, sizeof attr);
    const int64_t width = x->type.rank ? x->type.dims[x->type.rank - 1] : 0;
    attr.base = o.base;
    attr.offset = o.offset;
    attr.size = o.size ? o.size : width;
    attr.heads = o.heads ? o.heads : attr.size > 0 ? width / attr.size : 0;
    attr.halves = o.halves != 0;
    return clt_emit1(&clt_op_rotary, &attr, 2, x, o.offset_value);
}
