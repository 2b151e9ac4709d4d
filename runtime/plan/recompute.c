/*
 * Chooses the forward values that the backward pass recomputes. A choice is judged by the bytes
 * alive at each node of its schedule. Starting from the current choice, the value is added that
 * most reduces the excess over a target, relative to the time of its copies. Without a limit, the
 * target is lowered step by step until nothing more is gained. A node is recomputed at most once,
 * so the backward pass takes at most one forward pass longer.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "plan/recompute.h"

/* Speeds of arithmetic and memory, and the time of a launch, for comparing nodes. These are a
 * processor's orders of magnitude. */
static const double FLOPS_A_SECOND = 4e11, BYTES_A_SECOND = 2e10, LAUNCH_SECONDS = 3e-6;

typedef struct item {
    int node;
    bool again; /* the node's copy, which recomputes */
} item;

typedef struct visit {
    int node, next; /* `next`: the operand to visit next */
} visit;

/* The result of a choice. */
typedef struct outcome {
    int64_t peak;   /* bytes */
    double excess;  /* bytes over the target, summed over the schedule */
    double seconds; /* time of the copies */
} outcome;

struct clt_recompute {
    const clt_plan *plan;
    int n_values, n_nodes;
    int *root;         /* by value: the value that owns its memory; -1: not in the arena */
    int64_t *bytes;    /* by value, of roots */
    bool *lasting;     /* by value, of roots: lives to the end of the step anyway */
    bool *fetched;     /* by value, of roots: lives to the end of forward anyway */
    int64_t *scratch;  /* by node */
    double *seconds;   /* by node */
    bool *fixed;       /* by node: cannot be recomputed */
    bool *candidate;   /* by node: the backward pass reads its results */
    bool *again;       /* by node: the choice: recompute it */
    bool *value_again; /* by value: the choice, for the pass */
    double *gains;     /* by node: the gain when last evaluated */
    int *looked;       /* by node: version of the choice when last evaluated */
    bool *best;        /* by node: the best choice so far */
    item *order;       /* the schedule of the choice */
    int n_order;
    visit *stack;
    bool *made;    /* by node: its copy is in `order` */
    int *last;     /* by instance (value, or n_values + value for its copy): last use */
    int *block;    /* by instance: the instance whose block it overwrites */
    int *died;     /* by instance: when its block dies */
    int64_t *live; /* by place in `order` */
};

static bool is_root(const clt_recompute *r, const clt_value *value)
{
    return r->root[value->id] == value->id;
}

/* Whether the backward pass and copies read a copy of the value. */
static bool copied(const clt_recompute *r, const clt_value *value)
{
    const int root = r->root[value->id];
    if (root < 0 || r->lasting[root])
        return false;
    const clt_node *producer = r->plan->graph->values[root]->producer;
    return !producer->backward && r->again[producer->id];
}

/* Adds the copies that the node needs to the schedule, and the copies that these need. The order is
 * that of clt_graph_clean: just before the first node that reads them. Chains may be as long as the
 * graph, so this uses its own stack. */
static void schedule_operands(clt_recompute *r, int node)
{
    int depth = 0;
    r->stack[depth++] = (visit){node, 0};
    while (depth) {
        visit *top = &r->stack[depth - 1];
        const clt_node *at = r->plan->nodes[top->node].node;
        if (top->next == at->n_in) {
            if (depth-- > 1)
                r->order[r->n_order++] = (item){top->node, true};
            continue;
        }
        const clt_value *in = at->in[top->next++];
        const clt_node *from = in ? in->producer : NULL;
        if (!from || from->backward || r->made[from->id] || !copied(r, in))
            continue;
        r->made[from->id] = true;
        r->stack[depth++] = (visit){from->id, 0};
    }
}

static void schedule(clt_recompute *r)
{
    memset(r->made, 0, (size_t)r->n_nodes * sizeof *r->made);
    r->n_order = 0;
    for (int i = 0; i < r->n_nodes; i++) {
        const clt_node *node = r->plan->nodes[i].node;
        if (node->backward)
            schedule_operands(r, i);
        r->order[r->n_order++] = (item){i, false};
    }
}

/* Returns the instance of the value that `from` reads or writes; -1 if the value is not in the
 * arena. */
static int instance(const clt_recompute *r, item from, const clt_value *value)
{
    const int root = r->root[value->id];
    if (root < 0)
        return -1;
    const clt_node *node = r->plan->nodes[from.node].node;
    const bool late = from.again || node->backward;
    return late && copied(r, value) ? r->n_values + root : root;
}

static void find_last_uses(clt_recompute *r)
{
    for (int k = 0; k < r->n_order; k++) {
        const item it = r->order[k];
        const clt_node *node = r->plan->nodes[it.node].node;
        for (int j = 0; j < node->n_in + node->n_out; j++) {
            const clt_value *v = j < node->n_in ? node->in[j] : node->out[j - node->n_in];
            const int at = v ? instance(r, it, v) : -1;
            if (at >= 0)
                r->last[at] = k;
            if (at >= 0 && at < r->n_values && r->lasting[at])
                r->last[at] = r->n_order;
            else if (at >= 0 && at < r->n_values && r->fetched[at] && k < r->plan->n_forward)
                r->last[at] = r->plan->n_forward - 1;
        }
    }
}

/* Returns the block that output 0 overwrites, by the rules of plan/memory.c; -1 if there is
 * none. */
static int taken_over(const clt_recompute *r, item it, int place)
{
    const clt_node *node = r->plan->nodes[it.node].node;
    const clt_value *out = node->out[0];
    for (int i = 0; i < node->n_in && i < 32; i++) {
        const clt_value *in = node->in[i];
        const int at = in && node->op->in_place & 1u << i ? instance(r, it, in) : -1;
        if (at >= 0 && r->died[r->block[at]] == place && in->layout == out->layout &&
            r->bytes[r->root[in->id]] == r->bytes[out->id])
            return r->block[at];
    }
    return -1;
}

static void add_outputs(clt_recompute *r, int place)
{
    const item it = r->order[place];
    const clt_node *node = r->plan->nodes[it.node].node;
    r->live[place] += r->scratch[it.node];
    r->live[place + 1] -= r->scratch[it.node];
    for (int j = 0; j < node->n_out; j++) {
        if (!is_root(r, node->out[j]))
            continue;
        const int at = it.again ? r->n_values + node->out[j]->id : node->out[j]->id;
        const int from = j == 0 ? taken_over(r, it, place) : -1;
        const int64_t bytes = r->bytes[node->out[j]->id];
        const int dies = r->last[at];
        r->block[at] = from >= 0 ? from : at;
        if (from >= 0)
            r->live[r->died[from] + 1] += bytes;
        else
            r->live[place] += bytes;
        r->live[dies + 1] -= bytes;
        r->died[r->block[at]] = dies;
    }
}

static outcome evaluate(clt_recompute *r, double target)
{
    outcome o = {0};
    schedule(r);
    find_last_uses(r);
    memset(r->live, 0, ((size_t)r->n_order + 2) * sizeof *r->live);
    for (int k = 0; k < r->n_order; k++) {
        add_outputs(r, k);
        if (r->order[k].again)
            o.seconds += r->seconds[r->order[k].node];
    }
    int64_t alive = 0;
    for (int k = 0; k < r->n_order; k++) {
        alive += r->live[k];
        o.peak = alive > o.peak ? alive : o.peak;
        o.excess += (double)alive > target ? (double)alive - target : 0;
    }
    return o;
}

/* Returns the candidate with the highest last gain; -1 if none gains. */
static int most_promising(const clt_recompute *r)
{
    int best = -1;
    for (int i = 0; i < r->n_nodes; i++)
        if (r->candidate[i] && !r->again[i] && r->gains[i] > 0 &&
            (best < 0 || r->gains[i] > r->gains[best]))
            best = i;
    return best;
}

static void look(clt_recompute *r, int node, double target, const outcome *now, int version)
{
    r->again[node] = true;
    const outcome then = evaluate(r, target);
    r->again[node] = false;
    const double seconds = then.seconds - now->seconds;
    r->gains[node] =
        (now->excess - then.excess) / (seconds > LAUNCH_SECONDS ? seconds : LAUNCH_SECONDS);
    r->looked[node] = version;
}

/* Adds nodes to the choice until the peak is at most `target`. Returns whether this succeeded. A
 * candidate's last gain counts until the candidate is evaluated again, which always happens before
 * it is added. */
static bool descend(clt_recompute *r, double target, int *version, outcome *now)
{
    *now = evaluate(r, target);
    while (now->excess > 0) {
        int node = most_promising(r);
        for (int i = 0; node < 0 && i < r->n_nodes; i++)
            if (r->candidate[i] && !r->again[i] && r->looked[i] != *version) {
                look(r, i, target, now, *version);
                node = r->gains[i] > 0 ? i : -1;
            }
        if (node < 0)
            return false;
        if (r->looked[node] != *version) {
            look(r, node, target, now, *version);
            continue;
        }
        r->again[node] = true;
        ++*version;
        *now = evaluate(r, target);
    }
    return true;
}

static void save(const clt_recompute *r)
{
    memcpy(r->best, r->again, (size_t)r->n_nodes * sizeof *r->again);
}

static void restore(clt_recompute *r)
{
    memcpy(r->again, r->best, (size_t)r->n_nodes * sizeof *r->again);
}

static void choose_nothing(clt_recompute *r)
{
    for (int i = 0; i < r->n_nodes; i++) {
        const clt_node *node = r->plan->nodes[i].node;
        r->again[i] = !node->backward && !r->fixed[i] && !r->candidate[i];
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
            if (r->candidate[i] && r->again[i] && r->seconds[i] < below &&
                (next < 0 || r->seconds[i] > r->seconds[next]))
                next = i;
        if (next < 0)
            return;
        below = r->seconds[next];
        for (int i = next; i < r->n_nodes; i++) {
            if (!r->candidate[i] || !r->again[i] || r->seconds[i] != below)
                continue;
            r->again[i] = false;
            if ((double)evaluate(r, target).peak > target)
                r->again[i] = true;
        }
    }
}

static void keep_if_lower(clt_recompute *r, const outcome *now, double *least)
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
    outcome now = evaluate(r, 0);
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
static double choose_least(clt_recompute *r)
{
    enum { TRIES = 10 };
    const double slack = 1.01;
    double low = 0, least;
    choose_nothing(r);
    save(r);
    least = (double)evaluate(r, 0).peak;
    go_down(r, &least);
    for (int i = 0; i < TRIES && low < 0.98 * least; i++) {
        const double target = (low + least) / 2;
        int version = 0;
        outcome now;
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

/* --- large graphs --------------------------------------------------------------------------- */

/* The search above takes more than quadratic time. With more candidates times nodes than this, the
 * forward pass is divided into segments instead, of which the backward pass keeps only values that
 * later segments read (Chen et al., "Training deep nets with sublinear memory cost", 2016). */
static const double MOST_WORK = 1 << 20;

static bool is_large(const clt_recompute *r)
{
    double candidates = 0;
    for (int i = 0; i < r->n_nodes; i++)
        candidates += r->candidate[i];
    return candidates * r->n_nodes > MOST_WORK;
}

/* Writes the segment number of each forward node to r->looked. All segments have about as many
 * bytes of candidates. */
static void number_segments(clt_recompute *r, int segments)
{
    double total = 1, before = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < r->plan->n_forward; i++) {
            const clt_node *node = r->plan->nodes[i].node;
            double bytes = 0;
            for (int j = 0; r->candidate[i] && j < node->n_out; j++)
                bytes += is_root(r, node->out[j]) ? (double)r->bytes[node->out[j]->id] : 0;
            if (pass)
                r->looked[i] = (int)(before * segments / total);
            *(pass ? &before : &total) += bytes;
        }
}

/* Chooses to recompute the first `again` of the segments, except for values that later segments
 * read. */
static outcome choose_segments(clt_recompute *r, int segments, int again)
{
    bool *kept = r->made; /* `made` is free until evaluate uses it */
    number_segments(r, segments);
    memset(kept, 0, (size_t)r->n_nodes * sizeof *kept);
    for (int i = 0; i < r->plan->n_forward; i++) {
        const clt_node *node = r->plan->nodes[i].node;
        for (int j = 0; j < node->n_in; j++) {
            const int root = node->in[j] ? r->root[node->in[j]->id] : -1;
            const clt_node *from = root < 0 ? NULL : r->plan->graph->values[root]->producer;
            if (from && r->looked[from->id] < r->looked[i])
                kept[from->id] = true;
        }
    }
    for (int i = 0; i < r->n_nodes; i++)
        r->again[i] = i < r->plan->n_forward && !r->fixed[i] && !kept[i] &&
                      (!r->candidate[i] || r->looked[i] < again);
    return evaluate(r, 0);
}

/* Returns the number of segments with the least memory. *least gets its bytes. */
static int best_segments(clt_recompute *r, int64_t *least)
{
    int best = 1;
    *least = INT64_MAX;
    for (int n = 1; n <= r->plan->n_forward; n += n < 2 ? 1 : n / 2) {
        const int64_t peak = choose_segments(r, n, n).peak;
        if (peak < *least) {
            *least = peak;
            best = n;
        }
    }
    return best;
}

/* Chooses the fewest segments that bring the peak to at most `bytes`. All segments together do. */
static void choose_fewest(clt_recompute *r, int segments, int64_t bytes)
{
    int low = 0, high = segments;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (choose_segments(r, segments, middle).peak <= bytes)
            high = middle;
        else
            low = middle + 1;
    }
    choose_segments(r, segments, high);
}

/* Chooses segments for at most `bytes` (0: for the least memory). False if no choice is small
 * enough. */
static bool choose_large(clt_recompute *r, int64_t bytes)
{
    int64_t least;
    const int segments = best_segments(r, &least);
    if (bytes && least > bytes)
        return false;
    choose_fewest(r, segments, bytes ? bytes : least + least / 100);
    return true;
}

static void write_values(clt_recompute *r)
{
    for (int i = 0; i < r->n_values; i++) {
        const clt_value *v = r->plan->graph->values[i];
        r->value_again[i] = v->producer && !v->producer->backward && copied(r, v);
    }
}

const bool *clt_recompute_least(clt_recompute *r)
{
    if (is_large(r))
        choose_large(r, 0);
    else
        choose_least(r);
    write_values(r);
    return r->value_again;
}

const bool *clt_recompute_within(clt_recompute *r, int64_t bytes)
{
    int version = 0;
    outcome now;
    if (is_large(r)) {
        const bool found = choose_large(r, bytes);
        write_values(r);
        return found ? r->value_again : NULL;
    }
    choose_nothing(r);
    if (!descend(r, (double)bytes, &version, &now) && choose_least(r) > (double)bytes)
        return NULL;
    prune(r, (double)bytes);
    write_values(r);
    return r->value_again;
}

/* --- what there is -------------------------------------------------------------------------- */

static void read_values(clt_recompute *r, const clt_target *target)
{
    const clt_plan *plan = r->plan;
    for (int i = 0; i < plan->n_nodes; i++) {
        const clt_node *node = plan->nodes[i].node;
        for (int j = 0; j < node->n_out; j++) {
            const clt_value *v = node->out[j];
            if (plan->places[v->id].kind != CLT_PLACE_ARENA)
                continue;
            r->root[v->id] = node->op->view ? r->root[node->in[0]->id] : v->id;
            r->bytes[v->id] = clt_value_stored(v, plan->options.max_batch, target->lanes) *
                              clt_dtype_size(v->type.dtype);
            r->bytes[v->id] =
                (r->bytes[v->id] + CLT_TENSOR_ALIGN - 1) / CLT_TENSOR_ALIGN * CLT_TENSOR_ALIGN;
            if (v->output && r->root[v->id] >= 0)
                *(plan->options.early_outputs ? &r->fetched[r->root[v->id]]
                                              : &r->lasting[r->root[v->id]]) = true;
        }
    }
    for (int i = 0; i < plan->graph->n_assigns; i++) {
        const int root = r->root[plan->graph->assigns[i].value->id];
        if (root >= 0)
            r->lasting[root] = true;
    }
}

static double node_seconds(const clt_recompute *r, const clt_plan_node *pn,
                           const clt_target *target)
{
    const clt_node *node = pn->node;
    const int64_t n = r->plan->options.max_batch;
    double bytes = 0, flops = (double)clt_type_elements(&node->out[0]->type, n);
    if (node->op->view)
        return 0;
    if (node->op->flops)
        flops = node->op->flops(node, n);
    for (int i = 0; i < node->n_in + node->n_out; i++) {
        const clt_value *v = i < node->n_in ? node->in[i] : node->out[i - node->n_in];
        if (v)
            bytes += (double)clt_value_stored(v, n, target->lanes) *
                     (double)clt_dtype_size(v->type.dtype);
    }
    return flops / FLOPS_A_SECOND + bytes / BYTES_A_SECOND + LAUNCH_SECONDS;
}

static void read_nodes(clt_recompute *r, const clt_target *target)
{
    const clt_plan *plan = r->plan;
    for (int i = 0; i < plan->n_nodes; i++) {
        const clt_plan_node *pn = &plan->nodes[i];
        const clt_node *node = pn->node;
        bool any = false;
        for (int j = 0; j < pn->program.n_scratch; j++)
            r->scratch[i] += clt_extent_at(pn->program.scratch[j], plan->options.max_batch);
        for (int j = 0; j < node->n_out; j++)
            any = any || r->root[node->out[j]->id] >= 0;
        /* No kernel of this device makes collectives. Results lie outside the arena. */
        r->fixed[i] = node->op->collective || !any;
        r->seconds[i] = node_seconds(r, pn, target);
        for (int j = 0; node->backward && j < node->n_in; j++) {
            const int root = node->in[j] ? r->root[node->in[j]->id] : -1;
            const clt_node *from = root < 0 ? NULL : plan->graph->values[root]->producer;
            if (from && !from->backward && !r->fixed[from->id] && !r->lasting[root])
                r->candidate[from->id] = true;
        }
    }
}

clt_status clt_recompute_create(const clt_plan *plan, const clt_target *target, clt_recompute **out)
{
    const size_t values = (size_t)plan->graph->n_values + 1, nodes = (size_t)plan->n_nodes + 1;
    clt_recompute *r = CLT_NEW(clt_recompute);
    if (!r)
        return CLT_OUT_OF_MEMORY;
    r->plan = plan;
    r->n_values = plan->graph->n_values;
    r->n_nodes = plan->n_nodes;
    r->root = clt_calloc(values, sizeof *r->root);
    r->bytes = clt_calloc(values, sizeof *r->bytes);
    r->lasting = clt_calloc(values, sizeof *r->lasting);
    r->fetched = clt_calloc(values, sizeof *r->fetched);
    r->value_again = clt_calloc(values, sizeof *r->value_again);
    r->scratch = clt_calloc(nodes, sizeof *r->scratch);
    r->seconds = clt_calloc(nodes, sizeof *r->seconds);
    r->fixed = clt_calloc(nodes, sizeof *r->fixed);
    r->candidate = clt_calloc(nodes, sizeof *r->candidate);
    r->again = clt_calloc(nodes, sizeof *r->again);
    r->gains = clt_calloc(nodes, sizeof *r->gains);
    r->looked = clt_calloc(nodes, sizeof *r->looked);
    r->best = clt_calloc(nodes, sizeof *r->best);
    r->order = clt_calloc(2 * nodes, sizeof *r->order);
    r->made = clt_calloc(nodes, sizeof *r->made);
    r->stack = clt_calloc(nodes + 1, sizeof *r->stack);
    r->last = clt_calloc(2 * values, sizeof *r->last);
    r->block = clt_calloc(2 * values, sizeof *r->block);
    r->died = clt_calloc(2 * values, sizeof *r->died);
    r->live = clt_calloc(2 * nodes + 2, sizeof *r->live);
    if (!r->root || !r->bytes || !r->lasting || !r->fetched || !r->value_again || !r->scratch ||
        !r->seconds || !r->fixed || !r->candidate || !r->again || !r->gains || !r->looked ||
        !r->best || !r->order || !r->made || !r->stack || !r->last || !r->block || !r->died ||
        !r->live) {
        clt_recompute_destroy(r);
        return CLT_OUT_OF_MEMORY;
    }
    for (size_t i = 0; i < values; i++)
        r->root[i] = -1;
    read_values(r, target);
    read_nodes(r, target);
    *out = r;
    return CLT_OK;
}

void clt_recompute_destroy(clt_recompute *r)
{
    if (!r)
        return;
    void *const arrays[] = {r->root,    r->bytes,   r->lasting, r->fetched,   r->value_again,
                            r->scratch, r->seconds, r->fixed,   r->candidate, r->again,
                            r->gains,   r->looked,  r->best,    r->order,     r->made,
                            r->stack,   r->last,    r->block,   r->died,      r->live};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        clt_free(arrays[i]);
    clt_free(r);
}
