/* Launches of clkernels/reduce/gpu/reduce.cl. */
#include "ops/reduce/reduce.h"

#include "ops/core/group_gpu.h"
#include "ops/core/ops.h"

enum { DIMS = 4, SUM = 0, MAX = 1, COUNT = 2, MOST_PARTS = 1024 };

/* How a kernel divides the work. */
typedef struct spread {
    bool columns;        /* the results are contiguous, not the elements of a result */
    int v, group, width; /* -DV, -DGROUP, -DWIDTH */
    int64_t parts;
} spread;

/* The source and destination of a kernel: an operand or a block of partial results. */
typedef struct stage {
    int op;
    clt_strided kept, reduced;
    clt_extent count, length;
    int from, to; /* scratch blocks, or -1: operand 0, output 0 */
    clt_extent divisor;
} stage;

bool clt_reduce_gpu_accepts(const clt_node *node, const clt_target *target, char *why)
{
    enum { MOST = 1 << 30 };
    const clt_reduction r = clt_reduction_of(node, target);
    if (!clt_gpu_group_accepts(node, target, why))
        return false;
    if (clt_extent_at(r.count, target->max_batch) > MOST ||
        clt_extent_at(r.length, target->max_batch) > MOST)
        return clt_decline(why, "more than %d results or elements of one", MOST);
    return r.kept.rank <= DIMS && r.reduced.rank <= DIMS
               ? true
               : clt_decline(why, "an iteration over %d dimensions", r.kept.rank + r.reduced.rank);
}

static bool fits_vectors(const clt_strided *strided, int unit)
{
    for (int k = 0; k < strided->rank; k++)
        if ((k == unit ? strided->dims[k] : strided->strides[0][k]) % 4)
            return false;
    return true;
}

static bool side_by_side(const clt_strided *strided)
{
    return strided->rank && strided->strides[0][strided->rank - 1] == 1;
}

/* Number of parts of the elements: enough to keep the device busy, and each part has a minimum
 * length. */
static int64_t parts_of(int64_t groups, int64_t length, int64_t least, const clt_target *target)
{
    const int64_t wanted = groups ? clt_gpu_groups(target) / groups : 1, most = length / least;
    const int64_t parts = wanted < most ? wanted : most;
    return parts < 2 ? 1 : parts < MOST_PARTS ? parts : MOST_PARTS;
}

static spread spread_of(const stage *s, const clt_target *target)
{
    enum { SHARE = 4 }; /* loads of a work-item from which a second kernel is worth its cost */
    const int64_t count = clt_extent_at(s->count, target->max_batch);
    const int64_t length = clt_extent_at(s->length, target->max_batch);
    spread to = {.columns = side_by_side(&s->kept)};
    const clt_strided *unit = to.columns ? &s->kept : &s->reduced;
    to.v = unit->rank && fits_vectors(&s->kept, to.columns ? s->kept.rank - 1 : -1) &&
                   fits_vectors(&s->reduced, to.columns ? -1 : s->reduced.rank - 1)
               ? 4
               : 1;
    const int64_t along = unit->rank ? clt_dim(unit->dims[unit->rank - 1], target->max_batch) : 1;
    if (to.columns) {
        /* Rows of 16 vectors are read as fast as longer rows. Use longer rows only if there are few
         * below them. */
        to.width = clt_gpu_power(clt_ceil_div(along, to.v), 2, length < 16 ? 64 : 16);
        const int rows =
            clt_gpu_power(length, CLT_GPU_LEAST_GROUP / to.width, CLT_GPU_GROUP / to.width);
        to.group = to.width * rows;
        const int64_t groups = along ? count / along * clt_ceil_div(along, to.width * to.v) : 0;
        to.parts = parts_of(groups, length, rows * SHARE, target);
    } else {
        to.width = clt_gpu_power(clt_ceil_div(length, 4 * to.v), 4, CLT_GPU_GROUP);
        to.group = to.width < CLT_GPU_LEAST_GROUP ? CLT_GPU_LEAST_GROUP : to.width;
        const int64_t groups = clt_ceil_div(count, to.group / to.width);
        to.parts = parts_of(groups, length, CLT_GPU_GROUP * to.v * SHARE, target);
        if (to.parts > 1)
            to.group = to.width = CLT_GPU_GROUP;
    }
    return to;
}

static int used(const clt_strided *strided)
{
    return strided->rank ? strided->rank : 1;
}

static void launch(const stage *s, const spread *to, const clt_node *node, clt_program *p)
{
    clt_launch_begin(p, "reduce/gpu/reduce.cl", to->columns ? "columns" : "rows",
                     "%s-DOP=%d -DV=%d -DKEPT=%d -DREDUCED=%d -DGROUP=%d -DWIDTH=%d",
                     to->columns ? "" : "-DROWS ", s->op, to->v, used(&s->kept), used(&s->reduced),
                     to->group, to->width);
    if (s->from < 0)
        CLT_ARGS(p, CLT_IN(0));
    else
        CLT_ARGS(p, CLT_SCRATCH(s->from));
    if (s->op == COUNT)
        CLT_ARGS(p, CLT_IN(node->n_in - 1));
    if (s->to < 0)
        CLT_ARGS(p, CLT_OUT(0));
    else
        CLT_ARGS(p, CLT_SCRATCH(s->to));
    CLT_ARGS(p, CLT_INT(s->count), CLT_FIXED(to->parts), CLT_INT(s->length), CLT_INT(s->divisor));
    clt_arg_strided_sizes(p, &s->kept, DIMS);
    clt_arg_strided_strides(p, &s->kept, 0, DIMS);
    clt_arg_strided_sizes(p, &s->reduced, DIMS);
    clt_arg_strided_strides(p, &s->reduced, 0, DIMS);
    clt_extent groups = clt_extent_ceil(s->count, to->group / to->width, to->group);
    if (to->columns) {
        const int last = s->kept.rank - 1;
        int64_t outer = 1;
        for (int k = 0; k < last; k++)
            outer *= s->kept.dims[k];
        groups = clt_extent_dim(outer);
        if (groups.pre)
            groups.mul *= clt_ceil_div(s->kept.dims[last], to->width * to->v) * to->group;
        else
            groups = clt_extent_ceil(clt_extent_dim(s->kept.dims[last]), to->width * to->v,
                                     to->group * outer);
    }
    clt_range3(p, groups, clt_fixed(to->parts), clt_fixed(1), to->group, 1, 1);
}

/* The stage that combines the partial results of `first`. They are [count, parts], or [parts,
 * count] if the results are contiguous. */
static stage joining(const stage *first, const spread *to, int block)
{
    const clt_extent n = first->count;
    const int64_t count = n.pre ? -n.mul : n.mul;
    stage s = {.op = first->op == MAX ? MAX : SUM,
               .kept = {.rank = 1, .n_arrays = 1, .dims = {count}},
               .reduced = {.rank = 1, .n_arrays = 1, .dims = {to->parts}},
               .count = first->count,
               .length = clt_fixed(to->parts),
               .from = block,
               .to = -1};
    s.kept.strides[0][0] = to->columns ? 1 : to->parts;
    s.reduced.strides[0][0] = to->columns ? count : 1;
    return s;
}

void clt_reduce_gpu(const clt_node *node, const clt_target *target, clt_program *program)
{
    const clt_reduction r = clt_reduction_of(node, target);
    const clt_extent divisor = node->op == &clt_op_mean ? r.length : clt_fixed(0);
    stage first = {.op = node->op == &clt_op_max         ? MAX
                         : node->op == &clt_op_max_count ? COUNT
                                                         : SUM,
                   .kept = r.kept,
                   .reduced = r.reduced,
                   .count = r.count,
                   .length = r.length,
                   .from = -1,
                   .to = -1};
    const spread to = spread_of(&first, target);
    if (to.parts == 1) {
        first.divisor = divisor;
        launch(&first, &to, node, program);
        return;
    }
    first.to =
        clt_scratch_add(program, (clt_extent){r.count.mul * to.parts * (int64_t)sizeof(float),
                                              r.count.pre, r.count.div, 0});
    launch(&first, &to, node, program);
    stage second = joining(&first, &to, first.to);
    second.divisor = divisor;
    spread all = spread_of(&second, target);
    all.parts = 1;
    launch(&second, &all, node, program);
}
