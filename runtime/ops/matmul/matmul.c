/* matmul: the product of two matrices, of which either may be transposed. */
#include <limits.h>
#include <stdlib.h>

#include "base/error.h"
#include "ops/matmul/gemm.h"
#include "ops/matmul/linear_batch_blocked.h"
#include "ops/core/nn.h"
#include "ops/core/ops.h"

/* Sizes of the product C[M, N] = sum over K. A negative size is a multiple of the batch size. */
typedef struct product {
    int64_t pairs, m, n, k, k_of_b;
    int64_t a_columns, b_columns;
    int64_t a_step, b_step; /* elements from one pair's matrix to the next; 0 for a single pair */
} product;

/* Whether the leading dimensions of both operands count pairs of matrices. */
static bool many(const clt_node *node)
{
    const clt_matmul_attr *attr = node->attr;
    const clt_type *a = &node->in[0]->type, *b = &node->in[1]->type;
    return !attr->flatten && a->rank > 2 && a->rank == b->rank;
}

static product sizes_of(const clt_node *node)
{
    const clt_matmul_attr *attr = node->attr;
    const clt_type *a = &node->in[0]->type, *b = &node->in[1]->type;
    const int first = many(node) ? a->rank - 2 : 0;
    const int64_t a_rows = clt_dims_product(a, first, a->rank - 1);
    const int64_t b_rows = clt_dims_product(b, first, b->rank - 1);
    const int64_t a_columns = a->dims[a->rank - 1], b_columns = b->dims[b->rank - 1];
    return (product){.pairs = clt_dims_product(a, 0, first),
                     .a_step = first ? a_rows * a_columns : 0,
                     .b_step = first ? b_rows * b_columns : 0,
                     .m = attr->trans_a ? a_columns : a_rows,
                     .k = attr->trans_a ? a_rows : a_columns,
                     .n = attr->trans_b ? b_rows : b_columns,
                     .k_of_b = attr->trans_b ? b_columns : b_rows,
                     .a_columns = a_columns,
                     .b_columns = b_columns};
}

static clt_status infer(const clt_node *node, clt_type *out)
{
    const clt_matmul_attr *attr = node->attr;
    const clt_type *a = &node->in[0]->type, *b = &node->in[1]->type;
    char ta[CLT_TYPE_TEXT], tb[CLT_TYPE_TEXT];
    clt_operand_text(node, 0, ta);
    clt_operand_text(node, 1, tb);
    CLT_TRY(clt_check_f32(node, 0));
    CLT_TRY(clt_check_f32(node, 1));
    if (a->rank < 2 || b->rank < 2)
        return clt_fail(CLT_SHAPE, "matmul: operands need at least two dimensions: %s x %s", ta,
                        tb);
    if (!attr->flatten && !many(node) && (b->rank > 2 || (attr->trans_a && a->rank > 2)))
        return clt_fail(CLT_SHAPE,
                        "matmul: only an untransposed first operand, or both with equal leading "
                        "dimensions, may have more than two dimensions: %s%s x %s%s",
                        ta, attr->trans_a ? "^T" : "", tb, attr->trans_b ? "^T" : "");
    for (int i = 0; many(node) && i < a->rank - 2; i++)
        if (a->dims[i] != b->dims[i])
            return clt_fail(CLT_SHAPE,
                            "matmul: the leading dimensions of %s%s x %s%s differ (they are not "
                            "broadcast)",
                            ta, attr->trans_a ? "^T" : "", tb, attr->trans_b ? "^T" : "");
    const product p = sizes_of(node);
    if (p.k != p.k_of_b)
        return clt_fail(CLT_SHAPE, "matmul: the inner dimensions of %s%s x %s%s differ", ta,
                        attr->trans_a ? "^T" : "", tb, attr->trans_b ? "^T" : "");
    if (p.m < 0 && p.n < 0)
        return clt_fail(CLT_UNSUPPORTED,
                        "matmul: the result of %s%s x %s%s would grow with the square of the batch",
                        ta, attr->trans_a ? "^T" : "", tb, attr->trans_b ? "^T" : "");
    if (llabs(p.pairs * p.m) > INT_MAX || p.n > INT_MAX || p.k > INT_MAX)
        return clt_fail(CLT_UNSUPPORTED, "matmul: a dimension of %s x %s is above %d", ta, tb,
                        INT_MAX);
    out[0] = (clt_type){.dtype = CLT_F32, .rank = 2, .dims = {p.m, p.n}};
    if (many(node) || (!attr->trans_a && a->rank > 2)) {
        out[0] = *a;
        out[0].dims[a->rank - 1] = p.n;
        if (many(node))
            out[0].dims[a->rank - 2] = p.m;
    }
    return CLT_OK;
}

static clt_value *emit_matmul(const clt_node *of, clt_value *a, clt_value *b, bool trans_a,
                              bool trans_b)
{
    const clt_matmul_attr attr = {.trans_a = trans_a, .trans_b = trans_b, .flatten = !many(of)};
    return clt_emit1(&clt_op_matmul, &attr, 2, a, b);
}

static clt_status gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                           clt_value **dx)
{
    const clt_matmul_attr *attr = node->attr;
    clt_value *a = node->in[0], *b = node->in[1];
    /* C = A B: dA = dC B^T and dB = A^T dC; a transposed operand's gradient is the transpose. */
    if (wanted[0])
        dx[0] = attr->trans_a ? emit_matmul(node, b, dy[0], attr->trans_b, true)
                              : emit_matmul(node, dy[0], b, false, !attr->trans_b);
    if (wanted[1])
        dx[1] = attr->trans_b ? emit_matmul(node, dy[0], a, true, attr->trans_a)
                              : emit_matmul(node, a, dy[0], !attr->trans_a, false);
    return clt_graph_status(node->graph);
}

static void describe(const clt_node *node, clt_str *text)
{
    const clt_matmul_attr *attr = node->attr;
    if (attr->trans_a || attr->trans_b)
        clt_str_add(text, "%c%c", attr->trans_a ? 'T' : 'N', attr->trans_b ? 'T' : 'N');
}

static double flops(const clt_node *node, int64_t n)
{
    const product p = sizes_of(node);
    return 2.0 * (double)clt_dim(p.pairs, n) * (double)clt_dim(p.m, n) * (double)clt_dim(p.n, n) *
           (double)clt_dim(p.k, n);
}

clt_gemm clt_matmul_gemm(const clt_node *node)
{
    const clt_matmul_attr *attr = node->attr;
    const product p = sizes_of(node);
    return clt_gemm_typed(node, (clt_gemm){.pairs = p.pairs,
                                           .m = p.m,
                                           .n = p.n,
                                           .k = p.k,
                                           .lda = p.a_columns,
                                           .ldb = p.b_columns,
                                           .a_step = p.a_step,
                                           .b_step = p.b_step,
                                           .trans_a = attr->trans_a,
                                           .trans_b = attr->trans_b,
                                           .a = 0,
                                           .b = 1,
                                           .bias = -1,
                                           .out = 0});
}

/* In the batch-blocked layout the second operand holds parameters, which stay f32. */
static bool half(const clt_node *node, const clt_target *target, int index, bool output)
{
    (void)target;
    return output || node->in[index]->layout == node->in[0]->layout;
}

/* Labels 0, 1 and 2 are M, N and K. Leading dimensions have the label of their position. With
 * `flatten`, the leading dimensions of both operands belong to K. */
static void dims_of(const clt_node *node, clt_node_dims *dims)
{
    enum { M, N, K };
    const clt_matmul_attr *attr = node->attr;
    const int a = node->in[0]->type.rank, b = node->in[1]->type.rank;
    const int y = node->out[0]->type.rank;
    const bool summed = attr->flatten && y == 2 && (a > 2 || b > 2);
    clt_dims_clear(dims);
    for (int k = 0; k < CLT_MAX_RANK; k++) {
        const signed char label = (signed char)(CLT_DIM_STAR + k);
        dims->behaviour[label] =
            summed ? (a == b ? CLT_DIM_SUMMED : CLT_DIM_WHOLE) : CLT_DIM_PARALLEL;
        if (k < a - 2)
            dims->in[0][k] = label;
        if (k < b - 2)
            dims->in[1][k] = label;
        if (k < y - 2)
            dims->out[0][k] = label;
    }
    dims->in[0][a - 2] = attr->trans_a ? K : M;
    dims->in[0][a - 1] = attr->trans_a ? M : K;
    dims->in[1][b - 2] = attr->trans_b ? N : K;
    dims->in[1][b - 1] = attr->trans_b ? K : N;
    dims->out[0][y - 2] = M;
    dims->out[0][y - 1] = N;
    dims->behaviour[M] = dims->behaviour[N] = CLT_DIM_PARALLEL;
    dims->behaviour[K] = CLT_DIM_SUMMED;
}

const clt_op clt_op_matmul = {
    .name = "matmul",
    .doc = "The matrix product over the last two dimensions, for each index of the leading ones.",
    .operands = "a *mk, b kn",
    .results = "y *mn",
    .dims = dims_of,
    .callable = true,
    CLT_ATTRIBUTES(
        clt_matmul_attr,
        {CLT_ATTRIBUTE(FLAG, "trans_a", clt_matmul_attr, trans_a, "Uses the transpose of a.")},
        {CLT_ATTRIBUTE(FLAG, "trans_b", clt_matmul_attr, trans_b, "Uses the transpose of b.")},
        {CLT_ATTRIBUTE(FLAG, "flatten", clt_matmul_attr, flatten,
                       "Leading dimensions count as rows."),
         .internal = 1, .untuned = 1}),
    .infer = infer,
    .gradient = gradient,
    .describe = describe,
    .flops = flops,
    .batch_blocked = clt_matmul_batch_blocked,
    .half = half,
    .variants = clt_gemm_variants,
};

clt_value *clt_matmul(clt_value *a, clt_value *b, int trans_a, int trans_b)
{
    const clt_matmul_attr attr = {.trans_a = trans_a != 0, .trans_b = trans_b != 0};
    return clt_emit1(&clt_op_matmul, &attr, 2, a, b);
}
