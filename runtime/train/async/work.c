/* A worker: it asks for a batch, pulls the parameters, computes the gradient and pushes it. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "train/async/coordinator.h"
#include "train/async/worker.h"
#include "train/fit/fit.h"

/* Milliseconds until a worker asks again, if all that is left is out. */
enum { ASK_AGAIN_MS = 20 };

void clt_async_worker_options(clt_trainer_options *o)
{
    o->optimizer = CLT_SGD;
    o->lr = 0;
    o->weight_decay = 0;
    o->clip_norm = 0;
    o->schedule = (clt_schedule){.kind = CLT_SCHEDULE_CONSTANT};
    o->guard = 1; /* tells which value is not finite */
    o->check_every = 0;
}

/* --- computing ------------------------------------------------------------------------------ */

#ifdef CLT_TESTING
/* CLT_TESTING_SLOW_WORKER=K:F makes worker K F times slower. */
static void be_slow(const clt_async_worker *w, double seconds)
{
    const char *text = getenv("CLT_TESTING_SLOW_WORKER");
    int number;
    double factor;
    if (!text || sscanf(text, "%d:%lf", &number, &factor) != 2 || number != w->options->number)
        return;
    const double rest = seconds * (factor - 1);
    const struct timespec time = {(time_t)rest, (long)(1e9 * (rest - floor(rest)))};
    nanosleep(&time, NULL);
}
#endif

/* After a step that was not finite the trainer goes on: its parameters are pulled anew. */
static clt_status lift_guard(clt_trainer *t)
{
    for (int d = 0; d < t->all.own; d++)
        CLT_TRY(clt_update_reset(t->devices[d].update));
    for (int i = 0; i < CLT_RESULT_RING; i++)
        t->results.records[i].step = -1;
    return CLT_OK;
}

/* Makes a step, which updates nothing. Its number is the batch's in the run, which dropout follows,
 * also if the batch is dealt again. */
static clt_status compute(clt_async_worker *w, const clt_async_message *deal,
                          clt_source_batch *batch, clt_step_result *result, char *why, size_t room)
{
    clt_trainer *t = w->trainer;
    const int64_t number = deal->epoch * w->per_epoch + deal->offset / w->batch;
    clt_trainer_set_steps(t, number);
    CLT_TRY(clt_trainer_step(t, &batch->step, NULL));
    clt_step_result_init(result);
    const clt_status status = clt_trainer_result(t, number, result);
    *why = '\0';
    if (status == CLT_NONFINITE) {
        snprintf(why, room, "%s", clt_error_message());
        result->finite = 0;
        result->loss = NAN;
        result->norm = 0;
        return lift_guard(t);
    }
    return status;
}

static clt_status send_ask(void *user, int holder)
{
    clt_async_worker *w = user;
    const clt_async_message m = {.kind = CLT_MSG_ASK, .who = w->wires.who, .sequence = w->asks};
    return clt_wires_request(&w->wires, &w->wires.deal, holder, &m, NULL, 0, 0);
}

static clt_status ask(clt_async_worker *w)
{
    w->asked = true;
    w->asks++;
    return send_ask(w, 0);
}

/* Gets the next batch. *end: there are no more. */
static clt_status next_deal(clt_async_worker *w, clt_async_message *deal, bool *end)
{
    for (;;) {
        if (!w->asked)
            CLT_TRY(ask(w));
        CLT_TRY(clt_wires_await(&w->wires, &w->wires.deal, 0, send_ask, w));
        *deal = w->wires.deal.m;
        clt_wires_take(&w->wires.deal);
        w->asked = false;
        *end = deal->number == CLT_DEAL_END;
        if (*end || deal->number == CLT_DEALT)
            return CLT_OK;
        const struct timespec wait = {0, ASK_AGAIN_MS * 1000000L};
        nanosleep(&wait, NULL);
    }
}

/* Finds the rows of all tables that the batch reads. */
static clt_status find_rows(clt_async_worker *w, const clt_source_batch *batch)
{
    for (int p = 0; p < w->layout.n_parameters; p++) {
        const clt_async_tensor *t = &w->layout.parameters[p];
        int64_t count = 0;
        int32_t *all = NULL;
        if (!t->width)
            continue;
        const clt_value *input = clt_graph_find(w->trainer->graph, t->indices);
        const int64_t each = clt_type_coefficient(&input->type);
        all = clt_alloc((size_t)(each * batch->step.count) * sizeof *all + 1);
        CLT_TRY_MEMORY(all);
        for (int f = 0; f < batch->step.n_feeds; f++) {
            const clt_feed *feed = &batch->step.feeds[f];
            const int64_t *offsets = batch->step.offsets;
            if (strcmp(feed->name, t->indices) || !feed->array.host)
                continue;
            const int part = w->trainer->shares.part[feed->device];
            const int64_t more = (offsets[part + 1] - offsets[part]) * each;
            memcpy(all + count, feed->array.host, (size_t)more * sizeof *all);
            count += more;
        }
        const clt_status status = clt_async_rows_make(t, all, count, &w->rows.of[p]);
        clt_free(all);
        CLT_TRY(status);
    }
    return CLT_OK;
}

static bool has_tables(const clt_async_worker *w)
{
    for (int p = 0; p < w->layout.n_parameters; p++)
        if (w->layout.parameters[p].width)
            return true;
    return false;
}

/* Pulls, computes and pushes for one batch. The next batch is asked for meanwhile. */
static clt_status work_once(clt_async_worker *w, const clt_async_message *deal)
{
    const clt_travels what = w->complete ? CLT_TRAVELS_BATCH : CLT_TRAVELS_FIRST;
    const bool early = !has_tables(w); /* the batch need not be there to know what to pull */
    clt_source_batch batch;
    clt_step_result result;
    char why[512];
    int64_t version = 0;
    CLT_TRY(clt_source_deal(w->source, deal->epoch, deal->offset, deal->count));
    if (early)
        CLT_TRY(clt_worker_ask_parameters(w, what));
    CLT_TRY(clt_source_next(w->source, &batch));
    if (!early) {
        CLT_TRY(find_rows(w, &batch));
        CLT_TRY(clt_worker_ask_parameters(w, what));
    }
    CLT_TRY(clt_worker_take_parameters(w, what, &version));
    w->complete = true;
    CLT_TRY(ask(w));
#ifdef CLT_TESTING
    const double began = clt_clock();
#endif
    clt_status status = compute(w, deal, &batch, &result, why, sizeof why);
#ifdef CLT_TESTING
    be_slow(w, clt_clock() - began);
#endif
    CLT_NEXT(status, clt_worker_push(w, deal, &result, version, why));
    CLT_NEXT(status, clt_source_release(w->source, batch.slot));
    return status;
}

/* --- the call ------------------------------------------------------------------------------- */

static clt_status check(const clt_trainer *t, const clt_dataset *train, const clt_async_options *o)
{
    CLT_TRY(clt_async_check(o, &t->options));
    if (!o->join)
        return clt_fail(CLT_INVALID_ARGUMENT, "worker %d needs the address of holder 0 (join)",
                        o->number);
    if (t->options.lr != 0 || t->options.optimizer != CLT_SGD)
        return clt_fail(CLT_INVALID_ARGUMENT, "a worker's trainer is made with the options of "
                                              "clt_async_worker_options: the holders update");
    if (t->store->mesh.size[CLT_AXIS_DATA])
        return clt_fail(CLT_UNSUPPORTED, "a worker has no mesh: its devices are data parallel");
    CLT_TRY(clt_dataset_need_fixed(train, "workers of asynchronous training"));
    if (clt_dataset_kind(train) == CLT_DATA_DEVICE)
        return clt_fail(CLT_UNSUPPORTED,
                        "asynchronous training reads data in host memory, and "
                        "data set '%s' is in device memory",
                        clt_dataset_name(train));
    return CLT_OK;
}

/* Holders update all parameters that are not frozen, so each needs a gradient. */
static clt_status find_slots(clt_async_worker *w)
{
    const clt_store *store = w->trainer->store;
    const clt_plan *plan = w->trainer->training->devices[0].plan;
    w->slots = clt_calloc((size_t)w->layout.n_parameters + 1, sizeof(clt_slot *));
    CLT_TRY_MEMORY(w->slots);
    for (int p = 0; p < w->layout.n_parameters; p++) {
        CLT_TRY(clt_store_slot(store, w->layout.parameters[p].name, &w->slots[p]));
        if (w->layout.parameters[p].trained && !plan->gradients[w->slots[p] - store->layout.slots])
            return clt_fail(CLT_UNSUPPORTED,
                            "no loss depends on parameter %s: freeze it for asynchronous training",
                            w->layout.parameters[p].name);
    }
    return CLT_OK;
}

static clt_status prepare(clt_async_worker *w, clt_dataset *train)
{
    clt_trainer *t = w->trainer;
    CLT_TRY(clt_async_layout_make(t->graph, w->options->holders, &w->layout));
    CLT_TRY(find_slots(w));
    CLT_TRY(clt_rows_init(&w->layout, &w->rows));
    const size_t elements = (size_t)(w->layout.elements + w->layout.state_elements) + 1;
    w->line = clt_calloc(elements, sizeof *w->line);
    w->states = clt_calloc((size_t)w->layout.state_elements + 1, sizeof *w->states);
    w->message = clt_calloc(2 * elements + (size_t)w->layout.n_parameters, sizeof *w->message);
    CLT_TRY_MEMORY(w->line && w->states && w->message);
    const int64_t samples = clt_dataset_count(train);
    w->batch = w->fit->batch ? w->fit->batch : t->options.batch;
    w->per_epoch = w->fit->drop_last ? samples / w->batch : (samples + w->batch - 1) / w->batch;
    clt_fit_describe_data(t, train, w->fit);
    clt_async_same same;
    CLT_TRY(clt_async_find_same(&w->layout, t->reads, t->options.precision, train, w->batch, w->fit,
                                &same));
    return clt_wires_open(&w->wires, w->options, &same);
}

/* Gives batches back at once that are not computed, instead of after some silence. */
static clt_status say_bye(clt_async_worker *w)
{
    const clt_async_message bye = {.kind = CLT_MSG_BYE, .who = w->wires.who};
    return clt_wires_send(&w->wires, 0, &bye, NULL, 0);
}

static clt_status work(clt_async_worker *w, clt_dataset *train)
{
    clt_trainer *t = w->trainer;
    t->options.seed = w->wires.dropout_seed;
    CLT_TRY(clt_source_create_dealt(&t->all, &t->shares, t->training, train, w->fit, w->batch,
                                    (int64_t)w->wires.order_seed, &w->source));
    for (;;) {
        clt_async_message deal;
        bool end;
        CLT_TRY(next_deal(w, &deal, &end));
        if (end)
            break;
        CLT_TRY(work_once(w, &deal));
    }
    return say_bye(w);
}

clt_status clt_async_work(clt_trainer *trainer, clt_dataset *train, const clt_fit_options *fit,
                          const clt_async_options *async, clt_async_worked *worked)
{
    clt_async_worker w = {.trainer = trainer, .fit = fit, .options = async};
    const double began = clt_clock();
    CLT_TRY(check(trainer, train, async));
    CLT_TRY(clt_fit_refuse_hooks(fit, "clt_async_work"));
    clt_async_worked_init(&w.worked);
    clt_status status = prepare(&w, train);
    CLT_NEXT(status, work(&w, train));
    char message[1024];
    snprintf(message, sizeof message, "%s", clt_error_message());
    if (status == CLT_STOPPED && w.wires.beats)
        say_bye(&w);
    clt_trainer_wait(trainer); /* ends transfers from the loader's memory */
    clt_source_destroy(w.source);
    clt_wires_close(&w.wires);
    clt_rows_free(&w.rows);
    clt_async_layout_free(&w.layout);
    CLT_FREE(w.slots, w.line, w.states, w.message);
    w.worked.repeated = w.wires.repeated;
    w.worked.seconds = clt_clock() - began;
    if (worked)
        *worked = w.worked;
    if (status != CLT_OK)
        clt_error_restore(message);
    return status;
}
