/* Predictors run plans that only compute outputs, on the devices of a store; see
 * <cltrain/predict.h>. */
#include <cltrain/predict.h>

#include <string.h>

#include "base/alloc.h"
#include "base/vec.h"
#include "device/program/tuning_file.h"
#include "train/program/check.h"
#include "train/step/interpret.h"

struct clt_predictor {
    clt_store *store;
    clt_session *session;
    clt_tuning_record *tuning;         /* by device */
    const clt_tuning_record **records; /* pointers to `tuning` */
    clt_participants all;
    clt_shares shares;
    clt_step_program *programs; /* two for each device: without samples, and with samples */
    int64_t batch, runs;
    bool poison, has_batch, carries;
    const clt_value **outputs, **inputs; /* values of the first device's plan */
    int n_outputs, room_outputs, n_inputs, room_inputs;
};

CLT_STRUCT_INIT(clt_predictor_options, .batch = 1)

static clt_status check(const clt_graph *graph, const clt_store *store,
                        const clt_predictor_options *options)
{
    bool output = false;
    CLT_TRY(CLT_CHECK_STRUCT(options, clt_predictor_options));
    if (options->batch < 1)
        return clt_fail(CLT_INVALID_ARGUMENT, "a predictor needs a batch of at least 1, not %lld",
                        (long long)options->batch);
    CLT_TRY(clt_graph_status(graph));
    for (int i = 0; i < graph->n_values; i++) {
        output = output || graph->values[i]->output;
        if (graph->values[i]->carried && store->n_devices > 1)
            return clt_fail(CLT_UNSUPPORTED,
                            "state %s is carried from run to run: that needs one device, the store "
                            "has %d",
                            graph->values[i]->name, store->n_devices);
    }
    return output ? CLT_OK
                  : clt_fail(CLT_INVALID_ARGUMENT,
                             "the graph has no output: mark a value with clt_output");
}

/* Lists the inputs and outputs of the first device's plan. */
static clt_status list_values(clt_predictor *p)
{
    const clt_plan *plan = p->session->devices[0].plan;
    for (int i = 0; i < plan->graph->n_values; i++) {
        const clt_value *v = plan->graph->values[i];
        if (v->output && v->name)
            CLT_TRY(CLT_PUSH(p->outputs, p->n_outputs, p->room_outputs, v));
        if (v->kind != CLT_VALUE_INPUT)
            continue;
        bool used = v->output;
        for (int n = 0; n < plan->n_nodes && !used; n++)
            for (int j = 0; j < plan->nodes[n].node->n_in; j++)
                used = used || plan->nodes[n].node->in[j] == v;
        if (used)
            CLT_TRY(CLT_PUSH(p->inputs, p->n_inputs, p->room_inputs, v));
        p->has_batch = p->has_batch || (used && clt_type_has_batch(&v->type));
    }
    p->carries = plan->graph->n_assigns > 0;
    return CLT_OK;
}

/* Devices of a predictor do not wait for each other, so collectives are refused. */
static clt_status refuse_collectives(const clt_predictor *p)
{
    const clt_plan *plan = p->session->devices[0].plan;
    return plan->n_collectives
               ? clt_fail(CLT_UNSUPPORTED,
                          "an output depends on %s, a sum over devices, of which the store has %d: "
                          "predict on one device, or with clt_trainer_predict",
                          plan->nodes[plan->collectives[0].node].node->name, p->store->n_devices)
               : CLT_OK;
}

/* Makes the programs of a device, which runs as if it were alone. */
static clt_status make_programs(clt_predictor *p, int d)
{
    clt_outline outline;
    clt_mesh alone;
    CLT_TRY(clt_mesh_parse(NULL, 1, &alone));
    clt_status status = clt_outline_create(p->session->devices[d].plan, &outline);
    const clt_step_program_input input = {.plan = &outline,
                                          .participants = 1,
                                          .ranks = 1,
                                          .mesh = alone,
                                          .layout = p->store->replicas[d].layout,
                                          .carries = true,
                                          .poison = p->poison};
    for (int rounds = 0; status == CLT_OK && rounds < 2; rounds++) {
        clt_step_program *program = &p->programs[2 * d + rounds];
        const clt_check_device device = {&input, program, rounds, rounds};
        status = clt_step_program_generate(&input, CLT_PROGRAM_OUTSIDE, clt_load_of(rounds, rounds),
                                           program);
        CLT_NEXT(status, clt_step_programs_check(CLT_PROGRAM_OUTSIDE, &device, 1, NULL));
    }
    clt_outline_free(&outline);
    return status;
}

static clt_status build(clt_predictor *p, const clt_graph *graph,
                        const clt_predictor_options *options)
{
    const size_t n = (size_t)p->store->n_devices;
    p->tuning = clt_calloc(n, sizeof *p->tuning);
    p->records = clt_calloc(n, sizeof *p->records);
    p->programs = clt_calloc(2 * n, sizeof *p->programs);
    CLT_TRY_MEMORY(p->tuning && p->records && p->programs);
    for (size_t d = 0; d < n; d++) {
        clt_tuning_load(p->store->replicas[d].device, &p->tuning[d]);
        p->records[d] = &p->tuning[d];
    }
    p->batch = options->batch;
    p->all = (clt_participants){.ranks = 1, .own = (int)n, .total = (int)n, .own_parts = (int)n};
    CLT_TRY(clt_mesh_parse(NULL, (int)n, &p->all.mesh));
    p->shares = (clt_shares){.per_run = (options->batch - 1) / (int64_t)n + 1,
                             .max_micro_batches = 1,
                             .accumulate = 1,
                             .quantum = 1};
    CLT_TRY(clt_shares_create(&p->all, &p->shares));
    p->poison = options->poison != 0;
    clt_plan_options plan = clt_plan_options_default(CLT_PLAN_PREDICT, p->shares.per_run);
    plan.separate = options->separate != 0;
    plan.portable = options->portable != 0;
    plan.variants = options->variants;
    plan.carries = true;
    plan.several = n > 1;
    CLT_TRY(clt_session_create(graph, p->store, &plan, p->records, 1, false, &p->session));
    CLT_TRY(refuse_collectives(p));
    for (int d = 0; d < p->store->n_devices; d++)
        CLT_TRY(make_programs(p, d));
    return list_values(p);
}

clt_status clt_predictor_create(const clt_graph *graph, clt_store *store,
                                const clt_predictor_options *options, clt_predictor **out)
{
    CLT_TRY(check(graph, store, options));
    clt_predictor *p = CLT_NEW(clt_predictor);
    CLT_TRY_MEMORY(p);
    p->store = store;
    const clt_status status = build(p, graph, options);
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
    clt_session_destroy(p->session);
    for (int d = 0; p->tuning && d < p->store->n_devices; d++)
        clt_tuning_free(&p->tuning[d]);
    for (int i = 0; p->programs && i < 2 * p->store->n_devices; i++)
        clt_step_program_free(&p->programs[i]);
    CLT_FREE(p->programs, p->tuning, p->records);
    clt_shares_free(&p->shares);
    CLT_FREE(p->outputs, p->inputs, p);
}

static clt_status divide(clt_predictor *p, const clt_step_batch *batch)
{
    CLT_TRY(CLT_CHECK_STRUCT(batch, clt_step_batch));
    if (batch->count < 0 || batch->count > p->batch)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "a batch of %lld; the predictor was made for 0 to %lld",
                        (long long)batch->count, (long long)p->batch);
    if (!p->has_batch && batch->count > 1)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "a batch of %lld, but no input of the graph has a batch dimension: a run "
                        "counts as one sample",
                        (long long)batch->count);
    return clt_session_divide(p->session, &p->all, batch, &p->shares);
}

static clt_status run_device(clt_predictor *p, int d, const clt_call *call)
{
    const clt_bound bound = {.device = d,
                             .replica = &p->store->replicas[d],
                             .arena = &p->store->arenas[d],
                             .call = call,
                             .share = clt_shares_device(&p->shares, d),
                             .leads = true};
    return clt_step_program_run(&bound, &p->programs[2 * d + bound.share.rounds]);
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
    const clt_call call = {
        .session = p->session, .batch = *batch, .entry = entry, .parity = entry, .step = p->runs};
    for (int d = 0; d < p->store->n_devices; d++) {
        const clt_status status = run_device(p, d, &call);
        if (status != CLT_OK)
            return clt_fail_prefix(status, "prediction: ");
    }
    p->runs++;
    const clt_session_device *first = &p->session->devices[0];
    return event ? clt_event_share(first->device, first->read[entry], event) : CLT_OK;
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
