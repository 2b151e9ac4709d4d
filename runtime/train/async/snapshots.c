/* Snapshots of holder 0: ranges of all holders at one version, which are collected for the keeper.
 */
#include <string.h>

#include "base/alloc.h"
#include "train/async/coordinator.h"

clt_status clt_coordinator_begin_snapshot(clt_coordinator *c, int64_t epoch, bool save, bool last)
{
    clt_holder *h = c->h;
    clt_events_flush(h->events);
    clt_snapshot *s = clt_snapshot_create(&h->layout, c->keeper.kept);
    CLT_TRY_MEMORY(s);
    s->version = h->version;
    s->ticket = ++c->tickets;
    s->waiting = h->options->holders - 1;
    s->epoch = epoch;
    s->save = save;
    s->last = last;
    s->discarded = c->discarded;
    for (int i = 0; i < c->n_sums; i++)
        if (c->sums[i].epoch == epoch) {
            s->epoch_loss = c->sums[i].loss;
            s->epoch_samples = c->sums[i].samples;
            c->sums[i--] = c->sums[--c->n_sums];
        }
    clt_deal_position(&c->deal, &s->position.epoch, &s->position.sample);
    clt_status status = clt_coordinator_deals_text(&c->deal, &s->deals);
    if (h->layout.state_elements)
        memcpy(s->states, h->states, (size_t)h->layout.state_elements * sizeof *s->states);
    /* The kept tensors of this range lie one after the other, those of the whole apart. */
    float *kept = clt_alloc((size_t)(h->elements * c->keeper.kept) * sizeof *kept + 1);
    if (status == CLT_OK && !kept)
        status = CLT_OUT_OF_MEMORY;
    CLT_NEXT(status, clt_slice_save(h->slice, s->values, kept));
    for (int k = 0; status == CLT_OK && k < c->keeper.kept; k++)
        memcpy(s->kept + k * h->layout.elements, kept + k * h->elements,
               (size_t)h->elements * sizeof *kept);
    clt_free(kept);
    if (status == CLT_OK && s->waiting) {
        clt_async_message m = {.kind = CLT_MSG_SNAPSHOT, .lease = s->ticket};
        status = clt_coordinator_order(c, &m);
    }
    if (status != CLT_OK) {
        clt_snapshot_destroy(s);
        return status;
    }
    if (!s->waiting) {
        clt_keeper_give(&c->keeper, s);
        return CLT_OK;
    }
    s->next = c->snapshots;
    c->snapshots = s;
    return CLT_OK;
}

clt_status clt_coordinator_add_snap(clt_coordinator *c, const clt_packet *p,
                                    const clt_async_message *m)
{
    const clt_async_layout *l = &c->h->layout;
    if (m->number < 1 || m->number >= c->h->options->holders)
        return clt_fail(CLT_FORMAT, "a snapshot of holder %d", m->number);
    if (!clt_peer_is(&c->holders[m->number].peer, &p->peer))
        return clt_fail(CLT_FORMAT, "a snapshot of holder %d from another process", m->number);
    const int64_t begin = clt_async_cut(l, m->number);
    const int64_t own = clt_async_cut(l, m->number + 1) - begin;
    clt_snapshot **at = &c->snapshots;
    while (*at && (*at)->ticket != m->lease)
        at = &(*at)->next;
    clt_snapshot *s = *at;
    if (!s || p->payload_bytes != (size_t)(own * (1 + c->keeper.kept)) * sizeof(float))
        return clt_fail(CLT_FORMAT, "a snapshot of %zu bytes of holder %d", p->payload_bytes,
                        m->number);
    const uint8_t *data = p->payload;
    const size_t bytes = (size_t)own * sizeof(float);
    memcpy(s->values + begin, data, bytes);
    for (int k = 0; k < c->keeper.kept; k++)
        memcpy(s->kept + k * l->elements + begin, data + bytes * (size_t)(1 + k), bytes);
    if (--s->waiting == 0) {
        *at = s->next;
        clt_keeper_give(&c->keeper, s);
    }
    return CLT_OK;
}

/* Snapshots that wait take memory: one that is only to be saved waits for those before it. */
bool clt_coordinator_saves(clt_coordinator *c, bool complete)
{
    const clt_fit_options *fit = c->keeper.fit;
    const int64_t every = fit->checkpoint_dir ? fit->checkpoint_every : 0;
    if ((every > 0 && c->h->version % every == 0) || (every < 0 && complete))
        c->save_due = true;
    const bool now = c->save_due && (complete || !clt_coordinator_waiting(c));
    c->save_due = c->save_due && !now;
    return now;
}

int clt_coordinator_waiting(clt_coordinator *c)
{
    int count = clt_keeper_waiting(&c->keeper);
    for (const clt_snapshot *s = c->snapshots; s; s = s->next)
        count++;
    return count;
}
