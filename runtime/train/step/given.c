/*
 * Gradients that the caller sets of parameters without a loss. Such a parameter is updated only in
 * a step that sets its gradient, so replicas would drift apart if only some ranks had set it.
 */
#include "base/alloc.h"
#include "train/core/trainer.h"
#include "train/ranks/connect.h"
#include "train/store/parts.h"

/* A byte for each slot of a participant. */
enum { WITHOUT_LOSS = 1, GIVEN = 2 };

static bool without_loss(const clt_trainer *t, int device, int slot)
{
    const clt_slot *s = &t->store->layout.slots[slot];
    const clt_replica *r = &t->store->replicas[device];
    return !s->state && !t->training->devices[device].plan->gradients[slot] &&
           clt_store_held(t->store, s, r->at, clt_store_stage(t->store, device), 0, 1).bytes > 0;
}

/* Whether there may be such parameters; the same on all ranks. Other stages of a pipeline have
 * other parameters. */
static bool may_differ(const clt_trainer *t)
{
    const clt_buckets *layout = &t->store->layout;
    bool any = clt_store_stages(t->store) > 1;
    for (int s = 0; s < layout->n_slots && !any; s++)
        any = without_loss(t, 0, s);
    return any && t->all.ranks > 1;
}

/* Gathers the bytes of all participants: *n for each. */
static clt_status gather(clt_trainer *t, int64_t *n)
{
    const clt_collectives *c = &t->exchange.collectives;
    const int64_t words = (t->store->layout.n_slots + 3) / 4, each = t->all.total * words * 4;
    clt_collective_request request[CLT_MOST_DEVICES];
    clt_collective_result result;
    *n = words * 4;
    if (!t->given)
        t->given = clt_calloc((size_t)t->all.own, (size_t)each);
    CLT_TRY_MEMORY(t->given);
    for (int d = 0; d < t->all.own; d++) {
        char *own = t->given + d * each + (t->all.first + d) * *n;
        for (int s = 0; s < t->store->layout.n_slots; s++)
            own[s] = !without_loss(t, d, s)                         ? 0
                     : clt_update_includes(t->devices[d].update, s) ? WITHOUT_LOSS | GIVEN
                                                                    : WITHOUT_LOSS;
        const clt_collective what = {.kind = CLT_COLLECTIVE_ALL_GATHER,
                                     .host = t->given + d * each,
                                     .count = words,
                                     .dtype = CLT_I32,
                                     .label = "gradients that ranks have set"};
        CLT_TRY(c->start(c->self, d, &what, 0, NULL, &request[d]));
    }
    for (int d = 0; d < t->all.own; d++)
        CLT_TRY(c->complete(c->self, d, &request[d], &result));
    return CLT_OK;
}

/* Returns the first rank whose byte for a slot is `byte`; -1: there is none. */
static int rank_with(const clt_trainer *t, int64_t n, int slot, char byte)
{
    for (int r = 0; r < t->all.ranks; r++)
        for (int p = t->all.begins[r]; p < t->all.begins[r + 1]; p++)
            if (t->given[p * n + slot] == byte)
                return r;
    return -1;
}

clt_status clt_gradients_agree(clt_trainer *t)
{
    int64_t n;
    if (!may_differ(t))
        return CLT_OK;
    CLT_TRY(gather(t, &n));
    for (int s = 0; s < t->store->layout.n_slots; s++) {
        const int with = rank_with(t, n, s, WITHOUT_LOSS | GIVEN);
        const int without = rank_with(t, n, s, WITHOUT_LOSS);
        if (with >= 0 && without >= 0)
            return clt_fail(CLT_MISMATCH,
                            "no loss depends on %s, and rank %d has set its gradient, but rank %d "
                            "has not: set it on all ranks, or on none",
                            t->store->layout.slots[s].name, with, without);
    }
    return CLT_OK;
}
