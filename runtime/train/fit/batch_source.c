#include "train/fit/batch_source.h"

#include "base/alloc.h"
#include "base/thread.h"
#include "data/loader/loader.h"
#include "device/core/shared.h"
#include "ops/loss/loss.h"
#include "train/core/buffers.h"
#include "train/fit/draws.h"

/* Two batches are assembled while steps are queued. Devices gather into two places in turn. The
 * place is the slot's number modulo TURNS, so the number of slots must be even. */
enum { AHEAD = 2, MOST_SLOTS = CLT_MOST_QUEUED + AHEAD, TURNS = 2, MAX_INPUTS = 16 };

/* Only steps with little input are short enough for a long queue. */
enum { LITTLE_INPUT = 128 << 10 };

struct clt_source {
    clt_loader *loader;
    int n_devices, n_outputs, n_images;
    int slots;
    const clt_shares *shares;      /* which part of a batch each device has */
    int first;                     /* first part of a batch that belongs to this rank */
    int64_t *offsets;              /* [slot][part, and the end]: offsets of this rank's samples */
    const char *names[MAX_INPUTS]; /* names of the outputs, owned by the plan */
    clt_feed *feeds;               /* [slot][device][output] */
    double loss_weight[MOST_SLOTS];
    bool weighted; /* the loader can know the weight of the only loss */
    bool knew;     /* the loader knew the weight for the last batch */

    /* Memory of all slots that the only device reads in place; zeros: samples are uploaded. */
    clt_shared shared;

    /* For a data set of buffers, the loader delivers only sample numbers, and devices gather the
     * samples. */
    bool on_devices;
    clt_session *session;
    clt_gather gather;
    clt_device_gather **gathers; /* by device; NULL: the device gets no samples */

    /* For a reservoir, there is no loader, and `gather` says what to draw. */
    clt_draws *draws;
};

static clt_status check_field(const clt_dataset *dataset, int field, const clt_value *input)
{
    clt_dtype dtype;
    int rank;
    int64_t shape[CLT_DATA_MAX_RANK], bytes;
    CLT_TRY(clt_dataset_field_info(dataset, field, NULL, &dtype, &rank, shape, &bytes));
    if (bytes / clt_dtype_size(dtype) == clt_type_coefficient(&input->type))
        return CLT_OK;
    char text[CLT_TYPE_TEXT];
    return clt_fail(CLT_SHAPE, "input %s is %s; a sample of %s has %lld elements there",
                    input->name, clt_type_text(&input->type, text), clt_dataset_name(dataset),
                    (long long)(bytes / clt_dtype_size(dtype)));
}

static clt_status add_output(clt_source *s, const char *field, clt_dtype dtype, int *output)
{
    return !s->loader || s->on_devices ? clt_gather_add(&s->gather, field, dtype, output)
                                       : clt_loader_add_output(s->loader, field, dtype, output);
}

static clt_status normalize(clt_source *s, int output, double divisor,
                            const clt_fit_options *options)
{
    const int channels = options->channels;
    return !s->loader || s->on_devices ? clt_gather_normalize(&s->gather, output, divisor, channels,
                                                              options->mean, options->std)
                                       : clt_loader_normalize(s->loader, output, divisor, channels,
                                                              options->mean, options->std);
}

/* Lets the loader count the labels that determine the weight of the only loss. */
static clt_status set_labels(clt_source *s, const clt_fit_options *options, const clt_graph *graph,
                             const clt_value *input, int output)
{
    int ignored = 0;
    const bool ignores = options->ignore_index != INT64_MIN;
    const clt_value *targets =
        graph->n_losses == 1 ? clt_loss_targets(&graph->losses[0], &ignored) : NULL;
    const int64_t ignore = targets ? ignored : options->ignore_index;
    if (targets && targets != input)
        return CLT_OK;
    /* Other weights of the only loss than a number for each sample are found on the devices. The
     * trainer counts drawn labels itself. */
    s->weighted =
        s->loader && (targets || (graph->n_losses == 1 && clt_type_coefficient(&input->type) == 1 &&
                                  clt_graph_sample_weight(&graph->losses[0]) > 0));
    return s->loader
               ? clt_loader_set_labels(s->loader, output, targets || ignores ? &ignore : NULL)
               : clt_gather_set_labels(&s->gather, output, targets || ignores ? &ignore : NULL);
}

static clt_status add_input(clt_source *s, const clt_dataset *dataset,
                            const clt_fit_options *options, const clt_graph *graph,
                            const clt_value *input)
{
    int field, output;
    clt_dtype dtype;
    if (s->n_outputs == MAX_INPUTS)
        return clt_fail(CLT_UNSUPPORTED, "a graph fed by a data set has %d inputs at most",
                        MAX_INPUTS);
    clt_status status = clt_dataset_find_field(dataset, input->name, &field);
    if (status != CLT_OK)
        return clt_fail_prefix(status, "input %s of the graph: ", input->name);
    CLT_TRY(check_field(dataset, field, input));
    CLT_TRY(clt_dataset_field_info(dataset, field, NULL, &dtype, NULL, NULL, NULL));
    CLT_TRY(add_output(s, input->name, input->type.dtype, &output));
    s->names[s->n_outputs++] = input->name;
    if (options->channels && clt_dataset_is_image(dataset, field) && input->type.dtype == CLT_F32) {
        CLT_TRY(normalize(s, output, dtype == CLT_U8 ? 255 : 1, options));
        s->n_images++;
    }
    /* The host cannot read labels that are on devices, so devices compute the weight. */
    if (!s->on_devices && input->type.dtype == CLT_I32 && clt_dataset_classes(dataset, field) > 0)
        return set_labels(s, options, graph, input, output);
    return CLT_OK;
}

static int64_t output_bytes(const clt_source *s, int output)
{
    const int64_t samples = clt_loader_capacity(s->loader, s->shares->part[0]);
    const int64_t bytes = samples * clt_loader_output_bytes(s->loader, output);
    return (bytes + CLT_TENSOR_ALIGN - 1) / CLT_TENSOR_ALIGN * CLT_TENSOR_ALIGN;
}

/* An upload costs a short step more than the copy: another command. */
static clt_status share_memory(clt_source *s)
{
    clt_device *device = s->session->devices[0].device;
    int64_t bytes = 0, at = 0;
    if (s->slots == 2 + AHEAD || !clt_shared_supported(device))
        return CLT_OK;
    for (int o = 0; o < s->n_outputs; o++)
        bytes += s->slots * output_bytes(s, o);
    if (!bytes)
        return CLT_OK;
    CLT_TRY(clt_shared_create(device, bytes, "batches", &s->shared));
    for (int slot = 0; slot < s->slots; slot++)
        for (int o = 0; o < s->n_outputs; at += output_bytes(s, o++))
            CLT_TRY(clt_loader_set_memory(s->loader, slot, s->shares->part[0], o,
                                          (char *)s->shared.data + at));
    return CLT_OK;
}

static void feed_in_place(const clt_source *s, clt_feed *feed)
{
    feed->array.offset = (char *)feed->array.host - (char *)s->shared.data;
    feed->array.host = NULL;
    feed->array.buffer = s->shared.buffer;
}

static clt_status make_feeds(clt_source *s)
{
    s->feeds = clt_calloc((size_t)(s->slots * s->n_devices * s->n_outputs) + 1, sizeof *s->feeds);
    s->offsets = clt_calloc((size_t)s->slots * (size_t)(s->shares->parts + 1), sizeof *s->offsets);
    CLT_TRY_MEMORY(s->feeds && s->offsets);
    clt_feed *feed = s->feeds;
    for (int slot = 0; slot < s->slots; slot++)
        for (int d = 0; d < s->n_devices; d++)
            for (int o = 0; o < s->n_outputs; o++, feed++) {
                *feed = (clt_feed){
                    .name = s->names[o],
                    .device = d,
                    .array = CLT_HOST(clt_loader_memory(s->loader, slot, s->shares->part[d], o))};
                if (s->on_devices && s->gathers[d])
                    feed->array.buffer = clt_device_gather_buffer(s->gathers[d], slot % TURNS, o);
                if (s->shared.data)
                    feed_in_place(s, feed);
            }
    return CLT_OK;
}

static clt_status make_gathers(clt_source *s)
{
    s->gathers = clt_calloc((size_t)s->n_devices, sizeof(clt_device_gather *));
    CLT_TRY_MEMORY(s->gathers);
    for (int d = 0; d < s->n_devices; d++) {
        const int64_t samples = clt_loader_capacity(s->loader, s->shares->part[d]);
        if (samples)
            CLT_TRY(clt_buffers_gather(&s->gather, s->session->devices[d].device, samples,
                                       &s->gathers[d]));
    }
    return CLT_OK;
}

/* The batches of a loader: from `start` on, before `end_epoch`; or those that are dealt, or
 * claimed. */
typedef struct course {
    clt_position start;
    int64_t end_epoch;
    bool dealt;
    bool queued;                /* more steps than usual may be queued */
    clt_loader_claim_fn claims; /* NULL: none */
    void *claims_user;
} course;

/* Adds all inputs of the graph as outputs of loader or gather. */
static clt_status add_inputs(clt_source *s, const clt_dataset *dataset,
                             const clt_fit_options *options, const clt_graph *graph)
{
    for (int i = 0; i < graph->n_values; i++)
        if (graph->values[i]->kind == CLT_VALUE_INPUT && !graph->values[i]->output_gradient)
            CLT_TRY(add_input(s, dataset, options, graph, graph->values[i]));
    if (options->channels && !s->n_images)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "data set '%s': mean and std are given, but no f32 input of the graph "
                        "takes a field of images (clt_dataset_set_image)",
                        clt_dataset_name(dataset));
    return CLT_OK;
}

static int queue_of(const clt_participants *all, const clt_graph *graph, const clt_dataset *dataset,
                    const clt_fit_options *options, int64_t batch)
{
    int64_t bytes = 0;
    for (int i = 0; i < graph->n_values; i++)
        if (graph->values[i]->kind == CLT_VALUE_INPUT)
            bytes += clt_session_input_bytes(graph->values[i], batch);
    const bool one = all->total == 1 && clt_dataset_kind(dataset) != CLT_DATA_DEVICE;
    const bool hooks = options->on_step_begin || options->on_gradients;
    return one && !hooks && bytes <= LITTLE_INPUT && options->queued_steps > 2
               ? options->queued_steps
               : 2;
}

/* Devices that share the host's processors wait for each other in every step. A thread that
 * assembles a batch takes time from one of them, so there are as many threads as such devices. */
static int loader_threads(const clt_session *session)
{
    enum { MOST = 8 }; /* copying from memory needs no more, see loader.c */
    const int processors = clt_processors(), most = processors < MOST ? processors : MOST;
    int n = 0;
    for (int d = 0; d < session->n_devices; d++)
        n += clt_caps_is_cpu(&session->devices[d].device->caps);
    return n < 1 ? 1 : n < most ? n : most;
}

static clt_status create(const clt_participants *all, const clt_shares *shares,
                         clt_session *session, clt_dataset *dataset, const clt_fit_options *options,
                         int64_t batch, int64_t seed, const course *c, clt_source **out)
{
    clt_source *s = CLT_NEW(clt_source);
    CLT_TRY_MEMORY(s);
    s->n_devices = all->own;
    s->shares = shares;
    s->first = all->first_part;
    s->on_devices = clt_dataset_kind(dataset) == CLT_DATA_DEVICE;
    s->session = session;
    clt_gather_init(&s->gather, dataset);
    clt_loader_desc desc;
    clt_loader_desc_init(&desc);
    desc.dataset = dataset;
    desc.batch = batch;
    desc.seed = seed;
    desc.shuffle = options->shuffle;
    desc.drop_last = options->drop_last;
    desc.epoch = c->start.epoch;
    desc.offset = c->start.sample;
    desc.end_epoch = c->end_epoch;
    desc.parts = clt_participants_parts(all);
    desc.first_part = s->first;
    desc.local_parts = shares->parts;
    desc.weights = shares->weights;
    desc.quantum = shares->quantum;
    desc.bounds = shares->bounds;
    s->slots = AHEAD + (c->queued ? queue_of(all, session->graph, dataset, options, batch) : 2);
    desc.slots = s->slots;
    if (s->on_devices)
        desc.max_threads = 1; /* one thread suffices for sample numbers */
    else
        desc.min_threads = loader_threads(session);
    const clt_graph *graph = session->graph; /* stages of a pipeline read different inputs */
    clt_status status = clt_loader_create(&desc, &s->loader);
    CLT_NEXT(status, add_inputs(s, dataset, options, graph));
    if (status == CLT_OK && s->on_devices)
        status = make_gathers(s);
    if (status == CLT_OK)
        s->loader->dealt = c->dealt;
    if (status == CLT_OK && c->claims)
        clt_loader_set_claims(s->loader, c->claims, c->claims_user);
    CLT_NEXT(status, share_memory(s));
    CLT_NEXT(status, clt_loader_start(s->loader));
    CLT_NEXT(status, make_feeds(s));
    if (status != CLT_OK) {
        clt_source_destroy(s);
        return status;
    }
    *out = s;
    return CLT_OK;
}

clt_status clt_source_create(const clt_participants *all, const clt_shares *shares,
                             clt_session *session, clt_dataset *dataset,
                             const clt_fit_options *options, int64_t batch, int64_t seed,
                             clt_position start, int64_t end_epoch, clt_source **out)
{
    const course c = {.start = start, .end_epoch = end_epoch};
    return create(all, shares, session, dataset, options, batch, seed, &c, out);
}

clt_status clt_source_create_queued(clt_trainer *t, clt_dataset *dataset,
                                    const clt_fit_options *options, int64_t batch, int64_t seed,
                                    clt_position start, clt_source **out)
{
    const course c = {.start = start, .queued = true};
    return create(&t->all, &t->shares, t->training, dataset, options, batch, seed, &c, out);
}

clt_status clt_source_create_dealt(const clt_participants *all, const clt_shares *shares,
                                   clt_session *session, clt_dataset *dataset,
                                   const clt_fit_options *options, int64_t batch, int64_t seed,
                                   clt_source **out)
{
    const course c = {.dealt = true};
    return create(all, shares, session, dataset, options, batch, seed, &c, out);
}

clt_status clt_source_create_claimed(const clt_participants *all, const clt_shares *shares,
                                     clt_session *session, clt_dataset *dataset,
                                     const clt_fit_options *options, int64_t batch, int64_t seed,
                                     clt_loader_claim_fn claims, void *user, clt_source **out)
{
    const course c = {.claims = claims, .claims_user = user};
    return create(all, shares, session, dataset, options, batch, seed, &c, out);
}

clt_status clt_source_create_drawn(clt_trainer *t, clt_dataset *reservoir,
                                   const clt_fit_options *options, int64_t batch, uint64_t seed,
                                   bool wait, int64_t end, clt_source **out)
{
    CLT_TRY(clt_draws_check(t, reservoir));
    clt_source *s = CLT_NEW(clt_source);
    CLT_TRY_MEMORY(s);
    clt_gather_init(&s->gather, reservoir);
    clt_status status = add_inputs(s, reservoir, options, t->training->graph);
    /* The graph's own names end with the session. */
    for (int o = 0; o < s->n_outputs && status == CLT_OK; o++)
        s->names[o] = reservoir->fields[s->gather.outputs[o].field].name;
    CLT_NEXT(status,
             clt_draws_create(t, &s->gather, s->names, options, batch, seed, wait, end, &s->draws));
    if (status != CLT_OK) {
        clt_source_destroy(s);
        return status;
    }
    *out = s;
    return CLT_OK;
}

int clt_source_queue(const clt_source *s)
{
    return s->draws ? 2 : s->slots - AHEAD;
}

int64_t clt_source_number(const clt_source *s, int slot, int64_t sample)
{
    return s->draws ? clt_draws_number(s->draws, slot, sample - clt_draws_first(s->draws)) : 0;
}

clt_status clt_source_deal(clt_source *s, int64_t epoch, int64_t offset, int64_t count)
{
    return clt_loader_deal(s->loader, epoch, offset, count);
}

void clt_source_destroy(clt_source *s)
{
    if (!s)
        return;
    if (s->on_devices || s->shared.data) /* later diagnosis must not read these buffers */
        clt_session_forget_buffers(s->session);
    for (int d = 0; s->gathers && d < s->n_devices; d++)
        clt_device_gather_destroy(s->gathers[d]);
    clt_draws_destroy(s->draws);
    clt_free(s->gathers);
    clt_gather_free(&s->gather);
    clt_loader_free(s->loader);
    clt_shared_destroy(&s->shared);
    CLT_FREE(s->feeds, s->offsets, s);
}

/* Enqueues the gathering of a batch on the queues of its step. The devices' threads are idle
 * between steps, so this thread may enqueue. */
static clt_status gather(clt_source *s, const clt_batch *batch, const int64_t *offsets)
{
    for (int d = 0; d < s->n_devices; d++) {
        const int part = s->shares->part[d];
        const int64_t begin = offsets[part], count = offsets[part + 1] - begin;
        if (count)
            CLT_TRY(clt_device_gather_enqueue(s->gathers[d], batch->slot % TURNS,
                                              batch->indices + begin, count));
    }
    return CLT_OK;
}

clt_status clt_source_next(clt_source *s, clt_source_batch *out)
{
    clt_batch batch = {.struct_size = sizeof batch};
    if (s->draws)
        return clt_draws_next(s->draws, out);
    CLT_TRY(clt_loader_next(s->loader, &batch));
    *out = (clt_source_batch){.slot = batch.slot,
                              .last_of_epoch = batch.last_of_epoch != 0,
                              .epoch = batch.epoch,
                              .next_epoch = batch.next_epoch,
                              .next_sample = batch.next_offset};
    clt_step_batch_init(&out->step);
    if (batch.slot < 0)
        return CLT_OK;
    const int parts = s->shares->parts;
    int64_t *offsets = s->offsets + batch.slot * (parts + 1);
    for (int i = 0; i <= parts; i++)
        offsets[i] = batch.offsets[s->first + i] - batch.offsets[s->first];
    if (s->on_devices)
        CLT_TRY(gather(s, &batch, offsets));
    out->step.first = batch.offsets[s->first];
    out->step.total = batch.count;
    out->step.count = offsets[parts];
    out->step.offsets = offsets;
    out->step.feeds = s->feeds + batch.slot * s->n_devices * s->n_outputs;
    out->step.n_feeds = s->n_devices * s->n_outputs;
    s->knew = s->weighted && batch.weight >= 0;
    if (s->knew) {
        s->loss_weight[batch.slot] = (double)batch.weight;
        out->step.loss_weights = &s->loss_weight[batch.slot];
    }
    return CLT_OK;
}

/* Ranks that know the weight of a loss do not exchange it, so this rank must not start an exchange.
 */
void clt_source_none(clt_source *s, int64_t total, clt_step_batch *batch)
{
    static const double any = 1;
    clt_step_batch_init(batch);
    batch->total = total;
    batch->loss_weights = s->knew ? &any : NULL;
}

void clt_source_ask_again(clt_source *s)
{
    clt_loader_ask_again(s->loader);
}

clt_status clt_source_release(clt_source *s, int slot)
{
    return s->draws ? CLT_OK : clt_loader_release(s->loader, slot);
}

double clt_source_waited(const clt_source *s)
{
    clt_loader_stats stats = {.struct_size = sizeof stats};
    if (s->draws)
        return clt_draws_waited(s->draws);
    return clt_loader_get_stats(s->loader, &stats) == CLT_OK ? stats.wait_seconds : 0;
}
