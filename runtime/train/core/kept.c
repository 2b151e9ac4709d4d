#include "train/core/kept.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

/* Returns the gradient that the plan computes of an input; NULL if it computes none. */
static const clt_value *gradient_of(const clt_plan *plan, const clt_value *input)
{
    const size_t n = strlen(input->name);
    for (int i = 0; input->input_gradient && i < plan->graph->n_values; i++) {
        const clt_value *v = plan->graph->values[i];
        if (v->output && v->input_gradient && !strncmp(v->name, input->name, n) &&
            !strcmp(v->name + n, CLT_INPUT_GRADIENT))
            return v;
    }
    return NULL;
}

clt_status clt_kept_create(clt_session_device *d)
{
    bool any = false;
    for (int i = 0; i < d->plan->n_inputs; i++)
        any = any || gradient_of(d->plan, d->plan->inputs[i]);
    if (!any)
        return CLT_OK;
    d->kept = clt_calloc((size_t)d->plan->n_inputs, sizeof *d->kept);
    CLT_TRY_MEMORY(d->kept);
    for (int i = 0; i < d->plan->n_inputs; i++) {
        const clt_value *input = d->plan->inputs[i];
        char what[160];
        d->kept[i].gradient = gradient_of(d->plan, input);
        if (!d->kept[i].gradient)
            continue;
        snprintf(what, sizeof what, "gradient of input %s", input->name);
        CLT_TRY(clt_device_buffer_create(
            d->device,
            clt_session_input_bytes(input, d->plan->options.max_batch) * d->max_micro_batches,
            CL_MEM_READ_WRITE, what, &d->kept[i].buffer));
    }
    return CLT_OK;
}

void clt_kept_free(clt_session_device *d)
{
    for (int i = 0; d->kept && i < d->plan->n_inputs; i++)
        clt_release_buffer(d->kept[i].buffer);
    clt_free(d->kept);
    d->kept = NULL;
}

/* The gradient of a whole input is the sum over the samples of all micro-batches. */
static clt_status add_whole(const clt_session_device *d, const clt_kept *kept, clt_view from,
                            clt_part part, clt_update *update)
{
    const clt_view to = {kept->buffer, 0};
    const int64_t bytes = clt_type_elements(&kept->gradient->type, 0) * (int64_t)sizeof(float);
    if (!part.count)
        return part.micro ? CLT_OK : clt_enqueue_zeros(d->device, to, bytes);
    return part.micro ? clt_update_add(update, to, from, bytes)
                      : clt_enqueue_copy(d->device, from, to, bytes);
}

clt_status clt_kept_add(clt_session_device *d, const clt_run *run, clt_part part,
                        clt_update *update)
{
    for (int i = 0; d->kept && i < d->plan->n_inputs; i++) {
        const clt_kept *kept = &d->kept[i];
        clt_view from;
        if (!kept->gradient)
            continue;
        CLT_TRY(clt_exec_locate(d->exec, run, kept->gradient, &from));
        if (!clt_type_has_batch(&kept->gradient->type)) {
            CLT_TRY(add_whole(d, kept, from, part, update));
        } else if (part.count) {
            const int64_t sample =
                clt_type_coefficient(&kept->gradient->type) * (int64_t)sizeof(float);
            const clt_view to = {kept->buffer, (part.begin - part.device_begin) * sample};
            CLT_TRY(clt_enqueue_copy(d->device, from, to, part.count * sample));
        }
    }
    return CLT_OK;
}

void clt_kept_note(clt_session *s, const clt_shares *shares)
{
    for (int d = 0; d < s->n_devices; d++) {
        clt_session_device *sd = &s->devices[d];
        sd->kept_begin = clt_shares_begin(shares, d);
        sd->kept_count = clt_shares_samples(shares, d);
    }
    s->kept_count = shares->offsets[shares->parts];
}
