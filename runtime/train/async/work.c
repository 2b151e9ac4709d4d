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
#include "train/async/wires.h"
#include "train/async/payload.h"
#include "train/fit/fit.h"

/* Milliseconds until a worker asks again, if all that is left is out. */
enum { ASK_AGAIN_MS = 20 };

typedef struct worker {
    clt_trainer *trainer;
    const clt_fit_options *fit;
    const clt_async_options *options;
    clt_async_layout layout;
    const clt_slot **slots; /* by parameter */
    clt_wires wires;
    clt_rows rows;
    clt_source *source;
    int64_t batch, per_epoch, sequence;
    int64_t decided;      /* the version after the last push, which all later pulls contain */
    float *line;          /* parameters, then the gradient, of all holders */
    float *states;        /* as pulled */
    float *message;       /* a payload */
    bool asked, complete; /* a batch was asked for; the parameters that never change are there */
    clt_async_worked worked;
} worker;

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

/* --- parameters ----------------------------------------------------------------------------- */

static clt_status write_devices(const worker *w, const clt_slot *slot, int64_t from, int64_t count,
                                const float *data)
{
    for (int d = 0; d < w->trainer->store->n_devices; d++) {
        const clt_replica *r = &w->trainer->store->replicas[d];
        CLT_TRY(clt_replica_write(r, r->values[slot->bucket],
                                  slot->offset + from * (int64_t)sizeof *data,
                                  count * (int64_t)sizeof *data, data));
    }
    return CLT_OK;
}

/* Writes what was pulled to the devices: of tables the rows of the batch. */
static clt_status write_parameters(worker *w, clt_travels what)
{
    for (int p = 0; p < w->layout.n_parameters; p++) {
        const clt_async_tensor *t = &w->layout.parameters[p];
        const clt_async_rows *rows = &w->rows.of[p];
        const float *data = w->line + t->begin;
        if (what == CLT_TRAVELS_ALL || (t->trained && !t->width))
            CLT_TRY(write_devices(w, w->slots[p], 0, t->elements, data));
        for (int i = 0; what != CLT_TRAVELS_ALL && t->width && i < rows->count; i++)
            CLT_TRY(write_devices(w, w->slots[p], rows->rows[i] * t->width, t->width,
                                  data + rows->rows[i] * t->width));
    }
    for (int s = 0; s < w->layout.n_states; s++)
        CLT_TRY(clt_store_set(w->trainer->store, w->layout.states[s].name,
                              w->states + w->layout.states[s].begin,
                              (size_t)w->layout.states[s].elements * sizeof *w->states));
    return CLT_OK;
}

static clt_status ask_parameters(worker *w, clt_travels what)
{
    const size_t bytes = clt_rows_bytes(&w->layout, &w->rows);
    const clt_async_message m = {.kind = CLT_MSG_PULL,
                                 .number = what == CLT_TRAVELS_ALL,
                                 .who = w->wires.who,
                                 .sequence = ++w->sequence,
                                 .version = w->decided};
    clt_rows_write(&w->layout, &w->rows, w->message);
    for (int h = 0; h < w->wires.holders; h++)
        CLT_TRY(clt_wires_send(&w->wires, h, &m, w->message, bytes));
    return CLT_OK;
}

/* Takes the parameters that were asked for. *version is the oldest of the holders' versions. */
static clt_status take_parameters(worker *w, clt_travels what, int64_t *version)
{
    for (int h = 0; h < w->wires.holders; h++) {
        clt_answer *a = &w->wires.values[h];
        CLT_TRY(clt_wires_await(&w->wires, a, h));
        const size_t count = (size_t)clt_payload_elements(&w->layout, h, &w->rows, what);
        const size_t states = h ? 0 : (size_t)w->layout.state_elements;
        if (a->m.sequence != w->sequence ||
            a->packet.payload_bytes != (count + states) * sizeof(float))
            return clt_fail(
                CLT_FORMAT, "worker %d: holder %d sent %zu bytes of parameters instead of %zu",
                w->options->number, h, a->packet.payload_bytes, (count + states) * sizeof(float));
        memcpy(w->message, a->packet.payload, a->packet.payload_bytes);
        clt_payload_unpack(&w->layout, h, &w->rows, what, w->message, false,
                           w->line + clt_async_cut(&w->layout, h));
        memcpy(w->states, w->message + count, states * sizeof *w->states);
        *version = !h || a->m.version < *version ? a->m.version : *version;
        clt_wires_take(a);
    }
    return write_parameters(w, what);
}

/* --- the gradient --------------------------------------------------------------------------- */

static clt_status read_gradient(worker *w)
{
    for (int p = 0; p < w->layout.n_parameters; p++) {
        const clt_async_tensor *t = &w->layout.parameters[p];
        if (t->trained)
            CLT_TRY(clt_trainer_gradient(w->trainer, 0, t->name, w->line + t->begin,
                                         (size_t)t->elements * sizeof *w->line));
    }
    return CLT_OK;
}

/* Writes the new states behind a gradient; of whole numbers the growth. */
static clt_status add_states(worker *w, float *to)
{
    for (int s = 0; s < w->layout.n_states; s++) {
        const clt_async_tensor *t = &w->layout.states[s];
        float *own = to + t->begin;
        const float *old = w->states + t->begin;
        CLT_TRY(clt_store_get(w->trainer->store, t->name, own, (size_t)t->elements * sizeof *own));
        for (int64_t i = 0; t->dtype != CLT_F32 && i < t->elements; i++) {
            uint32_t now, before;
            memcpy(&now, own + i, sizeof now);
            memcpy(&before, old + i, sizeof before);
            now -= before;
            memcpy(own + i, &now, sizeof now);
        }
    }
    return CLT_OK;
}

/* Writes a holder's part of the gradient to w->message. Returns its bytes. */
static size_t pack_gradient(worker *w, int holder)
{
    const size_t rows = clt_rows_bytes(&w->layout, &w->rows);
    float *at = w->message + rows / sizeof *at;
    clt_rows_write(&w->layout, &w->rows, w->message);
    clt_payload_pack(&w->layout, holder, &w->rows, CLT_TRAVELS_TRAINED,
                     w->line + clt_async_cut(&w->layout, holder), at);
    return rows + (size_t)clt_payload_elements(&w->layout, holder, &w->rows, CLT_TRAVELS_TRAINED) *
                      sizeof *at;
}

#ifdef CLT_TESTING
/* CLT_TESTING_MALFORMED_WORKER=K makes the gradients of worker K too short. */
static bool is_malformed(const worker *w)
{
    const char *text = getenv("CLT_TESTING_MALFORMED_WORKER");
    return text && atoi(text) == w->options->number;
}
#endif

/* The other holders have their parts before holder 0 decides, so that all can apply them. */
static clt_status stage_gradient(worker *w)
{
    const clt_async_message m = {
        .kind = CLT_MSG_STAGE, .who = w->wires.who, .sequence = w->sequence};
    for (int h = 1; h < w->wires.holders; h++)
        CLT_TRY(clt_wires_send(&w->wires, h, &m, w->message, pack_gradient(w, h)));
    for (int h = 1; h < w->wires.holders; h++) {
        CLT_TRY(clt_wires_await(&w->wires, &w->wires.staged[h], h));
        clt_wires_take(&w->wires.staged[h]);
    }
    return CLT_OK;
}

static clt_status push(worker *w, const clt_async_message *deal, const clt_step_result *r,
                       int64_t version, const char *why)
{
    clt_async_message m = {.kind = CLT_MSG_PUSH,
                           .number = r->finite != 0,
                           .who = w->wires.who,
                           .sequence = w->sequence,
                           .lease = deal->lease,
                           .version = version,
                           .loss = r->loss,
                           .squares = r->norm * r->norm};
    size_t bytes = 0;
    snprintf(m.text, sizeof m.text, "%s", why);
    if (r->finite) {
        CLT_TRY(read_gradient(w));
        CLT_TRY(stage_gradient(w));
        bytes = pack_gradient(w, 0);
        CLT_TRY(add_states(w, w->message + bytes / sizeof *w->message));
        bytes += (size_t)w->layout.state_elements * sizeof *w->message;
    }
#ifdef CLT_TESTING
    bytes = is_malformed(w) ? bytes / 2 : bytes;
#endif
    CLT_TRY(clt_wires_send(&w->wires, 0, &m, w->message, bytes));
    CLT_TRY(clt_wires_await(&w->wires, &w->wires.decided, 0));
    const clt_async_message answer = w->wires.decided.m;
    clt_wires_take(&w->wires.decided);
    if (answer.sequence != m.sequence)
        return clt_fail(CLT_FORMAT, "worker %d: holder 0 answers gradient %lld instead of %lld",
                        w->options->number, (long long)answer.sequence, (long long)m.sequence);
    w->decided = answer.version;
    w->worked.applied += answer.number == CLT_PUSH_APPLIED;
    w->worked.discarded += answer.number == CLT_PUSH_DISCARDED;
    w->worked.nonfinite += answer.number == CLT_PUSH_NONFINITE;
    w->worked.samples += answer.number == CLT_PUSH_APPLIED ? deal->count : 0;
    return CLT_OK;
}

/* --- computing ------------------------------------------------------------------------------ */

#ifdef CLT_TESTING
/* CLT_TESTING_SLOW_WORKER=K:F makes worker K F times slower. */
static void be_slow(const worker *w, double seconds)
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
static clt_status compute(worker *w, const clt_async_message *deal, clt_source_batch *batch,
                          clt_step_result *result, char *why, size_t room)
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

static clt_status ask(worker *w)
{
    const clt_async_message m = {.kind = CLT_MSG_ASK, .who = w->wires.who};
    w->asked = true;
    return clt_wires_send(&w->wires, 0, &m, NULL, 0);
}

/* Gets the next batch. *end: there are no more. */
static clt_status next_deal(worker *w, clt_async_message *deal, bool *end)
{
    for (;;) {
        if (!w->asked)
            CLT_TRY(ask(w));
        CLT_TRY(clt_wires_await(&w->wires, &w->wires.deal, 0));
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
static clt_status find_rows(worker *w, const clt_source_batch *batch)
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
            if (strcmp(feed->name, t->indices) || !feed->host)
                continue;
            const int part = w->trainer->shares.part[feed->device];
            const int64_t more = (offsets[part + 1] - offsets[part]) * each;
            memcpy(all + count, feed->host, (size_t)more * sizeof *all);
            count += more;
        }
        const clt_status status = clt_async_rows_make(t, all, count, &w->rows.of[p]);
        clt_free(all);
        CLT_TRY(status);
    }
    return CLT_OK;
}

static bool has_tables(const worker *w)
{
    for (int p = 0; p < w->layout.n_parameters; p++)
        if (w->layout.parameters[p].width)
            return true;
    return false;
}

/* Pulls, computes and pushes for one batch. The next batch is asked for meanwhile. */
static clt_status work_once(worker *w, const clt_async_message *deal)
{
    const clt_travels what = w->complete ? CLT_TRAVELS_TRAINED : CLT_TRAVELS_ALL;
    const bool early = !has_tables(w); /* the batch need not be there to know what to pull */
    clt_source_batch batch;
    clt_step_result result;
    char why[512];
    int64_t version = 0;
    CLT_TRY(clt_source_deal(w->source, deal->epoch, deal->offset, deal->count));
    if (early)
        CLT_TRY(ask_parameters(w, what));
    CLT_TRY(clt_source_next(w->source, &batch));
    if (!early) {
        CLT_TRY(find_rows(w, &batch));
        CLT_TRY(ask_parameters(w, what));
    }
    CLT_TRY(take_parameters(w, what, &version));
    w->complete = true;
    CLT_TRY(ask(w));
#ifdef CLT_TESTING
    const double began = clt_clock();
#endif
    clt_status status = compute(w, deal, &batch, &result, why, sizeof why);
#ifdef CLT_TESTING
    be_slow(w, clt_clock() - began);
#endif
    CLT_NEXT(status, push(w, deal, &result, version, why));
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
    if (clt_dataset_kind(train) == CLT_DATA_DEVICE)
        return clt_fail(CLT_UNSUPPORTED,
                        "asynchronous training reads data in host memory, and "
                        "data set '%s' is in device memory",
                        clt_dataset_name(train));
    return CLT_OK;
}

/* Holders update all parameters that are not frozen, so each needs a gradient. */
static clt_status find_slots(worker *w)
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

static clt_status prepare(worker *w, clt_dataset *train)
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
    uint64_t hash;
    CLT_TRY(clt_async_worker_hash(&w->layout, t->reads, t->options.precision, train, w->batch,
                                  w->fit, &hash));
    return clt_wires_open(&w->wires, w->options, hash);
}

static clt_status work(worker *w, clt_dataset *train)
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
    const clt_async_message bye = {.kind = CLT_MSG_BYE, .who = w->wires.who};
    return clt_wires_send(&w->wires, 0, &bye, NULL, 0);
}

clt_status clt_async_work(clt_trainer *trainer, clt_dataset *train, const clt_fit_options *fit,
                          const clt_async_options *async, clt_async_worked *worked)
{
    worker w = {.trainer = trainer, .fit = fit, .options = async};
    const double began = clt_clock();
    CLT_TRY(check(trainer, train, async));
    clt_async_worked_init(&w.worked);
    clt_status status = prepare(&w, train);
    CLT_NEXT(status, work(&w, train));
    char message[1024];
    snprintf(message, sizeof message, "%s", clt_error_message());
    clt_trainer_wait(trainer); /* ends transfers from the loader's memory */
    clt_source_destroy(w.source);
    clt_wires_close(&w.wires);
    clt_rows_free(&w.rows);
    clt_async_layout_free(&w.layout);
    CLT_FREE(w.slots, w.line, w.states, w.message);
    w.worked.seconds = clt_clock() - began;
    if (worked)
        *worked = w.worked;
    if (status != CLT_OK)
        clt_error_restore(message);
    return status;
}
