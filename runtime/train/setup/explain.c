#include "train/setup/explain.h"

#include "base/alloc.h"
#include "base/error.h"
#include "train/setup/capacity.h"
#include "train/planner/balance.h"
#include "train/step/states.h"
#include "train/step/owner.h"

/* Arrays by bucket. */
typedef struct arrays {
    int *owners, *after;
} arrays;

static clt_status allocate(const clt_buckets *layout, arrays *a)
{
    const size_t n = (size_t)layout->n_buckets + 1;
    a->owners = clt_calloc(n, sizeof *a->owners);
    a->after = clt_calloc(n, sizeof *a->after);
    return a->owners && a->after ? CLT_OK : CLT_OUT_OF_MEMORY;
}

static bool are_alike(const clt_store *store)
{
    for (int d = 1; d < store->n_devices; d++)
        if (store->replicas[d].device->identity != store->replicas[0].device->identity)
            return false;
    return true;
}

static void fill(const clt_outline *plan, const clt_buckets *layout, int participants, arrays *a)
{
    for (int b = 0; b < layout->n_buckets; b++)
        a->owners[b] = clt_owner_of(b, participants);
    clt_outline_places(plan, a->after);
}

static clt_status explain(const clt_plan *plan, const clt_store *store,
                          const clt_trainer_options *options, int participants,
                          const clt_outline *outline, const arrays *a, clt_str *text)
{
    const int micro_batches = clt_capacity_micro_batches(options);
    const bool alone = participants == 1 && micro_batches == 1;
    double weights[64];
    const clt_step_program_input input = {
        .plan = outline,
        .participants = participants,
        .ranks = options->world ? options->world->ranks : 1,
        .layout = &store->layout,
        .n_slots = clt_optimizer_find(options->optimizer)->n_slots,
        .owners = are_alike(store) ? NULL : a->owners,
        .after = a->after,
        .half = options->precision != CLT_F32,
        .streams = participants > 1 && clt_trainer_streams(options),
        .means = clt_states_need_means(plan->graph, alone),
        .host_weights = !alone || clt_graph_static_weights(plan->graph, 1, weights),
        .scaled = options->precision == CLT_F16,
        .measures = options->rebalance && participants > 1,
        .deferred = participants > 1 &&
                    clt_balance_defers(options, &plan->caps, outline->n_collectives > 0),
        .poison = options->poison != 0};
    clt_step_program program = {0};
    clt_status status = clt_step_program_generate(
        &input, CLT_PROGRAM_STEP, micro_batches > 1 ? CLT_LOAD_MANY : CLT_LOAD_ONE, &program);
    if (status == CLT_OK) {
        clt_str_add(text, "\nProgram of a step on device 0\n");
        clt_step_program_print(&program, text);
    }
    clt_step_program_free(&program);
    return status;
}

clt_status clt_step_program_explain(const clt_plan *plan, const clt_store *store,
                                    const clt_trainer_options *options, int participants,
                                    clt_str *text)
{
    clt_outline outline = {0};
    arrays a = {0};
    clt_status status = allocate(&store->layout, &a);
    CLT_NEXT(status, clt_outline_create(plan, &outline));
    if (status == CLT_OK) {
        fill(&outline, &store->layout, participants, &a);
        status = explain(plan, store, options, participants, &outline, &a, text);
    }
    clt_outline_free(&outline);
    CLT_FREE(a.owners, a.after);
    return status;
}
