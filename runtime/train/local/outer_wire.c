#include "train/local/outer_wire.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "comm/core/feedback.h"
#include "train/ranks/world.h"

/* What f16 differences are multiplied by: they reach from 2^-34 to 64. */
#define F16_SCALE 1024.0

static bool is_on(const clt_local *local)
{
    return local->options.wire != CLT_F32;
}

clt_status clt_outer_wire_allocate(clt_local *local)
{
    clt_outer_state *o = &local->outer;
    clt_outer_wire *w = &o->wire;
    const size_t count = (size_t)o->parameters + 1;
    w->scale = local->options.wire == CLT_F16 ? F16_SCALE : 1;
    if (!is_on(local))
        return CLT_OK;
    w->sent = clt_calloc((size_t)local->own, sizeof *w->sent);
    w->residuals = clt_calloc((size_t)local->own, sizeof *w->residuals);
    w->sums = clt_calloc((size_t)o->n_parameters + 1, sizeof *w->sums);
    w->roundings = clt_calloc((size_t)local->all.ranks, sizeof *w->roundings);
    CLT_TRY_MEMORY(w->sent && w->residuals && w->sums && w->roundings);
    for (int i = 0; i < local->own; i++) {
        w->sent[i] = clt_calloc(count, sizeof **w->sent);
        w->residuals[i] = clt_calloc(count, sizeof **w->residuals);
        CLT_TRY_MEMORY(w->sent[i] && w->residuals[i]);
    }
    return CLT_OK;
}

static clt_status open_residuals(clt_local *local)
{
    const clt_outer_state *o = &local->outer;
    const clt_collectives *c = &o->collectives;
    for (int k = 0; k < o->n_parameters; k++)
        CLT_TRY(c->residual_open(c->self, 0, o->floats[k].bytes / (int64_t)sizeof(float),
                                 &o->wire.sums[k]));
    return CLT_OK;
}

clt_status clt_outer_wire_open(clt_local *local)
{
    const clt_outer_state *o = &local->outer;
    int32_t own = 0;
    void *told;
    if (!is_on(local) || !o->collectives.self)
        return CLT_OK;
    CLT_TRY(clt_world_agree(&local->all, open_residuals(local)));
    for (int k = 0; o->n_parameters && k < CLT_ROUNDINGS; k++)
        own |= (o->collectives.residual_has(o->wire.sums[0], k) == 1) << k;
    CLT_TRY(clt_ranks_gather(local->all.world, &own, sizeof own, &told));
    memcpy(o->wire.roundings, told, (size_t)local->all.ranks * sizeof own);
    clt_free(told);
    return CLT_OK;
}

void clt_outer_wire_close(clt_local *local)
{
    clt_outer_state *o = &local->outer;
    clt_outer_wire *w = &o->wire;
    for (int k = 0; w->sums && k < o->n_parameters; k++)
        if (w->sums[k])
            o->collectives.residual_close(w->sums[k]);
    for (int i = 0; i < local->own; i++) {
        if (w->sent)
            clt_free(w->sent[i]);
        if (w->residuals)
            clt_free(w->residuals[i]);
    }
    CLT_FREE(w->sent, w->residuals, w->sums, w->roundings);
    *w = (clt_outer_wire){0};
}

/* --- a synchronisation ----------------------------------------------------------------------- */

bool clt_outer_wire_sends(const clt_local *local)
{
    return is_on(local) && local->total > 1;
}

void clt_outer_wire_round(const clt_local *local, int i)
{
    const clt_outer_state *o = &local->outer;
    const clt_outer_wire *w = &o->wire;
    /* A replica without samples sends nothing, so what it has rounded away stays. */
    if (local->weights[local->first + i] > 0)
        clt_feedback_send(o->hosts[i], o->parameters, local->options.wire, (float)w->scale,
                          w->residuals[i], w->sent[i]);
}

clt_status clt_outer_wire_take(const clt_local *local, bool finite)
{
    const clt_outer_state *o = &local->outer;
    const clt_outer_wire *w = &o->wire;
    const clt_dtype wire = local->options.wire;
    if (!finite)
        return clt_fail(CLT_NONFINITE,
                        "synchronisation %lld: a difference of parameters is not finite in %s%s",
                        (long long)local->syncs + 1, clt_dtype_name(wire),
                        wire == CLT_F16 ? ", which takes differences up to 64: train with wire "
                                          "bf16 or f32, or with a smaller rate"
                                        : ": train with a smaller rate");
    for (int k = 0; k < o->n_parameters; k++)
        o->collectives.residual_accept(w->sums[k]);
    clt_feedback_receive(w->sent[0], o->parameters, wire, (float)w->scale, o->hosts[0]);
    return CLT_OK;
}

/* --- checkpoints ----------------------------------------------------------------------------- */

/* Finds the bucket of a parameter among those that are exchanged. */
static int bucket_of(const clt_outer_state *o, const clt_slot *slot)
{
    int k = 0;
    while (o->floats[k].bucket != slot->bucket)
        k++;
    return k;
}

clt_status clt_outer_wire_forget(clt_local *local)
{
    const clt_outer_state *o = &local->outer;
    const clt_collectives *c = &o->collectives;
    clt_status status = CLT_OK;
    if (!is_on(local))
        return CLT_OK;
    float *zeros = clt_calloc((size_t)o->parameters + 1, sizeof *zeros);
    CLT_TRY_MEMORY(zeros);
    for (int i = 0; i < local->own; i++)
        memset(o->wire.residuals[i], 0, (size_t)o->parameters * sizeof *zeros);
    for (int k = 0; c->self && k < o->n_parameters; k++)
        for (int rounding = 0; rounding < CLT_ROUNDINGS; rounding++)
            if (c->residual_has(o->wire.sums[k], rounding))
                CLT_NEXT(status, c->residual_set(o->wire.sums[k], rounding, zeros));
    clt_free(zeros);
    return status;
}

/* Copies the residual of the parameter's bucket to new memory. */
static clt_status read_bucket(const clt_local *local, int rounding, const clt_slot *slot,
                              float **out)
{
    const clt_outer_state *o = &local->outer;
    const int k = bucket_of(o, slot);
    float *data = clt_alloc((size_t)o->floats[k].bytes + 1);
    CLT_TRY_MEMORY(data);
    o->collectives.residual_get(o->wire.sums[k], rounding, data);
    *out = data;
    return CLT_OK;
}

clt_status clt_outer_wire_get(const clt_local *local, int rounding, const clt_slot *slot,
                              void *data)
{
    float *bucket;
    CLT_TRY(read_bucket(local, rounding, slot, &bucket));
    memcpy(data, (const char *)bucket + slot->offset, (size_t)slot->bytes);
    clt_free(bucket);
    return CLT_OK;
}

clt_status clt_outer_wire_set(const clt_local *local, int rank, int rounding, const clt_slot *slot,
                              const void *data)
{
    const clt_outer_state *o = &local->outer;
    clt_collective_residual *sum = o->wire.sums[bucket_of(o, slot)];
    float *bucket;
    /* All ranks of one node keep the residual of the owner. */
    const bool same = rounding == CLT_ROUNDS_SUM && rank == 0 &&
                      o->collectives.residual_has(sum, CLT_ROUNDS_SUM) == 2;
    if (rank != local->all.rank && !same)
        return CLT_OK;
    CLT_TRY(read_bucket(local, rounding, slot, &bucket));
    memcpy((char *)bucket + slot->offset, data, (size_t)slot->bytes);
    const clt_status status = o->collectives.residual_set(sum, rounding, bucket);
    clt_free(bucket);
    return status;
}
