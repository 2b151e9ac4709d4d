#include "train/step/states.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "ops/core/ops.h"

/* What a value depends on. Of two dependences the larger one wins. */
typedef enum dependence {
    NOTHING, /* not on the batch */
    ALIKE,   /* on samples, but only through sums over all devices */
    OWN,     /* on the device's own samples */
    ROWS /* holds rows of all samples; the rows of the device's samples are new: clt_batch_rows_put
          */
} dependence;

/* A state that is assigned. */
typedef struct batch_state {
    dependence depends;
    int64_t at;  /* offset in each device's means, in bytes; -1: copied from the plan's value */
    int64_t row; /* ROWS: bytes of a row */
} batch_state;

struct clt_states {
    int n; /* assignments */
    batch_state *items;
    int64_t floats; /* size of the means; 0: there are none */
    char label[160];
    cl_mem *means; /* by device of this process: the means of all states, in sequence */
    /* By device of this process: sums over its virtual shards; NULL entries: it has one, or none */
    clt_shard_sums **sums;
    const clt_graph *graph;
    const clt_store *store;
    const clt_participants *all;
    const clt_shares *shares;
};

/* Means are aligned for vectors. */
enum { ALIGN = 64 };

static dependence stronger(dependence a, dependence b)
{
    return a > b ? a : b;
}

/* A value with the batch dimension depends on which samples the device has. */
static dependence depends_of(const clt_node *node, const clt_value *out, dependence most)
{
    if (node->op->collective)
        return ALIKE;
    if (node->op == &clt_op_batch_rows_put)
        return ROWS;
    if (node->op == &clt_op_batch_rows) /* reads only rows of its own samples */
        return OWN;
    return clt_type_has_batch(&out->type) ? stronger(most, OWN) : most;
}

/* Fills depends[], by value id. A sum over devices depends on how many devices have samples,
 * whatever is summed. */
static void find_dependences(const clt_graph *graph, dependence *depends)
{
    for (int i = 0; i < graph->n_values; i++)
        depends[i] = graph->values[i]->kind == CLT_VALUE_INPUT ? OWN : NOTHING;
    for (int i = 0; i < graph->n_nodes; i++) {
        const clt_node *node = graph->nodes[i];
        dependence most = NOTHING;
        for (int j = 0; j < node->n_in; j++)
            if (node->in[j])
                most = stronger(most, depends[node->in[j]->id]);
        for (int k = 0; k < node->n_out; k++)
            depends[node->out[k]->id] = depends_of(node, node->out[k], most);
    }
}

static bool one_run(const struct clt_states *s)
{
    return clt_participants_replicas(s->all) == 1 && s->shares->max_micro_batches == 1;
}

/* Rows have no mean: each row belongs to its own sample. So the new rows must be in one place, and
 * all other rows must be equal on every device and in every micro-batch. */
static clt_status check_rows(const struct clt_states *s, const clt_assignment *assign,
                             const dependence *depends)
{
    const clt_value *value = assign->value;
    while (value->producer && value->producer->op == &clt_op_detach)
        value = value->producer->in[0];
    const clt_node *put = value->producer;
    if (one_run(s) || (put->op == &clt_op_batch_rows_put && depends[put->in[0]->id] < OWN))
        return CLT_OK;
    return clt_fail(CLT_UNSUPPORTED,
                    "state %s is assigned what %s computes from rows that %d devices or "
                    "micro-batches replace: assign the result of one clt_batch_rows_put directly, "
                    "or train on one device without accumulation",
                    assign->state->name, put->name,
                    clt_participants_replicas(s->all) > 1 ? clt_participants_replicas(s->all)
                                                          : s->shares->max_micro_batches);
}

/* A single device with a single micro-batch (`one`) needs no mean. */
static bool takes_mean(dependence depends, const clt_type *type, bool one)
{
    return depends != NOTHING && !one && type->dtype == CLT_F32;
}

static clt_status place(struct clt_states *s, const clt_assignment *assign, batch_state *item)
{
    const clt_type *type = &assign->value->type;
    const int64_t bytes = clt_type_elements(type, 0) * clt_dtype_size(type->dtype);
    item->at = -1;
    if (bytes % 4)
        return clt_fail(CLT_UNSUPPORTED,
                        "state %s has %lld bytes: a state that steps assign needs a multiple of 4",
                        assign->state->name, (long long)bytes);
    if (item->depends != NOTHING && type->dtype != CLT_F32 && clt_participants_replicas(s->all) > 1)
        return clt_fail(CLT_UNSUPPORTED,
                        "state %s takes a value of %s that depends on the batch: the copies of %d "
                        "devices would differ, and only f32 has a mean. Train on one device",
                        assign->state->name, clt_dtype_name(type->dtype),
                        clt_participants_replicas(s->all));
    if (!takes_mean(item->depends, type, one_run(s)))
        return CLT_OK;
    if (!s->floats)
        snprintf(s->label, sizeof s->label, "%s of states (%.100s, ..)",
                 item->depends == ROWS ? "rows" : "means", assign->state->name);
    item->at = s->floats * (int64_t)sizeof(float);
    if (item->depends == ROWS)
        item->row = clt_type_elements(type, 0) / type->dims[0] * (int64_t)sizeof(float);
    s->floats += (clt_type_elements(type, 0) + ALIGN - 1) / ALIGN * ALIGN;
    return CLT_OK;
}

static clt_status list(struct clt_states *s, dependence *depends)
{
    const clt_graph *graph = s->graph;
    find_dependences(graph, depends);
    for (int i = 0; i < graph->n_assigns; i++) {
        const clt_assignment *assign = &graph->assigns[i];
        s->items[i].depends = depends[assign->value->id];
        if (s->items[i].depends == ROWS)
            CLT_TRY(check_rows(s, assign, depends));
        CLT_TRY(place(s, assign, &s->items[i]));
    }
    s->n = graph->n_assigns;
    return CLT_OK;
}

/* Clear the padding too, since it is summed with the means. */
static clt_status make_means(struct clt_states *s, int d)
{
    clt_device *device = s->store->replicas[d].device;
    const int64_t bytes = s->floats * (int64_t)sizeof(float);
    CLT_TRY(clt_device_buffer_create(device, bytes, CL_MEM_READ_WRITE, "means of states",
                                     &s->means[d]));
    CLT_TRY(clt_enqueue_zeros(device, (clt_view){s->means[d], 0}, bytes));
    return clt_shard_sums_create(device, &s->means[d], &bytes, 1, true, CLT_F32,
                                 clt_shares_leaves(s->shares, d), &s->sums[d]);
}

clt_status clt_states_create(const clt_graph *graph, const clt_store *store,
                             const clt_participants *all, const clt_shares *shares,
                             struct clt_states **states)
{
    dependence *depends = clt_calloc((size_t)graph->n_values + 1, sizeof *depends);
    struct clt_states *s = *states = CLT_NEW(struct clt_states);
    if (s) {
        *s = (struct clt_states){.graph = graph, .store = store, .all = all, .shares = shares};
        s->items = clt_calloc((size_t)graph->n_assigns + 1, sizeof *s->items);
        s->means = clt_calloc((size_t)all->own + 1, sizeof *s->means);
        s->sums = clt_calloc((size_t)all->own + 1, sizeof *s->sums);
    }
    clt_status status =
        depends && s && s->items && s->means && s->sums ? list(s, depends) : CLT_OUT_OF_MEMORY;
    clt_free(depends);
    for (int d = 0; status == CLT_OK && s->floats && d < all->own; d++)
        status = make_means(s, d);
    return status;
}

clt_status clt_states_bytes(const clt_graph *graph, const clt_mesh *mesh, int max_micro_batches,
                            int64_t *bytes)
{
    const clt_participants none = {.mesh = *mesh};
    const clt_shares shares = {.max_micro_batches = max_micro_batches};
    struct clt_states *s = NULL;
    const clt_status status = clt_states_create(graph, NULL, &none, &shares, &s);
    *bytes = status == CLT_OK ? s->floats * (int64_t)sizeof(float) : 0;
    clt_states_destroy(s);
    return status;
}

void clt_states_destroy(struct clt_states *s)
{
    if (!s)
        return;
    for (int d = 0; s->means && d < s->all->own; d++)
        clt_release_buffer(s->means[d]);
    for (int d = 0; s->sums && d < s->all->own; d++)
        clt_shard_sums_destroy(s->sums[d]);
    CLT_FREE(s->means, s->sums, s->items, s);
}

/* --- steps ----------------------------------------------------------------------------------- */

/* Returns the samples of all devices in micro-batch `micro`. */
static int64_t count_all(const struct clt_states *s, int64_t total, int micro)
{
    int64_t count = 0;
    if (s->shares->rounds == 1)
        return total;
    for (int part = 0; part < clt_participants_parts(s->all); part++) {
        const clt_share share =
            clt_share_of(s->shares, s->shares->counts[clt_participants_of(s->all, part)]);
        count += clt_share_part(&share, micro).count;
    }
    return count;
}

static int part_of(const clt_bound *b)
{
    return b->all->first_part + b->states->shares->part[b->device];
}

/* Devices that share samples have equal values, of which one counts. */
static bool speaks(const clt_bound *b)
{
    return clt_participants_speaks(b->all, b->all->first + b->device);
}

/* Returns the weight of this device's value of a micro-batch in the mean. */
static double weight_of(const clt_bound *b, dependence depends, int micro)
{
    const int64_t total = b->call->batch.total;
    const bool alike = depends == ALIKE && clt_participants_parts(b->all) > 1;
    int64_t count = clt_share_part(&b->share, micro).count;
    if (!total || !speaks(b) || (alike && part_of(b) > 0))
        return 0;
    if (alike)
        count = count_all(b->states, total, micro);
    return (double)count / (double)total;
}

/* Copies rows [begin, end), clipped to the existing rows. */
static clt_status copy_rows(const clt_bound *b, const batch_state *item, int64_t rows,
                            clt_view from, cl_mem to, int64_t begin, int64_t end)
{
    begin = begin < 0 ? 0 : begin;
    end = end > rows ? rows : end;
    if (begin >= end)
        return CLT_OK;
    return clt_enqueue_copy(
        b->replica->device, (clt_view){from.buffer, from.offset + begin * item->row},
        (clt_view){to, item->at + begin * item->row}, (end - begin) * item->row);
}

/* The device that has a sample adds the sample's row. All other devices add -0, which changes no
 * number. The first device adds the rows of no sample. */
static clt_status add_rows(const clt_bound *b, int micro, const batch_state *item,
                           const clt_type *type, const clt_run *run, clt_view from, cl_mem to)
{
    /* First position of the global batch; 0 if ranks divide it. */
    const int64_t rows = type->dims[0], begin = b->all->ranks > 1 ? 0 : b->call->batch.first;
    if (b->share.shards || (micro == 0 && clt_participants_replicas(b->all) > 1))
        CLT_TRY(clt_enqueue_fill(b->replica->device, (clt_view){to, item->at}, -0.0f,
                                 rows * item->row));
    if (!speaks(b))
        return CLT_OK;
    if (micro == 0 && part_of(b) == 0) {
        CLT_TRY(copy_rows(b, item, rows, from, to, 0, begin));
        CLT_TRY(copy_rows(b, item, rows, from, to, begin + b->call->batch.total, rows));
    }
    return copy_rows(b, item, rows, from, to, run->sample, run->sample + run->count);
}

clt_status clt_states_check_batch(const struct clt_states *s, int64_t batch)
{
    for (int i = 0; i < s->n; i++) {
        const clt_value *state = s->graph->assigns[i].state;
        if (s->items[i].depends == ROWS && state->type.dims[0] < batch)
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "state %s has rows for %lld samples, a batch has %lld", state->name,
                            (long long)state->type.dims[0], (long long)batch);
    }
    return CLT_OK;
}

clt_status clt_states_check(const struct clt_states *s, const clt_step_batch *batch)
{
    for (int i = 0; s->all->ranks > 1 && i < s->n; i++)
        if (s->items[i].depends == ROWS && batch->count &&
            (batch->first < 0 || batch->first + batch->count > batch->total))
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "state %s needs the places of samples within the batch of all ranks: "
                            "%lld from %lld on are not within its %lld",
                            s->graph->assigns[i].state->name, (long long)batch->count,
                            (long long)batch->first, (long long)batch->total);
    return CLT_OK;
}

/* Returns the number of an assignment of a device's plan among all. A stage of a pipeline has only
 * those of its states. */
static int number_of(const struct clt_states *s, const clt_assignment *assign)
{
    int i = 0;
    while (strcmp(s->graph->assigns[i].state->name, assign->state->name))
        i++;
    return i;
}

clt_status clt_states_add(const clt_bound *b, int micro, const clt_run *run)
{
    const struct clt_states *s = b->states;
    const clt_session_device *sd = &b->call->session->devices[b->device];
    const clt_graph *graph = sd->plan->graph;
    /* Without samples the only part of a device is its sum. */
    const clt_shard_sums *sums = b->share.micro_batches ? s->sums[b->device] : NULL;
    const cl_mem to = sums ? *clt_shard_sums_target(sums, micro) : s->means[b->device];
    const bool first = micro == 0 || sums;
    for (int i = 0; i < graph->n_assigns; i++) {
        const batch_state *item = &s->items[number_of(s, &graph->assigns[i])];
        const clt_value *value = graph->assigns[i].value;
        clt_view from;
        if (item->at < 0)
            continue;
        CLT_TRY(clt_exec_locate(sd->exec, run, value, &from));
        if (item->depends == ROWS) {
            CLT_TRY(add_rows(b, micro, item, &value->type, run, from, to));
            continue;
        }
        CLT_TRY(clt_update_mean(b->updates->update, from, (clt_view){to, item->at},
                                clt_type_elements(&value->type, 0),
                                weight_of(b, item->depends, micro), first));
    }
    return sums ? clt_shard_sums_add(sums, b->updates->update, micro) : CLT_OK;
}

bool clt_states_need_means(const clt_graph *graph, bool one)
{
    dependence *depends = clt_calloc((size_t)graph->n_values + 1, sizeof *depends);
    bool any = false;
    if (depends && !one)
        find_dependences(graph, depends);
    for (int i = 0; depends && !one && i < graph->n_assigns; i++)
        any = any ||
              takes_mean(depends[graph->assigns[i].value->id], &graph->assigns[i].value->type, one);
    clt_free(depends);
    return any;
}

bool clt_states_need_counts(const struct clt_states *s)
{
    bool any = false;
    for (int i = 0; s->shares->rounds > 1 && i < s->n; i++)
        any = any || (s->items[i].depends == ALIKE && s->items[i].at >= 0);
    return any;
}

bool clt_states_have_means(const struct clt_states *s)
{
    return s->floats > 0;
}

clt_collective clt_states_means(const struct clt_states *s, int d)
{
    return (clt_collective){.kind = CLT_COLLECTIVE_ALL_REDUCE,
                            .buffer = s->means[d],
                            .count = s->floats,
                            .dtype = CLT_F32,
                            .whole = true,
                            .leaves = s->shares->bounds ? clt_shares_leaves(s->shares, d) : 0,
                            .label = s->label};
}

clt_status clt_states_assign(const clt_bound *b, const clt_run *run)
{
    const clt_session_device *sd = &b->call->session->devices[b->device];
    const clt_graph *graph = sd->plan->graph;
    for (int i = 0; i < graph->n_assigns; i++) {
        const clt_value *state = graph->assigns[i].state;
        const batch_state *item = &b->states->items[number_of(b->states, &graph->assigns[i])];
        clt_view from = {b->states->means[b->device], item->at}, to;
        if (item->depends != NOTHING && !b->call->batch.total)
            continue;
        if (item->at < 0)
            CLT_TRY(clt_exec_locate(sd->exec, run, graph->assigns[i].value, &from));
        CLT_TRY(clt_exec_locate(sd->exec, run, state, &to));
        CLT_TRY(clt_update_assign(b->updates->update, from, to,
                                  clt_type_elements(&state->type, 0) *
                                      clt_dtype_size(state->type.dtype)));
    }
    return CLT_OK;
}
