#include "train/async/deal.h"

#include "base/alloc.h"
#include "base/vec.h"

clt_status clt_deal_make(int64_t samples, int64_t batch, bool drop_last, int64_t total,
                         clt_deal *out)
{
    if (samples < 1 || batch < 1 || total < 0 || (drop_last && samples < batch))
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "%lld samples cannot be dealt in batches of %lld, %lld of them",
                        (long long)samples, (long long)batch, (long long)total);
    const int64_t used = drop_last ? samples / batch * batch : samples;
    *out = (clt_deal){
        .samples = used, .batch = batch, .per_epoch = (used + batch - 1) / batch, .total = total};
    return CLT_OK;
}

void clt_deal_free(clt_deal *d)
{
    CLT_FREE(d->back, d->out);
    *d = (clt_deal){0};
}

static bool is_batch(const clt_deal *d, const clt_deal_batch *b)
{
    return b->epoch >= 0 && b->epoch <= INT32_MAX && b->tries >= 0 && b->count > 0 &&
           b->count <= d->batch && b->offset >= 0 && b->offset < d->samples &&
           b->count <= d->samples - b->offset;
}

clt_status clt_deal_resume(clt_deal *d, int64_t applied, int64_t epoch, int64_t offset,
                           const clt_deal_batch *back, int n_back)
{
    bool fits = applied >= 0 && epoch >= 0 && epoch <= INT32_MAX && offset >= 0 && n_back >= 0 &&
                offset < d->samples;
    for (int i = 0; fits && i < n_back; i++)
        fits = is_batch(d, &back[i]) &&
               (back[i].epoch < epoch || (back[i].epoch == epoch && back[i].offset < offset));
    if (!fits)
        return clt_fail(CLT_FORMAT,
                        "the checkpoint's batches (%lld applied, the next at sample "
                        "%lld of epoch %lld, %d to deal again) do not fit together",
                        (long long)applied, (long long)offset, (long long)epoch + 1, n_back);
    CLT_TRY(CLT_RESERVE(d->back, 0, d->back_room, n_back));
    for (int i = 0; i < n_back; i++)
        d->back[i] = back[i];
    d->n_back = n_back;
    d->applied = applied;
    d->epoch = epoch;
    d->offset = offset;
    d->begun = applied + n_back;
    return CLT_OK;
}

static void take_new(clt_deal *d, clt_deal_batch *b)
{
    const int64_t left = d->samples - d->offset;
    *b = (clt_deal_batch){
        .epoch = d->epoch, .offset = d->offset, .count = left < d->batch ? left : d->batch};
    d->offset += b->count;
    d->begun++;
    if (d->offset == d->samples) {
        d->epoch++;
        d->offset = 0;
    }
}

clt_status clt_deal_next(clt_deal *d, uint64_t who, clt_dealt *dealt, clt_deal_lease *lease)
{
    *lease = (clt_deal_lease){0};
    *dealt = d->applied >= d->total ? CLT_DEAL_END : CLT_DEAL_WAIT;
    if (*dealt == CLT_DEAL_END || (!d->n_back && d->begun >= d->total))
        return CLT_OK;
    /* All that is out may be given back, so that this needs no memory later. */
    CLT_TRY(CLT_RESERVE(d->out, d->n_out, d->out_room, 1));
    CLT_TRY(CLT_RESERVE(d->back, d->n_back + d->n_out, d->back_room, 1));
    lease->lease = ++d->last_lease;
    lease->who = who;
    if (d->n_back) {
        lease->batch = d->back[0];
        for (int i = 1; i < d->n_back; i++)
            d->back[i - 1] = d->back[i];
        d->n_back--;
    } else {
        take_new(d, &lease->batch);
    }
    d->out[d->n_out++] = *lease;
    *dealt = CLT_DEALT;
    return CLT_OK;
}

const clt_deal_lease *clt_deal_find(const clt_deal *d, uint64_t who, int64_t lease)
{
    for (int i = 0; i < d->n_out; i++)
        if (d->out[i].lease == lease && d->out[i].who == who)
            return &d->out[i];
    return NULL;
}

/* Removes an entry, and keeps the order of the others. */
static clt_deal_batch remove_out(clt_deal *d, int at)
{
    const clt_deal_batch batch = d->out[at].batch;
    for (int i = at + 1; i < d->n_out; i++)
        d->out[i - 1] = d->out[i];
    d->n_out--;
    return batch;
}

void clt_deal_apply(clt_deal *d, int64_t lease)
{
    for (int i = 0; i < d->n_out; i++)
        if (d->out[i].lease == lease) {
            remove_out(d, i);
            d->applied++;
            return;
        }
}

static void put_back(clt_deal *d, int at, bool nonfinite)
{
    clt_deal_batch batch = remove_out(d, at);
    batch.tries++;
    batch.nonfinite += nonfinite;
    d->back[d->n_back++] = batch;
}

int clt_deal_count(const clt_deal *d, uint64_t who)
{
    int count = 0;
    for (int i = 0; i < d->n_out; i++)
        count += d->out[i].who == who;
    return count;
}

int clt_deal_give_back(clt_deal *d, int64_t lease, bool nonfinite)
{
    for (int i = 0; i < d->n_out; i++)
        if (d->out[i].lease == lease) {
            put_back(d, i, nonfinite);
            return 1;
        }
    return 0;
}

int clt_deal_drop(clt_deal *d, uint64_t who)
{
    int count = 0;
    for (int i = 0; i < d->n_out;)
        if (d->out[i].who == who) {
            put_back(d, i, false);
            count++;
        } else {
            i++;
        }
    return count;
}

bool clt_deal_complete(const clt_deal *d, int64_t epoch)
{
    bool complete = d->epoch > epoch;
    for (int i = 0; i < d->n_back; i++)
        complete = complete && d->back[i].epoch != epoch;
    for (int i = 0; i < d->n_out; i++)
        complete = complete && d->out[i].batch.epoch != epoch;
    return complete;
}

void clt_deal_position(const clt_deal *d, int64_t *epoch, int64_t *sample)
{
    *epoch = d->epoch;
    *sample = d->offset;
    for (int i = 0; i < d->n_back + d->n_out; i++) {
        const clt_deal_batch *b = i < d->n_back ? &d->back[i] : &d->out[i - d->n_back].batch;
        if (b->epoch < *epoch || (b->epoch == *epoch && b->offset < *sample)) {
            *epoch = b->epoch;
            *sample = b->offset;
        }
    }
}
