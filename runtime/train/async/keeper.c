#include "train/async/keeper.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/vec.h"
#include "train/core/trainer.h"
#include "train/fit/fit.h"

clt_snapshot *clt_snapshot_create(const clt_async_layout *l, int kept)
{
    clt_snapshot *s = CLT_NEW(clt_snapshot);
    if (!s)
        return NULL;
    s->values = clt_calloc((size_t)l->elements + 1, sizeof *s->values);
    s->kept = clt_calloc((size_t)(l->elements * kept) + 1, sizeof *s->kept);
    s->states = clt_calloc((size_t)l->state_elements + 1, sizeof *s->states);
    if (s->values && s->kept && s->states)
        return s;
    clt_snapshot_destroy(s);
    return NULL;
}

void clt_snapshot_destroy(clt_snapshot *s)
{
    if (s)
        CLT_FREE(s->values, s->kept, s->states, s->deals, s);
}

clt_status clt_keeper_read(const clt_async_layout *l, clt_trainer *whole, float *values,
                           float *kept, float *states)
{
    for (int p = 0; p < l->n_parameters; p++) {
        const clt_async_tensor *t = &l->parameters[p];
        const size_t bytes = (size_t)t->elements * sizeof *values;
        CLT_TRY(clt_store_get(whole->store, t->name, values + t->begin, bytes));
        for (int k = 0; t->trained && clt_trainer_slot_name(whole, k); k++)
            CLT_TRY(
                clt_trainer_slot_get(whole, k, t->name, kept + k * l->elements + t->begin, bytes));
    }
    for (int s = 0; s < l->n_states; s++)
        CLT_TRY(clt_store_get(whole->store, l->states[s].name, states + l->states[s].begin,
                              (size_t)l->states[s].elements * sizeof *states));
    return CLT_OK;
}

static clt_status write_whole(clt_keeper *k, const clt_snapshot *s)
{
    const clt_async_layout *l = k->layout;
    for (int p = 0; p < l->n_parameters; p++) {
        const clt_async_tensor *t = &l->parameters[p];
        const size_t bytes = (size_t)t->elements * sizeof *s->values;
        CLT_TRY(clt_store_set(k->whole->store, t->name, s->values + t->begin, bytes));
        for (int i = 0; t->trained && i < k->kept; i++)
            CLT_TRY(clt_trainer_slot_set(k->whole, i, t->name, s->kept + i * l->elements + t->begin,
                                         bytes));
    }
    for (int i = 0; i < l->n_states; i++)
        CLT_TRY(clt_store_set(k->whole->store, l->states[i].name, s->states + l->states[i].begin,
                              (size_t)l->states[i].elements * sizeof *s->states));
    clt_trainer_set_steps(k->whole, s->version);
    return CLT_OK;
}

static clt_status evaluate(clt_keeper *k, clt_progress *progress, double **means)
{
    const clt_session *session = k->whole->evaluation;
    const int n = session->n_means;
    *means = clt_calloc(3 * (size_t)n + 1, sizeof **means);
    CLT_TRY_MEMORY(*means);
    CLT_TRY(clt_evaluate(k->whole, k->test, k->fit, *means, *means + n));
    clt_fit_test_means(session, *means, progress);
    return CLT_OK;
}

static clt_status end_epoch(clt_keeper *k, const clt_snapshot *s)
{
    clt_progress progress = {.step = s->version,
                             .epoch = s->epoch + 1,
                             .samples = s->epoch_samples,
                             .total_steps = k->total_steps,
                             .loss =
                                 s->epoch_samples ? s->epoch_loss / (double)s->epoch_samples : NAN,
                             .loss_scale = 1,
                             .test_loss = NAN,
                             .test_metric = NAN,
                             .val_loss = NAN,
                             .val_metric = NAN,
                             .average_test_loss = NAN,
                             .average_val_loss = NAN,
                             .asynchronous = 1,
                             .discarded = s->discarded};
    double *means = NULL;
    clt_status status = k->test ? evaluate(k, &progress, &means) : CLT_OK;
    progress.seconds = clt_clock() - k->began;
    if (status == CLT_OK && k->fit->on_epoch) {
        pthread_mutex_lock(&k->report);
        k->fit->on_epoch(k->fit->user, &progress);
        pthread_mutex_unlock(&k->report);
    }
    clt_free(means);
    return status;
}

static clt_status save(clt_keeper *k, const clt_snapshot *s)
{
    const clt_fit_options *o = k->fit;
    if (o->on_checkpoint) {
        pthread_mutex_lock(&k->report);
        o->on_checkpoint(o->user);
        pthread_mutex_unlock(&k->report);
    }
    k->whole->deals = s->deals;
    const clt_status status =
        clt_trainer_save(k->whole, o->checkpoint_dir, s->position,
                         o->batch ? o->batch : k->whole->options.batch, k->seed, o->keep, o->model);
    k->whole->deals = NULL;
    return status;
}

/* A save on the way may fail, as a full disk need not end the run; the last one may not. */
static clt_status keep(clt_keeper *k, const clt_snapshot *s)
{
    CLT_TRY(write_whole(k, s));
    if (s->epoch >= 0)
        CLT_TRY(end_epoch(k, s));
    const clt_status saved = s->save ? save(k, s) : CLT_OK;
    if (saved == CLT_OK || s->last)
        return saved;
    clt_log(CLT_LOG_WARN, "no checkpoint of version %lld, training goes on: %s",
            (long long)s->version, clt_error_message());
    return CLT_OK;
}

static void *work(void *user)
{
    clt_keeper *k = user;
    pthread_mutex_lock(&k->lock);
    for (;;) {
        while (!k->first && !k->stop)
            pthread_cond_wait(&k->work, &k->lock);
        clt_snapshot *s = k->first;
        if (!s)
            break;
        k->first = s->next;
        k->last = k->first ? k->last : NULL;
        k->busy = true;
        const bool good = k->status == CLT_OK;
        pthread_mutex_unlock(&k->lock);
        const clt_status status = good ? keep(k, s) : CLT_OK;
        clt_snapshot_destroy(s);
        pthread_mutex_lock(&k->lock);
        k->busy = false;
        if (status != CLT_OK) {
            k->status = status;
            snprintf(k->message, sizeof k->message, "%s", clt_error_message());
        }
    }
    pthread_mutex_unlock(&k->lock);
    return NULL;
}

clt_status clt_keeper_start(clt_keeper *k)
{
    pthread_mutex_init(&k->report, NULL);
    pthread_mutex_init(&k->lock, NULL);
    pthread_cond_init(&k->work, NULL);
    const int error = clt_thread_start(&k->thread, work, k);
    if (error)
        return clt_fail(CLT_OUT_OF_MEMORY, "no thread to evaluate and save: %s", strerror(error));
    k->started = true;
    return CLT_OK;
}

void clt_keeper_give(clt_keeper *k, clt_snapshot *s)
{
    s->next = NULL;
    pthread_mutex_lock(&k->lock);
    if (k->last)
        k->last->next = s;
    else
        k->first = s;
    k->last = s;
    pthread_cond_signal(&k->work);
    pthread_mutex_unlock(&k->lock);
}

int clt_keeper_waiting(clt_keeper *k)
{
    pthread_mutex_lock(&k->lock);
    int count = k->busy;
    for (const clt_snapshot *s = k->first; s; s = s->next)
        count++;
    pthread_mutex_unlock(&k->lock);
    return count;
}

bool clt_keeper_has_failed(clt_keeper *k)
{
    pthread_mutex_lock(&k->lock);
    const bool failed = k->status != CLT_OK;
    pthread_mutex_unlock(&k->lock);
    return failed;
}

clt_status clt_keeper_end(clt_keeper *k)
{
    if (!k->started)
        return CLT_OK;
    pthread_mutex_lock(&k->lock);
    k->stop = true;
    pthread_cond_signal(&k->work);
    pthread_mutex_unlock(&k->lock);
    pthread_join(k->thread, NULL);
    pthread_mutex_destroy(&k->report);
    pthread_mutex_destroy(&k->lock);
    pthread_cond_destroy(&k->work);
    k->started = false;
    if (k->status != CLT_OK)
        clt_error_restore(k->message);
    return k->status;
}
