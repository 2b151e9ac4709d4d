/* Describes, starts and completes the collectives of programs. */
#include "base/error.h"
#include "ops/collective/collective.h"
#include "train/step/interpret.h"
#include "train/step/profile.h"
#include "train/step/states.h"
#include "train/step/verify.h"
#include "train/step/wire.h"

enum { RESULTS, MEANS, CHECKSUMS, WORDS, TIED, BUCKETS };

/* Returns the place of an instruction's request. Values and slots are never under way together. */
static clt_collective_request *request_of(const clt_bound *b, const clt_instruction *i, int slot)
{
    clt_collective_request *all = b->exchange->devices[b->device].requests;
    const int n_buckets = b->exchange->n_buckets;
    switch (i->on) {
    case CLT_ON_RESULTS:
        return &all[RESULTS];
    case CLT_ON_MEANS:
        return &all[MEANS];
    case CLT_ON_CHECKSUMS:
        return &all[CHECKSUMS];
    case CLT_ON_WORDS:
        return &all[WORDS];
    case CLT_ON_TIED: /* one at a time */
        return &all[TIED];
    case CLT_ON_GRADIENT:
        return &all[BUCKETS + i->item];
    case CLT_ON_VALUES:
    case CLT_ON_SLOT:
        return &all[BUCKETS + n_buckets + i->item];
    default:
        return &all[BUCKETS + 2 * n_buckets + slot * b->exchange->n_nodes + i->item];
    }
}

/* --- operands -------------------------------------------------------------------------------- */

static const clt_collective_kind node_kinds[] = {
    [CLT_OP_ALL_REDUCE] = CLT_COLLECTIVE_ALL_REDUCE,
    [CLT_OP_ALL_GATHER] = CLT_COLLECTIVE_ALL_GATHER,
    [CLT_OP_REDUCE_SCATTER] = CLT_COLLECTIVE_REDUCE_SCATTER,
    [CLT_OP_SEND] = CLT_COLLECTIVE_SEND,
    [CLT_OP_RECEIVE] = CLT_COLLECTIVE_RECEIVE,
    [CLT_OP_SHIFT] = CLT_COLLECTIVE_SHIFT,
};

static clt_collective_reduction reduction_of(const clt_plan_collective *c, const clt_node *node)
{
    const clt_axis_attr *attr = node->attr;
    const bool reduces = c->kind == CLT_OP_ALL_REDUCE || c->kind == CLT_OP_REDUCE_SCATTER;
    return reduces && attr->reduction == CLT_AXIS_MAX ? CLT_COLLECTIVE_MAX : CLT_COLLECTIVE_SUM;
}

/* The first or last place has no neighbour to receive from: its result is filled. */
static clt_status fill_end(const clt_bound *b, const clt_plan_collective *c, const clt_node *node,
                           clt_view out, int64_t count)
{
    const clt_shift_attr *attr = node->attr;
    const clt_mesh *mesh = &b->all->mesh;
    const int from = clt_mesh_coordinate(mesh, c->axis, b->all->first + b->device) - attr->step;
    return from >= 0 && from < mesh->size[c->axis]
               ? CLT_OK
               : clt_enqueue_fill(b->call->session->devices[b->device].device, out,
                                  (float)attr->fill, count * (int64_t)sizeof(float));
}

/* One end of a message between stages. */
static clt_status of_message(const clt_bound *b, const clt_instruction *i, const clt_run *run,
                             clt_collective *what)
{
    const clt_session_device *sd = &b->call->session->devices[b->device];
    const clt_plan_collective *c = &sd->plan->collectives[i->item];
    const clt_value *value = sd->plan->nodes[c->node].node->out[0];
    clt_view at;
    CLT_TRY(clt_exec_locate(sd->exec, run, value, &at));
    *what = (clt_collective){.kind = node_kinds[c->kind],
                             .buffer = at.buffer,
                             .offset = at.offset / clt_dtype_size(value->type.dtype),
                             .count = c->per_sample ? c->count * run->count : c->count,
                             .dtype = value->type.dtype,
                             .peer = i->peer,
                             .whole = c->whole,
                             .label = c->label};
    return CLT_OK;
}

/* Only devices along dp may have no samples where others have some. What such a device gives to a
 * gather counts. */
static bool may_be_empty(const clt_plan_collective *c)
{
    return c->axis == CLT_AXIS_DATA &&
           (c->kind == CLT_OP_ALL_REDUCE || c->kind == CLT_OP_REDUCE_SCATTER);
}

/* A collective of the graph that has parts: where it works, and the device's own part there. */
typedef struct parted {
    clt_view in, out, own;
    int64_t bytes; /* of a part */
} parted;

static clt_status find_parts(const clt_bound *b, int k, const clt_run *run, parted *p)
{
    const clt_session_device *sd = &b->call->session->devices[b->device];
    const clt_plan_collective *c = &sd->plan->collectives[k];
    const clt_node *node = sd->plan->nodes[c->node].node;
    CLT_TRY(clt_exec_locate(sd->exec, run, node->in[0], &p->in));
    CLT_TRY(clt_exec_locate(sd->exec, run, node->out[0], &p->out));
    p->bytes = (c->per_sample ? c->count * run->count : c->count) * clt_dtype_size(c->dtype);
    p->own = c->kind == CLT_OP_ALL_GATHER ? p->out : p->in;
    p->own.offset +=
        p->bytes * clt_mesh_coordinate(&b->all->mesh, c->axis, b->all->first + b->device);
    return CLT_OK;
}

static bool has_parts(const clt_plan_collective *c)
{
    return c->whole && (c->kind == CLT_OP_ALL_GATHER || c->kind == CLT_OP_REDUCE_SCATTER);
}

/* In place, gathers work in their result and scatters in their operand. */
static clt_status of_parts(const clt_bound *b, int k, const clt_run *run, clt_collective *what)
{
    const clt_session_device *sd = &b->call->session->devices[b->device];
    const clt_plan_collective *c = &sd->plan->collectives[k];
    parted p;
    CLT_TRY(find_parts(b, k, run, &p));
    const clt_view at = c->kind == CLT_OP_ALL_GATHER ? p.out : p.in;
    *what = (clt_collective){.kind = node_kinds[c->kind],
                             .reduction = reduction_of(c, sd->plan->nodes[c->node].node),
                             .buffer = at.buffer,
                             .offset = at.offset / clt_dtype_size(c->dtype),
                             .count = p.bytes / clt_dtype_size(c->dtype),
                             .dtype = c->dtype,
                             .whole = true,
                             .empty = may_be_empty(c) && run->count == 0,
                             .label = c->label};
    return c->kind == CLT_OP_ALL_GATHER ? clt_enqueue_copy(sd->device, p.in, p.own, p.bytes)
                                        : CLT_OK;
}

static clt_status of_node(const clt_bound *b, int k, const clt_run *run, clt_collective *what)
{
    const clt_session_device *sd = &b->call->session->devices[b->device];
    const clt_plan_collective *c = &sd->plan->collectives[k];
    const clt_node *node = sd->plan->nodes[c->node].node;
    clt_view in, out;
    if (has_parts(c))
        return of_parts(b, k, run, what);
    CLT_TRY(clt_exec_locate(sd->exec, run, node->n_in ? node->in[0] : node->out[0], &in));
    CLT_TRY(clt_exec_locate(sd->exec, run, node->out[0], &out));
    const bool same = in.buffer == out.buffer && in.offset == out.offset;
    *what = (clt_collective){.kind = node_kinds[c->kind],
                             .reduction = reduction_of(c, node),
                             .buffer = in.buffer,
                             .offset = in.offset / clt_dtype_size(c->dtype),
                             .count = c->per_sample ? c->count * run->count : c->count,
                             .out = same ? NULL : out.buffer,
                             .out_offset = out.offset / clt_dtype_size(c->dtype),
                             .dtype = c->dtype,
                             .whole = c->whole,
                             .empty = may_be_empty(c) && run->count == 0,
                             .label = c->label};
    if (c->kind != CLT_OP_SHIFT)
        return CLT_OK;
    what->step = ((const clt_shift_attr *)node->attr)->step;
    return fill_end(b, c, node, out, what->count);
}

static clt_dtype sent_type(const clt_bound *b)
{
    return b->exchange->wire.dtype != CLT_F32
               ? b->exchange->wire.dtype
               : b->call->session->devices[b->device].plan->options.precision;
}

/* Before a bucket's reduction, a device with gradients in f32 rounds them. */
static clt_status send_gradient(const clt_bound *b, int bucket, clt_collective *what)
{
    clt_scaling scaling;
    if (b->exchange->wire.dtype == CLT_F32)
        return CLT_OK;
    CLT_TRY(clt_update_scaling(b->updates->update, &scaling));
    what->residual_scale = b->exchange->wire.dtype == CLT_F16 ? scaling.scale : 1;
    return clt_wire_rounds_buckets(b) ? clt_update_send(b->updates->update, bucket) : CLT_OK;
}

/* `owner`: the participant that gets the whole sum; -1: all, or each its shard. */
static clt_collective of_gradient(const clt_bound *b, int bucket, int owner)
{
    const clt_bucket *of = &b->replica->layout->buckets[bucket];
    /* The norm over virtual shards is that of a single device, so each device gets all sums. */
    const int shards = owner < 0 && !b->leaves ? b->replica->shards : 1;
    const clt_wire *wire = &b->exchange->wire;
    return (clt_collective){.kind = owner >= 0   ? CLT_COLLECTIVE_REDUCE
                                    : shards > 1 ? CLT_COLLECTIVE_REDUCE_SCATTER
                                                 : CLT_COLLECTIVE_ALL_REDUCE,
                            .root = owner < 0 ? 0 : owner,
                            .buffer = b->updates->sent[bucket],
                            .count = clt_shard_bytes(of, shards) / 4,
                            .dtype = sent_type(b),
                            .whole = true,
                            .empty = !b->share.count && !b->call->given && !b->leaves,
                            .measure = !b->leaves, /* else the devices measure */
                            .residual = wire->sums ? wire->sums[bucket] : NULL,
                            .vote = b->exchange->vote,
                            .leaves = b->leaves,
                            .label = b->exchange->labels[bucket]};
}

/* The stages have the tensor at different places of their buckets. */
static clt_collective of_tied(const clt_bound *b, int slot)
{
    const clt_slot *own = &b->replica->layout->slots[slot];
    return (clt_collective){.kind = CLT_COLLECTIVE_ALL_REDUCE,
                            .buffer = b->updates->gradients[own->bucket],
                            .offset = own->offset / (int64_t)sizeof(float),
                            .count = own->bytes / (int64_t)sizeof(float),
                            .dtype = b->call->session->devices[b->device].plan->options.precision,
                            .whole = true,
                            .empty = !b->share.count,
                            .label = b->exchange->labels[own->bucket]};
}

/* Without a root, each device has its shard. */
static clt_collective of_bytes(const clt_bound *b, const cl_mem *buffers, int bucket, int root)
{
    const clt_bucket *of = &b->replica->layout->buckets[bucket];
    return (clt_collective){.kind = root < 0 ? CLT_COLLECTIVE_ALL_GATHER : CLT_COLLECTIVE_BROADCAST,
                            .buffer = buffers[bucket],
                            .count = root < 0 ? clt_shard_bytes(of, b->replica->shards) : of->bytes,
                            .dtype = CLT_U8,
                            .root = root < 0 ? 0 : root,
                            .whole = true,
                            .label = b->exchange->labels[bucket]};
}

static clt_status describe(const clt_bound *b, const clt_instruction *i, const clt_run *run,
                           clt_collective *what)
{
    switch (i->on) {
    case CLT_ON_RESULTS:
        CLT_TRY(clt_session_share(b->call->session, b->device, b->call->entry, &b->share, what));
        if (clt_store_stages(b->call->session->store) > 1 &&
            !clt_participants_count(b->all, b->all->first + b->device))
            what->empty = true; /* another device adds the same results */
        return CLT_OK;
    case CLT_ON_MEANS:
        *what = clt_states_means(b->states, b->device);
        return CLT_OK;
    case CLT_ON_CHECKSUMS:
        *what = clt_verify_gather(b->verification, b->device);
        return CLT_OK;
    case CLT_ON_WORDS:
        *what = (clt_collective){.kind = CLT_COLLECTIVE_ALL_GATHER,
                                 .host = b->exchange->devices[b->device].words,
                                 .count = sizeof(clt_words) / sizeof(int32_t),
                                 .dtype = CLT_I32,
                                 .label = "norm and votes of the step"};
        return CLT_OK;
    case CLT_ON_GRADIENT:
        *what = of_gradient(b, i->item, i->peer);
        return send_gradient(b, i->item, what);
    case CLT_ON_TIED:
        *what = of_tied(b, i->item);
        return CLT_OK;
    case CLT_ON_NODE:
        return i->group >= CLT_GROUP_EDGE ? of_message(b, i, run, what)
                                          : of_node(b, i->item, run, what);
    case CLT_ON_VALUES:
        *what = of_bytes(b, b->replica->values, i->item, i->peer);
        return CLT_OK;
    case CLT_ON_SLOT:
        *what = of_bytes(b, b->replica->slots[i->slot], i->item, i->peer);
        return CLT_OK;
    default:
        return clt_fail(CLT_INTERNAL, "no collective works on operand %d", (int)i->on);
    }
}

/* --- start and end --------------------------------------------------------------------------- */

clt_status clt_exchange_start(const clt_bound *b, const clt_instruction *i, const clt_run *run)
{
    const clt_collectives *c = &b->exchange->collectives;
    clt_collective what;
    CLT_TRY(describe(b, i, run, &what));
    what.group = i->group == CLT_GROUP_ALL   ? 0
                 : i->group < CLT_GROUP_EDGE ? b->exchange->groups[i->group - CLT_GROUP_AXIS]
                                             : b->exchange->edges[i->group - CLT_GROUP_EDGE];
    if (i->on == CLT_ON_GRADIENT)
        clt_heartbeat_start(b->device == 0 ? b->exchange->beat : NULL, i->item);
    return c->start(c->self, b->device, &what, 0, NULL, request_of(b, i, run->slot));
}

static void note_profile(const clt_bound *b, const char *label, bool backward, int64_t bytes,
                         const clt_collective_result *result)
{
    if (b->exchange->profile)
        clt_profile_reduction(b->exchange->profile, b->device, label, backward, bytes, result);
}

static void note_gradient(const clt_bound *b, int bucket, const clt_collective_result *result)
{
    const clt_plan *plan = b->call->session->devices[b->device].plan;
    clt_exchange_device *own = &b->exchange->devices[b->device];
    clt_heartbeat_complete(b->device == 0 ? b->exchange->beat : NULL, bucket);
    own->reduced[bucket] = *result;
    note_profile(b, b->exchange->labels[bucket], true,
                 clt_bucket_gradient_bytes(&plan->buckets.buckets[bucket], sent_type(b)), result);
    if (bucket == plan->ready[plan->n_ready - 1]) /* earlier reductions were hidden by backward */
        own->exposed += result->done - result->ready;
}

static void note_node(const clt_bound *b, int k, const clt_collective_result *result)
{
    const clt_plan *plan = b->call->session->devices[b->device].plan;
    const clt_node *node = plan->nodes[plan->collectives[k].node].node;
    clt_exchange_device *own = &b->exchange->devices[b->device];
    own->exposed += result->done - result->ready;
    own->waited += result->done - result->ready;
    note_profile(b, node->name, node->backward,
                 clt_type_elements(&node->out[0]->type, b->share.per_run) *
                     clt_dtype_size(node->out[0]->type.dtype),
                 result);
}

/* Copies the device's part of a scatter to its result. */
static clt_status take_part(const clt_bound *b, int k, const clt_run *run)
{
    const clt_session_device *sd = &b->call->session->devices[b->device];
    const clt_plan_collective *c = &sd->plan->collectives[k];
    parted p;
    if (!has_parts(c) || c->kind != CLT_OP_REDUCE_SCATTER)
        return CLT_OK;
    CLT_TRY(find_parts(b, k, run, &p));
    return clt_enqueue_copy(sd->device, p.own, p.out, p.bytes);
}

clt_status clt_exchange_complete(const clt_bound *b, const clt_instruction *i, const clt_run *run)
{
    const clt_collectives *c = &b->exchange->collectives;
    clt_collective_result result;
    CLT_TRY(c->complete(c->self, b->device, request_of(b, i, run->slot), &result));
    if (i->on == CLT_ON_GRADIENT)
        note_gradient(b, i->item, &result);
    else if (i->on == CLT_ON_NODE) {
        note_node(b, i->item, &result);
        return take_part(b, i->item, run);
    } else if (i->on == CLT_ON_MEANS) {
        const clt_collective means = clt_states_means(b->states, b->device);
        note_profile(b, means.label, false, means.count * (int64_t)sizeof(float), &result);
    }
    return CLT_OK;
}
