/*
 * The search for what backward recomputes, in graphs that are not large. Each choice is judged by
 * the bytes alive at each node of its schedule. From the present choice, the search adds the value
 * that lowers the excess over a target most for the time of its copies. Without a limit the target
 * goes down step by step until nothing more is gained. A node is recomputed at most once, so
 * backward takes at most a forward pass longer.
 *
 * The search gives up after MOST_WORK visits of places. The largest models here need a third of
 * them. Chains of hundreds of equal nodes would need a hundred times as many.
 */
#include <string.h>

#include "plan/recompute_internal.h"

enum { MOST_WORK = 1 << 23 };

bool clt_recompute_search_is_long(const clt_recompute *r)
{
    return r->work > MOST_WORK;
}

/* Returns the candidate with the highest last gain; -1 if none gains. */
static int most_promising(const clt_recompute *r)
{
    int best = -1;
    for (int i = 0; i < r->n_nodes; i++)
        if (r->candidate[i] && !r->recomputed[i] && r->gains[i] > 0 &&
            (best < 0 || r->gains[i] > r->gains[best]))
            best = i;
    return best;
}

static void look(clt_recompute *r, int node, double target, const clt_recompute_cost *now,
                 int version)
{
    r->recomputed[node] = true;
    const clt_recompute_cost then = clt_recompute_evaluate(r, target);
    r->recomputed[node] = false;
    const double seconds = then.seconds - now->seconds;
    r->gains[node] =
        (now->excess - then.excess) / (seconds > CLT_LAUNCH_SECONDS ? seconds : CLT_LAUNCH_SECONDS);
    r->looked[node] = version;
}

/* Adds nodes to the choice until the peak is at most `target`. Returns whether this succeeded. A
 * candidate's last gain counts until the candidate is evaluated again, which always happens before
 * it is added. */
static bool descend(clt_recompute *r, double target, int *version, clt_recompute_cost *now)
{
    *now = clt_recompute_evaluate(r, target);
    while (now->excess > 0) {
        if (clt_recompute_search_is_long(r))
            return false;
        int node = most_promising(r);
        for (int i = 0; node < 0 && i < r->n_nodes; i++)
            if (r->candidate[i] && !r->recomputed[i] && r->looked[i] != *version) {
                if (clt_recompute_search_is_long(r))
                    return false;
                look(r, i, target, now, *version);
                node = r->gains[i] > 0 ? i : -1;
            }
        if (node < 0)
            return false;
        if (r->looked[node] != *version) {
            look(r, node, target, now, *version);
            continue;
        }
        r->recomputed[node] = true;
        ++*version;
        *now = clt_recompute_evaluate(r, target);
    }
    return true;
}

static void save(const clt_recompute *r)
{
    memcpy(r->best, r->recomputed, (size_t)r->n_nodes * sizeof *r->recomputed);
}

static void restore(clt_recompute *r)
{
    memcpy(r->recomputed, r->best, (size_t)r->n_nodes * sizeof *r->recomputed);
}

static void choose_nothing(clt_recompute *r)
{
    for (int i = 0; i < r->n_nodes; i++) {
        const clt_node *node = r->plan->nodes[i].node;
        r->recomputed[i] = !node->backward && !r->fixed[i] && !r->candidate[i];
        r->gains[i] = 1e300;
        r->looked[i] = -1;
    }
}

/* Removes nodes from the choice that the peak does not need, slow nodes first. */
static void prune(clt_recompute *r, double target)
{
    double below = 1e300;
    for (;;) {
        int next = -1;
        for (int i = 0; i < r->n_nodes; i++)
            if (r->candidate[i] && r->recomputed[i] && r->seconds[i] < below &&
                (next < 0 || r->seconds[i] > r->seconds[next]))
                next = i;
        if (next < 0)
            return;
        below = r->seconds[next];
        for (int i = next; i < r->n_nodes; i++) {
            if (!r->candidate[i] || !r->recomputed[i] || r->seconds[i] != below)
                continue;
            if (clt_recompute_search_is_long(r))
                return;
            r->recomputed[i] = false;
            if ((double)clt_recompute_evaluate(r, target).peak > target)
                r->recomputed[i] = true;
        }
    }
}

static void keep_if_lower(clt_recompute *r, const clt_recompute_cost *now, double *least)
{
    if ((double)now->peak < *least) {
        *least = (double)now->peak;
        save(r);
    }
}

/* Lowers the peak in small steps from the current choice, until nothing more is gained. */
static void go_down(clt_recompute *r, double *least)
{
    enum { MOST_STEPS = 64 };
    const double step = 0.95;
    int version = 0;
    clt_recompute_cost now = clt_recompute_evaluate(r, 0);
    bool reached = true;
    for (int i = 0; i < r->n_nodes; i++) {
        r->gains[i] = 1e300;
        r->looked[i] = -1;
    }
    for (int i = 0; reached && i < MOST_STEPS; i++) {
        reached = descend(r, step * (double)now.peak, &version, &now);
        keep_if_lower(r, &now, least);
    }
}

/* Finds the choice with the least memory. A choice for a low target differs from a choice made step
 * by step, and the better one depends on the model. So this searches for the lowest target that can
 * be reached, and lowers the best choice further. */
double clt_recompute_search_least(clt_recompute *r)
{
    enum { TRIES = 10 };
    const double slack = 1.01;
    double low = 0, least;
    choose_nothing(r);
    save(r);
    least = (double)clt_recompute_evaluate(r, 0).peak;
    go_down(r, &least);
    for (int i = 0; i < TRIES && low < 0.98 * least; i++) {
        const double target = (low + least) / 2;
        int version = 0;
        clt_recompute_cost now;
        choose_nothing(r);
        if (!descend(r, target, &version, &now))
            low = target;
        keep_if_lower(r, &now, &least);
    }
    restore(r);
    go_down(r, &least);
    restore(r);
    prune(r, slack * least);
    return least;
}

bool clt_recompute_search_within(clt_recompute *r, double bytes)
{
    int version = 0;
    clt_recompute_cost now;
    choose_nothing(r);
    if (!descend(r, bytes, &version, &now) && clt_recompute_search_least(r) > bytes)
        return false;
    prune(r, bytes);
    return true;
}
