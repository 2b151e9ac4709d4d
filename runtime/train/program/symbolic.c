#include "train/program/symbolic_internal.h"

#include "base/alloc.h"

/* Mixes bits like SplitMix64 (Steele, Lea and Flood, 2014). */
uint64_t clt_term(uint64_t tag, uint64_t a, uint64_t b)
{
    uint64_t x = tag * 0x9e3779b97f4a7c15u ^ (a + 0x632be59bd9b4e019u) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 30) + b * 0x94d049bb133111ebu;
    x = (x ^ x >> 27) * 0xbf58476d1ce4e5b9u;
    x ^= x >> 31;
    return x ? x : 1;
}

clt_symbol clt_symbolic_written(uint64_t term, int version)
{
    return (clt_symbol){.term = term, .version = version, .valid = true};
}

static int flights_of(const clt_step_program_input *in)
{
    return in->in_flight > 1 ? in->in_flight : 1;
}

void clt_symbolic_select(clt_symbolic_device *s, int micro)
{
    s->now = &s->flights[micro % flights_of(s->in)];
}

int clt_symbolic_last(const clt_symbolic_device *s)
{
    return s->rounds > 0 ? s->rounds - 1 : 0;
}

uint64_t clt_symbolic_parameters(const clt_symbolic_device *s)
{
    uint64_t term = 0;
    for (int b = 0; b < s->in->layout->n_buckets; b++)
        term = clt_term(PARAMETER, term, s->values[b].term);
    return term;
}

uint64_t clt_symbolic_inputs(int micro)
{
    return clt_term(INPUTS, 0, (uint64_t)micro);
}

uint64_t clt_symbolic_computed(const clt_symbolic_device *s, int end)
{
    const clt_outline *plan = s->in->plan;
    uint64_t term = clt_term(COMPUTED, s->now->begun, end > plan->n_forward ? s->upstream : 0);
    for (int k = 0; k < plan->n_collectives; k++)
        if (plan->collectives[k].needed < end)
            term = clt_term(COMPUTED, term, s->now->sums_of[k]);
    return term;
}

bool clt_symbolic_is_cleared(const clt_symbolic_device *s, int micro)
{
    return !s->in->plan->unwritten || s->cleared == micro || !s->micro_batches;
}

int clt_symbolic_cleared_for(const clt_symbolic_device *s, int version)
{
    return s->in->half || s->in->tree ? version : 0;
}

bool clt_symbolic_has_results(const clt_symbolic_device *s)
{
    for (int m = 0; s->in->plan->n_forward && m < s->rounds; m++)
        if (!s->round_results[m])
            return false;
    return true;
}

static bool is_apply(clt_step_program_kind kind)
{
    return kind == CLT_PROGRAM_APPLY || kind == CLT_PROGRAM_APPLY_GIVEN;
}

static bool is_reduce(clt_step_program_kind kind)
{
    return kind == CLT_PROGRAM_REDUCE || kind == CLT_PROGRAM_REDUCED;
}

static bool is_backward(clt_step_program_kind kind)
{
    return kind == CLT_PROGRAM_BACKWARD || kind == CLT_PROGRAM_BACKWARD_AGAIN;
}

static uint64_t begin_slot(const clt_step_program_input *in, int slot, int bucket, uint64_t own)
{
    return clt_term(SLOT, (uint64_t)(slot * in->layout->n_buckets + bucket), own);
}

/* Returns true if the device has what a copy of the bucket sends: it is the root, or has another
 * part of the bucket. */
static bool is_root(const clt_step_program_input *in, int bucket)
{
    for (int a = 0; a < CLT_AXES; a++)
        if (clt_input_copies_along(in, (clt_axis)a, bucket) &&
            clt_mesh_coordinate(&in->mesh, (clt_axis)a, in->self) !=
                clt_mesh_coordinate(&in->mesh, (clt_axis)a, in->root))
            return false;
    return true;
}

/* Replicas begin equal. Before a copy, the replicas that are sent differ from all others. */
static void begin_replica(clt_symbolic_device *s)
{
    const clt_step_program_input *in = s->in;
    for (int b = 0; b < in->layout->n_buckets; b++) {
        const uint64_t own = s->kind != CLT_PROGRAM_COPY
                                 ? 0
                                 : 1 + (uint64_t)(is_root(in, b) ? in->root : in->participants);
        s->values[b] = clt_symbolic_written(clt_term(PARAMETER, (uint64_t)b, own), CLT_VERSION_OLD);
        for (int k = 0; k < in->n_slots; k++)
            s->slots[k * in->layout->n_buckets + b] =
                clt_symbolic_written(begin_slot(in, k, b, own), CLT_VERSION_OLD);
    }
}

/* Parts of a step begin in the state in which the previous part ended. Before APPLY that may be a
 * step of several micro-batches. */
static void begin_part(clt_symbolic_device *s)
{
    const clt_step_program_input *in = s->in;
    const int last = clt_symbolic_last(s);
    s->upstream = s->kind == CLT_PROGRAM_DIAGNOSE; /* the step has set the upstream gradients */
    const bool reduces = is_reduce(s->kind), applies = is_apply(s->kind);
    if (is_backward(s->kind) || reduces || applies) {
        clt_symbolic_select(s, last);
        s->fed = s->now->arena = s->running = last;
        s->was_fed[last] = true;
        s->waited = true;
        s->now->next = s->kind == CLT_PROGRAM_BACKWARD ? in->plan->n_forward : in->plan->n_nodes;
        s->now->begun = clt_term(COMPUTED, clt_symbolic_inputs(last), clt_symbolic_parameters(s));
        s->means = clt_symbolic_written(
            clt_term(MEAN, clt_symbolic_computed(s, s->in->plan->n_forward), 0), last);
        s->results = s->means;
        for (int m = 0; m <= last; m++)
            s->round_results[m] = s->results.term;
        for (int k = 0; k < in->plan->n_collectives; k++)
            s->now->exchanged[k] = in->plan->collectives[k].node < s->now->next ? 2 : 0;
    }
    const bool reduced = applies && clt_input_reduces(in);
    for (int b = 0; (reduces || applies) && b < in->layout->n_buckets; b++) {
        s->gradients[0][b] = clt_symbolic_written(
            clt_term(GRADIENT, reduced ? 0 : clt_symbolic_computed(s, s->in->plan->n_forward),
                     (uint64_t)b),
            reduced ? CLT_VERSION_REDUCED : last);
        if (reduced && s->kind == CLT_PROGRAM_APPLY) /* no reduction has measured what was given */
            s->measured[b] = s->gradients[0][b].term;
    }
    if (reduces || applies)
        s->cleared = clt_symbolic_cleared_for(s, last);
    if (applies) {
        if (clt_input_parts(in) > 1)
            s->means = clt_symbolic_written(clt_term(MEAN, 1, 0), CLT_VERSION_REDUCED);
        if (clt_input_shares_results(in))
            s->totals = clt_symbolic_written(clt_term(RESULT, 1, 0), CLT_VERSION_REDUCED);
    }
}

static clt_status create_flights(clt_symbolic_device *s)
{
    const size_t n = (size_t)s->in->plan->n_collectives + 1;
    s->flights = clt_calloc((size_t)flights_of(s->in), sizeof *s->flights);
    CLT_TRY_MEMORY(s->flights);
    for (int f = 0; f < flights_of(s->in); f++) {
        clt_symbolic_flight *flight = &s->flights[f];
        flight->arena = -1;
        flight->exchanged = clt_calloc(n, sizeof *flight->exchanged);
        flight->sums_of = clt_calloc(n, sizeof *flight->sums_of);
        CLT_TRY_MEMORY(flight->exchanged && flight->sums_of);
    }
    s->now = s->flights;
    return CLT_OK;
}

clt_status clt_symbolic_create(const clt_step_program_input *in, clt_step_program_kind kind,
                               int rounds, int micro_batches, clt_symbolic_device *s)
{
    const size_t n = (size_t)in->layout->n_buckets + 1;
    *s = (clt_symbolic_device){.in = in,
                               .kind = kind,
                               .rounds = rounds,
                               .micro_batches = micro_batches,
                               .cleared = -1,
                               .fed = -1,
                               .gradients_fed = -1,
                               .running = -1};
    s->values = clt_calloc(n, sizeof *s->values);
    s->slots = clt_calloc(n * (size_t)(in->n_slots + 1), sizeof *s->slots);
    s->gradients[0] = clt_calloc(n, sizeof *s->gradients[0]);
    s->gradients[1] = clt_calloc(n, sizeof *s->gradients[1]);
    s->sums = clt_calloc(n, sizeof *s->sums);
    s->measured = clt_calloc(n, sizeof *s->measured);
    if (!s->values || !s->slots || !s->gradients[0] || !s->gradients[1] || !s->sums ||
        !s->measured || create_flights(s) != CLT_OK) {
        clt_symbolic_free(s);
        return CLT_OUT_OF_MEMORY;
    }
    begin_replica(s);
    begin_part(s);
    return CLT_OK;
}

void clt_symbolic_free(clt_symbolic_device *s)
{
    void *const arrays[] = {s->values, s->slots,    s->gradients[0], s->gradients[1],
                            s->sums,   s->measured, s->requests,     s->flights};
    for (int f = 0; s->flights && f < flights_of(s->in); f++)
        CLT_FREE(s->flights[f].exchanged, s->flights[f].sums_of);
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        clt_free(arrays[i]);
    *s = (clt_symbolic_device){0};
}

/* Returns true if the device has the data of the participants that a copy sends them from. */
static bool is_copied(const clt_symbolic_device *s)
{
    const clt_step_program_input *in = s->in;
    for (int b = 0; b < in->layout->n_buckets; b++) {
        const uint64_t root = 1 + (uint64_t)in->root;
        const bool slots = !in->sharded && !in->layout->buckets[b].state;
        if (s->values[b].term != clt_term(PARAMETER, (uint64_t)b, root))
            return false;
        for (int k = 0; slots && k < in->n_slots; k++)
            if (s->slots[k * in->layout->n_buckets + b].term != begin_slot(in, k, b, root))
                return false;
    }
    return true;
}

/* Whether GRADIENTS leaves what APPLY needs. */
static const char *missing_gradients(const clt_symbolic_device *s)
{
    const clt_step_program_input *in = s->in;
    const int last = clt_symbolic_last(s);
    for (int b = 0; b < in->layout->n_buckets; b++) {
        const clt_symbol *g = &s->gradients[0][b];
        if (in->layout->buckets[b].state)
            continue;
        if (clt_input_reduces(in) ? !s->measured[b]
                                  : !g->valid || g->flight || g->part || g->version != last)
            return "a bucket is not reduced";
    }
    if (!clt_input_reduces(in) && !clt_symbolic_is_cleared(s, clt_symbolic_cleared_for(s, last)))
        return "gradients that no node writes are not cleared";
    if (in->means && in->plan->n_assigns &&
        (!s->means.valid || s->means.flight ||
         s->means.version != (clt_input_parts(in) > 1 ? CLT_VERSION_REDUCED : last)))
        return "the means of states are not added up";
    if (s->ties != clt_symbolic_ties(in))
        return "the gradient of a tied parameter is not that of all its stages";
    return in->ranks > 1 && !s->may_leave ? "a rank may have dropped the step" : NULL;
}

static const char *missing_kept(const clt_symbolic_device *s)
{
    const bool backward = clt_symbolic_is_step(s->kind) || is_backward(s->kind);
    for (int m = 0; backward && s->in->plan->input_gradients && m < s->micro_batches; m++)
        if (!s->kept[m])
            return "gradients of inputs of a micro-batch were not kept";
    return NULL;
}

const char *clt_symbolic_missing(const clt_symbolic_device *s)
{
    const clt_step_program_input *in = s->in;
    const bool step = clt_symbolic_is_step(s->kind);
    const bool applies = s->kind == CLT_PROGRAM_STEP || is_apply(s->kind);
    const bool fetches = step || s->kind == CLT_PROGRAM_FORWARD || s->kind == CLT_PROGRAM_OUTSIDE;
    for (int r = 0; r < s->n_requests; r++)
        if (s->requests[r].open)
            return "a collective was started and is not complete";
    for (int b = 0; applies && b < in->layout->n_buckets; b++)
        if ((s->values[b].version != CLT_VERSION_NEW || !s->values[b].valid) &&
            (!in->layout->buckets[b].state || in->plan->n_assigns))
            return "a bucket was not updated";
    for (int m = 0; fetches && m < s->micro_batches; m++)
        if (!s->fetched[m])
            return "outputs of a micro-batch were not fetched";
    for (int m = 0; s->kind == CLT_PROGRAM_DIAGNOSE && m < s->micro_batches; m++)
        if (s->inspected[m] != in->plan->n_nodes)
            return "nodes of a micro-batch were not inspected";
    if (in->carries && in->plan->n_assigns && s->micro_batches && !s->carried)
        return "states do not have their next values";
    if (applies && (!s->committed || !s->read_status || !s->read_results))
        return "status or results were not read, or the step was not noted as enqueued";
    const bool reads = s->kind == CLT_PROGRAM_FORWARD || s->kind == CLT_PROGRAM_WEIGHTS ||
                       s->kind == CLT_PROGRAM_OUTSIDE || s->kind == CLT_PROGRAM_GRADIENTS;
    if (reads && !s->read_results)
        return "results were not read";
    if (applies && !s->status)
        return "the step has no status";
    for (int b = 0;
         s->kind == CLT_PROGRAM_REDUCE && clt_input_reduces(in) && b < in->layout->n_buckets; b++)
        if (!in->layout->buckets[b].state && !s->measured[b])
            return "a bucket is not reduced";
    if ((is_reduce(s->kind) || s->kind == CLT_PROGRAM_GRADIENTS) && in->means &&
        clt_input_parts(in) > 1 && s->means.version != CLT_VERSION_REDUCED)
        return "the means of states are those of this device alone";
    if (s->kind == CLT_PROGRAM_FORWARD && in->means && !s->means.valid)
        return "the device's part in the means of states is missing";
    if (step && in->measures && !s->was_measured)
        return "the device's work was not measured";
    for (int b = 0; is_backward(s->kind) && b < in->layout->n_buckets; b++)
        if (!in->layout->buckets[b].state &&
            (!s->gradients[0][b].valid || !clt_symbolic_is_cleared(s, 0)))
            return "a bucket has no gradient";
    for (int b = 0;
         is_backward(s->kind) && !s->micro_batches && !in->mesh.zero && b < in->layout->n_buckets;
         b++)
        if (!in->layout->buckets[b].state && s->gradients[0][b].term != clt_term(ZERO, 0, 0))
            return "a device without samples has a gradient";
    if (s->kind == CLT_PROGRAM_VERIFY && !s->compared)
        return "checksums were not compared";
    if (s->kind == CLT_PROGRAM_COPY && !is_copied(s))
        return "the replica or an optimizer slot is not the one to be copied";
    if (s->kind == CLT_PROGRAM_COPY && !s->finished)
        return "the device may still be copying";
    if ((applies || reads) && s->unflushed)
        return "the queue was not flushed";
    const char *why = s->kind == CLT_PROGRAM_GRADIENTS ? missing_gradients(s) : NULL;
    return why ? why : missing_kept(s);
}

uint64_t clt_symbolic_final(const clt_symbolic_device *s)
{
    uint64_t term = clt_term(FINAL, s->status, s->read_results);
    for (int b = 0; b < s->in->layout->n_buckets; b++) {
        term = clt_term(FINAL, term, s->values[b].term);
        term = clt_term(FINAL, term, s->gradients[0][b].term);
        for (int k = 0; k < s->in->n_slots; k++)
            term = clt_term(FINAL, term, s->slots[k * s->in->layout->n_buckets + b].term);
    }
    for (int m = 0; m < s->micro_batches; m++) /* rounds without samples fetch nothing */
        term = clt_term(FINAL, clt_term(FINAL, term, s->fetched[m]), s->kept[m]);
    return clt_term(FINAL, term, s->means.term);
}

/* Returns true for instructions that enqueue no command. */
static bool of_host(clt_instruction_kind kind)
{
    return kind == CLT_DO_MEASURE || kind == CLT_DO_MEASURED || kind == CLT_DO_COMMIT ||
           kind == CLT_DO_COMMITTED || kind == CLT_DO_LEAVE || kind == CLT_DO_COMPARE ||
           kind == CLT_DO_WORDS;
}

const char *clt_symbolic_execute(clt_symbolic_device *s, const clt_instruction *i)
{
    s->unflushed = s->unflushed || !of_host(i->kind);
    switch (i->kind) {
    case CLT_DO_WAIT:
        s->waited = true;
        return NULL;
    case CLT_DO_START:
        return clt_symbolic_start(s, i);
    case CLT_DO_FINISH:
        s->finished = true;
        s->unflushed = false;
        return NULL;
    case CLT_DO_FLUSH:
        s->unflushed = false;
        return NULL;
    case CLT_DO_POISON:
    case CLT_DO_FEED:
    case CLT_DO_REFEED:
    case CLT_DO_STAND_IN:
    case CLT_DO_INSPECT:
    case CLT_DO_FEED_GRADIENTS:
    case CLT_DO_UPSTREAM:
    case CLT_DO_UPSTREAM_SCALED:
    case CLT_DO_UPSTREAM_DEVICE:
    case CLT_DO_CLEAR:
    case CLT_DO_ZERO:
    case CLT_DO_RUN:
    case CLT_DO_MEAN:
    case CLT_DO_FETCH:
    case CLT_DO_KEEP:
    case CLT_DO_ADD:
    case CLT_DO_ADD_HALF:
    case CLT_DO_ROUND:
    case CLT_DO_MERGE:
        return clt_symbolic_compute(s, i);
    default:
        return clt_symbolic_commit(s, i);
    }
}
