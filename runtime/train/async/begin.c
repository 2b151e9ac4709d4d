/* Begins and ends a run of holder 0: parameters, position in the data, and the last words. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/str.h"
#include "checkpoint/folder.h"
#include "data/core/digest.h"
#include "train/async/coordinator.h"
#include "train/fit/fit.h"

clt_status clt_async_find_same(const clt_async_layout *layout, const char *reads,
                               clt_dtype precision, clt_dataset *train, int64_t batch,
                               const clt_fit_options *fit, clt_async_same *same)
{
    uint64_t digest = 0;
    CLT_TRY(clt_dataset_digest(train, &digest));
    const int64_t numbers[] = {clt_dataset_count(train), batch, fit->shuffle, fit->drop_last};
    same->model = clt_hash(&precision, sizeof precision, layout->hash);
    same->data = clt_hash(numbers, sizeof numbers, clt_hash_text(reads, digest));
    return CLT_OK;
}

/* --- the section of the checkpoint ---------------------------------------------------------- */

clt_status clt_coordinator_deals_text(const clt_deal *d, char **text)
{
    clt_str s = {0};
    clt_str_add(&s, "{\"epoch\":%lld,\"offset\":%lld,\"batch\":%lld,\"back\":[",
                (long long)d->epoch, (long long)d->offset, (long long)d->batch);
    for (int i = 0; i < d->n_back + d->n_out; i++) {
        const clt_deal_batch *b = i < d->n_back ? &d->back[i] : &d->out[i - d->n_back].batch;
        clt_str_add(&s, "%s[%lld,%lld,%lld]", i ? "," : "", (long long)b->epoch,
                    (long long)b->offset, (long long)b->count);
    }
    clt_str_add(&s, "]}");
    *text = s.failed ? NULL : clt_strdup(clt_str_text(&s));
    clt_str_free(&s);
    return *text ? CLT_OK : CLT_OUT_OF_MEMORY;
}

clt_status clt_coordinator_read_deals(const char *text, int64_t applied, clt_deal *deal)
{
    json_error_t error;
    json_t *root = json_loads(text, 0, &error);
    json_int_t epoch = 0, offset = 0, e, o, n;
    json_t *list = NULL;
    clt_status status = CLT_OK;
    if (json_unpack(root, "{s:I,s:I,s:o}", "epoch", &epoch, "offset", &offset, "back", &list) !=
            0 ||
        !json_is_array(list) || json_array_size(list) > 1 << 20)
        status = clt_fail(CLT_FORMAT, "the checkpoint's section async is damaged");
    const size_t count = status == CLT_OK ? json_array_size(list) : 0;
    clt_deal_batch *back = clt_calloc(count + 1, sizeof *back);
    if (status == CLT_OK && !back)
        status = CLT_OUT_OF_MEMORY;
    for (size_t i = 0; status == CLT_OK && i < count; i++)
        if (json_unpack(json_array_get(list, i), "[III]", &e, &o, &n) == 0)
            back[i] = (clt_deal_batch){.epoch = e, .offset = o, .count = n};
        else
            status = clt_fail(CLT_FORMAT, "batch %zu of the checkpoint's section async is damaged",
                              i + 1);
    CLT_NEXT(status, clt_deal_resume(deal, applied, epoch, offset, back, (int)count));
    clt_free(back);
    json_decref(root);
    return status;
}

/* --- resuming ------------------------------------------------------------------------------- */

/* Reads the deals of the checkpoint that the trainer has restored; without a section, the run goes
 * on at the position of a synchronous one. */
static clt_status resume_deals(clt_coordinator *c, const char *path, clt_position position)
{
    clt_checkpoint *checkpoint = NULL;
    CLT_TRY(clt_checkpoint_open(path, &checkpoint));
    const clt_section *section = clt_checkpoint_section(checkpoint, CLT_SECTION_ASYNC);
    const clt_status status =
        section
            ? clt_coordinator_read_deals(section->text, c->h->version, &c->deal)
            : clt_deal_resume(&c->deal, c->h->version, position.epoch, position.sample, NULL, 0);
    clt_checkpoint_close(checkpoint);
    return status;
}

static clt_status resume(clt_coordinator *c, bool *resumed)
{
    const clt_fit_options *o = c->keeper.fit;
    const char *path = o->resume_from ? o->resume_from : o->checkpoint_dir;
    clt_position position;
    int64_t seed;
    *resumed = false;
    if (!o->resume || !o->checkpoint_dir)
        return CLT_OK;
    const clt_status status = clt_trainer_restore(c->keeper.whole, path, &position, &seed);
    if (status == CLT_NOT_FOUND && !o->resume_from)
        return CLT_OK; /* a folder without a checkpoint starts a new run */
    CLT_TRY(status);
    if (o->seed >= 0 && o->seed != seed)
        return clt_fail(CLT_MISMATCH,
                        "the checkpoints in %s are of a run with seed %lld, not %lld: leave the "
                        "seed out to go on with it",
                        o->checkpoint_dir, (long long)seed, (long long)o->seed);
    c->keeper.seed = seed;
    c->h->version = clt_trainer_steps(c->keeper.whole);
    *resumed = true;
    return resume_deals(c, path, position);
}

/* Sets how many batches the run has, as clt_fit counts steps. */
static void find_end(clt_coordinator *c, bool resumed)
{
    const clt_fit_options *o = c->keeper.fit;
    clt_deal *d = &c->deal;
    d->total = o->steps ? o->steps : o->epochs * d->per_epoch;
    if (!o->steps && resumed && d->epoch >= o->epochs) {
        d->total = d->applied + d->n_back;
    } else if (!o->steps && resumed) {
        const int64_t left = (d->samples - d->offset + d->batch - 1) / d->batch;
        d->total = d->applied + d->n_back + left + (o->epochs - d->epoch - 1) * d->per_epoch;
    }
    c->keeper.total_steps = d->total;
}

static clt_status begin(clt_coordinator *c, clt_dataset *train)
{
    clt_trainer *whole = c->keeper.whole;
    clt_holder *h = c->h;
    const clt_fit_options *o = c->keeper.fit;
    const int64_t batch = o->batch ? o->batch : whole->options.batch;
    bool resumed;
    clt_fit_describe_data(whole, train, o);
    CLT_TRY(clt_async_find_same(&h->layout, whole->reads, whole->options.precision, train, batch, o,
                                &c->same));
    c->keeper.seed = o->seed < 0 ? 0 : o->seed;
    CLT_TRY(clt_deal_make(clt_dataset_count(train), batch, o->drop_last != 0, 0, &c->deal));
    CLT_TRY(resume(c, &resumed));
    find_end(c, resumed);
    c->first = clt_snapshot_create(&h->layout, c->keeper.kept);
    h->states = clt_calloc((size_t)h->layout.state_elements + 1, sizeof *h->states);
    CLT_TRY_MEMORY(c->first && h->states);
    CLT_TRY(clt_keeper_read(&h->layout, whole, c->first->values, c->first->kept, h->states));
    /* The kept tensors of this range, one after the other. */
    float *kept = clt_alloc((size_t)(h->elements * c->keeper.kept) * sizeof *kept + 1);
    CLT_TRY_MEMORY(kept);
    for (int k = 0; k < c->keeper.kept; k++)
        memcpy(kept + k * h->elements, c->first->kept + k * h->layout.elements,
               (size_t)h->elements * sizeof *kept);
    clt_status status = clt_slice_load(h->slice, c->first->values, kept);
    clt_free(kept);
    clt_events_add(h->events, resumed ? "resume" : "begin",
                   "\"version\":%lld,\"samples\":%lld,\"batch\":%lld,\"total\":%lld,"
                   "\"staleness\":%lld,\"holders\":%d",
                   (long long)h->version, (long long)c->deal.samples, (long long)batch,
                   (long long)c->deal.total, (long long)h->options->staleness, h->options->holders);
    c->ending = c->deal.applied >= c->deal.total;
    if (h->options->holders == 1) { /* others would load it */
        clt_snapshot_destroy(c->first);
        c->first = NULL;
    }
    return status;
}

/* --- the end -------------------------------------------------------------------------------- */

/* Ends the other holders, and tells them why if the run failed. */
static void end_holders(clt_coordinator *c, clt_status status)
{
    clt_async_message m = {.kind = CLT_MSG_END, .number = status == CLT_STOPPED ? 0 : (int)status};
    if (m.number)
        snprintf(m.text, sizeof m.text, "%s", clt_error_message());
    for (int i = 1; i < c->h->options->holders; i++)
        if (c->holders[i].peer.size)
            clt_holder_send(c->h->socket, &c->holders[i].peer, &m);
}

/* Adds to the message from where the run can go on. */
static void name_checkpoint(const clt_coordinator *c, clt_status status)
{
    const char *dir = c->keeper.fit->checkpoint_dir;
    clt_step_name *names = NULL;
    int count = 0;
    char message[1024];
    snprintf(message, sizeof message, "%s", clt_error_message());
    if (!dir)
        clt_fail(status, "%s; this run has no checkpoint to resume from", message);
    else if (clt_folder_list(dir, &names, &count) != CLT_OK || !count)
        clt_fail(status, "%s; there is no checkpoint in %s to resume from", message, dir);
    else
        clt_fail(status, "%s; resume from the last checkpoint, %s/%s", message, dir, names[0].text);
    clt_free(names);
}

static clt_status end(clt_coordinator *c, clt_status status)
{
    char message[1024];
    snprintf(message, sizeof message, "%s", clt_error_message());
    const clt_status kept = clt_keeper_end(&c->keeper);
    if (status == CLT_OK || status == CLT_STOPPED)
        status = kept == CLT_OK ? status : kept;
    else
        clt_error_restore(message);
    if (status == CLT_TIMEOUT || status == CLT_ABORTED)
        name_checkpoint(c, status);
    else if (status == CLT_STOPPED)
        clt_error_restore(message);
    end_holders(c, status);
    clt_events_add(c->h->events, "end",
                   "\"version\":%lld,\"discarded\":%lld,\"nonfinite\":%lld,\"status\":\"%s\"",
                   (long long)c->h->version, (long long)c->discarded, (long long)c->nonfinite,
                   clt_status_name(status));
    clt_holder_note(c->h, "%lld gradients applied, %lld discarded as too old, %lld not finite",
                    (long long)c->h->version, (long long)c->discarded, (long long)c->nonfinite);
    for (clt_snapshot *s = c->snapshots, *next; s; s = next) {
        next = s->next;
        clt_snapshot_destroy(s);
    }
    clt_snapshot_destroy(c->first);
    clt_deal_free(&c->deal);
    CLT_FREE(c->workers, c->sums, c->replaced);
    return status;
}

clt_status clt_holder_lead(clt_holder *h, clt_trainer *whole, clt_dataset *train, clt_dataset *test,
                           const clt_fit_options *fit)
{
    clt_coordinator *c = CLT_NEW(clt_coordinator);
    CLT_TRY_MEMORY(c);
    c->h = h;
    c->keeper.whole = whole;
    c->keeper.test = test;
    c->keeper.fit = fit;
    c->keeper.layout = &h->layout;
    c->keeper.kept = clt_slice_kept(h->slice);
    c->keeper.began = c->reported = c->farewell = c->checked = clt_clock();
    clt_folder_lock *lock = NULL;
    clt_status status = fit->checkpoint_dir && !fit->lock
                            ? clt_folder_lock_take(fit->checkpoint_dir, &lock)
                            : CLT_OK;
    CLT_NEXT(status, begin(c, train));
    CLT_NEXT(status, clt_keeper_start(&c->keeper));
    CLT_NEXT(status, clt_coordinator_run(c));
    status = end(c, status);
    clt_folder_lock_release(lock);
    clt_free(c);
    return status;
}
