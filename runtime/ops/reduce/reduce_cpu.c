/* Launches of clkernels/reduce/cpu/reduce.cl and columns.cl. */
#include "ops/matmul/gemm.h"
#include "ops/core/ops.h"
#include "ops/core/nn.h"
#include "ops/reduce/reduce.h"

enum { DIMS = 4, SUM = 0, MAX = 1, COUNT = 2 };

static int kind_of(const clt_node *node)
{
    return node->op == &clt_op_max ? MAX : node->op == &clt_op_max_count ? COUNT : SUM;
}

static bool is_mean(const clt_node *node)
{
    return node->op == &clt_op_mean;
}

static clt_strided one_dimension(int64_t dim, int64_t stride)
{
    clt_strided strided = {.rank = 1, .n_arrays = 1, .dims = {dim}, .strides = {{stride}}};
    return strided;
}

/* --- rows: the elements of a result are contiguous -------------------------------------------- */

bool clt_reduce_cpu_rows_accepts(const clt_node *node, const clt_target *target, char *why)
{
    const clt_reduction r = clt_reduction_of(node, target);
    const int last = r.reduced.rank - 1;
    if (!clt_accepts_cpu_vectors(node, target, why))
        return false;
    if (last < 0 || r.reduced.strides[0][last] != 1)
        return clt_decline(why, "a result's elements do not lie side by side");
    const int64_t run = clt_dim(r.reduced.dims[last], target->max_batch);
    if (run < target->caps->vector_width)
        return clt_decline(why, "runs of %lld elements", (long long)run);
    return true;
}

/* Neighbouring results of a work-item: about 16 Ki elements. If the elements of neighbouring
 * results alternate in memory, it is as many results as fill a page. */
static int64_t row_share(const clt_target *target, const clt_reduction *r)
{
    enum { ELEMENTS = 16384, PAGE = 2048, ITEMS_A_UNIT = 4, MOST = 32 };
    const int64_t n = target->max_batch, count = clt_extent_at(r->count, n);
    const int64_t run = clt_dim(r->reduced.dims[r->reduced.rank - 1], n);
    const bool by_turns = r->reduced.rank > 1;
    int64_t share = run ? (by_turns ? PAGE : ELEMENTS) / run : 1, most = count;
    if (!by_turns)
        most /= ITEMS_A_UNIT * (int64_t)target->caps->compute_units;
    share = share < most ? share : most;
    return share < 1 ? 1 : share < MOST ? share : MOST;
}

/* Number of parts of a result's elements. There are enough parts for all compute units, and a part
 * is short enough for accurate sums. */
static int64_t row_parts(const clt_target *target, const clt_reduction *r, int64_t share)
{
    enum { MOST = 65536, LEAST = 2048, ITEMS_A_UNIT = 8 };
    const int64_t length = clt_extent_at(r->length, target->max_batch);
    const int64_t items = clt_extent_at(clt_extent_ceil(r->count, share, 1), target->max_batch);
    const int64_t wanted = items ? ITEMS_A_UNIT * (int64_t)target->caps->compute_units / items : 1;
    const int64_t room = length * share / LEAST, needed = clt_ceil_div(length, MOST);
    const int64_t parts = wanted < room ? wanted : room;
    return parts > needed ? parts : needed < 1 ? 1 : needed;
}

/* --- launches --------------------------------------------------------------------------------- */

/* The source and destination of a kernel: the operand and the result, or a block of partial
 * results. */
typedef struct stage {
    const char *file;
    clt_reduction r;
    int kind;
    int operand, out;
    clt_dtype type; /* of the operand */
    int from, to;   /* scratch blocks; -1: the operand or the output */
    int64_t share;  /* results of a work-item; 0: the kernel has no such argument */
    bool divide;    /* divide by `length` */
    clt_extent length, items;
} stage;

static void launch(const stage *s, const clt_target *target, clt_program *p)
{
    const bool half = s->from < 0 && clt_is_half(s->type);
    clt_launch_begin(p, s->file, "reduce", "-DVW=%d -DREDUCE=%d%s%s", target->caps->vector_width,
                     s->kind, half ? " -DX_T=" : "", half ? clt_storage_name(s->type) : "");
    if (s->from < 0)
        CLT_ARGS(p, CLT_IN(s->operand));
    else
        CLT_ARGS(p, CLT_SCRATCH(s->from));
    if (s->kind == COUNT)
        CLT_ARGS(p, CLT_IN(1));
    if (s->to < 0)
        CLT_ARGS(p, CLT_OUT(s->out));
    else
        CLT_ARGS(p, CLT_SCRATCH(s->to));
    CLT_ARGS(p, CLT_LONG(s->r.count), CLT_FIXED((int)s->r.parts), CLT_LONG(s->r.length),
             CLT_LONG(s->divide ? s->length : clt_fixed(-1)));
    clt_arg_strided_sizes(p, &s->r.kept, DIMS);
    clt_arg_strided_strides(p, &s->r.kept, 0, DIMS);
    clt_arg_strided_sizes(p, &s->r.reduced, DIMS);
    clt_arg_strided_strides(p, &s->r.reduced, 0, DIMS);
    if (s->share)
        CLT_ARGS(p, CLT_FIXED(s->share));
    clt_range1(p, s->items, 1);
}

static clt_extent times(clt_extent e, int64_t factor)
{
    return (clt_extent){e.mul * factor, e.pre, e.div, e.add * factor};
}

/* The dimension of an extent that clt_extent_dim made. */
static int64_t dim_of(clt_extent e, int64_t factor)
{
    return (e.pre ? -e.mul : e.mul) * factor;
}

/* Launches `s`. If it has several parts, a second launch combines them. Partial results are stored
 * as the first kernel writes them: the parts of one result are contiguous for rows, the results of
 * one part for columns. */
static void launch_parts(stage *s, const clt_target *target, clt_program *p,
                         clt_extent (*items)(const clt_reduction *r, int64_t share))
{
    const clt_reduction whole = s->r;
    const bool divide = s->divide;
    s->length = whole.length;
    s->items = times(items(&whole, s->share), whole.parts);
    s->from = s->to = -1;
    if (whole.parts > 1) {
        s->to = clt_scratch_add(p, times(whole.count, whole.parts * (int64_t)sizeof(float)));
        s->divide = false;
    }
    launch(s, target, p);
    if (whole.parts == 1)
        return;
    const int64_t results = dim_of(whole.count, 1);
    const bool rows = s->share != 0;
    s->r.kept = one_dimension(results, rows ? whole.parts : 1);
    s->r.reduced = one_dimension(whole.parts, rows ? 1 : results);
    s->r.length = clt_fixed(whole.parts);
    s->r.parts = 1;
    if (rows)
        s->share = row_share(target, &s->r);
    s->from = s->to;
    s->to = -1;
    s->divide = divide;
    s->kind = s->kind == COUNT ? SUM : s->kind;
    s->items = items(&s->r, s->share);
    launch(s, target, p);
}

static clt_extent row_items(const clt_reduction *r, int64_t share)
{
    return clt_extent_ceil(r->count, share, 1);
}

void clt_reduce_cpu_rows(const clt_node *node, const clt_target *target, clt_program *p)
{
    stage s = {.file = "reduce/cpu/reduce.cl",
               .type = node->in[0]->type.dtype,
               .r = clt_reduction_of(node, target),
               .kind = kind_of(node),
               .divide = is_mean(node)};
    s.share = row_share(target, &s.r);
    s.r.parts = row_parts(target, &s.r, s.share);
    launch_parts(&s, target, p, row_items);
}

/* --- columns: the results are contiguous ------------------------------------------------------ */

enum { WIDTH = 512 }; /* results of a work-item, as in the kernel file */

bool clt_reduce_cpu_columns_accepts(const clt_node *node, const clt_target *target, char *why)
{
    const clt_reduction r = clt_reduction_of(node, target);
    const int last = r.kept.rank - 1;
    if (!clt_accepts_cpu_vectors(node, target, why))
        return false;
    if (last < 0 || !r.reduced.rank || r.kept.strides[0][last] != 1)
        return clt_decline(why, "the results do not lie side by side in the operand");
    const int64_t side = clt_dim(r.kept.dims[last], target->max_batch);
    if (side < target->caps->vector_width)
        return clt_decline(why, "%lld results side by side", (long long)side);
    return true;
}

static clt_extent column_items(const clt_reduction *r, int64_t share)
{
    const int last = r->kept.rank - 1;
    clt_extent items = clt_extent_ceil(clt_extent_dim(r->kept.dims[last]), WIDTH, 1);
    (void)share;
    for (int k = 0; k < last; k++) {
        const clt_extent dim = clt_extent_dim(r->kept.dims[k]);
        items = dim.pre ? times(dim, items.mul) : times(items, dim.mul);
    }
    return items;
}

/* Number of parts of the elements: enough for all compute units, and each part has a minimum
 * length. */
static int64_t column_parts(const clt_target *target, int64_t length, int64_t items)
{
    const int64_t wanted = 8 * (int64_t)target->caps->compute_units, most = length / 64;
    const int64_t parts = items ? clt_ceil_div(wanted, items) : 1;
    return parts < most ? parts : most ? most : 1;
}

static void launch_columns(stage *s, const clt_target *target, clt_program *p)
{
    const clt_extent items = column_items(&s->r, 0);
    s->r.parts = column_parts(target, clt_extent_at(s->r.length, target->max_batch),
                              clt_extent_at(items, target->max_batch));
    launch_parts(s, target, p, column_items);
}

void clt_reduce_cpu_columns(const clt_node *node, const clt_target *target, clt_program *p)
{
    stage s = {.file = "reduce/cpu/columns.cl",
               .type = node->in[0]->type.dtype,
               .r = clt_reduction_of(node, target),
               .kind = kind_of(node),
               .divide = is_mean(node)};
    launch_columns(&s, target, p);
}

void clt_column_sums_cpu(int operand, clt_dtype type, int out, int64_t rows, int64_t columns,
                         const clt_target *target, clt_program *p)
{
    if (columns < target->caps->vector_width) {
        clt_column_sums_portable(operand, type, out, rows, columns, target, p);
        return;
    }
    stage s = {.file = "reduce/cpu/columns.cl",
               .r = {.kept = one_dimension(columns, 1),
                     .reduced = one_dimension(rows, columns),
                     .count = clt_fixed(columns),
                     .length = clt_extent_dim(rows)},
               .kind = SUM,
               .operand = operand,
               .out = out,
               .type = type};
    launch_columns(&s, target, p);
}
