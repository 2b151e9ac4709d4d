#include "plan/plan.h"

#include "base/hash.h"
#include "base/vec.h"
#include "passes/passes.h"
#include <cltrain/ops.h>
#include <cltrain/unstable.h>

static clt_status check_store(const clt_graph *graph, const clt_buckets *buckets,
                              const clt_plan_options *options)
{
    char a[CLT_TYPE_TEXT], b[CLT_TYPE_TEXT];
    const clt_mesh *mesh = options->mesh;
    const bool has_places = mesh && mesh->size[clt_mesh_split_axis(mesh)] > 1;
    for (int i = 0; i < graph->n_values; i++) {
        const clt_value *v = graph->values[i];
        if (v->kind != CLT_VALUE_PARAMETER && v->kind != CLT_VALUE_STATE)
            continue;
        const clt_slot *slot = clt_buckets_find(buckets, v->name);
        if (!slot)
            return clt_fail(CLT_MISMATCH, "the store has no parameter or state %s", v->name);
        if (!clt_type_equal(&slot->whole, &v->type))
            return clt_fail(CLT_MISMATCH, "%s is %s in the graph and %s in the store", v->name,
                            clt_type_text(&v->type, a), clt_type_text(&slot->whole, b));
        if (slot->sharding.blocks && !has_places)
            return clt_fail(CLT_INTERNAL, "%s is split in the store, and the plan is for no mesh",
                            v->name);
        if (options->mode == CLT_PLAN_TRAIN &&
            (v->frozen != slot->frozen || v->group != slot->group || v->rate != slot->rate ||
             v->decay != slot->decay))
            return clt_fail(CLT_MISMATCH,
                            "%s is frozen or in another parameter group in %s: call clt_freeze and "
                            "clt_param_group before the store is made",
                            v->name, slot->frozen ? "the store" : "the graph");
    }
    return CLT_OK;
}

/* Splits the parameters as the store does, whatever the graph says: all graphs of a store have the
 * splits of the one that it was made of. */
static void take_splits(clt_plan *plan)
{
    const clt_mesh *mesh = plan->options.mesh;
    const clt_axis axis = mesh ? clt_mesh_split_axis(mesh) : CLT_AXIS_TENSOR;
    for (int i = 0; i < plan->graph->n_values; i++) {
        clt_value *v = plan->graph->values[i];
        if (v->kind == CLT_VALUE_PARAMETER)
            v->shardings[axis] = clt_buckets_find(&plan->buckets, v->name)->sharding;
    }
}

/* After partitioning: fails unless each parameter has the type of the device's part. */
static clt_status check_parts(const clt_plan *plan)
{
    const clt_mesh *mesh = plan->options.mesh;
    char a[CLT_TYPE_TEXT], b[CLT_TYPE_TEXT];
    clt_coordinate at = {0, 1};
    if (mesh)
        at = clt_mesh_split_place(mesh, plan->options.participant);
    for (int i = 0; i < plan->graph->n_values; i++) {
        const clt_value *v = plan->graph->values[i];
        const clt_slot *slot =
            v->kind == CLT_VALUE_PARAMETER ? clt_buckets_find(&plan->buckets, v->name) : NULL;
        clt_type part;
        if (!slot || !slot->sharding.blocks)
            continue;
        CLT_TRY(clt_slot_part_type(slot, at, &part));
        if (!clt_type_equal(&part, &v->type))
            return clt_fail(CLT_INTERNAL, "%s: the device has the part %s, and its plan reads %s",
                            v->name, clt_type_text(&part, a), clt_type_text(&v->type, b));
    }
    return CLT_OK;
}

static clt_status lay_out(clt_plan *plan, const clt_target *target, clt_value **gradients,
                          int n_gradients)
{
    clt_graph *graph = plan->graph;
    CLT_TRY(clt_pass_layout(graph, target, gradients, n_gradients));
    if (plan->options.fuse) {
        CLT_TRY(clt_graph_clean(graph, gradients, n_gradients));
        CLT_TRY(clt_pass_fuse_pool(graph));
    }
    return clt_graph_clean(graph, gradients, n_gradients);
}

/* Keeps only the assignments of a run outside training: those of carried states. */
static void keep_carried(clt_graph *graph, bool carries)
{
    int kept = 0;
    for (int i = 0; i < graph->n_assigns; i++)
        if (carries && graph->assigns[i].state->carried)
            graph->assigns[kept++] = graph->assigns[i];
    graph->n_assigns = kept;
}

static clt_status refuse_carried(const clt_graph *graph)
{
    for (int i = 0; i < graph->n_values; i++)
        if (graph->values[i]->carried)
            return clt_fail(CLT_UNSUPPORTED,
                            "state %s is carried between the runs of a predictor: training and "
                            "evaluation do not take such a graph",
                            graph->values[i]->name);
    return CLT_OK;
}

/* Copies states and parameters that are assigned to a state as they are. The assignment runs at the
 * end of the step, which may change them before. */
static clt_status copy_assigned(clt_graph *graph)
{
    for (int i = 0; i < graph->n_assigns; i++) {
        const clt_value *root = clt_value_root(graph->assigns[i].value);
        if (root->kind == CLT_VALUE_STATE || root->kind == CLT_VALUE_PARAMETER)
            graph->assigns[i].value = clt_copy(graph->assigns[i].value);
    }
    return clt_graph_status(graph);
}

static int stages_of(const clt_plan *plan)
{
    return plan->options.mesh ? plan->options.mesh->size[CLT_AXIS_PIPELINE] : 1;
}

/* Removes what only training needs: the nodes, losses and assignments of other modes. */
static clt_status leave_training(clt_plan *plan)
{
    clt_graph *graph = plan->graph;
    if (!plan->options.as_in_training)
        CLT_TRY(clt_pass_evaluate(graph));
    if (plan->options.mode == CLT_PLAN_PREDICT)
        clt_graph_forget_means(graph);
    keep_carried(graph, plan->options.carries);
    graph->n_seeds = 0;
    return CLT_OK;
}

/* Training and evaluation need no outputs, unless the caller computes their gradients. */
static void spare_outputs(const clt_graph *graph)
{
    for (int i = 0; i < graph->n_values; i++)
        graph->values[i]->spare = graph->values[i]->output;
    for (int i = 0; i < graph->n_seeds; i++)
        graph->seeds[i].output->spare = false;
}

/* Makes the graph that of the plan's place on axes that are divided before autodiff. */
static clt_status divide_forward(clt_plan *plan)
{
    const clt_plan_options *o = &plan->options;
    if (!o->mesh)
        return CLT_OK;
    CLT_TRY(clt_graph_clean(plan->graph, NULL, 0));
    return clt_pass_partition_forward(plan->graph, o->mesh, o->participant, o->max_batch,
                                      &plan->partition);
}

static clt_status run_passes(clt_plan *plan, const clt_target *target, clt_value **gradients,
                             int *n_gradients)
{
    clt_graph *graph = plan->graph;
    const clt_mesh *mesh = plan->options.mesh;
    const bool trains = plan->options.mode == CLT_PLAN_TRAIN;
    const bool alone = !plan->options.several || (mesh && mesh->size[CLT_AXIS_DATA] == 1);
    *n_gradients = 0;
    if (plan->options.mode != CLT_PLAN_PREDICT) {
        CLT_TRY(refuse_carried(graph));
        spare_outputs(graph);
    }
    if (!trains)
        CLT_TRY(leave_training(plan));
    CLT_TRY(divide_forward(plan));
    if (alone)
        CLT_TRY(clt_pass_drop_collectives(graph));
    if (trains) {
        for (int i = 0; i < graph->n_values; i++)
            *n_gradients += clt_value_trained(graph->values[i]);
        CLT_TRY(copy_assigned(graph));
        CLT_TRY(clt_pass_train(graph, gradients));
        if (mesh)
            CLT_TRY(clt_pass_sum_input_gradients(graph, mesh));
        /* Gradients add collectives (batch norm's). */
        if (alone)
            CLT_TRY(clt_pass_drop_collectives(graph));
    }
    CLT_TRY(clt_graph_clean(graph, gradients, *n_gradients));
    if (mesh)
        CLT_TRY(clt_pass_partition(graph, mesh, plan->options.participant, plan->options.max_batch,
                                   gradients, *n_gradients, &plan->partition));
    if (stages_of(plan) > 1)
        CLT_TRY(clt_pass_pipeline(
            graph, clt_mesh_coordinate(mesh, CLT_AXIS_PIPELINE, plan->options.participant),
            gradients, n_gradients, &plan->partition.text));
    CLT_TRY(clt_pass_simplify(graph));
    if (plan->options.mesh && plan->options.mesh->zero)
        CLT_TRY(clt_pass_gather(graph, plan->options.mesh->size[CLT_AXIS_DATA], gradients,
                                *n_gradients, &plan->partition.text));
    if (plan->options.fuse)
        CLT_TRY(clt_pass_fuse(graph));
    CLT_TRY(clt_graph_clean(graph, gradients, *n_gradients));
    if (!plan->options.portable)
        CLT_TRY(lay_out(plan, target, gradients, *n_gradients));
    CLT_TRY(clt_pass_read_halves(graph, target));
    CLT_TRY(clt_graph_clean(graph, gradients, *n_gradients));
    if (plan->options.precision == CLT_F32)
        return CLT_OK;
    CLT_TRY(clt_pass_precision(graph, target, plan->options.precision));
    CLT_TRY(
        clt_pass_round_gradients(graph, target, plan->options.precision, gradients, *n_gradients));
    return clt_graph_clean(graph, gradients, *n_gradients);
}

/* Stores the gradients by slot. gradients[] is in the order of the graph's parameters. */
static clt_status assign_gradients(clt_plan *plan, clt_value **gradients)
{
    plan->gradients = clt_calloc((size_t)plan->buckets.n_slots + 1, sizeof *plan->gradients);
    CLT_TRY_MEMORY(plan->gradients);
    int next = 0;
    for (int i = 0; plan->options.mode == CLT_PLAN_TRAIN && i < plan->graph->n_values; i++) {
        const clt_value *v = plan->graph->values[i];
        if (!clt_value_trained(v))
            continue;
        const clt_slot *slot = clt_buckets_find(&plan->buckets, v->name);
        plan->gradients[slot - plan->buckets.slots] = gradients[next++];
    }
    return CLT_OK;
}

static clt_status list_values(clt_plan *plan)
{
    const clt_graph *graph = plan->graph;
    int room_inputs = 0, room_constants = 0;
    plan->places = clt_calloc((size_t)graph->n_values + 1, sizeof *plan->places);
    CLT_TRY_MEMORY(plan->places);
    for (int i = 0; i < graph->n_values; i++) {
        clt_value *v = graph->values[i];
        if (v->kind == CLT_VALUE_INPUT)
            CLT_TRY(CLT_PUSH(plan->inputs, plan->n_inputs, room_inputs, v));
        else if (v->kind == CLT_VALUE_CONSTANT)
            CLT_TRY(CLT_PUSH(plan->constants, plan->n_constants, room_constants, v));
    }
    return CLT_OK;
}

/* Places the sums and weights of losses and metrics together, because they are read once a step. */
static clt_status place_results(clt_plan *plan)
{
    const clt_graph *g = plan->graph;
    int64_t next = 0;
    for (int i = 0; i < g->n_losses + g->n_metrics; i++) {
        const clt_mean *mean = i < g->n_losses ? &g->losses[i] : &g->metrics[i - g->n_losses];
        const clt_value *parts[] = {mean->sum, mean->weight};
        for (int j = 0; j < 2; j++, next += (int64_t)sizeof(float))
            if (parts[j]->kind == CLT_VALUE_INTERMEDIATE && !parts[j]->producer->op->view &&
                plan->places[parts[j]->id].kind == CLT_PLACE_NONE)
                plan->places[parts[j]->id] = (clt_place){CLT_PLACE_RESULT, 0, next};
            else
                return clt_fail(CLT_UNSUPPORTED,
                                "%s: its sum and weight must each be computed by a node of its "
                                "own that no other loss or metric uses",
                                mean->name);
    }
    plan->results_bytes = next;
    return CLT_OK;
}

static clt_status list_nodes(clt_plan *plan)
{
    plan->n_nodes = plan->graph->n_nodes;
    plan->nodes = clt_calloc((size_t)plan->n_nodes + 1, sizeof *plan->nodes);
    CLT_TRY_MEMORY(plan->nodes);
    for (int i = 0; i < plan->n_nodes; i++) {
        plan->nodes[i].node = plan->graph->nodes[i];
        if (!plan->nodes[i].node->backward)
            plan->n_forward = i + 1;
    }
    return CLT_OK;
}

/* Hashes everything that must be equal on devices and ranks that train together. */
static clt_status hash_plan(clt_plan *plan)
{
    clt_str text = {0};
    clt_graph_dump(plan->graph, &text);
    const uint64_t hash = clt_hash_text(clt_str_text(&text), clt_buckets_hash(&plan->buckets));
    const bool failed = text.failed;
    clt_str_free(&text);
    plan->hash = clt_hash(&plan->options.mode, sizeof plan->options.mode, hash);
    return failed ? CLT_OUT_OF_MEMORY : CLT_OK;
}

clt_status clt_plan_lay_out(clt_plan *plan, const clt_target *target)
{
    CLT_TRY(list_values(plan));
    CLT_TRY(list_nodes(plan));
    CLT_TRY(place_results(plan));
    CLT_TRY(clt_plan_variants(plan, target));
    CLT_TRY(clt_plan_collectives(plan));
    return clt_plan_memory(plan, target);
}

/* Gives each node the stage that has its parameters in the store. */
static clt_status divide_stages(clt_plan *plan)
{
    if (stages_of(plan) == 1)
        return CLT_OK;
    for (int i = 0; i < plan->graph->n_values; i++) {
        clt_value *v = plan->graph->values[i];
        if (v->kind == CLT_VALUE_PARAMETER || v->kind == CLT_VALUE_STATE)
            v->stages = clt_buckets_find(&plan->buckets, v->name)->stages;
    }
    return clt_pass_stages(plan->graph, stages_of(plan));
}

static clt_status compile(clt_plan *plan, const clt_target *target)
{
    int n_gradients = 0;
    CLT_TRY(divide_stages(plan)); /* adds values */
    clt_value **gradients = clt_calloc((size_t)plan->graph->n_values + 1, sizeof *gradients);
    clt_status status = gradients ? CLT_OK : CLT_OUT_OF_MEMORY;
    CLT_NEXT(status, run_passes(plan, target, gradients, &n_gradients));
    CLT_NEXT(status, check_parts(plan));
    CLT_NEXT(status, assign_gradients(plan, gradients));
    clt_free(gradients);
    CLT_TRY(status);
    return clt_plan_lay_out(plan, target);
}

/* Compute units of the canonical device for virtual shards: most parts of a CPU have one. GPUs have
 * no parts, so their own number holds. */
enum { CANONICAL_UNITS = 1 };

clt_status clt_plan_create(const clt_graph *graph, const clt_buckets *buckets, const clt_caps *caps,
                           const clt_tuning_record *tuning, const clt_plan_options *options,
                           clt_plan **out)
{
    CLT_TRY(clt_graph_status(graph));
    if (options->max_batch < 1)
        return clt_fail(CLT_INVALID_ARGUMENT, "a plan needs a batch of at least 1, not %lld",
                        (long long)options->max_batch);
    CLT_TRY(check_store(graph, buckets, options));
    CLT_TRY(clt_variants_check(options->variants));
    clt_plan *plan = CLT_NEW(clt_plan);
    CLT_TRY_MEMORY(plan);
    plan->options = *options;
    plan->options.variants = NULL; /* belongs to the caller */
    plan->caps = *caps;
    if (!plan->options.lanes)
        plan->options.lanes = caps->vector_width < 4 ? 4 : caps->vector_width;
    if (options->virtual_shards && clt_caps_is_cpu(caps))
        plan->caps.compute_units = CANONICAL_UNITS;
    /* Portable kernels of convolutions read f32 only. */
    if (options->portable)
        plan->caps.matrix = (clt_matrix_unit){.kind = CLT_MATRIX_NONE};
    const clt_target target = {.caps = &plan->caps,
                               .tuning = options->virtual_shards ? NULL : tuning,
                               .lanes = plan->options.lanes,
                               .batch_blocked_always = options->lanes != 0,
                               .max_batch = options->max_batch,
                               .variants = options->variants};
    clt_status status = clt_graph_copy(graph, &plan->graph);
    CLT_NEXT(status, clt_buckets_copy(buckets, &plan->buckets));
    if (status == CLT_OK)
        take_splits(plan);
    CLT_NEXT(status, compile(plan, &target));
    plan->options.mesh = NULL; /* belongs to the caller */
    if (status == CLT_OK && options->mode == CLT_PLAN_TRAIN)
        status = clt_plan_recompute(&plan, &target);
    CLT_NEXT(status, clt_plan_segments(plan));
    CLT_NEXT(status, clt_plan_merges(plan));
    CLT_NEXT(status, hash_plan(plan));
    if (status != CLT_OK) {
        clt_plan_destroy(plan);
        return status;
    }
    *out = plan;
    return CLT_OK;
}

void clt_plan_destroy(clt_plan *plan)
{
    if (!plan)
        return;
    for (int i = 0; plan->nodes && i < plan->n_nodes; i++) {
        clt_program_free(&plan->nodes[i].program);
        clt_free(plan->nodes[i].declined);
    }
    CLT_FREE(plan->nodes, plan->tuned, plan->places, plan->further, plan->inputs, plan->constants,
             plan->gradients, plan->slabs, plan->collectives, plan->segments, plan->merges,
             plan->ready);
    clt_str_free(&plan->partition.text);
    clt_buckets_free(&plan->buckets);
    clt_graph_destroy(plan->graph);
    clt_free(plan);
}

static int copies_of(const clt_plan *plan, int slab)
{
    return slab < plan->n_flight_slabs ? plan->options.in_flight : 1;
}

int clt_plan_all_slabs(const clt_plan *plan)
{
    int count = 0;
    for (int i = 0; i < plan->n_slabs; i++)
        count += copies_of(plan, i);
    return count;
}

/* The copies for other slots follow all slabs. */
int clt_plan_slab(const clt_plan *plan, int slab, int slot)
{
    const bool copy = slot > 0 && slab < plan->n_flight_slabs;
    return copy ? plan->n_slabs + (slot - 1) * plan->n_flight_slabs + slab : slab;
}

int64_t clt_plan_arena_bytes(const clt_plan *plan)
{
    int64_t bytes = 0;
    for (int i = 0; i < plan->n_slabs; i++)
        bytes += copies_of(plan, i) * plan->slabs[i];
    return bytes;
}

int64_t clt_plan_store_bytes(const clt_plan *plan, int optimizer_slots)
{
    int64_t bytes = 0;
    const bool trains = plan->options.mode == CLT_PLAN_TRAIN;
    for (int i = 0; i < plan->buckets.n_buckets; i++) {
        const clt_bucket *bucket = &plan->buckets.buckets[i];
        bytes += bucket->bytes;
        if (trains && !bucket->state)
            bytes += clt_bucket_gradient_bytes(bucket, plan->options.precision) +
                     optimizer_slots * bucket->bytes;
    }
    return bytes;
}
