/* Finds runs of nodes with so little work that one work-item does it sooner than the device starts
 * their launches one by one. exec makes one kernel of such a run. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/vec.h"
#include "plan/plan.h"

/* Times in seconds. PoCL and Intel's runtime need 2 to 10 us from a launch to the next. A launch
 * that takes less than SMALL on one core gains nothing from another core, which wakes up as late.
 */
static const double launch_time = 4e-6, small_time = 20e-6;

/* What small kernels reach on one core: less than long ones. */
static const double core_flops = 20e9, core_bytes = 5e9;

/* Launches of a run: longer sources compile for too long. */
enum { MOST_LAUNCHES = 16 };

static int64_t bytes_of(const clt_value *v, int64_t n)
{
    return v ? clt_type_elements(&v->type, n) * clt_dtype_size(v->type.dtype) : 0;
}

/* Returns the bytes that a node without arithmetic moves, such as those of the new rows of a cache.
 * It reads an element of one operand for each that it writes, and does not write those that its
 * operand has in the same place. */
static double bytes_moved(const clt_plan *plan, const clt_node *node, int64_t n)
{
    const double written = (double)bytes_of(node->out[0], n);
    double bytes = 0;
    bool stays = false;
    for (int i = 0; i < node->n_in; i++) {
        const double read = (double)bytes_of(node->in[i], n);
        const bool same =
            node->in[i] && i < 32 && node->op->in_place & 1u << i &&
            clt_place_equal(&plan->places[node->in[i]->id], &plan->places[node->out[0]->id]);
        stays = stays || same;
        bytes += same ? 0 : read < written ? read : written;
    }
    return stays ? 2 * bytes : bytes + written;
}

/* Predicts the time of a node on one core, without its launches. */
static double time_of(const clt_plan *plan, const clt_plan_node *pn)
{
    const clt_node *node = pn->node;
    const int64_t n = plan->options.max_batch;
    double bytes = 0;
    if (node->op->flops == clt_no_flops && node->n_out == 1)
        return bytes_moved(plan, node, n) / core_bytes;
    for (int i = 0; i < node->n_in; i++)
        bytes += (double)bytes_of(node->in[i], n);
    for (int i = 0; i < node->n_out; i++)
        bytes += (double)bytes_of(node->out[i], n);
    const double flops = node->op->flops ? node->op->flops(node, n)
                                         : (double)clt_type_elements(&node->out[0]->type, n);
    return flops / core_flops + bytes / core_bytes;
}

/* Predicts the time of a launch that only adds up. */
static double time_of_sums(const clt_plan *plan, const clt_plan_node *pn, const clt_launch *launch)
{
    const int64_t n = plan->options.max_batch;
    double bytes = 0;
    for (int i = 0; i < launch->n_args; i++) {
        const clt_arg *arg = &launch->args[i];
        if (arg->kind == CLT_ARG_SCRATCH)
            bytes += (double)clt_extent_at(pn->program.scratch[arg->index], n);
        else if (arg->kind == CLT_ARG_OUT)
            bytes += (double)bytes_of(pn->node->out[arg->index], n);
    }
    return bytes / core_bytes;
}

/* Whether all kernels of the node from launch `from` on can be part of another one. Notes the first
 * node that has one which cannot, as a kernel that waits for other work-items. */
static bool can_merge(clt_plan *plan, const clt_plan_node *pn, int from)
{
    char why[CLT_PLAN_WHY];
    for (int i = from; i < pn->program.n_launches; i++) {
        const clt_launch *launch = &pn->program.launches[i];
        if (launch->blas)
            return false;
        if (plan->options.merges(launch->file, launch->options, launch->kernel, why))
            continue;
        if (!plan->apart[0])
            snprintf(plan->apart, sizeof plan->apart, "%.60s, kernel %.60s: %s", pn->node->name,
                     launch->kernel, why);
        return false;
    }
    return true;
}

/* Whether the node may be part of a run. */
static bool is_small(clt_plan *plan, int index)
{
    const clt_plan_node *pn = &plan->nodes[index];
    return !pn->node->op->collective && time_of(plan, pn) <= small_time * pn->program.n_launches &&
           can_merge(plan, pn, 0);
}

/* Whether other work-items than the last one to end may leave the launch without the rest. */
static bool is_alone(const clt_launch *launch)
{
    for (int d = 0; d < launch->work_dim; d++)
        if (launch->local[d] != 1)
            return false;
    return true;
}

/* Whether the launch before the last one of the node can be part of a run with it. */
static bool can_be_wide(clt_plan *plan, const clt_plan_node *pn)
{
    char why[CLT_PLAN_WHY];
    const clt_launch *launch = &pn->program.launches[pn->program.n_launches - 2];
    return !launch->blas && is_alone(launch) &&
           plan->options.merges(launch->file, launch->options, launch->kernel, why);
}

/* Returns how many launches of the node stay apart before a last one that may begin a run; 0: the
 * node cannot begin one so. */
static int before_sums(clt_plan *plan, int index)
{
    const clt_plan_node *pn = &plan->nodes[index];
    const int last = pn->program.n_launches - 1;
    if (last < 1 || pn->node->op->collective || !pn->program.launches[last].sums)
        return 0;
    return time_of_sums(plan, pn, &pn->program.launches[last]) <= small_time &&
                   can_merge(plan, pn, last)
               ? last
               : 0;
}

/* Whether the host always acts between a node and the next one. One device alone goes on with the
 * backward pass, unless the caller reads outputs in between. */
static bool is_cut(const clt_plan *plan, int end)
{
    if (end == plan->n_forward && (plan->options.several || plan->options.in_flight))
        return true;
    for (int s = 0; plan->options.several && s < plan->n_segments; s++)
        if (plan->segments[s].end == end)
            return true;
    return false;
}

static clt_status list_runs(clt_plan *plan)
{
    int room = 0;
    for (int first = 0, end; first < plan->n_nodes; first = end) {
        const int skip = is_small(plan, first) ? 0 : before_sums(plan, first);
        const bool wide = skip && can_be_wide(plan, &plan->nodes[first]);
        int launches = (skip > 0) + wide;
        for (end = first + (skip > 0); end < plan->n_nodes && is_small(plan, end); end++) {
            const int more = plan->nodes[end].program.n_launches;
            if (end > first && (is_cut(plan, end) || launches + more > MOST_LAUNCHES))
                break;
            launches += more;
        }
        if (launches > 1)
            CLT_TRY(CLT_PUSH(plan->merges, plan->n_merges, room,
                             ((clt_plan_merge){first, end, skip - wide, launches, wide})));
        end += end == first;
    }
    return CLT_OK;
}

/* How many times as fast as time_of predicts whole steps of small models are, with vectors of 256
 * and 512 bits (docs/performance.md, "Small launches"). Some of their kernels are not. */
static const double step_gain = 4;

/* Returns the part of a step's predicted time that merging saves, and the seconds. */
static double saving(const clt_plan *plan, double *seconds)
{
    double work = 0, saved = 0;
    for (int i = 0; i < plan->n_nodes; i++)
        work += time_of(plan, &plan->nodes[i]) / step_gain +
                launch_time * plan->nodes[i].program.n_launches;
    for (int i = 0; i < plan->n_merges; i++)
        saved += launch_time * (plan->merges[i].launches - 1);
    *seconds = saved;
    return work > 0 ? saved / work : 0;
}

/* Less is no reason to compile other kernels. */
static const double least_saving = 0.02;

/* Seconds in which a merged kernel is compiled. */
static const double compile_time = 2;

static clt_status leave(clt_plan *plan, const char *why)
{
    plan->n_merges = 0;
    snprintf(plan->merging, sizeof plan->merging, "none: %s", why);
    return CLT_OK;
}

clt_status clt_plan_merges(clt_plan *plan)
{
    if (plan->options.merge == CLT_MERGE_OFF || !plan->options.merges)
        return leave(plan, "turned off");
    if (!clt_caps_is_cpu(&plan->caps))
        return leave(plan, "the device is no CPU");
    CLT_TRY(list_runs(plan));
    double seconds;
    const double saved = saving(plan, &seconds);
    const double repaid = ceil(compile_time * plan->n_merges / seconds);
    snprintf(plan->merging, sizeof plan->merging,
             "predicted to save %.0f %% of a step, which repays compiling after %.0f steps",
             100 * saved, repaid);
    if (!plan->n_merges)
        return leave(plan, "no two neighbouring launches are small");
    if (plan->options.merge == CLT_MERGE_ON)
        return CLT_OK;
    if (plan->options.accumulates)
        return leave(plan, "gradients of micro-batches are added up");
    if (saved < least_saving)
        return leave(plan, "launches take too small a part of a step");
    if (plan->options.portable)
        return leave(plan, "kernels are portable");
    return plan->options.merge_steps > 0 && plan->options.merge_steps < repaid
               ? leave(plan, "the run is too short to repay compiling")
               : CLT_OK;
}
