/* Names the non-finite value of a step. The guard stopped all updates at that step, and the step's
 * inputs are still in their buffers. A program repeats the step node by node and inspects every
 * value. */
#include "train/step/diagnose.h"

#include <math.h>
#include <stdio.h>

#include "base/alloc.h"
#include "ops/collective/collective.h"
#include "ops/index/index.h"
#include "ops/core/ops.h"

typedef clt_diagnosis search;

/* Returns the index of element i of a value in its memory. */
static int64_t stored_at(const clt_value *v, int lanes, int64_t i)
{
    if (v->layout != CLT_LAYOUT_BATCH_BLOCKED)
        return i;
    const int64_t rest = clt_type_coefficient(&v->type), image = i / rest;
    return (image / lanes * rest + i % rest) * lanes + image % lanes;
}

/* Returns true if all elements are finite. Elements past the batch are ignored: in a batch-blocked
 * layout they hold no numbers. */
static bool finite_value(search *s, const clt_run *run, const clt_value *v, int lanes)
{
    const int64_t count = clt_type_elements(&v->type, run->count);
    const bool sampled = v->type.rank > 0 && v->type.dims[0] < 0;
    const int64_t each = sampled ? clt_type_coefficient(&v->type) : 0;
    s->bad = s->first = 0;
    s->samples = sampled ? run->count : 0;
    for (int64_t i = 0; i < count; i++) {
        if (isfinite(s->host[stored_at(v, lanes, i)]))
            continue;
        if (!each)
            return false;
        const int64_t sample = i / each;
        s->first = s->bad ? s->first : sample;
        s->bad++;
        i = (sample + 1) * each - 1; /* continue with the next sample */
    }
    return !s->bad;
}

/* Names the first bad sample. If all samples are bad, none of them is the cause, unless the value
 * is an input. */
static void name_sample(search *s, const clt_run *run, const clt_value *v)
{
    if (!s->samples || (s->bad == s->samples && s->samples > 1 && v->kind != CLT_VALUE_INPUT))
        return;
    s->bad_sample = run->sample + s->first;
    char more[40] = "";
    if (s->bad > 1)
        snprintf(more, sizeof more, " and %lld more", (long long)s->bad - 1);
    snprintf(s->sample, sizeof s->sample, " in sample %lld of the batch%s",
             (long long)s->bad_sample, more);
}

static clt_status read_value(search *s, const clt_exec *exec, const clt_run *run,
                             const clt_value *v, bool *finite)
{
    const clt_plan *plan = clt_exec_plan(exec);
    clt_view view;
    *finite = true;
    if (v->type.dtype != CLT_F32 && v->type.dtype != CLT_F16 && v->type.dtype != CLT_BF16)
        return CLT_OK;
    const int64_t count = clt_value_stored(v, run->count, plan->options.lanes);
    if (count > s->room) {
        float *larger = clt_realloc(s->host, (size_t)count * sizeof *larger);
        CLT_TRY_MEMORY(larger);
        s->host = larger;
        s->room = count;
    }
    CLT_TRY(clt_exec_locate(exec, run, v, &view));
    CLT_TRY(clt_replica_read_floats(s->replica, view, v->type.dtype, count, s->host));
    *finite = finite_value(s, run, v, plan->options.lanes);
    return CLT_OK;
}

static const char *describe(const clt_plan *plan, const clt_value *v, char *text, size_t bytes)
{
    for (int i = 0; i < plan->buckets.n_slots; i++)
        if (plan->gradients[i] == v) {
            snprintf(text, bytes, "the gradient of %s", plan->buckets.slots[i].name);
            return text;
        }
    if (v->kind == CLT_VALUE_INTERMEDIATE)
        snprintf(text, bytes, "the output of node %s", v->producer->name);
    else
        snprintf(text, bytes, "%s %s",
                 v->kind == CLT_VALUE_INPUT   ? "input"
                 : v->kind == CLT_VALUE_STATE ? "state"
                                              : "parameter",
                 v->name);
    return text;
}

static bool picks_or_adds(const clt_node *node)
{
    static const clt_op *const ops[] = {&clt_op_embedding,  &clt_op_index_select,
                                        &clt_op_gather,     &clt_op_index_add,
                                        &clt_op_index_copy, &clt_op_scatter_add};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (node->op == ops[i])
            return true;
    return false;
}

/* The cause may be an index that is out of range (cltrain/ops/index.h). */
static clt_status find_index(search *s, const clt_session_device *sd, const clt_run *run,
                             const clt_node *node)
{
    if (!picks_or_adds(node))
        return CLT_OK;
    const clt_value *v = node->in[0];
    const int lanes = sd->plan->options.lanes;
    const int64_t stored = clt_value_stored(v, run->count, lanes),
                  count = clt_type_elements(&v->type, run->count),
                  size = clt_index_shape_of(node).size;
    clt_view view;
    CLT_TRY(clt_exec_locate(sd->exec, run, v, &view));
    int32_t *indices = clt_alloc((size_t)stored * sizeof *indices);
    CLT_TRY_MEMORY(indices);
    const clt_status status = clt_replica_read(s->replica, view.buffer, view.offset,
                                               stored * (int64_t)sizeof *indices, indices);
    char text[160];
    for (int64_t i = 0; status == CLT_OK && i < count && !*s->index; i++) {
        const int32_t index = indices[stored_at(v, lanes, i)];
        if (index >= 0 && index < size)
            continue;
        snprintf(s->index, sizeof s->index,
                 "index %d in %s, number %lld of %lld, is out of 0 to %lld", index,
                 describe(sd->plan, v, text, sizeof text), (long long)i, (long long)count,
                 (long long)size - 1);
    }
    clt_free(indices);
    return status;
}

/* Other devices and ranks do not take part in this run, so this device's part stands for the sum,
 * and for the parts of the others. A part that is not finite was found before. What another device
 * has computed becomes 0. */
clt_status clt_diagnosis_stand_in(const clt_session_device *sd, const clt_run *run, int item)
{
    const clt_plan_collective *c = &sd->plan->collectives[item];
    const clt_node *node = sd->plan->nodes[c->node].node;
    const int64_t bytes =
        (c->per_sample ? c->count * run->count : c->count) * clt_dtype_size(c->dtype);
    const int copies =
        c->kind == CLT_OP_ALL_GATHER ? ((const clt_axis_attr *)node->attr)->places : 1;
    clt_view part, whole;
    CLT_TRY(clt_exec_locate(sd->exec, run, node->out[0], &whole));
    if (!node->n_in)
        return clt_enqueue_zeros(sd->device, whole, bytes);
    CLT_TRY(clt_exec_locate(sd->exec, run, node->in[0], &part));
    if (part.buffer == whole.buffer && part.offset == whole.offset)
        return CLT_OK;
    for (int k = 0; k < copies; k++, whole.offset += bytes)
        CLT_TRY(clt_enqueue_copy(sd->device, part, whole, bytes));
    return CLT_OK;
}

/* *found becomes true if `v` is not finite. The value is then named. */
static clt_status look_at(search *s, const clt_session_device *sd, const clt_run *run,
                          const clt_value *v, bool *found)
{
    bool finite;
    CLT_TRY(read_value(s, sd->exec, run, v, &finite));
    *found = !finite;
    if (*found) {
        describe(sd->plan, v, s->where, sizeof s->where);
        name_sample(s, run, v);
    }
    return CLT_OK;
}

clt_status clt_diagnosis_inspect(search *s, const clt_session_device *sd, const clt_run *run,
                                 const clt_instruction *i, bool *found)
{
    for (int n = i->first; n < i->end; n++) {
        const clt_node *node = sd->plan->nodes[n].node;
        /* An infinite constant may be right, as in a mask. What it spoils is named instead. */
        for (int j = 0; j < node->n_in && !*found; j++)
            if (node->in[j] && node->in[j]->kind != CLT_VALUE_INTERMEDIATE &&
                node->in[j]->kind != CLT_VALUE_CONSTANT)
                CLT_TRY(look_at(s, sd, run, node->in[j], found));
        for (int j = 0; j < node->n_out && !node->op->view && !*found; j++) {
            CLT_TRY(look_at(s, sd, run, node->out[j], found));
            if (*found)
                return find_index(s, sd, run, node);
        }
    }
    return CLT_OK;
}

clt_status clt_diagnosis_fail(const search *s, int64_t step, clt_dtype precision)
{
    /* Messages count steps from 1, as reports do. */
    const char *where = *s->where ? s->where : "the gradient of the whole batch";
    if (*s->index)
        return clt_fail(CLT_NONFINITE,
                        "step %lld: %s is not finite%s: %s; the weights are those before this step",
                        (long long)step + 1, where, s->sample, s->index);
    if (precision == CLT_F16)
        return clt_fail(
            CLT_NONFINITE,
            "step %lld: %s is not finite%s, and no smaller scale of the losses is left to "
            "try (2^-14); the weights are those before this step. bf16 has the range of f32",
            (long long)step + 1, where, s->sample);
    return clt_fail(CLT_NONFINITE,
                    "step %lld: %s is not finite%s; the weights are those before this step",
                    (long long)step + 1, where, s->sample);
}
