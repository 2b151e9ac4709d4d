/* Symbolic execution of a step's status, its updates, and the values that the host reads and
 * compares. */
#include "train/program/symbolic_internal.h"

/* Makes a term of all gradients, which must be final in this version: of what their reductions
 * measured, or of what the device measures. */
static const char *all_gradients(const clt_symbolic_device *s, int version, bool given,
                                 uint64_t *term)
{
    const bool of_reduction = version == CLT_VERSION_REDUCED && !given;
    for (int b = 0; b < s->in->layout->n_buckets; b++) {
        const clt_symbol *g = &s->gradients[0][b];
        if (s->in->layout->buckets[b].state)
            continue;
        if (of_reduction ? !s->measured[b]
                         : !g->valid || g->flight || g->part || g->version != version)
            return "a bucket is not reduced";
        *term = clt_term(STATUS, *term, of_reduction ? s->measured[b] : g->term);
    }
    if (version != CLT_VERSION_REDUCED &&
        !clt_symbolic_is_cleared(s, clt_symbolic_cleared_for(s, version)))
        return "gradients that no node writes are not cleared";
    return NULL;
}

static const char *note_words(clt_symbolic_device *s, const clt_instruction *i)
{
    uint64_t term = 0;
    if (clt_symbolic_is_step(s->kind) && s->ties != clt_symbolic_ties(s->in))
        return "the gradient of a tied parameter is not that of all its stages";
    if (clt_input_reduces(s->in) && i->version != CLT_VERSION_REDUCED)
        return "the norm must be that of the reduced gradients";
    const char *why = all_gradients(s, i->version, i->on == CLT_ON_GRADIENT, &term);
    s->own_words = clt_term(WORDS, term, 1);
    return why;
}

static const char *set_status(clt_symbolic_device *s, const clt_instruction *i)
{
    const bool words = i->on != CLT_ON_NONE;
    uint64_t term = s->words;
    if (s->status)
        return "the step has a status";
    if (s->in->participants > 1 && i->version != CLT_VERSION_REDUCED)
        return "the status must be that of all devices";
    if (s->in->ranks > 1 && s->kind == CLT_PROGRAM_STEP && !s->may_leave)
        return "a rank may have dropped the step";
    if (clt_input_has_words(s->in) && !words)
        return "no bucket's reduction reaches all devices";
    if (words && !s->words)
        return "norm and votes of all devices are not there";
    const char *why = words ? NULL : all_gradients(s, i->version, false, &term);
    s->status = clt_term(STATUS, term, 1);
    return why;
}

static const char *leave(clt_symbolic_device *s)
{
    for (int b = 0; b < s->in->layout->n_buckets; b++)
        if (!s->in->layout->buckets[b].state &&
            (clt_input_has_words(s->in) ? !s->words : !s->measured[b]))
            return "the votes of all ranks are not there";
    s->may_leave = true;
    return s->commits ? "the step is being committed" : NULL;
}

static const char *update_bucket(clt_symbolic_device *s, const clt_instruction *i, int b)
{
    const clt_symbol *g = &s->gradients[0][b];
    clt_symbol *v = &s->values[b];
    if (i->item >= 0 && !clt_input_updates(s->in, b))
        return "another device updates the bucket";
    if (!g->valid || g->flight || g->part || g->version != i->version ||
        (clt_input_reduces(s->in) && g->version != CLT_VERSION_REDUCED))
        return "a bucket's gradient is not reduced";
    if (v->flight || v->version != CLT_VERSION_OLD)
        return "a bucket was updated before";
    const uint64_t by = clt_term(UPDATED, g->term, i->item < 0 ? s->status : 0);
    *v = clt_symbolic_written(clt_term(UPDATED, v->term, by), CLT_VERSION_NEW);
    /* With shards only this device's is updated. */
    v->valid = !s->in->sharded || clt_input_owner(s->in, b) >= 0;
    for (int k = 0; k < s->in->n_slots; k++) {
        clt_symbol *slot = &s->slots[k * s->in->layout->n_buckets + b];
        *slot = clt_symbolic_written(clt_term(UPDATED, slot->term, by), CLT_VERSION_NEW);
    }
    return NULL;
}

static const char *update(clt_symbolic_device *s, const clt_instruction *i)
{
    if (i->item >= 0)
        return update_bucket(s, i, i->item);
    if (!s->status || !s->commits)
        return "the step has no status, or has not begun to commit";
    for (int b = 0; b < s->in->layout->n_buckets; b++) {
        const char *why = NULL;
        if (clt_input_updates(s->in, b))
            why = update_bucket(s, i, b);
        if (why)
            return why;
    }
    return NULL;
}

static const char *assign(clt_symbolic_device *s, const clt_instruction *i)
{
    if (!s->status || !s->commits)
        return "the step has no status, or has not begun to commit";
    if (s->in->means && (!s->means.valid || s->means.flight || s->means.version != i->version ||
                         (clt_input_parts(s->in) > 1 && i->version != CLT_VERSION_REDUCED)))
        return "the means of states are not added up";
    if (s->now->next < s->in->plan->n_forward)
        return "forward has not run";
    for (int b = 0; b < s->in->layout->n_buckets; b++) {
        if (!s->in->layout->buckets[b].state)
            continue;
        if (s->values[b].flight || s->values[b].version != CLT_VERSION_OLD)
            return "states have their next values";
        s->values[b] = clt_symbolic_written(
            clt_term(ASSIGNED, s->values[b].term, s->in->means ? s->means.term : s->status),
            CLT_VERSION_NEW);
        /* Devices of different kinds round differently, so one sends its states. */
        s->values[b].valid =
            !s->in->unlike || clt_states_sender(s->in, b) ==
                                  clt_mesh_coordinate(&s->in->mesh, CLT_AXIS_SAMPLES, s->in->self);
    }
    return NULL;
}

/* Averages take what all devices have after the step. */
static const char *average(clt_symbolic_device *s)
{
    if (!s->status || !s->commits)
        return "the step has no status, or has not begun to commit";
    if (s->averaged)
        return "the averages have the step already";
    for (int b = 0; b < s->in->layout->n_buckets; b++) {
        const bool changes = !s->in->layout->buckets[b].state || s->in->plan->n_assigns;
        if (s->values[b].flight || !s->values[b].valid ||
            (changes && s->values[b].version != CLT_VERSION_NEW))
            return "a bucket is not new";
    }
    s->averaged = true;
    return NULL;
}

/* Assigns states of a predictor. Outputs were computed from the earlier states. */
static const char *carry(clt_symbolic_device *s, const clt_instruction *i)
{
    if (!clt_symbolic_has_outputs(s, i->micro))
        return "the next values of states are not there";
    if (s->carried)
        return "states have their next values";
    s->carried = true;
    for (int b = 0; b < s->in->layout->n_buckets; b++)
        if (s->in->layout->buckets[b].state)
            s->values[b] = clt_symbolic_written(
                clt_term(ASSIGNED, s->values[b].term, clt_symbolic_computed(s, s->now->next)),
                CLT_VERSION_NEW);
    return NULL;
}

static const char *read_results(clt_symbolic_device *s, const clt_instruction *i)
{
    const clt_symbol *from = i->version == CLT_VERSION_REDUCED ? &s->totals : &s->results;
    const bool shared = s->kind == CLT_PROGRAM_OUTSIDE
                            ? s->in->shared && clt_input_has_results(s->in)
                            : clt_input_shares_results(s->in);
    uint64_t term = 1;
    if (!s->waited)
        return "the results before may still be read";
    if (shared && i->version != CLT_VERSION_REDUCED)
        return "the results must be those of all ranks";
    if (from->flight || (((s->rounds && s->in->plan->n_forward) || from == &s->totals) &&
                         (!from->valid || from->version != i->version)))
        return "results are not there";
    if (i->version != CLT_VERSION_REDUCED && !clt_symbolic_has_results(s))
        return "results of a micro-batch are not there";
    if (i->version == CLT_VERSION_REDUCED)
        term = from->term;
    for (int m = 0; i->version != CLT_VERSION_REDUCED && m < s->rounds; m++)
        term = clt_term(RESULT, term, s->round_results[m]);
    s->read_results = clt_term(RESULT, term, 1);
    return NULL;
}

static const char *measured(clt_symbolic_device *s)
{
    if (!s->measures)
        return "measuring has not begun";
    if (s->rounds &&
        (s->now->arena != clt_symbolic_last(s) || s->now->next != s->in->plan->n_nodes))
        return "the device's work is not enqueued whole";
    for (int r = 0; r < s->n_requests; r++)
        if (s->requests[r].on != CLT_ON_NODE && (s->in->deferred || !s->requests[r].open))
            return "the time would contain a wait for other devices";
    s->was_measured = true;
    return NULL;
}

static const char *checksum(clt_symbolic_device *s)
{
    for (int b = 0; b < s->in->layout->n_buckets; b++)
        if (s->values[b].flight)
            return "parameters are under way";
    s->checksum = clt_term(CHECKSUM, clt_symbolic_parameters(s), 1);
    return NULL;
}

static const char *committed(clt_symbolic_device *s)
{
    for (int b = 0; b < s->in->layout->n_buckets; b++)
        if (!s->in->layout->buckets[b].state && s->values[b].version != CLT_VERSION_NEW)
            return "a bucket was not updated";
    if (!s->commits)
        return "the step has not begun to commit";
    if (s->in->averages && !s->averaged)
        return "the averages lack the step";
    s->committed = true;
    return NULL;
}

static const char *compare(clt_symbolic_device *s)
{
    for (int r = 0; r < s->n_requests; r++)
        if (s->requests[r].on == CLT_ON_CHECKSUMS && !s->requests[r].open)
            s->compared = true;
    return s->compared ? NULL : "the other devices' checksums are not there";
}

static const char *read_status(clt_symbolic_device *s)
{
    s->read_status = s->status != 0;
    return s->read_status ? NULL : "the step has no status";
}

const char *clt_symbolic_commit(clt_symbolic_device *s, const clt_instruction *i)
{
    switch (i->kind) {
    case CLT_DO_MEASURE:
        s->measures = true;
        return s->now->arena >= 0 ? "the device's work has begun" : NULL;
    case CLT_DO_MEASURED:
        return measured(s);
    case CLT_DO_WORDS:
        return note_words(s, i);
    case CLT_DO_LEAVE:
        return leave(s);
    case CLT_DO_STATUS:
        return set_status(s, i);
    case CLT_DO_COMMIT:
        s->commits = true;
        return NULL;
    case CLT_DO_UPDATE:
        return update(s, i);
    case CLT_DO_ASSIGN:
        return assign(s, i);
    case CLT_DO_AVERAGE:
        return average(s);
    case CLT_DO_CARRY:
        return carry(s, i);
    case CLT_DO_READ_STATUS:
        return read_status(s);
    case CLT_DO_READ_RESULTS:
        return read_results(s, i);
    case CLT_DO_COMMITTED:
        return committed(s);
    case CLT_DO_CHECKSUM:
        return checksum(s);
    default:
        return compare(s);
    }
}
