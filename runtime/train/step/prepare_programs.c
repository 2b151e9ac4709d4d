/* Makes the programs of a trainer: gathers outlines of all ranks' plans, writes the lists of
 * instructions, and checks all devices together. */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/vec.h"
#include "train/planner/balance.h"
#include "train/step/states.h"
#include "train/program/check.h"
#include "train/step/programs_internal.h"
#include "train/ranks/world.h"

clt_step_program_input clt_programs_input(const clt_trainer *t, const clt_participant *of,
                                          const clt_outline *outline)
{
    return (clt_step_program_input){.plan = outline,
                                    .participants = t->all.total,
                                    .ranks = t->all.ranks,
                                    .self = (int)(of - t->programs->all),
                                    .mesh = t->all.mesh,
                                    .layout = t->store->replicas[0].layout,
                                    .n_slots = t->store->replicas[0].n_slots,
                                    .sharded = t->sharded,
                                    .unlike = t->unlike,
                                    .after = t->programs->after,
                                    .half = t->options.precision != CLT_F32,
                                    .tree = t->options.virtual_shards != 0,
                                    .streams = t->streams,
                                    .means = clt_states_have_means(t->states),
                                    .scaled = t->options.precision == CLT_F16,
                                    .measures = t->options.rebalance != 0,
                                    .deferred = of->deferred,
                                    .averages = t->options.average.kind != CLT_AVERAGE_NONE,
                                    .poison = t->options.poison != 0,
                                    .in_flight = outline->in_flight,
                                    .rounds = t->shares.max_micro_batches};
}

/* --- outlines -------------------------------------------------------------------------------- */

static clt_status outline_own(clt_trainer *t)
{
    for (int d = 0; d < t->all.own; d++) {
        clt_participant *p = &t->programs->all[t->all.first + d];
        CLT_TRY(clt_outline_create(t->training->devices[d].plan, &p->training));
        CLT_TRY(clt_outline_create(t->evaluation->devices[d].plan, &p->evaluation));
        p->deferred = clt_balance_defers(&t->options, &t->store->replicas[d].device->caps,
                                         p->training.n_collectives > 0);
    }
    return CLT_OK;
}

static clt_status pack_own(const clt_trainer *t, int64_t **numbers, int *count)
{
    int room = 0;
    for (int d = 0; d < t->all.own; d++) {
        const clt_participant *p = &t->programs->all[t->all.first + d];
        CLT_TRY(CLT_PUSH(*numbers, *count, room, (int64_t)p->deferred));
        CLT_TRY(clt_outline_pack(&p->training, numbers, count, &room));
        CLT_TRY(clt_outline_pack(&p->evaluation, numbers, count, &room));
    }
    return CLT_OK;
}

static clt_status unpack_rank(clt_trainer *t, int rank, const int64_t *numbers, int count)
{
    int at = 0;
    for (int p = t->all.begins[rank]; p < t->all.begins[rank + 1]; p++) {
        clt_participant *of = &t->programs->all[p];
        if (at >= count)
            return clt_fail(CLT_FORMAT, "rank %d sent too few outlines", rank);
        of->deferred = numbers[at++] != 0;
        CLT_TRY(clt_outline_unpack(numbers, count, &at, &of->training));
        CLT_TRY(clt_outline_unpack(numbers, count, &at, &of->evaluation));
    }
    return CLT_OK;
}

/* Outlines are exchanged only if they differ between ranks. */
static clt_status tell_outlines(clt_trainer *t, const int64_t *own, int count)
{
    const int64_t head[] = {count, (int64_t)clt_hash(own, (size_t)count * sizeof *own, 0)};
    void *heads, *all = NULL;
    CLT_TRY(clt_ranks_gather(t->all.world, head, sizeof head, &heads));
    const int64_t(*of)[2] = heads;
    int64_t most = 0;
    bool alike = true;
    for (int r = 0; r < t->all.ranks; r++) {
        most = of[r][0] > most ? of[r][0] : most;
        alike = alike && !memcmp(of[r], head, sizeof head);
    }
    int64_t *mine = clt_calloc((size_t)most + 1, sizeof *mine);
    clt_status status = clt_world_agree(&t->all, mine ? CLT_OK : CLT_OUT_OF_MEMORY);
    if (status == CLT_OK)
        memcpy(mine, own, (size_t)count * sizeof *own);
    if (status == CLT_OK && !alike)
        status = clt_ranks_gather(t->all.world, mine, (size_t)most * sizeof *mine, &all);
    for (int r = 0; status == CLT_OK && r < t->all.ranks; r++)
        if (r != t->all.rank)
            status =
                unpack_rank(t, r, alike ? own : (const int64_t *)all + r * most, (int)of[r][0]);
    CLT_FREE(all, mine, heads);
    return clt_world_agree(&t->all, status);
}

static clt_status exchange_outlines(clt_trainer *t)
{
    int64_t *own = NULL;
    int count = 0;
    clt_status status = outline_own(t);
    CLT_NEXT(status, pack_own(t, &own, &count));
    status = clt_world_agree(&t->all, status);
    if (status == CLT_OK && t->all.ranks > 1)
        status = tell_outlines(t, own, count);
    clt_free(own);
    return status;
}

/* --- lists ----------------------------------------------------------------------------------- */

static clt_status generate_all(const clt_step_program_input *input, clt_step_program_kind kind,
                               clt_plan_programs *p)
{
    clt_step_program_input in = *input;
    for (int known = 0; known < 2; known++)
        for (int load = 0; load < CLT_LOAD_COUNT; load++) {
            in.host_weights = known != 0;
            CLT_TRY(
                clt_step_program_generate(&in, kind, (clt_load)load, &p->lists[kind][known][load]));
        }
    return CLT_OK;
}

static const clt_step_program_kind of_training[] = {
    CLT_PROGRAM_STEP,           CLT_PROGRAM_GRADIENTS, CLT_PROGRAM_FORWARD, CLT_PROGRAM_BACKWARD,
    CLT_PROGRAM_BACKWARD_AGAIN, CLT_PROGRAM_REDUCE,    CLT_PROGRAM_REDUCED, CLT_PROGRAM_APPLY,
    CLT_PROGRAM_APPLY_GIVEN,    CLT_PROGRAM_WEIGHTS,   CLT_PROGRAM_VERIFY};

enum { OF_TRAINING = sizeof of_training / sizeof *of_training };

clt_status clt_programs_outside(const clt_trainer *t, int d, const clt_outline *outline,
                                bool shared, clt_plan_programs *p)
{
    clt_step_program_input input =
        clt_programs_input(t, &t->programs->all[t->all.first + d], outline);
    input.shared = shared;
    return generate_all(&input, CLT_PROGRAM_OUTSIDE, p);
}

static clt_status generate_own(clt_trainer *t)
{
    for (int d = 0; d < t->all.own; d++) {
        const clt_participant *of = &t->programs->all[t->all.first + d];
        const clt_step_program_input input = clt_programs_input(t, of, &of->training);
        for (int k = 0; k < OF_TRAINING; k++)
            CLT_TRY(generate_all(&input, of_training[k], &t->programs->training[d]));
        CLT_TRY(clt_programs_outside(t, d, &of->evaluation, t->evaluation->shared,
                                     &t->programs->evaluation[d]));
    }
    return CLT_OK;
}

/* --- check ----------------------------------------------------------------------------------- */

static clt_status check_all(const clt_trainer *t)
{
    const size_t n = (size_t)t->all.total;
    clt_step_program_input *training = clt_calloc(n, sizeof *training),
                           *evaluation = clt_calloc(n, sizeof *evaluation);
    for (size_t p = 0; training && evaluation && p < n; p++) {
        const clt_participant *of = &t->programs->all[p];
        training[p] = clt_programs_input(t, of, &of->training);
        evaluation[p] = clt_programs_input(t, of, &of->evaluation);
        training[p].shared = evaluation[p].shared = t->evaluation->shared;
    }
    const clt_check_world world = {t->all.total, training, evaluation, t->shares.max_micro_batches};
    const clt_status status =
        training && evaluation ? clt_step_programs_check_all(&world) : CLT_OUT_OF_MEMORY;
    CLT_FREE(training, evaluation);
    return status;
}

/* --- all ------------------------------------------------------------------------------------- */

static clt_status allocate(clt_trainer *t)
{
    const clt_buckets *layout = t->store->replicas[0].layout;
    const size_t n = (size_t)t->all.own, buckets = (size_t)layout->n_buckets + 1;
    struct clt_programs *p = t->programs = CLT_NEW(struct clt_programs);
    CLT_TRY_MEMORY(p);
    p->n_devices = t->all.own;
    p->n_all = t->all.total;
    p->all = clt_calloc((size_t)t->all.total, sizeof *p->all);
    p->training = clt_calloc(n, sizeof *p->training);
    p->evaluation = clt_calloc(n, sizeof *p->evaluation);
    p->after = clt_calloc(buckets, sizeof *p->after);
    CLT_TRY_MEMORY(p->all && p->training && p->evaluation && p->after);
    return CLT_OK;
}

clt_status clt_programs_create(clt_trainer *t)
{
    CLT_TRY(clt_world_agree(&t->all, allocate(t)));
    CLT_TRY(exchange_outlines(t));
    for (int p = 0; p < t->all.total; p++)
        clt_outline_places(&t->programs->all[p].training, t->programs->after);
    clt_status status = generate_own(t);
    CLT_NEXT(status, check_all(t));
    return clt_world_agree(&t->all, status);
}
