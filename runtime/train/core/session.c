#include "train/core/session.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "train/core/kept.h"
#include "train/core/packed.h"

enum { UPSTREAM_BYTES = 256 };

static int64_t entry_floats(const clt_session *s)
{
    return (int64_t)s->places * s->n_means * 2;
}

/* A graph may have no results. */
static int64_t results_bytes(const clt_session *s)
{
    return entry_floats(s) * CLT_RESULT_RING * (int64_t)sizeof(float) + 16;
}

int64_t clt_session_bytes(int means, int64_t places, bool shared)
{
    const clt_session s = {.places = (int)places, .n_means = means};
    return results_bytes(&s) * (shared ? 2 : 1) + UPSTREAM_BYTES;
}

static clt_status make_inputs(clt_session_device *d, int n_losses)
{
    const clt_plan *plan = d->plan;
    const size_t n = (size_t)plan->n_inputs + 1;
    d->views = clt_calloc(n, sizeof *d->views);
    d->buffers[0] = clt_calloc(n, sizeof(cl_mem));
    d->buffers[1] = clt_calloc(n, sizeof(cl_mem));
    d->fed[0] = clt_calloc(n, sizeof *d->fed[0]);
    d->fed[1] = clt_calloc(n, sizeof *d->fed[1]);
    d->upstream_input = clt_calloc((size_t)n_losses + 1, sizeof *d->upstream_input);
    CLT_TRY_MEMORY(d->views && d->buffers[0] && d->buffers[1] && d->fed[0] && d->fed[1] &&
                   d->upstream_input);
    for (int l = 0; l < n_losses; l++) {
        d->upstream_input[l] = -1;
        for (int i = 0; i < plan->n_inputs; i++)
            if (plan->inputs[i] == plan->graph->losses[l].upstream) {
                d->upstream_input[l] = i;
                d->views[i] = (clt_view){d->upstream, l * (int64_t)sizeof(float)};
            }
    }
    return CLT_OK;
}

/* The host reads results in place if it can: a transfer takes long beside a short step. */
static clt_status make_results(const clt_session *s, clt_session_device *d)
{
    const int64_t bytes = results_bytes(s);
    if (!s->shared && clt_shared_supported(d->device)) {
        CLT_TRY(clt_shared_create(d->device, bytes, "results", &d->memory));
        d->results = d->memory.buffer;
        d->staging = d->memory.data;
        memset(d->staging, 0, (size_t)bytes);
        return CLT_OK;
    }
    d->staging = clt_alloc_pages((size_t)bytes);
    CLT_TRY_MEMORY(d->staging);
    return clt_device_buffer_create(d->device, bytes, CL_MEM_READ_WRITE, "results", &d->results);
}

static clt_status make_device(clt_session *s, int index, const clt_graph *graph,
                              const clt_plan_options *options, const clt_tuning_record *record)
{
    clt_session_device *d = &s->devices[index];
    d->device = s->store->replicas[index].device;
    d->max_micro_batches = s->max_micro_batches;
    for (int i = 0; i < index && !d->plan; i++)
        if (clt_store_same_plan(s->store, i, index))
            d->plan = s->devices[i].plan;
    if (!d->plan) {
        clt_plan_options own = *options;
        clt_store_place(s->store, index, &own);
        CLT_TRY(clt_plan_create(graph, s->store->replicas[index].layout, &d->device->caps, record,
                                &own, &d->plan));
        d->owns_plan = true;
    }
    s->n_losses = d->plan->graph->n_losses;
    s->n_means = s->n_losses + d->plan->graph->n_metrics;
    const int64_t bytes = results_bytes(s);
    CLT_TRY(make_results(s, d));
    if (s->shared)
        CLT_TRY(clt_device_buffer_create(d->device, bytes, CL_MEM_READ_WRITE,
                                         "results of all ranks", &d->totals));
    CLT_TRY(clt_device_buffer_create(d->device, UPSTREAM_BYTES, CL_MEM_READ_WRITE,
                                     "upstream of losses", &d->upstream));
    if (s->n_losses > 64)
        return clt_fail(CLT_UNSUPPORTED, "a graph may have 64 losses, not %d", s->n_losses);
    d->known = clt_calloc((size_t)s->n_losses + 1, sizeof *d->known);
    CLT_TRY_MEMORY(d->known);
    for (int l = 0; l < s->n_losses; l++)
        d->known[l] = NAN;
    CLT_TRY(make_inputs(d, s->n_losses));
    if (!clt_store_owns(s->store, s->store->first + index)) /* owners have no samples */
        CLT_TRY(clt_kept_create(d));
    return clt_exec_create(d->device, d->plan, &s->store->replicas[index], &s->store->arenas[index],
                           &d->exec);
}

clt_status clt_session_create(const clt_graph *graph, clt_store *store,
                              const clt_plan_options *options, const int64_t *arena_limits,
                              const clt_tuning_record *const *records, int max_micro_batches,
                              bool shared, clt_session **out)
{
    clt_session *s = CLT_NEW(clt_session);
    CLT_TRY_MEMORY(s);
    s->store = store;
    s->graph = graph;
    s->max_micro_batches = max_micro_batches;
    s->places = options->virtual_shards ? (int)options->virtual_shards : max_micro_batches;
    s->shared = shared;
    s->devices = clt_calloc((size_t)store->n_devices, sizeof *s->devices);
    s->coefficients = clt_calloc((size_t)graph->n_losses + 1, sizeof *s->coefficients);
    clt_status status = s->devices && s->coefficients ? CLT_OK : CLT_OUT_OF_MEMORY;
    for (int i = 0; status == CLT_OK && i < graph->n_losses; i++)
        s->coefficients[i] = graph->losses[i].coefficient;
    for (int i = 0; status == CLT_OK && i < store->n_devices; i++) {
        s->n_devices = i + 1;
        clt_plan_options own = *options;
        own.arena_limit = arena_limits ? arena_limits[i] : 0;
        status = make_device(s, i, graph, &own, records[i]);
        if (status != CLT_OK)
            clt_fail_prefix(status, "%s: ", store->replicas[i].device->label);
    }
    if (status != CLT_OK) {
        clt_session_destroy(s);
        return status;
    }
    *out = s;
    return CLT_OK;
}

static void destroy_device(clt_session_device *d)
{
    for (int i = 0; i < CLT_RESULT_RING; i++)
        clt_release_event(d->read[i]);
    clt_exec_destroy(d->exec);
    clt_kept_free(d);
    for (int p = 0; p < 2; p++) {
        for (int i = 0; d->buffers[p] && i < d->plan->n_inputs; i++)
            clt_release_buffer(d->buffers[p][i]);
        CLT_FREE(d->buffers[p], d->fed[p]);
    }
    clt_release_buffer(d->upstream);
    clt_release_buffer(d->totals);
    if (!d->memory.data) {
        clt_release_buffer(d->results);
        clt_free(d->staging);
    }
    clt_shared_destroy(&d->memory);
    CLT_FREE(d->views, d->known, d->upstream_input);
}

void clt_session_destroy(clt_session *s)
{
    if (!s)
        return;
    for (int i = 0; s->devices && i < s->n_devices; i++) {
        clt_device_finish(s->devices[i].device);
        destroy_device(&s->devices[i]);
    }
    for (int i = 0; s->devices && i < s->n_devices; i++)
        if (s->devices[i].owns_plan)
            clt_plan_destroy(s->devices[i].plan);
    for (int i = 0; i < CLT_PACKED_RING; i++) {
        clt_packed_free(&s->packed[i]);
        clt_packed_free(&s->packed_gradients[i]);
    }
    CLT_FREE(s->devices, s->coefficients, s);
}

/* --- losses --------------------------------------------------------------------------------- */

clt_status clt_session_upstream(clt_session *s, int device, const double *weights)
{
    clt_session_device *d = &s->devices[device];
    for (int l = 0; l < s->n_losses; l++) {
        const float value = weights[l] > 0 ? (float)(s->coefficients[l] / weights[l]) : 0.0f;
        if (d->known[l] == value)
            continue;
        CLT_TRY(clt_enqueue_value(d->device, (clt_view){d->upstream, l * (int64_t)sizeof value},
                                  &value, sizeof value));
        d->known[l] = value;
    }
    return CLT_OK;
}

bool clt_session_static_weights(const clt_session *s, int64_t count, double *weights)
{
    return clt_graph_static_weights(s->graph, count, weights);
}

double clt_graph_sample_weight(const clt_mean *loss)
{
    const clt_node *node = loss->weight->producer;
    return loss->each > 0 ? loss->each : node->op->weight ? node->op->weight(node) : 0;
}

bool clt_graph_static_weights(const clt_graph *graph, int64_t count, double *weights)
{
    for (int l = 0; l < graph->n_losses; l++) {
        const double each = clt_graph_sample_weight(&graph->losses[l]);
        if (each <= 0)
            return false;
        weights[l] = each * (double)count;
    }
    return true;
}

/* --- states ---------------------------------------------------------------------------------- */

clt_status clt_session_carry(clt_session *s, int device, const clt_run *run)
{
    const clt_session_device *d = &s->devices[device];
    const clt_graph *graph = d->plan->graph;
    for (int i = 0; i < graph->n_assigns; i++) {
        const clt_value *state = graph->assigns[i].state;
        clt_view from, to;
        CLT_TRY(clt_exec_locate(d->exec, run, graph->assigns[i].value, &from));
        CLT_TRY(clt_exec_locate(d->exec, run, state, &to));
        if (from.buffer != to.buffer || from.offset != to.offset)
            CLT_TRY(clt_enqueue_copy(d->device, from, to,
                                     clt_type_elements(&state->type, 0) *
                                         clt_dtype_size(state->type.dtype)));
    }
    return CLT_OK;
}

/* --- results -------------------------------------------------------------------------------- */

clt_view clt_session_results(const clt_session *s, int device, int entry, int micro)
{
    const int64_t floats = entry * entry_floats(s) + (int64_t)micro * s->n_means * 2;
    return (clt_view){s->devices[device].results, floats * (int64_t)sizeof(float)};
}

static clt_status clear_places(const clt_session *s, int device, int entry, int64_t first,
                               int64_t end)
{
    return first < end ? clt_enqueue_zeros(s->devices[device].device,
                                           clt_session_results(s, device, entry, (int)first),
                                           (end - first) * s->n_means * 2 * (int64_t)sizeof(float))
                       : CLT_OK;
}

clt_status clt_session_share(const clt_session *s, int device, int entry, const clt_share *share,
                             clt_collective *what)
{
    const clt_session_device *d = &s->devices[device];
    *what = (clt_collective){.buffer = d->results,
                             .offset = entry * entry_floats(s),
                             .count = entry_floats(s),
                             .out = d->totals,
                             .out_offset = entry * entry_floats(s),
                             .dtype = CLT_F32,
                             .empty = share->micro_batches == 0,
                             .label = "losses"};
    if (!share->micro_batches)
        return CLT_OK;
    CLT_TRY(clear_places(s, device, entry, 0, share->first_shard));
    return clear_places(s, device, entry, share->first_shard + share->micro_batches, s->places);
}

clt_status clt_session_read(clt_session *s, int device, int entry, const clt_share *share)
{
    clt_session_device *d = &s->devices[device];
    const int64_t at = entry * entry_floats(s) * (int64_t)sizeof(float);
    const int places = s->shared || share->shards ? s->places : share->micro_batches;
    d->micro_batches[entry] = share->micro_batches;
    if (d->memory.data) /* the read of the step status before has the event, if there was one */
        return d->read[entry]
                   ? CLT_OK
                   : clt_enqueue_download(d->device, (clt_view){0}, NULL, 0, &d->read[entry]);
    return clt_enqueue_download(
        d->device, (clt_view){s->shared ? d->totals : d->results, at}, (char *)d->staging + at,
        (int64_t)places * s->n_means * 2 * (int64_t)sizeof(float), &d->read[entry]);
}

clt_status clt_session_wait(clt_session *s, int device, int entry)
{
    clt_session_device *d = &s->devices[device];
    if (!d->read[entry])
        return CLT_OK;
    CLT_TRY(clt_device_wait(d->device, 1, &d->read[entry]));
    clt_release_event(d->read[entry]);
    d->read[entry] = NULL;
    return CLT_OK;
}

/* The results of a mean, number `index` with its sums and weights in sequence, over virtual shards
 * [first, end), in the order of the tree. Shards without samples have none. */
static double sum_of_shards(const clt_session *s, const clt_shares *shares, int entry, int index,
                            int64_t first, int64_t end)
{
    const int64_t all = shares->bounds[shares->all_parts], total = s->totals[entry];
    if (end > first + 1)
        return sum_of_shards(s, shares, entry, index, first, (first + end) / 2) +
               sum_of_shards(s, shares, entry, index, (first + end) / 2, end);
    int d = 0;
    while (!s->shared && first >= shares->bounds[shares->first_part + shares->part[d] + 1])
        d++;
    const float *values = s->devices[d].staging + entry * entry_floats(s);
    return clt_virtual_shard_begin(total, all, first) < clt_virtual_shard_begin(total, all, end)
               ? (double)values[first * s->n_means * 2 + index]
               : 0;
}

static clt_status collect_shards(clt_session *s, const clt_shares *shares, int entry, double *sums,
                                 double *weights)
{
    for (int i = 0; i < s->n_devices; i++) {
        s->failed = i;
        CLT_TRY(clt_session_wait(s, i, entry));
    }
    for (int j = 0; j < s->n_means; j++) {
        sums[j] += sum_of_shards(s, shares, entry, 2 * j, 0, s->places);
        weights[j] += sum_of_shards(s, shares, entry, 2 * j + 1, 0, s->places);
    }
    return CLT_OK;
}

clt_status clt_session_collect(clt_session *s, const clt_shares *shares, int entry, double *sums,
                               double *weights)
{
    if (shares->bounds)
        return collect_shards(s, shares, entry, sums, weights);
    for (int i = 0; i < s->n_devices; i++) {
        const clt_session_device *d = &s->devices[i];
        s->failed = i;
        CLT_TRY(clt_session_wait(s, i, entry));
        const float *values = d->staging + entry * entry_floats(s);
        /* Results that are summed over ranks already include all parts of the batch. */
        const int micro_batches = s->shared                   ? (i == 0 ? s->places : 0)
                                  : shares->counts_results[i] ? d->micro_batches[entry]
                                                              : 0;
        for (int m = 0; m < micro_batches; m++)
            for (int j = 0; j < s->n_means; j++, values += 2) {
                sums[j] += values[0];
                weights[j] += values[1];
            }
    }
    return CLT_OK;
}
