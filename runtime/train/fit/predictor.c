/* Predictors run plans that only compute outputs, on the devices of a store; see
 * <cltrain/predict.h>. */
#include "train/fit/predictor.h"

#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/vec.h"
#include "device/program/merge_source.h"
#include "train/core/packed.h"
#include "train/planner/frozen.h"
#include "train/step/graph_collectives.h"

CLT_STRUCT_INIT(clt_predictor_options, .batch = 1)

/* Whether the devices of a store, here and on other ranks, compute each sample together. */
static bool shares_samples(const clt_store *store)
{
    return store->mesh.zero ||
           (store->mesh.size[CLT_AXIS_DATA] && store->mesh.size[CLT_AXIS_DATA] != store->total);
}

static clt_status check(const clt_graph *graph, const clt_predictor_options *options)
{
    bool output = false;
    CLT_TRY(CLT_CHECK_STRUCT(options, clt_predictor_options));
    if (options->batch < 1)
        return clt_fail(CLT_INVALID_ARGUMENT, "a predictor needs a batch of at least 1, not %lld",
                        (long long)options->batch);
    CLT_TRY(clt_graph_status(graph));
    for (int i = 0; i < graph->n_values; i++)
        output = output || graph->values[i]->output;
    return output ? CLT_OK
                  : clt_fail(CLT_INVALID_ARGUMENT,
                             "the graph has no output: mark a value with clt_output");
}

static bool has_batch(const clt_graph *graph)
{
    for (int i = 0; i < graph->n_values; i++)
        if (graph->values[i]->kind == CLT_VALUE_INPUT &&
            clt_type_has_batch(&graph->values[i]->type))
            return true;
    return false;
}

/* Devices that divide the samples would carry different states. With zero 3 and without samples to
 * divide they all compute the same. */
static clt_status check_carried(const clt_predictor *p)
{
    const int parts = clt_participants_parts(&p->all);
    const bool same = parts == 1 || (p->all.mesh.zero && !has_batch(p->graph));
    for (int i = 0; !same && i < p->graph->n_values; i++)
        if (p->graph->values[i]->carried)
            return clt_fail(CLT_UNSUPPORTED,
                            "state %s is carried from run to run: that needs one device, or one "
                            "place of axis dp, and the store has %d",
                            p->graph->values[i]->name, parts);
    return CLT_OK;
}

/* --- inputs and outputs ---------------------------------------------------------------------- */

static bool is_read(const clt_plan *plan, const clt_value *input)
{
    for (int n = 0; n < plan->n_nodes; n++)
        for (int j = 0; j < plan->nodes[n].node->n_in; j++)
            if (plan->nodes[n].node->in[j] == input)
                return true;
    return input->output;
}

/* Adds the inputs of a plan that earlier plans do not read. Stages of a pipeline read others. */
static clt_status add_inputs(clt_predictor *p, const clt_plan *plan)
{
    for (int i = 0; i < plan->n_inputs; i++) {
        const clt_value *v = plan->inputs[i];
        bool known = false;
        for (int k = 0; k < p->n_inputs; k++)
            known = known || !strcmp(p->inputs[k]->name, v->name);
        if (!known && is_read(plan, v))
            CLT_TRY(CLT_PUSH(p->inputs, p->n_inputs, p->room_inputs, v));
    }
    return CLT_OK;
}

static clt_status list_values(clt_predictor *p)
{
    const clt_graph *graph = p->graph;
    for (int i = 0; i < graph->n_values; i++) {
        const clt_value *v = graph->values[i];
        if (v->output && v->name)
            CLT_TRY(CLT_PUSH(p->outputs, p->n_outputs, p->room_outputs, v));
    }
    /* A stage without inputs has the samples of the others. */
    p->has_batch = clt_store_stages(p->store) > 1 && has_batch(graph);
    for (int d = 0; d < p->all.own; d++)
        CLT_TRY(add_inputs(p, p->session->devices[d].plan));
    for (int i = 0; i < p->n_inputs; i++)
        p->has_batch = p->has_batch || clt_type_has_batch(&p->inputs[i]->type);
    return CLT_OK;
}

/* --- making ---------------------------------------------------------------------------------- */

/* Owners of the optimizer's state have no samples here either. Sets *parts to the number of other
 * places of dp. */
static clt_status leave_out_owners(clt_predictor *p, int *parts)
{
    const clt_store *store = p->store;
    const int all = *parts;
    if (!store->owners)
        return CLT_OK;
    p->shares.weights = clt_calloc((size_t)all, sizeof *p->shares.weights);
    CLT_TRY_MEMORY(p->shares.weights);
    for (int i = 0; i < all; i++) {
        const bool owns = clt_store_owns(store, store->first + i - p->all.first);
        p->shares.weights[i] = owns ? 0 : 1;
        *parts -= owns;
    }
    return CLT_OK;
}

static clt_status make_session(void *arg)
{
    clt_predictor *p = arg;
    int parts = clt_participants_parts(&p->all);
    p->shares = (clt_shares){.max_micro_batches = 1, .accumulate = 1, .quantum = 1};
    CLT_TRY(check_carried(p));
    CLT_TRY(clt_shares_create(&p->all, &p->shares));
    CLT_TRY(leave_out_owners(p, &parts));
    p->shares.per_run = (p->options.batch - 1) / parts + 1;
    clt_plan_options plan = clt_plan_options_default(CLT_PLAN_PREDICT, p->shares.per_run);
    plan.separate = p->options.separate != 0;
    plan.portable = p->options.portable != 0;
    plan.variants = p->options.variants;
    plan.carries = true;
    plan.merge = p->options.merge_launches;
    plan.merges = clt_merge_accepts_kernel;
    plan.several = clt_participants_parts(&p->all) > 1;
    return clt_session_create(p->graph, p->store, &plan, NULL, p->records, 1, false, &p->session);
}

static clt_status allocate(clt_predictor *p, const clt_graph *graph)
{
    const size_t n = (size_t)p->store->n_devices;
    p->tuning = clt_calloc(n, sizeof *p->tuning);
    p->records = clt_calloc(n, sizeof *p->records);
    CLT_TRY_MEMORY(p->tuning && p->records);
    for (size_t d = 0; d < n; d++) {
        clt_tuning_load(p->store->replicas[d].device, &p->tuning[d]);
        p->records[d] = &p->tuning[d];
    }
    return clt_graph_copy(graph, &p->graph);
}

/* Fails on all ranks if the predictors of two ranks differ. */
static clt_status compare(const clt_predictor *p)
{
    clt_str text = {0};
    const uint64_t batch = clt_hash(&p->options.batch, sizeof p->options.batch, 0);
    if (p->all.ranks == 1)
        return CLT_OK;
    clt_graph_dump(p->graph, &text);
    const uint64_t model = text.failed ? 0 : clt_hash_text(clt_str_text(&text), 0);
    clt_str_free(&text);
    CLT_TRY(clt_ranks_compare(p->all.world, model, "model"));
    CLT_TRY(clt_ranks_compare(p->all.world, batch, "batch of its predictor"));
    return clt_ranks_compare(p->all.world, clt_buckets_hash(&p->store->layout),
                             "layout of parameters");
}

/* Whether devices of this store meet in sums of the graph. */
static bool has_collectives(const clt_predictor *p)
{
    for (int d = 0; d < p->all.own; d++)
        if (p->session->devices[d].plan->n_collectives)
            return true;
    return false;
}

static clt_status build(clt_predictor *p, const clt_graph *graph)
{
    const clt_world *world = &p->store->world;
    bool alike;
    p->connected = shares_samples(p->store);
    p->all = (clt_participants){.ranks = 1, .own = p->store->n_devices};
    if (p->connected && world->ranks > 1) {
        p->all.world = world;
        p->all.rank = world->rank;
        p->all.ranks = world->ranks;
    }
    CLT_TRY(clt_participants_meet(&p->all, p->store, allocate(p, graph), &alike));
    CLT_TRY(clt_split_identities(&p->all, p->store));
    CLT_TRY(clt_split_check_kinds(&p->all, p->store));
    CLT_TRY(compare(p));
    CLT_TRY(clt_ranks_in_turns(p->all.world, make_session, p));
    if (!p->connected && has_collectives(p) && world->ranks > 1)
        return clt_fail(CLT_UNSUPPORTED, "an output depends on a sum over devices of all ranks: "
                                         "predict with clt_trainer_predict");
    p->connected = p->connected || has_collectives(p);
    CLT_TRY(clt_predictor_connect(p));
    return clt_world_agree(&p->all, list_values(p));
}

clt_status clt_predictor_create(const clt_graph *graph, clt_store *store,
                                const clt_predictor_options *options, clt_predictor **out)
{
    CLT_TRY(check(graph, options));
    CLT_TRY(clt_store_check_devices(store));
    clt_predictor *p = CLT_NEW(clt_predictor);
    CLT_TRY_MEMORY(p);
    p->store = store;
    p->options = *options;
    const clt_status status = build(p, graph);
    p->options.variants = NULL; /* belongs to the caller */
    if (status != CLT_OK) {
        clt_predictor_destroy(p);
        return status;
    }
    *out = p;
    return CLT_OK;
}

void clt_predictor_destroy(clt_predictor *p)
{
    if (!p)
        return;
    for (int d = 0; d < p->store->n_devices; d++)
        clt_device_finish(p->store->replicas[d].device);
    clt_predictor_disconnect(p);
    clt_session_destroy(p->session);
    for (int d = 0; p->tuning && d < p->store->n_devices; d++)
        clt_tuning_free(&p->tuning[d]);
    clt_shares_free(&p->shares);
    clt_participants_part(&p->all);
    clt_graph_destroy(p->graph);
    CLT_FREE(p->tuning, p->records, p->outputs, p->inputs, p);
}

/* --- runs ------------------------------------------------------------------------------------ */

static clt_status divide(clt_predictor *p, const clt_step_batch *batch)
{
    CLT_TRY(CLT_CHECK_STRUCT(batch, clt_step_batch));
    if (batch->count < 0 || batch->count > p->options.batch)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "a batch of %lld; the predictor was made for 0 to %lld",
                        (long long)batch->count, (long long)p->options.batch);
    if (!p->has_batch && batch->count > 1)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "a batch of %lld, but no input of the graph has a batch dimension: a run "
                        "counts as one sample",
                        (long long)batch->count);
    CLT_TRY(clt_session_divide(p->session, &p->all, batch, &p->shares));
    p->shares.counted = false;
    return CLT_OK;
}

clt_status clt_predictor_run(clt_predictor *p, const clt_step_batch *batch,
                             struct _cl_event **event)
{
    if (event && p->store->n_devices > 1)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "an event needs one device, and the store has %d: pass NULL",
                        p->store->n_devices);
    CLT_TRY(divide(p, batch));
    const int entry = (int)(p->runs % 2);
    p->call = (clt_call){
        .session = p->session, .batch = *batch, .entry = entry, .parity = entry, .step = p->runs};
    CLT_TRY(clt_shares_place(&p->shares, &p->all, &p->exchange.collectives, &p->call.batch));
    CLT_TRY(clt_segments_rounds(p->session, &p->all, &p->exchange, &p->shares));
    CLT_TRY(clt_packed_begin(p->session, &p->shares, entry, &p->call.batch));
    CLT_TRY(clt_predictor_run_devices(p));
    p->runs++;
    const clt_session_device *first = &p->session->devices[0];
    if (event)
        CLT_TRY(clt_event_share(first->device, first->read[entry], event));
    return clt_packed_end(p->session, entry);
}

clt_status clt_predictor_wait(clt_predictor *p)
{
    for (int d = 0; d < p->store->n_devices; d++)
        CLT_TRY(clt_device_finish(p->store->replicas[d].device));
    return CLT_OK;
}

static clt_status describe(const clt_value *const *values, int count, const char *what, int index,
                           const char **name, clt_dtype *dtype, int *rank, int64_t *dims)
{
    if (index < 0 || index >= count)
        return clt_fail(CLT_INVALID_ARGUMENT, "the predictor has no %s %d, only %d", what, index,
                        count);
    const clt_value *v = values[index];
    if (name)
        *name = v->name;
    if (dtype)
        *dtype = v->type.dtype;
    if (rank)
        *rank = v->type.rank;
    if (dims)
        memcpy(dims, v->type.dims, (size_t)v->type.rank * sizeof *dims);
    return CLT_OK;
}

int clt_predictor_output_count(const clt_predictor *p)
{
    return p->n_outputs;
}

clt_status clt_predictor_output(const clt_predictor *p, int index, const char **name,
                                clt_dtype *dtype, int *rank, int64_t *dims)
{
    return describe(p->outputs, p->n_outputs, "output", index, name, dtype, rank, dims);
}

int clt_predictor_input_count(const clt_predictor *p)
{
    return p->n_inputs;
}

clt_status clt_predictor_input(const clt_predictor *p, int index, const char **name,
                               clt_dtype *dtype, int *rank, int64_t *dims)
{
    return describe(p->inputs, p->n_inputs, "input", index, name, dtype, rank, dims);
}
