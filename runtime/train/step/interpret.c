#include "train/step/interpret.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "train/core/kept.h"
#include "train/planner/balance.h"
#include "train/step/diagnose.h"
#include "train/step/states.h"
#include "train/step/verify.h"
#include "train/step/wire.h"

/* The current instruction, with its micro-batch and run. */
typedef struct context {
    const clt_bound *b;
    clt_session_device *sd;
    clt_updates *u;
    const clt_instruction *i;
    int micro;
    clt_part part;
    clt_run run;
    int run_end;          /* of the nodes that CLT_DO_RUN enqueues */
    bool left;            /* the program ends after this instruction */
    bool ends;            /* CLT_DO_UPDATE also computes the step status */
    clt_run_end step_end; /* of the run under way; `done`: it was part of the last run */
} context;

static clt_status upstream_scaled(context *c)
{
    const clt_session *s = c->b->call->session;
    const double *weights = c->b->call->loss_weights;
    for (int l = 0; l < s->n_losses; l++)
        CLT_TRY(clt_update_scale_upstream(c->u->update, c->sd->upstream, l,
                                          weights[l] > 0 ? s->coefficients[l] / weights[l] : 0));
    return CLT_OK;
}

static clt_status upstream_device(context *c)
{
    const clt_graph *graph = c->sd->plan->graph;
    for (int l = 0; l < graph->n_losses; l++) {
        clt_view weight;
        CLT_TRY(clt_exec_locate(c->sd->exec, &c->run, graph->losses[l].weight, &weight));
        CLT_TRY(clt_update_upstream(c->u->update, weight, c->sd->upstream, l,
                                    graph->losses[l].coefficient));
        c->sd->known[l] = NAN;
    }
    return CLT_OK;
}

/* Clear the gradients of parameters that no loss of this graph depends on. Another graph on the
 * same store may have written there. */
static clt_status clear(context *c)
{
    const clt_plan *plan = c->sd->plan;
    const int64_t size = clt_dtype_size(plan->options.precision);
    for (int s = 0; s < plan->buckets.n_slots; s++) {
        const clt_slot *slot = &plan->buckets.slots[s];
        if (slot->state || plan->gradients[s])
            continue;
        const clt_view place = {c->run.gradients[slot->bucket],
                                slot->offset / (int64_t)sizeof(float) * size};
        CLT_TRY(clt_enqueue_zeros(c->sd->device, place,
                                  clt_slot_padded(slot) / (int64_t)sizeof(float) * size));
    }
    return CLT_OK;
}

/* Returns the words of all participants; NULL if the norm is from the reductions of buckets. */
static const clt_words *words_of(const context *c)
{
    return c->i->on == CLT_ON_NONE ? NULL : c->b->exchange->devices[c->b->device].words;
}

/* Sums the votes of all ranks in this step. */
static void count_votes(context *c)
{
    const clt_buckets *layout = c->b->replica->layout;
    const clt_words *words = words_of(c);
    c->u->votes = 0;
    for (int p = 0; words && p < c->b->all->total; p++)
        c->u->votes |= words[p].vote;
    for (int b = 0; !words && b < layout->n_buckets; b++)
        if (!layout->buckets[b].state)
            c->u->votes |= c->b->exchange->devices[c->b->device].reduced[b].votes;
}

/* The votes are known before any update of the step, and are equal on all devices and ranks. */
static clt_status leave(context *c)
{
    count_votes(c);
    c->left = (c->u->votes & CLT_VOTE_DROP) != 0;
    return c->left ? clt_device_flush(c->b->replica->device) : CLT_OK;
}

/* Adds up this device's buckets, in their order, so that all devices get the same bits. */
static void add_buckets(const context *c, double *squares, bool *finite)
{
    const clt_buckets *layout = c->b->replica->layout;
    for (int b = 0; b < layout->n_buckets; b++) {
        if (layout->buckets[b].state)
            continue;
        *squares += c->b->exchange->devices[c->b->device].reduced[b].sum_squares;
        *finite = *finite && c->b->exchange->devices[c->b->device].reduced[b].finite;
    }
}

/* Whether the devices measure their gradients. Otherwise the reducers have, as far as they have
 * added up. They do not tell tensors that count differently in one bucket. */
static bool measures(const context *c)
{
    const clt_bound *b = c->b;
    return c->i->on == CLT_ON_GRADIENT || clt_participants_replicas(b->all) == 1 ||
           clt_buckets_split(b->replica->layout) || clt_buckets_tied(b->replica->layout);
}

/* Whether the caller has set gradients, which must be equal on all replicas. */
static bool compares(const context *c)
{
    return c->i->on == CLT_ON_GRADIENT && c->b->replica->shards == 1 && !c->b->all->mesh.zero;
}

static clt_status note_words(context *c)
{
    const clt_bound *b = c->b;
    clt_words *own = &b->exchange->devices[b->device].words[b->all->first + b->device];
    clt_squares squares = {.finite = true};
    uint64_t checksum = 0;
    if (compares(c))
        CLT_TRY(clt_verify_sum_gradients(b->verification, b->device, c->sd->plan->options.precision,
                                         &checksum));
    if (measures(c))
        CLT_TRY(clt_update_measure(c->u->update, &squares));
    else
        add_buckets(c, &squares.whole, &squares.finite);
    *own = (clt_words){squares.whole, squares.parts, checksum, squares.finite, b->exchange->vote};
    return CLT_OK;
}

/* Replicas are equal, so the first counts, unless each device measured its own shard. Along tp
 * whole tensors are equal. */
static void add_words(const context *c, double *squares, bool *finite)
{
    const clt_bound *b = c->b;
    const clt_words *words = words_of(c);
    const bool shards = b->all->mesh.zero || (measures(c) && b->replica->shards > 1);
    for (int p = 0; p < b->all->total; p++) {
        const int replica = clt_participants_replica(b->all, p);
        *finite = *finite && words[p].finite;
        if (replica == 0 || shards)
            *squares += words[p].parts + (clt_participants_count(b->all, p) ? words[p].whole : 0);
    }
}

/* Fails if the caller gave replicas unlike gradients, which would drive them apart. */
static clt_status compare_given(const context *c)
{
    const clt_bound *b = c->b;
    const clt_words *words = words_of(c);
    for (int p = 0; compares(c) && p < b->all->total; p++) {
        const int first = clt_mesh_neighbour(&b->all->mesh, CLT_AXIS_SAMPLES, p, 0);
        if (words[p].checksum != words[first].checksum)
            return clt_fail(
                CLT_MISMATCH,
                "the gradients of devices %d and %d of all ranks differ (the sums of "
                "squares are %.9g and %.9g, the checksums %016llx and %016llx): set "
                "the same reduced gradients on all",
                first, p, words[first].whole + words[first].parts, words[p].whole + words[p].parts,
                (unsigned long long)words[first].checksum, (unsigned long long)words[p].checksum);
    }
    return CLT_OK;
}

static clt_status status_of_step(context *c)
{
    bool finite = true;
    double squares = 0;
    if (c->b->all->total == 1)
        return c->ends ? CLT_OK : clt_update_status(c->u->update);
    count_votes(c);
    CLT_TRY(compare_given(c));
    if (c->b->leaves) /* all devices have the same gradients */
        return clt_update_status(c->u->update);
    if (words_of(c))
        add_words(c, &squares, &finite);
    else
        add_buckets(c, &squares, &finite);
    CLT_TRY(clt_update_set_status(c->u->update, squares, finite));
    c->u->keeps = finite && clt_update_commits(c->u->update);
    return CLT_OK;
}

static clt_status update(context *c)
{
    const clt_bound *b = c->b;
    if (c->i->item >= 0 &&
        c->b->exchange->devices[c->b->device].reduced[c->i->item].votes & CLT_VOTE_DROP)
        return CLT_OK;
    CLT_TRY(clt_wire_keep(b, c->i->item));
    if (c->i->item >= 0)
        return clt_update_bucket(c->u->update, c->i->item, b->call->lr, b->call->updates);
    if (c->step_end.done)
        return CLT_OK;
    if (c->ends)
        return clt_update_end(c->u->update, b->call->lr, b->call->updates);
    return clt_update_apply(c->u->update, b->call->lr, b->call->updates);
}

/* The last command of the step gets the event for which the host waits. Without a launch that ended
 * the step, it is this read. With a marker instead, memory grew by 0.9 kB a run of PoCL 3.1
 * (train.cycles). */
static clt_status read_status(context *c)
{
    const int entry = c->b->call->entry;
    cl_event *read = c->sd->memory.data ? &c->sd->read[entry] : NULL;
    if (clt_update_reported(c->u->update) && read && c->step_end.event) {
        clt_release_event(*read);
        *read = c->step_end.event;
        c->step_end.event = NULL;
        return CLT_OK;
    }
    return clt_enqueue_download(c->b->replica->device,
                                (clt_view){clt_update_status_buffer(c->u->update), 0},
                                c->u->step_status + CLT_STEP_STATUS * entry,
                                CLT_STEP_STATUS * sizeof *c->u->step_status, read);
}

/* With several devices the host knows the loss scale without waiting. With virtual shards it is in
 * the step status, which arrives later (setup/lost.c reads it there). */
static clt_status committed(context *c)
{
    if (c->b->all->total > 1 && !c->b->leaves)
        CLT_TRY(clt_update_scaling(c->u->update, &c->u->scaling));
    c->u->done = c->b->call->step + 1;
    return CLT_OK;
}

static clt_status add_to(context *c, clt_place place, clt_view addend, int64_t bytes)
{
    const clt_view sum = {c->run.gradients[place.index], place.offset};
    return clt_update_add(c->u->update, sum, addend, bytes);
}

/* Adds the gradients that no node has added. Neighbours without padding are added together. */
static clt_status add_gradients(context *c)
{
    const clt_plan *plan = c->sd->plan;
    clt_place sum = {0};
    clt_view addend = {0};
    int64_t bytes = 0;
    for (int s = 0; s < plan->buckets.n_slots; s++) {
        const clt_value *gradient = plan->gradients[s];
        const clt_place place = gradient ? plan->places[gradient->id] : (clt_place){0};
        clt_view next;
        if (place.kind != CLT_PLACE_GRADIENT)
            continue;
        CLT_TRY(clt_exec_locate(c->sd->exec, &c->run, gradient, &next));
        if (place.index != sum.index || place.offset != sum.offset + bytes ||
            next.buffer != addend.buffer || next.offset != addend.offset + bytes) {
            CLT_TRY(add_to(c, sum, addend, bytes));
            sum = place;
            addend = next;
            bytes = 0;
        }
        bytes += clt_type_elements(&gradient->type, 0) * (int64_t)sizeof(float);
    }
    return add_to(c, sum, addend, bytes);
}

/* A micro-batch without samples adds no gradient. With zero 3 the shard's gradient is that of all
 * devices' samples. */
static clt_status add(context *c)
{
    if (!c->part.count && !c->b->all->mesh.zero)
        return CLT_OK;
    return c->i->kind == CLT_DO_ADD ? add_gradients(c)
                                    : clt_update_sum_half(c->u->update, c->micro == 0);
}

/* The caller may have taken back the memory of an earlier step's samples. */
static clt_status refeed(context *c)
{
    if (!c->part.count && !c->b->diagnosis)
        return CLT_OK;
    if (c->b->diagnosis && c->b->call->batch.n_feeds)
        return clt_session_feed(c->b->call->session, c->b->device, &c->b->call->batch, c->part,
                                c->b->call->parity);
    c->left = !clt_session_refeed(c->sd, c->b->call->parity, c->micro,
                                  c->part.begin - c->part.device_begin);
    return c->left && !c->b->diagnosis
               ? clt_fail(CLT_INTERNAL, "the inputs of micro-batch %d are gone", c->micro)
               : CLT_OK;
}

/* Completes a shard. Where the plan accumulates, nodes have added an odd shard to the shard before
 * it, so that a pair of shards is one term of the other sums. A shard without samples adds zeros.
 * To add nothing would lose the sign of a sum that is -0. */
static clt_status merge(context *c)
{
    const bool pairs = c->sd->plan->options.accumulates;
    if (c->run.further)
        CLT_TRY(c->part.count ? add_gradients(c)
                              : clt_update_add_zeros(c->u->update, c->run.gradients));
    else if (!c->part.count)
        CLT_TRY(clt_update_zero_set(c->u->update, c->run.gradients));
    if (!c->u->shard_sums || (pairs && !c->run.further))
        return CLT_OK;
    return clt_shard_sums_add(c->u->shard_sums, c->u->update, pairs ? c->micro / 2 : c->micro);
}

/* Whether the micro-batch's gradients are added to earlier ones. Virtual shards are so in pairs. */
static bool is_further(const context *c)
{
    return c->sd->plan->options.accumulates && (c->b->leaves ? c->micro % 2 : c->micro > 0);
}

/* Returns where the micro-batch's gradients go. */
static const cl_mem *gradients_of(const context *c)
{
    if (!c->u)
        return NULL;
    const bool pairs = c->sd->plan->options.accumulates;
    return c->u->shard_sums && c->b->share.micro_batches
               ? clt_shard_sums_target(c->u->shard_sums, pairs ? c->micro / 2 : c->micro)
               : c->u->gradients;
}

static clt_status execute(context *c)
{
    const clt_bound *b = c->b;
    const clt_call *call = b->call;
    clt_session *s = call->session;
    const int d = b->device;
    switch (c->i->kind) {
    case CLT_DO_WAIT: /* an earlier call may still use the entry */
        CLT_TRY(clt_session_wait(s, d, call->entry));
        return clt_enqueue_wait(c->sd->device, call->batch.n_wait, call->batch.wait);
    case CLT_DO_MEASURE:
        clt_balance_begin(&b->exchange->devices[d]);
        return CLT_OK;
    case CLT_DO_MEASURED:
        return clt_balance_end(b->replica->device, &b->exchange->devices[d]);
    case CLT_DO_POISON:
        return clt_arena_poison(b->arena, c->sd->plan, c->run.slot);
    case CLT_DO_FEED:
        return clt_session_feed(s, d, &call->batch, c->part, call->parity);
    case CLT_DO_REFEED:
        return refeed(c);
    case CLT_DO_FEED_GRADIENTS:
        return c->part.count ? clt_session_feed_output_gradients(s, d, call->output_gradients,
                                                                 call->n_output_gradients, c->part,
                                                                 call->parity)
                             : CLT_OK;
    case CLT_DO_UPSTREAM:
        return clt_session_upstream(s, d, call->loss_weights);
    case CLT_DO_UPSTREAM_SCALED:
        return upstream_scaled(c);
    case CLT_DO_UPSTREAM_DEVICE:
        return upstream_device(c);
    case CLT_DO_CLEAR:
        return clear(c);
    case CLT_DO_ZERO:
        return clt_update_zero(c->u->update);
    case CLT_DO_RUN:
        return clt_exec_enqueue(c->sd->exec, &c->run, c->i->first, c->run_end, 0, NULL);
    case CLT_DO_STAND_IN:
        return clt_diagnosis_stand_in(c->sd, &c->run, c->i->item);
    case CLT_DO_INSPECT:
        return clt_diagnosis_inspect(b->diagnosis, c->sd, &c->run, c->i, &c->left);
    case CLT_DO_MEAN:
        return clt_states_add(b, c->micro, &c->run);
    case CLT_DO_FETCH:
        return c->part.count ? clt_session_fetch(s, d, &call->batch, c->part, b->leads, &c->run)
                             : CLT_OK;
    case CLT_DO_KEEP:
        return clt_kept_add(c->sd, &c->run, c->part, c->u->update);
    case CLT_DO_ADD:
    case CLT_DO_ADD_HALF:
        return add(c);
    case CLT_DO_ROUND:
        return clt_wire_round_sum(b);
    case CLT_DO_MERGE:
        return merge(c);
    case CLT_DO_START:
        return clt_exchange_start(b, c->i, &c->run);
    case CLT_DO_COMPLETE:
        return clt_exchange_complete(b, c->i, &c->run);
    case CLT_DO_WORDS:
        return note_words(c);
    case CLT_DO_LEAVE:
        return leave(c);
    case CLT_DO_STATUS:
        return status_of_step(c);
    case CLT_DO_COMMIT:
        c->u->begun = call->step + 1;
        clt_wire_accept(b);
        return CLT_OK;
    case CLT_DO_UPDATE:
        return update(c);
    case CLT_DO_ASSIGN:
        return clt_states_assign(b, &c->run);
    case CLT_DO_AVERAGE:
        return clt_averager_step(c->u->averager, call->step);
    case CLT_DO_CARRY:
        return clt_session_carry(s, d, &c->run);
    case CLT_DO_READ_STATUS:
        return read_status(c);
    case CLT_DO_READ_RESULTS:
        return clt_session_read(s, d, call->entry, &b->share);
    case CLT_DO_FLUSH:
        return clt_device_flush(c->sd->device);
    case CLT_DO_COMMITTED:
        return committed(c);
    case CLT_DO_CHECKSUM:
        return clt_verify_sum(b->verification, d);
    case CLT_DO_COMPARE:
        return clt_verify_compare(b->verification, d);
    case CLT_DO_FINISH:
        return clt_device_finish(b->replica->device);
    case CLT_INSTRUCTION_KIND_COUNT:
        break;
    }
    return clt_fail(CLT_INTERNAL, "instruction %d does not exist", (int)c->i->kind);
}

static int micro_of(const clt_instruction *i, int loop, int rounds)
{
    if (i->micro == CLT_MICRO_EACH)
        return loop + i->ahead;
    return i->micro == CLT_MICRO_LAST ? rounds - 1 + i->ahead : i->micro;
}

static int slot_of(const context *c)
{
    const int in_flight = c->sd->plan->options.in_flight;
    return in_flight ? c->micro % in_flight : 0;
}

/* Adds the nodes of instructions that run directly after instruction n, so that launches merge
 * across them. Returns the last of these instructions. */
static int join_runs(context *c, const clt_step_program *p, int n, int end)
{
    const clt_instruction *i = &p->code[n];
    int last = n;
    c->run_end = i->end;
    if (i->kind != CLT_DO_RUN || c->b->diagnosis)
        return n;
    for (int next = n + 1; next < end; next++) {
        const clt_instruction *j = &p->code[next];
        if (j->micro != i->micro || j->ahead != i->ahead)
            break;
        if (j->kind == CLT_DO_RUN && j->first == c->run_end) {
            c->run_end = j->end;
            last = next;
        } else if (j->kind != CLT_DO_FETCH || c->b->call->batch.n_fetches) {
            break;
        }
    }
    return last;
}

/* Returns whether instruction n begins the end of a step on one device, whose launches may become
 * one: nothing reads the step status before the update. */
static bool may_end(const context *c, const clt_step_program *p, int n, int end)
{
    const clt_instruction *i = &p->code[n];
    return i->kind == CLT_DO_STATUS && c->b->all->total == 1 && n + 2 < end &&
           i[1].kind == CLT_DO_COMMIT && i[2].kind == CLT_DO_UPDATE && i[2].item < 0 &&
           clt_update_ends(c->u->update);
}

/* Returns whether instruction n ends the last run of a step, and the end of the step follows. */
static bool is_last(context *c, const clt_step_program *p, int n, int end)
{
    if (c->i->kind != CLT_DO_RUN || c->b->diagnosis)
        return false;
    for (n++; n < end && p->code[n].kind == CLT_DO_FETCH && !c->b->call->batch.n_fetches;)
        n++;
    if (n >= end || !may_end(c, p, n, end))
        return false;
    c->step_end = clt_update_run_end(c->u->update, c->b->call->lr, c->b->call->updates);
    /* Directly behind the update no other command follows the launch. */
    c->step_end.wants_event = n + 3 < end && p->code[n + 3].kind == CLT_DO_READ_STATUS;
    return true;
}

/* Executes instructions [first, end) in iteration `loop`. */
static clt_status execute_range(context *c, const clt_step_program *p, int first, int end, int loop)
{
    const clt_bound *b = c->b;
    const clt_call *call = b->call;
    for (int n = first; n < end && !c->left; n++) {
        c->i = &p->code[n];
        c->micro = micro_of(c->i, loop, b->share.rounds);
        if (call->session) {
            c->part = clt_share_part(&b->share, c->micro);
            c->run = (clt_run){.count = c->part.count,
                               .seed = call->seed,
                               .step = (uint32_t)call->step,
                               .sample = call->batch.first + c->part.begin,
                               .inputs = c->sd->views,
                               .gradients = gradients_of(c),
                               .further = is_further(c),
                               .results = clt_session_results(call->session, b->device, call->entry,
                                                              (int)b->share.first_shard + c->micro),
                               .slot = slot_of(c)};
        }
        const int last = join_runs(c, p, n, end);
        if (c->i->kind == CLT_DO_STATUS)
            c->ends = may_end(c, p, n, end);
        c->run.end = is_last(c, p, last, end) ? &c->step_end : NULL;
        CLT_TRY(execute(c));
        n = last;
    }
    return CLT_OK;
}

clt_status clt_step_program_run(const clt_bound *bound, const clt_step_program *p)
{
    context c = {.b = bound, .u = bound->updates};
    if (c.u)
        clt_update_report_to(c.u->update, c.u->reports.buffer, bound->call->entry);
    /* Copies of replicas and checksums need no plan. */
    c.sd = bound->call->session ? &bound->call->session->devices[bound->device] : NULL;
    clt_status status = execute_range(&c, p, 0, p->loop_first, 0);
    for (int m = 1; m < bound->share.rounds - p->behind; m++)
        CLT_NEXT(status, execute_range(&c, p, p->loop_first, p->loop_end, m));
    CLT_NEXT(status, execute_range(&c, p, p->loop_end, p->n, 0));
    clt_release_event(c.step_end.event); /* of a step that failed before its status was read */
    return status;
}
