/* Functions that all reducing kinds use. */
#include <math.h>

#include "base/error.h"
#include "comm/communicator/internal.h"
#include "comm/core/reduction.h"
#include "comm/core/residual.h"
#include "comm/core/tree.h"

static clt_status accepts_residual(const clt_comm *comm, const clt_comm_op *op)
{
    const char *kind = clt_comm_kind_name(op->kind);
    const bool blocks = op->kind == CLT_COMM_REDUCE_SCATTER;
    const int64_t count = blocks ? op->count * comm->total : op->count;
    int exponent;
    if ((op->dtype != CLT_F16 && op->dtype != CLT_BF16) || op->reduction != CLT_COMM_SUM)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "comm: %s: only sums of f16 and bf16 leave a residual; leave it out", kind);
    if (op->leaves)
        return clt_fail(CLT_UNSUPPORTED,
                        "comm: %s: a tree rounds at each node and keeps no residual; leave out "
                        "the residual or the leaves",
                        kind);
    if (op->residual->comm != comm || op->residual->count != count)
        return clt_fail(
            CLT_INVALID_ARGUMENT, "comm: %s: the residual is of %lld elements%s, the sum has %lld",
            kind, (long long)op->residual->count,
            op->residual->comm != comm ? " of another communicator" : "", (long long)count);
    if (!(op->residual_scale > 0) || frexp(op->residual_scale, &exponent) != 0.5)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "comm: %s: the residual's scale %g is not a power of two", kind,
                        op->residual_scale);
    return CLT_OK;
}

clt_status clt_comm_accepts_reduction(const clt_comm *comm, int device, const clt_comm_op *op)
{
    (void)device;
    const char *kind = clt_comm_kind_name(op->kind);
    if (op->reduction < CLT_COMM_SUM || op->reduction > CLT_COMM_MAX)
        return clt_fail(CLT_INVALID_ARGUMENT, "comm: %s: %d is not a reduction", kind,
                        (int)op->reduction);
    if (!clt_reduce_for(op->dtype, op->dtype))
        return clt_fail(CLT_UNSUPPORTED,
                        "comm: %s of %s has no implementation; use f32, f64, f16, bf16 or i32",
                        kind, clt_dtype_name(op->dtype));
    if (op->residual)
        CLT_TRY(accepts_residual(comm, op));
    if (!op->leaves)
        return CLT_OK;
    if (clt_tree_level(op->leaves) < 0 || op->reduction != CLT_COMM_SUM)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "comm: %s: a tree adds up blocks of 2^0 to 2^20 leaves; %lld leaves and "
                        "reduction %d are not possible",
                        kind, (long long)op->leaves, (int)op->reduction);
    if (op->flags & CLT_COMM_EMPTY)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "comm: %s: a tree has no empty devices; give zeros and clear "
                        "CLT_COMM_EMPTY",
                        kind);
    return CLT_OK;
}

/* The devices of a rank are added before those of other ranks, so they must form a node. */
static clt_status check_tree(const clt_comm_request *request, const clt_task_list *tasks)
{
    const clt_task *t = &tasks->tasks[tasks->count - 1];
    if (!t->tree || clt_tree_join(clt_tasks_levels(tasks, t), t->in_count) >= 0)
        return CLT_OK;
    return clt_fail(CLT_MISMATCH,
                    "comm: collective %lld: the leaves of this rank's %d devices are no block of "
                    "the tree; divide them anew",
                    (long long)request->sequence, t->in_count);
}

clt_status clt_comm_reduction_task(const clt_comm *comm, const clt_comm_request *request, int k,
                                   int64_t first, int64_t count, char *const *to,
                                   clt_task_list *tasks)
{
    const clt_comm_op *op = &request->sides[0].parts[k].op;
    const int64_t skip = first * clt_dtype_size(op->dtype);
    clt_task task = {.from = op->dtype,
                     .to = op->dtype,
                     .reduction = op->reduction,
                     .measure = op->flags & CLT_COMM_MEASURE,
                     .tree = op->leaves != 0,
                     .count = count};
    if (op->residual) {
        const double scale = op->residual_scale;
        task.narrow = true;
        task.round = clt_residual_use(op->residual, CLT_COMM_ROUNDS_SUM, first, scale);
        task.rank_round = clt_residual_use(op->residual, CLT_COMM_ROUNDS_RANK, first, scale);
        task.node_round = clt_residual_use(op->residual, CLT_COMM_ROUNDS_NODE, first, scale);
    }
    CLT_TRY(clt_tasks_add(tasks, &task));
    for (int i = 0; i < comm->count; i++) {
        const clt_comm_part *part = &request->sides[i].parts[k];
        if (part->in.count)
            CLT_TRY(clt_tasks_in_block(tasks, part->host_in + skip,
                                       task.tree ? clt_tree_level(part->op.leaves) : 0));
    }
    CLT_TRY(check_tree(request, tasks));
    for (int i = 0; i < comm->count; i++)
        if (to[i])
            CLT_TRY(clt_tasks_out(tasks, to[i]));
    return CLT_OK;
}
