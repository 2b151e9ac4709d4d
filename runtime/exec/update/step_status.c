/* The step status: the norm of the gradients, whether the step is committed, and loss scaling. */
#include "exec/update/update_internal.h"

#include <math.h>

clt_status clt_update_upstream(clt_update *u, clt_view weight, cl_mem upstream, int index,
                               double coefficient)
{
    call c = begin(u, K_UPSTREAM);
    arg_buffer(&c, weight.buffer);
    arg_long(&c, weight.offset / 4);
    arg_buffer(&c, upstream);
    arg_int(&c, index);
    arg_float(&c, coefficient);
    arg_buffer(&c, u->status);
    return clt_update_run(&c, 1, 1, "loss_upstream", 8);
}

clt_status clt_update_scale_upstream(clt_update *u, cl_mem upstream, int index, double value)
{
    call c = begin(u, K_SCALE_UPSTREAM);
    arg_buffer(&c, upstream);
    arg_int(&c, index);
    arg_float(&c, value);
    arg_buffer(&c, u->status);
    return clt_update_run(&c, 1, 1, "scale_upstream", 8);
}

void clt_update_report_to(clt_update *u, cl_mem reports, int entry)
{
    u->reports = reports;
    u->entry = entry;
}

bool clt_update_reported(const clt_update *u)
{
    return u->reports && u->on_device && !u->stretches.gpu;
}

bool clt_update_commits(const clt_update *u)
{
    return u->host_status[CLT_STEP_STATUS_OK] == 1;
}

/* Computes the partial sums of squares of all stretches. */
static clt_status sum_squares(clt_update *u)
{
    for (int i = 0, first = 0; i < u->stretches.count; i++) {
        const clt_stretch *s = &u->stretches.all[i];
        const int groups = clt_stretches_shares(&u->stretches, s->to - s->from);
        call c = begin(u, K_SQUARE_SUM);
        arg_buffer(&c, gradients_of(u, s->bucket));
        arg_int(&c, s->from / 4);
        arg_int(&c, (s->to - s->from) / 4);
        arg_buffer(&c, u->partials);
        arg_int(&c, first);
        arg_int(&c, groups);
        const int64_t bytes = (s->to - s->from) / 4 * clt_dtype_size(u->options.precision);
        CLT_TRY(u->stretches.gpu
                    ? clt_update_run(&c, (int64_t)groups * CLT_UPDATE_GPU_GROUP,
                                     CLT_UPDATE_GPU_GROUP, "square_sum", bytes)
                    : clt_update_run(&c, groups, groups >= 16 ? 8 : 1, "square_sum", bytes));
        first += groups;
    }
    return CLT_OK;
}

clt_status clt_update_status(clt_update *u)
{
    CLT_TRY(sum_squares(u));
    call c = begin(u, K_STEP_STATUS);
    arg_buffer(&c, u->partials);
    arg_int(&c, u->stretches.partials);
    arg_float(&c, u->options.clip_norm);
    arg_int(&c, u->options.guard);
    arg_buffer(&c, u->status);
    if (!u->stretches.gpu) {
        arg_buffer(&c, u->reports ? u->reports : u->status);
        arg_number(&c, u->reports ? u->entry : 0);
    }
    u->on_device = true;
    return clt_update_run(
        &c, 1, u->stretches.gpu ? CLT_UPDATE_GPU_GROUP : 1, "step_status",
        (u->replica->device->caps.fp64 ? 16 : 8) * (int64_t)u->stretches.partials + 16);
}

/* Adds up as the kernel step_status for CPUs does: in order, in double if the device has it. */
clt_status clt_update_measure(clt_update *u, clt_squares *squares)
{
    const bool wide = u->replica->device->caps.fp64;
    const double *d = u->host_partials;
    const float *f = u->host_partials;
    CLT_TRY(sum_squares(u));
    CLT_TRY(clt_replica_read(u->replica, u->partials, 0,
                             (wide ? 16 : 8) * (int64_t)u->stretches.partials, u->host_partials));
    *squares = (clt_squares){.finite = true};
    for (int i = 0, at = 0; i < u->stretches.count; i++) {
        const clt_stretch *s = &u->stretches.all[i];
        double *sum = s->parts ? &squares->parts : &squares->whole;
        for (int end = at + clt_stretches_shares(&u->stretches, s->to - s->from); at < end; at++) {
            *sum = wide ? *sum + d[2 * at] : (double)((float)*sum + f[2 * at]);
            squares->finite =
                squares->finite && (wide ? d[2 * at + 1] : (double)f[2 * at + 1]) == 0;
        }
    }
    return CLT_OK;
}

static clt_status fill_status(clt_update *u)
{
    u->host_status[CLT_STEP_STATUS_STOPPED] = u->stopped;
    u->host_status[CLT_STEP_STATUS_SCALE] = scales(u) ? u->scaling.scale : 1;
    u->host_status[CLT_STEP_STATUS_GOOD] = (float)u->scaling.good;
    u->host_status[CLT_STEP_STATUS_SKIPPED] = (float)u->scaling.skipped;
    u->on_device = false;
    return clt_enqueue_value(u->replica->device, (clt_view){u->status, 0}, u->host_status,
                             sizeof u->host_status);
}

clt_status clt_update_set_status(clt_update *u, double sum_squares, bool finite)
{
    const float scale = scales(u) ? u->scaling.scale : 1, clip = (float)u->options.clip_norm;
    const float norm = (float)sqrt(sum_squares) / scale;
    clt_scaling after = u->scaling;
    const bool fatal = scales(u) ? !clt_scaling_step(&after, finite) : !finite;
    if (u->options.guard && fatal)
        u->stopped = true;
    if (!u->stopped) /* after a stop no step counts */
        u->scaling = after;
    u->host_status[CLT_STEP_STATUS_OK] = u->stopped || (scales(u) && !finite) ? 0 : 1;
    u->host_status[CLT_STEP_STATUS_FACTOR] =
        (clip > 0 ? fminf(1, clip / (norm + 1e-6f)) : 1) / scale;
    u->host_status[CLT_STEP_STATUS_NORM] = norm;
    u->host_status[CLT_STEP_STATUS_USED] = scale;
    return fill_status(u);
}

clt_status clt_update_scaling(clt_update *u, clt_scaling *scaling)
{
    float floats[CLT_STEP_STATUS];
    if (scales(u) && u->on_device) {
        CLT_TRY(clt_replica_read(u->replica, u->status, 0, sizeof floats, floats));
        u->scaling = (clt_scaling){.scale = floats[CLT_STEP_STATUS_SCALE],
                                   .good = (int32_t)floats[CLT_STEP_STATUS_GOOD],
                                   .skipped = (int32_t)floats[CLT_STEP_STATUS_SKIPPED]};
    }
    *scaling = u->scaling;
    return CLT_OK;
}

clt_status clt_update_set_scaling(clt_update *u, const clt_scaling *scaling)
{
    if (scales(u)) {
        u->scaling = *scaling;
        u->on_device = false;
    }
    return clt_update_reset(u);
}

clt_status clt_update_reset(clt_update *u)
{
    clt_scaling scaling;
    CLT_TRY(clt_update_scaling(u, &scaling));
    u->stopped = false;
    u->host_status[CLT_STEP_STATUS_OK] = u->host_status[CLT_STEP_STATUS_FACTOR] = 1;
    return fill_status(u);
}
