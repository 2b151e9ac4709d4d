#include "train/setup/explain.h"

#include "base/alloc.h"
#include "base/error.h"
#include "train/setup/capacity.h"
#include "train/setup/exchanged.h"
#include "train/planner/balance.h"
#include "train/step/states.h"

clt_step_traits clt_step_traits_of(const clt_plan *plan, const clt_trainer_options *options,
                                   const clt_mesh *mesh)
{
    const int parts = clt_mesh_places(mesh, CLT_AXIS_SAMPLES);
    const bool alone = parts == 1 && clt_capacity_micro_batches(options) == 1;
    double weights[64];
    return (clt_step_traits){
        .means = clt_states_need_means(plan->graph, alone),
        .host_weights = !alone || clt_graph_static_weights(plan->graph, 1, weights),
        .deferred = parts > 1 && clt_balance_defers(options, &plan->caps, plan->n_collectives > 0)};
}

clt_step_program_input clt_step_program_describe(const clt_step_traits *traits,
                                                 const clt_store *store, int device,
                                                 const clt_trainer_options *options,
                                                 const clt_mesh *mesh, int total,
                                                 const clt_outline *outline, const int *after)
{
    const int parts = clt_mesh_places(mesh, CLT_AXIS_SAMPLES);
    return (clt_step_program_input){.plan = outline,
                                    .participants = total,
                                    .self = store->first + device,
                                    .mesh = *mesh,
                                    .ranks = options->world ? options->world->ranks : 1,
                                    .layout = store->replicas[device].layout,
                                    .n_slots = clt_optimizer_of(options)->n_slots,
                                    .sharded = clt_memory_sharded(store, options, mesh),
                                    .unlike = clt_memory_unlike(store, mesh),
                                    .after = after,
                                    .half = options->precision != CLT_F32,
                                    .tree = options->virtual_shards != 0,
                                    .streams = total > 1 && mesh->size[CLT_AXIS_DATA] == total &&
                                               !mesh->zero && clt_trainer_streams(options),
                                    .means = traits->means,
                                    .host_weights = traits->host_weights,
                                    .scaled = options->precision == CLT_F16,
                                    .measures = options->rebalance && parts > 1,
                                    .deferred = traits->deferred,
                                    .poison = options->poison != 0,
                                    .in_flight = outline->in_flight,
                                    .rounds = clt_capacity_micro_batches(options)};
}

static clt_status explain(const clt_plan *plan, const clt_store *store,
                          const clt_trainer_options *options, const clt_mesh *mesh, int total,
                          const clt_outline *outline, const int *after, clt_str *text)
{
    const int parts = clt_mesh_places(mesh, CLT_AXIS_SAMPLES);
    const int micro_batches = clt_capacity_micro_batches(options);
    const clt_step_traits traits = clt_step_traits_of(plan, options, mesh);
    const clt_step_program_input input =
        clt_step_program_describe(&traits, store, 0, options, mesh, total, outline, after);
    clt_step_program program = {0};
    clt_status status = clt_step_program_generate(
        &input, CLT_PROGRAM_STEP, micro_batches > 1 ? CLT_LOAD_MANY : CLT_LOAD_ONE, &program);
    if (status == CLT_OK) {
        clt_exchanged exchanged;
        clt_str_add(text, "\nProgram of a step on device 0\n");
        clt_step_program_print(&program, text);
        clt_exchanged_count(plan, mesh, options, input.sharded ? parts : 1, &exchanged);
        clt_exchanged_print(&exchanged, text);
    }
    clt_step_program_free(&program);
    return status;
}

clt_status clt_step_program_explain(const clt_plan *plan, const clt_store *store,
                                    const clt_trainer_options *options, int participants,
                                    clt_str *text)
{
    clt_mesh mesh;
    int total;
    CLT_TRY(clt_memory_mesh(store, participants, &mesh, &total));
    clt_outline outline = {0};
    int *after = clt_calloc((size_t)store->layout.n_buckets + 1, sizeof *after); /* by bucket */
    clt_status status = after ? clt_outline_create(plan, &outline) : CLT_OUT_OF_MEMORY;
    if (status == CLT_OK) {
        clt_outline_places(&outline, after);
        status = explain(plan, store, options, &mesh, total, &outline, after, text);
    }
    clt_outline_free(&outline);
    clt_free(after);
    return status;
}
