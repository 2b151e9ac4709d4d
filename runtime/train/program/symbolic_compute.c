/* Symbolic execution of forward and backward of a micro-batch. */
#include "train/program/symbolic_internal.h"

static const char *clear(clt_symbolic_device *s, const clt_instruction *i)
{
    for (int b = 0; b < s->in->layout->n_buckets; b++)
        if (s->gradients[0][b].flight)
            return "a gradient would be written while it is reduced";
    s->cleared = i->micro;
    return NULL;
}

static const char *run_gradients(clt_symbolic_device *s, const clt_instruction *i)
{
    const clt_outline *plan = s->in->plan;
    int before = 0, after = 0; /* number of ready buckets before the range and at its end */
    for (int k = 0; k < plan->n_segments; k++) {
        if (plan->segments[k].end <= i->first)
            before = plan->segments[k].end_ready;
        if (plan->segments[k].end <= i->end)
            after = plan->segments[k].end_ready;
    }
    /* Each remaining bucket may be written in part. */
    for (int r = before; r < plan->n_ready; r++) {
        clt_symbol *g = &s->gradients[i->set][plan->ready[r]];
        if (g->flight)
            return "a gradient would be written while it is reduced";
        *g = (clt_symbol){.version = i->micro,
                          .part = (s->in->half || s->in->tree) && s->rounds > 1};
        if (r < after) {
            g->valid = true;
            g->term =
                clt_term(GRADIENT, clt_symbolic_computed(s, i->end), (uint64_t)plan->ready[r]);
        }
    }
    return NULL;
}

static const char *run_order(clt_symbolic_device *s, const clt_instruction *i)
{
    const clt_outline *plan = s->in->plan;
    if (s->fed != i->micro)
        return "the inputs of its micro-batch are not there";
    if (i->first && i->first != plan->n_forward && s->running != i->micro)
        return "another micro-batch has run in between, and its intermediates are lost";
    if (i->first == 0) {
        if (s->in->in_flight && clt_symbolic_is_step(s->kind) && s->now->arena >= 0 &&
            s->now->next < plan->n_nodes)
            return "backward of the micro-batch before in its slot has not run";
        for (int k = 0; k < plan->n_collectives; k++) {
            if (s->now->exchanged[k] == 1)
                return "a collective of the micro-batch before is under way";
            s->now->exchanged[k] = 0;
        }
        s->now->arena = i->micro;
        s->now->next = 0;
        s->now->begun =
            clt_term(COMPUTED, clt_symbolic_inputs(i->micro), clt_symbolic_parameters(s));
    }
    if (s->now->arena != i->micro || s->now->next != i->first || i->end <= i->first ||
        i->end > plan->n_nodes)
        return "the nodes before it have not run for its micro-batch";
    for (int k = 0; k < plan->n_collectives; k++) {
        const clt_outline_collective *c = &plan->collectives[k];
        if (c->node < i->first && s->now->exchanged[k] == 0)
            return "a collective before its nodes was not started";
        if (c->node < i->first && c->needed < i->end && s->now->exchanged[k] != 2)
            return "a collective that its nodes need is not complete";
        if (c->node >= i->first && c->node < i->end - 1)
            return "a collective belongs between its nodes";
    }
    return NULL;
}

static const char *run(clt_symbolic_device *s, const clt_instruction *i)
{
    const clt_outline *plan = s->in->plan;
    for (int b = 0; b < s->in->layout->n_buckets; b++)
        if (s->values[b].version != i->version || s->values[b].flight)
            return "the parameters are not those of before the update";
    const char *why = run_order(s, i);
    if (why)
        return why;
    if (i->end > plan->n_forward) {
        if (!s->upstream)
            return "the upstream of the losses is not set";
        if (plan->output_gradients && s->gradients_fed != i->micro)
            return "the gradients of outputs of its micro-batch were not fed";
        why = run_gradients(s, i);
        if (why)
            return why;
    } else if (i->end == plan->n_forward) {
        if (s->results.flight)
            return "results would be written while they are added up";
        s->round_results[i->micro] =
            clt_term(RESULT, clt_symbolic_computed(s, s->in->plan->n_forward), 0);
        s->results.valid = true;
        s->results.version = i->micro;
    }
    s->now->next = i->end;
    s->running = i->micro;
    return NULL;
}

bool clt_symbolic_has_outputs(const clt_symbolic_device *s, int micro)
{
    return s->in->plan->n_forward ? s->now->arena == micro && s->running == micro &&
                                        s->now->next == s->in->plan->n_forward
                                  : s->fed == micro;
}

static bool forward_is_there(const clt_symbolic_device *s, int micro)
{
    return s->now->arena == micro && s->running == micro && s->now->next >= s->in->plan->n_forward;
}

static const char *upstream_device(clt_symbolic_device *s, const clt_instruction *i)
{
    if (!forward_is_there(s, i->micro))
        return "forward of its micro-batch has not run";
    s->upstream = clt_term(UPSTREAM, clt_symbolic_computed(s, s->in->plan->n_forward), 1);
    return NULL;
}

static const char *feed(clt_symbolic_device *s, const clt_instruction *i)
{
    if (!s->waited)
        return "the caller's events were not waited for";
    s->fed = i->micro;
    s->was_fed[i->micro] = true;
    return NULL;
}

static const char *refeed(clt_symbolic_device *s, const clt_instruction *i)
{
    if (s->kind != CLT_PROGRAM_DIAGNOSE && !s->was_fed[i->micro])
        return "its micro-batch was not fed";
    s->fed = i->micro;
    if (s->kind == CLT_PROGRAM_DIAGNOSE)
        s->gradients_fed = i->micro;
    return NULL;
}

static const char *fetch(clt_symbolic_device *s, const clt_instruction *i)
{
    if (s->carried)
        return "states have their next values, and an output may be one of them";
    if (!clt_symbolic_has_outputs(s, i->micro))
        return "the outputs are not there, or backward may have overwritten them";
    s->fetched[i->micro] = clt_symbolic_computed(s, s->in->plan->n_forward);
    return NULL;
}

static const char *keep(clt_symbolic_device *s, const clt_instruction *i)
{
    if (s->now->arena != i->micro || s->running != i->micro || s->now->next < s->in->plan->n_nodes)
        return "backward of its micro-batch has not run, or its results are lost";
    if (s->kept[i->micro] || (i->micro && !s->kept[i->micro - 1]))
        return "gradients of inputs are kept once for each micro-batch, in their order";
    s->kept[i->micro] = clt_symbolic_computed(s, s->in->plan->n_nodes);
    return NULL;
}

static const char *mean(clt_symbolic_device *s, const clt_instruction *i)
{
    if (!forward_is_there(s, i->micro))
        return "forward of its micro-batch has not run";
    if (s->means.flight)
        return "means would be written while they are added up";
    if (i->micro && (!s->means.valid || s->means.version != i->micro - 1))
        return "the means of the micro-batches before are not there";
    s->means = clt_symbolic_written(clt_term(MEAN, i->micro ? s->means.term : 0,
                                             clt_symbolic_computed(s, s->in->plan->n_forward)),
                                    i->micro);
    return NULL;
}

/* Returns true if all gradients of a set belong to this micro-batch and may be read. */
static bool whole(const clt_symbolic_device *s, int set, int micro)
{
    for (int b = 0; b < s->in->layout->n_buckets; b++) {
        const clt_symbol *g = &s->gradients[set][b];
        if (!s->in->layout->buckets[b].state && (!g->valid || g->flight || g->version != micro))
            return false;
    }
    return true;
}

static const char *add(clt_symbolic_device *s, const clt_instruction *i)
{
    const bool half = i->kind == CLT_DO_ADD_HALF,
               nothing = i->micro >= s->micro_batches && !s->in->mesh.zero;
    const int set = half ? 0 : 1;
    if (!whole(s, set, i->micro) || (half && !clt_symbolic_is_cleared(s, i->micro)))
        return "the gradients of its micro-batch are not whole";
    if (!half && s->running != i->micro)
        return "another micro-batch has run in between, and the gradients in the arena are lost";
    for (int b = 0; b < s->in->layout->n_buckets; b++) {
        clt_symbol *to = half ? &s->sums[b] : &s->gradients[0][b];
        const clt_symbol *from = &s->gradients[set][b];
        if (s->in->layout->buckets[b].state)
            continue;
        if (half && i->micro == 0)
            *to = (clt_symbol){.valid = true, .version = -1};
        if (to->flight || !to->valid || to->version != i->micro - 1)
            return "the sum of the micro-batches before is not there";
        if (!nothing)
            to->term = half && i->micro == 0 ? from->term : clt_term(ADDED, to->term, from->term);
        to->version = i->micro;
    }
    return NULL;
}

/* The last shard completes the sum, in the first set. */
static const char *merge(clt_symbolic_device *s, const clt_instruction *i)
{
    if (!whole(s, 0, i->micro) || !clt_symbolic_is_cleared(s, i->micro))
        return "the gradients of its shard are not whole";
    for (int b = 0; b < s->in->layout->n_buckets; b++) {
        clt_symbol *sum = &s->sums[b];
        if (s->in->layout->buckets[b].state)
            continue;
        if (i->micro == 0)
            *sum = (clt_symbol){.valid = true, .version = -1};
        if (!sum->valid || sum->version != i->micro - 1)
            return "the sum of the shards before is not there";
        sum->term = clt_term(MERGED, sum->term, s->gradients[0][b].term);
        sum->version = i->micro;
        if (i->micro == clt_symbolic_last(s))
            s->gradients[0][b] = clt_symbolic_written(sum->term, i->micro);
    }
    return NULL;
}

static const char *round_sum(clt_symbolic_device *s, const clt_instruction *i)
{
    for (int b = 0; b < s->in->layout->n_buckets; b++) {
        if (s->in->layout->buckets[b].state)
            continue;
        if (!s->sums[b].valid || s->sums[b].version != i->version)
            return "the sum of all micro-batches is not there";
        if (s->gradients[0][b].flight)
            return "a gradient would be written while it is reduced";
        s->gradients[0][b] =
            clt_symbolic_written(clt_term(ROUNDED, s->sums[b].term, 0), i->version);
    }
    return NULL;
}

static const char *zero(clt_symbolic_device *s, const clt_instruction *i)
{
    for (int b = 0; b < s->in->layout->n_buckets; b++) {
        if (s->in->layout->buckets[b].state)
            continue;
        if (s->gradients[0][b].flight)
            return "a gradient would be written while it is reduced";
        s->gradients[0][b] = clt_symbolic_written(clt_term(ZERO, 0, 0), i->micro);
    }
    s->cleared = i->micro;
    return NULL;
}

/* Puts this device's part in the sum's place. */
static const char *stand_in(clt_symbolic_device *s, const clt_instruction *i)
{
    if (s->now->arena != i->micro || s->now->next != s->in->plan->collectives[i->item].node + 1)
        return "the nodes before the collective have not run";
    if (s->now->exchanged[i->item])
        return "the collective has its sum";
    s->now->exchanged[i->item] = 2;
    s->now->sums_of[i->item] = clt_symbolic_computed(s, s->now->next);
    return NULL;
}

static const char *inspect(clt_symbolic_device *s, const clt_instruction *i)
{
    const clt_outline *plan = s->in->plan;
    if (s->now->arena != i->micro || s->now->next != i->end || s->inspected[i->micro] != i->first)
        return "the nodes have not run, or those before were not inspected";
    for (int k = 0; k < plan->n_collectives; k++)
        if (plan->collectives[k].node < i->end && s->now->exchanged[k] != 2)
            return "a collective has no sum";
    s->inspected[i->micro] = i->end;
    return NULL;
}

const char *clt_symbolic_compute(clt_symbolic_device *s, const clt_instruction *i)
{
    clt_symbolic_select(s, i->micro);
    switch (i->kind) {
    case CLT_DO_POISON:
        s->now->arena = s->running = -1;
        return NULL;
    case CLT_DO_FEED:
        return feed(s, i);
    case CLT_DO_REFEED:
        return refeed(s, i);
    case CLT_DO_STAND_IN:
        return stand_in(s, i);
    case CLT_DO_INSPECT:
        return inspect(s, i);
    case CLT_DO_FEED_GRADIENTS:
        s->gradients_fed = i->micro;
        return NULL;
    case CLT_DO_UPSTREAM:
    case CLT_DO_UPSTREAM_SCALED:
        s->upstream = 1;
        return s->in->scaled == (i->kind == CLT_DO_UPSTREAM_SCALED)
                   ? NULL
                   : "the losses are scaled, or are not, in all programs";
    case CLT_DO_UPSTREAM_DEVICE:
        return upstream_device(s, i);
    case CLT_DO_CLEAR:
        return clear(s, i);
    case CLT_DO_ZERO:
        return zero(s, i);
    case CLT_DO_RUN:
        return run(s, i);
    case CLT_DO_MEAN:
        return mean(s, i);
    case CLT_DO_FETCH:
        return fetch(s, i);
    case CLT_DO_KEEP:
        return keep(s, i);
    case CLT_DO_ADD:
    case CLT_DO_ADD_HALF:
        return add(s, i);
    case CLT_DO_MERGE:
        return merge(s, i);
    default:
        return round_sum(s, i);
    }
}
