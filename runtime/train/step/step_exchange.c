/* The collectives of programs: what each is on a device, its start and its end. */
#include "base/alloc.h"
#include "base/error.h"
#include "train/step/states.h"
#include "train/step/interpret.h"
#include "train/step/verify.h"

enum { RESULTS, MEANS, CHECKSUMS, BUCKETS };

/* Where the request of an instruction is kept. Values and slots are never under way together. */
static clt_collective_request *request_of(const clt_trainer *t, int d, const clt_instruction *i)
{
    clt_collective_request *all = t->devices[d].requests;
    const int n_buckets = t->store->layout.n_buckets;
    switch (i->on) {
    case CLT_ON_RESULTS:
        return &all[RESULTS];
    case CLT_ON_MEANS:
        return &all[MEANS];
    case CLT_ON_CHECKSUMS:
        return &all[CHECKSUMS];
    case CLT_ON_GRADIENT:
        return &all[BUCKETS + i->item];
    case CLT_ON_VALUES:
    case CLT_ON_SLOT:
        return &all[BUCKETS + n_buckets + i->item];
    default:
        return &all[BUCKETS + 2 * n_buckets + i->item];
    }
}

clt_status clt_exchange_create(clt_trainer *t, int d, int nodes)
{
    const size_t n = BUCKETS + 2 * (size_t)t->store->layout.n_buckets + (size_t)nodes;
    t->devices[d].requests = clt_calloc(n + 1, sizeof *t->devices[d].requests);
    return t->devices[d].requests ? CLT_OK : CLT_OUT_OF_MEMORY;
}

/* --- what they work on ----------------------------------------------------------------------- */

static int64_t node_count(const clt_plan *plan, int k)
{
    return clt_type_elements(&plan->nodes[plan->collectives[k].node].node->out[0]->type, 0);
}

static clt_status of_node(const clt_trainer *t, int d, int k, const clt_run *run,
                          clt_collective *what)
{
    const clt_session_device *sd = &t->session->devices[d];
    const clt_plan_collective *c = &sd->plan->collectives[k];
    const clt_node *node = sd->plan->nodes[c->node].node;
    clt_view in, out;
    CLT_TRY(clt_exec_locate(sd->exec, run, node->in[0], &in));
    CLT_TRY(clt_exec_locate(sd->exec, run, node->out[0], &out));
    const bool same = in.buffer == out.buffer && in.offset == out.offset;
    *what = (clt_collective){.kind = CLT_COLLECTIVE_ALL_REDUCE,
                             .buffer = in.buffer,
                             .offset = in.offset / (int64_t)sizeof(float),
                             .count = node_count(sd->plan, k),
                             .out = same ? NULL : out.buffer,
                             .out_offset = out.offset / (int64_t)sizeof(float),
                             .dtype = CLT_F32,
                             .empty = run->count == 0,
                             .label = c->label};
    return CLT_OK;
}

static clt_collective of_gradient(const clt_trainer *t, int d, int bucket, int owner)
{
    return (clt_collective){.kind = owner >= 0 ? CLT_COLLECTIVE_REDUCE : CLT_COLLECTIVE_ALL_REDUCE,
                            .root = owner >= 0 ? owner : 0,
                            .buffer = t->devices[d].gradients[0][bucket],
                            .count = t->store->layout.buckets[bucket].bytes / 4,
                            .dtype = t->training->devices[d].plan->options.precision,
                            .whole = true,
                            .empty = t->shares.offsets[d] == t->shares.offsets[d + 1],
                            .measure = true,
                            .vote = t->vote,
                            .label = t->labels[bucket]};
}

static clt_collective of_bytes(const clt_trainer *t, const cl_mem *buffers, int bucket, int root)
{
    return (clt_collective){.kind = CLT_COLLECTIVE_BROADCAST,
                            .buffer = buffers[bucket],
                            .count = t->store->layout.buckets[bucket].bytes,
                            .dtype = CLT_U8,
                            .root = root,
                            .whole = true,
                            .label = t->labels[bucket]};
}

static clt_status describe(const clt_trainer *t, int d, const clt_instruction *i,
                           const clt_run *run, clt_collective *what)
{
    const clt_replica *replica = &t->store->replicas[d];
    switch (i->on) {
    case CLT_ON_RESULTS:
        return clt_session_share(t->session, d, t->entry, clt_shares_device(&t->shares, d).micros,
                                 what);
    case CLT_ON_MEANS:
        *what = clt_states_means(t, d);
        return CLT_OK;
    case CLT_ON_CHECKSUMS:
        *what = clt_verify_gather(t, d);
        return CLT_OK;
    case CLT_ON_GRADIENT:
        *what = of_gradient(t, d, i->item, i->peer);
        return CLT_OK;
    case CLT_ON_NODE:
        return of_node(t, d, i->item, run, what);
    case CLT_ON_VALUES:
        *what = of_bytes(t, replica->values, i->item, i->peer);
        return CLT_OK;
    case CLT_ON_SLOT:
        *what = of_bytes(t, replica->slots[i->slot], i->item, i->peer);
        return CLT_OK;
    default:
        return clt_fail(CLT_INTERNAL, "no collective works on operand %d", (int)i->on);
    }
}

/* --- start and end --------------------------------------------------------------------------- */

clt_status clt_exchange_start(clt_trainer *t, int d, const clt_instruction *i, const clt_run *run)
{
    clt_collective what;
    CLT_TRY(describe(t, d, i, run, &what));
    if (i->on == CLT_ON_GRADIENT)
        clt_heartbeat_start(d == 0 ? t->beat : NULL, i->item);
    return t->collectives.start(t->collectives.self, d, &what, 0, NULL, request_of(t, d, i));
}

static void note_gradient(clt_trainer *t, int d, int bucket, const clt_collective_result *result)
{
    const clt_plan *plan = t->session->devices[d].plan;
    clt_trainer_device *td = &t->devices[d];
    clt_heartbeat_complete(d == 0 ? t->beat : NULL, bucket);
    td->reduced[bucket] = *result;
    if (t->profile)
        clt_profile_reduction(
            t->profile, d, t->labels[bucket], true,
            clt_bucket_gradient_bytes(&plan->buckets.buckets[bucket], plan->options.precision),
            result);
    if (bucket == plan->ready[plan->n_ready - 1]) /* all before it went on during backward */
        td->exposed += result->done - result->ready;
}

static void note_node(clt_trainer *t, int d, int k, const clt_collective_result *result)
{
    const clt_plan *plan = t->session->devices[d].plan;
    const clt_node *node = plan->nodes[plan->collectives[k].node].node;
    t->devices[d].exposed += result->done - result->ready;
    t->devices[d].waited += result->done - result->ready;
    if (t->profile)
        clt_profile_reduction(t->profile, d, node->name, node->backward,
                              node_count(plan, k) * (int64_t)sizeof(float), result);
}

clt_status clt_exchange_complete(clt_trainer *t, int d, const clt_instruction *i)
{
    clt_collective_result result;
    CLT_TRY(t->collectives.complete(t->collectives.self, d, request_of(t, d, i), &result));
    if (i->on == CLT_ON_GRADIENT)
        note_gradient(t, d, i->item, &result);
    else if (i->on == CLT_ON_NODE)
        note_node(t, d, i->item, &result);
    else if (i->on == CLT_ON_MEANS)
        clt_states_reduced(t, d, &result);
    return CLT_OK;
}
