#include "train/step/programs_internal.h"

#include "base/alloc.h"
#include "base/error.h"
#include "train/program/check.h"
#include "train/step/diagnose.h"

/* --- making ---------------------------------------------------------------------------------- */

clt_status clt_programs_predict(clt_trainer *t)
{
    struct clt_programs *p = t->programs;
    clt_outline outline;
    p->prediction = clt_calloc((size_t)t->all.own, sizeof *p->prediction);
    CLT_TRY_MEMORY(p->prediction);
    for (int d = 0; d < t->all.own; d++) {
        CLT_TRY(clt_outline_create(t->prediction->devices[d].plan, &outline));
        const clt_status status =
            clt_programs_outside(t, d, &outline, t->prediction->shared, &p->prediction[d]);
        clt_outline_free(&outline);
        CLT_TRY(status);
    }
    return CLT_OK;
}

static void free_programs(clt_plan_programs *all, int n)
{
    for (int d = 0; all && d < n; d++)
        for (int kind = 0; kind < CLT_PROGRAM_KIND_COUNT; kind++)
            for (int known = 0; known < 2; known++)
                for (int load = 0; load < CLT_LOAD_COUNT; load++)
                    clt_step_program_free(&all[d].lists[kind][known][load]);
    clt_free(all);
}

void clt_programs_destroy(clt_trainer *t)
{
    struct clt_programs *p = t->programs;
    if (!p)
        return;
    free_programs(p->training, p->n_devices);
    free_programs(p->evaluation, p->n_devices);
    free_programs(p->prediction, p->n_devices);
    for (int i = 0; p->all && i < p->n_all; i++) {
        clt_outline_free(&p->all[i].training);
        clt_outline_free(&p->all[i].evaluation);
    }
    CLT_FREE(p->all, p->after, p);
    t->programs = NULL;
}

/* --- running --------------------------------------------------------------------------------- */

static const clt_step_program *selected(const clt_trainer *t, int d)
{
    const struct clt_programs *p = t->programs;
    if (p->kind == CLT_PROGRAM_COPY)
        return p->copy;
    const clt_plan_programs *of = &p->training[d];
    if (p->kind == CLT_PROGRAM_OUTSIDE)
        of = t->call.session == t->evaluation ? &p->evaluation[d] : &p->prediction[d];
    if (p->kind == CLT_PROGRAM_VERIFY) /* needs no batch */
        return &of->lists[p->kind][0][0];
    const clt_share share = clt_shares_device(&t->shares, d);
    return &of->lists[p->kind][t->call.weights_known]
                     [clt_load_of(share.rounds, share.micro_batches)];
}

/* Collects the data that the instructions of a call's program work on. */
static clt_bound bind(clt_trainer *t, int d, const clt_call *call)
{
    return (clt_bound){.device = d,
                       .replica = &t->store->replicas[d],
                       .arena = &t->store->arenas[d],
                       .call = call,
                       .leaves = t->shares.bounds ? clt_shares_leaves(&t->shares, d) : 0,
                       .all = &t->all,
                       .updates = &t->devices[d],
                       .exchange = &t->exchange,
                       .states = t->states,
                       .verification = t->verification};
}

static clt_status run_device(void *arg, int d)
{
    clt_trainer *t = arg;
    clt_bound bound = bind(t, d, &t->call);
    bound.leads = clt_shares_leads(&t->shares, d);
    if (t->call.session)
        bound.share = clt_shares_device(&t->shares, d);
    const clt_status status = clt_step_program_run(&bound, selected(t, d));
    if (status == CLT_OK)
        return CLT_OK;
    clt_lost_note(t, d, status);
    if (t->programs->what)
        clt_fail_prefix(status, "%s: ", t->programs->what);
    if (t->programs->awaited && t->exchange.collectives.stop && status != CLT_ABORTED)
        clt_lost_stop(t, status);
    return status;
}

clt_status clt_programs_run(clt_trainer *t, clt_step_program_kind kind, const char *what,
                            bool awaited)
{
    t->programs->kind = kind;
    t->programs->what = what;
    t->programs->awaited = awaited;
    t->call.step = t->steps;
    t->call.updates = t->steps - t->fresh;
    t->call.seed = t->options.seed;
    t->call.lr = t->results.records[t->call.entry].lr;
    if (t->call.session)
        t->call.session->totals[t->call.entry] = t->shares.total;
    return clt_device_threads_run(t->threads, run_device, t);
}

clt_status clt_programs_copy(clt_trainer *t, int root)
{
    const size_t n = (size_t)t->all.total;
    clt_step_program copy = {0}; /* of all devices */
    clt_step_program_input *inputs = clt_calloc(n, sizeof *inputs);
    clt_check_device *devices = clt_calloc(n, sizeof *devices);
    clt_status status = inputs && devices ? CLT_OK : CLT_OUT_OF_MEMORY;
    for (size_t p = 0; status == CLT_OK && p < n; p++) {
        const clt_participant *of = &t->programs->all[p];
        inputs[p] = clt_programs_input(t, of, &of->training);
        inputs[p].root = root;
        devices[p] = (clt_check_device){.input = &inputs[p], .program = &copy};
    }
    CLT_NEXT(status, clt_step_program_generate(&inputs[0], CLT_PROGRAM_COPY, CLT_LOAD_NONE, &copy));
    CLT_NEXT(status, clt_step_programs_check(CLT_PROGRAM_COPY, devices, (int)n, NULL));
    t->programs->copy = &copy;
    CLT_NEXT(status, clt_programs_run(t, CLT_PROGRAM_COPY, NULL, false));
    clt_step_program_free(&copy);
    CLT_FREE(inputs, devices);
    return status;
}

clt_status clt_programs_join_stages(clt_trainer *t)
{
    const int stages = clt_store_stages(t->store);
    if (stages == 1)
        return CLT_OK;
    bool *used = clt_calloc((size_t)(stages * stages), sizeof *used);
    for (int i = 0; used && i < t->store->layout.n_slots; i++) {
        const clt_slot *slot = &t->store->layout.slots[i];
        const int first = clt_slot_next_stage(slot, -1);
        if (clt_slot_tied(slot))
            used[first * stages + clt_slot_next_stage(slot, first)] = true;
    }
    for (int p = 0; used && p < t->all.total; p++) {
        const int stage = clt_mesh_coordinate(&t->all.mesh, CLT_AXIS_PIPELINE, p);
        clt_outline_mark_edges(&t->programs->all[p].training, stage, stages, used);
        clt_outline_mark_edges(&t->programs->all[p].evaluation, stage, stages, used);
    }
    clt_status status = clt_world_agree(&t->all, used ? CLT_OK : CLT_OUT_OF_MEMORY);
    CLT_NEXT(status, clt_exchange_join_stages(&t->exchange, &t->all, used, &t->store->layout));
    clt_free(used);
    return status;
}

/* --- the diagnosis --------------------------------------------------------------------------- */

/* Repeats an earlier step on one device until a non-finite value is found. The step's inputs are
 * still kept. Runs on the caller's thread. */
static clt_status diagnose_device(clt_trainer *t, int d, int64_t step, clt_diagnosis *diagnosis)
{
    const clt_participant *of = &t->programs->all[t->all.first + d];
    const clt_session_device *sd = &t->training->devices[d];
    const clt_step_program_input input = clt_programs_input(t, of, &of->training);
    const int entry = (int)(step % CLT_RESULT_RING);
    const clt_step_record *record = &t->results.records[entry];
    /* Two later steps have replaced its inputs in the buffers: they are fed again. */
    const bool again = t->steps > step + 2 && record->feeds;
    const clt_call call = {.session = t->training,
                           .batch = {.first = sd->firsts[entry],
                                     .feeds = again ? record->feeds : NULL,
                                     .n_feeds = again ? record->n_feeds : 0},
                           .entry = entry,
                           .parity = (int)(step & 1),
                           .step = step,
                           .seed = t->options.seed};
    clt_bound bound = bind(t, d, &call);
    bound.share = clt_share_of(&t->shares, sd->shares[entry]);
    bound.share.micro_batches = bound.share.rounds = sd->micro_batches[entry];
    bound.diagnosis = diagnosis;
    clt_step_program program = {0};
    clt_status status = clt_step_program_generate(
        &input, CLT_PROGRAM_DIAGNOSE, clt_load_of(bound.share.rounds, bound.share.micro_batches),
        &program);
    CLT_NEXT(status, clt_step_program_run(&bound, &program));
    clt_step_program_free(&program);
    return status;
}

/* Returns the step at which the guard stopped. A step that was enqueued before anybody knew of it
 * changes nothing either, whatever its samples. */
static int64_t first_stopped(const clt_trainer *t, int64_t step)
{
    for (; step > 0; step--) {
        const int before = (int)((step - 1) % CLT_RESULT_RING);
        if (t->results.records[before].step != step - 1 || !clt_step_stopped(t, before))
            break;
    }
    return step;
}

clt_status clt_trainer_diagnose(clt_trainer *t, int64_t step)
{
    clt_diagnosis found = {.bad_sample = -1};
    clt_status status = clt_trainer_wait(t);
    step = first_stopped(t, step);
    if (clt_store_stages(t->store) > 1) { /* a stage cannot repeat its nodes alone */
        CLT_TRY(status);
        t->bad_step = step;
        t->bad_sample = -1;
        return clt_fail(CLT_NONFINITE,
                        "the gradient of step %lld is not finite; run it without axis pp to learn "
                        "which value is the cause",
                        (long long)step + 1);
    }
    for (int d = 0; status == CLT_OK && !*found.where && d < t->all.own; d++) {
        found.replica = &t->store->replicas[d];
        status = diagnose_device(t, d, step, &found);
    }
    t->bad_step = step;
    t->bad_sample = found.bad_sample;
    clt_free(found.host);
    CLT_TRY(status);
    return clt_diagnosis_fail(&found, step, t->options.precision);
}
