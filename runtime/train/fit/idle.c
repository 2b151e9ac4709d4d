/* Ranks that have lost their last device, within a run of clt_fit. They wait until the run ends,
 * and report to their caller what the first of the other ranks reports. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/vec.h"
#include "train/fit/fit.h"
#include "train/store/rest.h"

/* Bytes of reports that are kept before idle ranks are told. */
enum { NEWS = 32 << 10 };

/* Seconds after which idle ranks are told. They notice a signal so much later. */
static const double TELL_SECONDS = 1;

/* A report. The numbers of its arrays follow it. */
typedef struct record {
    int64_t kind;
    clt_progress progress;
} record;

bool clt_fit_is_idle(const clt_fit_run *f)
{
    return f->trainer->all.own == 0;
}

static clt_rest *rest_of(const clt_fit_run *f)
{
    return clt_fit_is_idle(f) ? NULL : f->trainer->store->rest;
}

/* The arrays of a report, in the order in which they follow it. */
enum { ARRAYS = 5 };

static void list_arrays(clt_progress *p, const double **arrays[ARRAYS], int counts[ARRAYS])
{
    const double **const all[ARRAYS] = {&p->split, &p->test_means, &p->val_means,
                                        &p->average_test_means, &p->average_val_means};
    const int n[ARRAYS] = {p->n_split, p->n_test_means, p->n_val_means, p->n_average_test_means,
                           p->n_average_val_means};
    memcpy(arrays, all, sizeof all);
    memcpy(counts, n, sizeof n);
}

static int bytes_of(const record *r)
{
    clt_progress p = r->progress;
    const double **arrays[ARRAYS];
    int counts[ARRAYS], sum = 0;
    list_arrays(&p, arrays, counts);
    for (int i = 0; i < ARRAYS; i++)
        sum += counts[i];
    return (int)sizeof *r + (int)sizeof(double) * sum;
}

static void add(clt_fit_run *f, const void *data, size_t bytes)
{
    if (bytes)
        memcpy(f->news + f->n_news, data, bytes);
    f->n_news += (int)bytes;
}

clt_status clt_fit_note(clt_fit_run *f, clt_fit_news kind, const clt_progress *progress)
{
    record r = {.kind = kind};
    const double **arrays[ARRAYS];
    int counts[ARRAYS];
    if (!rest_of(f) || f->trainer->all.rank)
        return CLT_OK;
    if (progress)
        r.progress = *progress;
    CLT_TRY(CLT_RESERVE(f->news, f->n_news, f->news_room, bytes_of(&r)));
    add(f, &r, sizeof r);
    list_arrays(&r.progress, arrays, counts);
    for (int i = 0; i < ARRAYS; i++)
        add(f, *arrays[i], (size_t)counts[i] * sizeof(double));
    return CLT_OK;
}

bool clt_fit_should_tell(const clt_fit_run *f)
{
    return rest_of(f) && f->trainer->all.rank == 0 &&
           (f->n_news > NEWS || clt_clock() - f->told > TELL_SECONDS);
}

clt_status clt_fit_tell(clt_fit_run *f)
{
    clt_rest *rest = rest_of(f);
    bool done = false;
    if (!rest)
        return CLT_OK;
    CLT_TRY(clt_rest_tell(rest, f->trainer->steps, f->news, f->n_news, &done, &f->idle_stop));
    if (!done)
        return CLT_OK;
    f->n_news = 0;
    f->told = clt_clock();
    return CLT_OK;
}

/* Ranks that waited too long for another one do not wait for it here too. */
void clt_fit_end_idle(clt_fit_run *f, clt_status status)
{
    const clt_collectives *c = &f->trainer->exchange.collectives;
    clt_rest *rest = rest_of(f);
    char message[1024];
    if (!rest)
        return;
    snprintf(message, sizeof message, "%s", clt_error_message());
    const bool late = status == CLT_TIMEOUT || (c->self && c->status(c->self) == CLT_TIMEOUT);
    clt_error_restore(message);
    if (!late)
        clt_rest_end(rest, status, f->trainer->steps, f->news, f->n_news);
}

/* --- an idle rank ---------------------------------------------------------------------------- */

/* A step or epoch that was under way when the device was lost may be reported already. */
static void report(clt_fit_run *f, const record *r, const double *numbers)
{
    clt_progress p = r->progress;
    const double **arrays[ARRAYS];
    int counts[ARRAYS];
    list_arrays(&p, arrays, counts);
    for (int i = 0; i < ARRAYS; numbers += counts[i++])
        *arrays[i] = counts[i] ? numbers : NULL;
    if (r->kind == CLT_FIT_STEP && p.step > f->reported_step)
        clt_fit_report_step(f, &p);
    else if (r->kind == CLT_FIT_EPOCH && p.epoch > f->reported_epoch)
        clt_fit_report_epoch(f, &p);
    else if (r->kind == CLT_FIT_VALIDATION)
        clt_fit_report_validation(f, &p);
    else if (r->kind == CLT_FIT_SAVE && f->options->on_checkpoint)
        f->options->on_checkpoint(f->options->user);
}

static void read_news(clt_fit_run *f, const clt_rest_news *news)
{
    const char *at = news->data, *end = at + news->bytes;
    while (at < end) {
        const record *r = (const record *)(const void *)at;
        report(f, r, (const double *)(const void *)(at + sizeof *r));
        at += bytes_of(r);
    }
    clt_trainer_set_steps(f->trainer, news->steps);
}

clt_status clt_fit_wait_idle(clt_fit_run *f)
{
    const clt_fit_options *o = f->options;
    for (;;) {
        clt_rest_news news;
        const bool stop = o->should_stop && o->should_stop(o->user);
        clt_status status = clt_rest_wait(f->trainer->store->rest, stop, &news);
        f->lost = status != CLT_OK;
        CLT_NEXT(status, news.over ? news.status : CLT_OK);
        if (news.over && news.status != CLT_OK)
            status = clt_fail(news.status, "%s", news.message);
        char message[1024];
        snprintf(message, sizeof message, "%s", clt_error_message());
        if (!f->lost)
            read_news(f, &news);
        clt_free(news.data);
        if (status != CLT_OK || news.over) {
            clt_error_restore(message);
            return status;
        }
        clt_heartbeat_step(f->trainer->exchange.beat, news.steps);
    }
}
