/* The programs of a predictor, and how its devices run them together. */
#include "train/fit/predictor.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/vec.h"
#include "train/program/check.h"
#include "train/ranks/connect.h"
#include "train/step/graph_collectives.h"

/* --- outlines -------------------------------------------------------------------------------- */

/* Reads the outlines of all ranks. `all` has `most` numbers of each rank, behind their count. */
static clt_status unpack(const clt_predictor *p, const int64_t *all, int64_t most,
                         clt_outline *outlines)
{
    for (int r = 0; r < p->all.ranks; r++) {
        const int64_t *numbers = all + r * most;
        int at = 1;
        for (int i = p->all.begins[r]; i < p->all.begins[r + 1]; i++)
            CLT_TRY(clt_outline_unpack(numbers, (int)numbers[0], &at, &outlines[i]));
    }
    return CLT_OK;
}

static clt_status pack(const clt_predictor *p, int64_t **numbers, int *count)
{
    int room = 0;
    CLT_TRY(CLT_PUSH(*numbers, *count, room, (int64_t)0));
    for (int d = 0; d < p->all.own; d++) {
        clt_outline outline;
        CLT_TRY(clt_outline_create(p->session->devices[d].plan, &outline));
        const clt_status status = clt_outline_pack(&outline, numbers, count, &room);
        clt_outline_free(&outline);
        CLT_TRY(status);
    }
    (*numbers)[0] = *count;
    return CLT_OK;
}

/* Finds the outlines of all participants' plans. */
static clt_status gather_outlines(const clt_predictor *p, clt_outline *outlines)
{
    int64_t *own = NULL, most;
    void *all = NULL;
    int count = 0;
    clt_status status = clt_world_agree(&p->all, pack(p, &own, &count));
    most = count;
    CLT_NEXT(status, clt_world_largest(&p->all, &most));
    int64_t *mine = status == CLT_OK ? clt_calloc((size_t)most, sizeof *mine) : NULL;
    if (status == CLT_OK)
        status = clt_world_agree(&p->all, mine ? CLT_OK : CLT_OUT_OF_MEMORY);
    for (int i = 0; status == CLT_OK && i < count; i++)
        mine[i] = own[i];
    CLT_NEXT(status, clt_ranks_gather(p->all.world, mine, (size_t)most * sizeof *mine, &all));
    CLT_NEXT(status, unpack(p, all, most, outlines));
    CLT_FREE(own, mine, all);
    return status;
}

/* --- programs -------------------------------------------------------------------------------- */

static clt_step_program_input input_of(const clt_predictor *p, const clt_outline *outline, int self)
{
    return (clt_step_program_input){.plan = outline,
                                    .participants = p->all.total,
                                    .ranks = p->all.ranks,
                                    .self = self,
                                    .mesh = p->all.mesh,
                                    .layout = p->store->replicas[0].layout,
                                    .carries = true,
                                    .poison = p->options.poison != 0};
}

/* The same for a device that waits for no other. */
static clt_step_program_input input_alone(const clt_predictor *p, const clt_outline *outline)
{
    clt_step_program_input input = input_of(p, outline, 0);
    input.participants = input.ranks = 1;
    return clt_mesh_parse(NULL, 1, &input.mesh) == CLT_OK ? input : (clt_step_program_input){0};
}

static const clt_load loads[] = {CLT_LOAD_NONE, CLT_LOAD_ONE, CLT_LOAD_EMPTY_ONE};
enum { LOADS = sizeof loads / sizeof *loads };

static clt_status generate(const clt_step_program_input *input, clt_step_program *programs)
{
    for (int i = 0; i < LOADS; i++)
        CLT_TRY(
            clt_step_program_generate(input, CLT_PROGRAM_OUTSIDE, loads[i], &programs[loads[i]]));
    return CLT_OK;
}

/* Checks the programs of `n` devices: with samples, and without some at the first places of dp, or
 * at the others. */
static clt_status check(const clt_step_program_input *inputs, clt_step_program *programs,
                        clt_check_device *devices, int n)
{
    static const int samples[][2] = {{1, 1}, {0, 1}, {1, 0}};
    for (size_t k = 0; k < sizeof samples / sizeof *samples; k++) {
        for (int i = 0; i < n; i++) {
            const clt_step_program_input *in = &inputs[i];
            const int part = clt_mesh_coordinate(&in->mesh, CLT_AXIS_DATA, in->self);
            const int micro = samples[k][part != 0];
            const int rounds = micro || clt_outline_joins_data(in->plan);
            devices[i] = (clt_check_device){
                in, &programs[i * CLT_LOAD_COUNT + (int)clt_load_of(rounds, micro)], rounds, micro};
        }
        CLT_TRY(clt_step_programs_check(CLT_PROGRAM_OUTSIDE, devices, n, NULL));
    }
    return CLT_OK;
}

/* Makes the programs of `n` devices, which run together. */
static clt_status make_programs(const clt_step_program_input *inputs, int n,
                                clt_step_program *programs)
{
    clt_check_device *devices = clt_calloc((size_t)n, sizeof *devices);
    clt_status status = devices ? CLT_OK : CLT_OUT_OF_MEMORY;
    for (int i = 0; status == CLT_OK && i < n; i++)
        status = generate(&inputs[i], programs + i * CLT_LOAD_COUNT);
    CLT_NEXT(status, check(inputs, programs, devices, n));
    clt_free(devices);
    return status;
}

static void free_programs(clt_step_program *programs, int n)
{
    for (int i = 0; programs && i < n * CLT_LOAD_COUNT; i++)
        clt_step_program_free(&programs[i]);
    clt_free(programs);
}

/* Makes and checks the programs of all ranks' devices, and keeps those of this process. */
static clt_status program_all(clt_predictor *p, const clt_outline *outlines)
{
    const size_t n = (size_t)p->all.total;
    clt_step_program_input *inputs = clt_calloc(n, sizeof *inputs);
    clt_step_program *programs = clt_calloc(n * CLT_LOAD_COUNT, sizeof *programs);
    clt_status status = inputs && programs ? CLT_OK : CLT_OUT_OF_MEMORY;
    for (int i = 0; status == CLT_OK && i < p->all.total; i++)
        inputs[i] = input_of(p, &outlines[i], i);
    CLT_NEXT(status, make_programs(inputs, p->all.total, programs));
    for (int i = 0; status == CLT_OK && i < p->all.own * CLT_LOAD_COUNT; i++) {
        clt_step_program *from = &programs[p->all.first * CLT_LOAD_COUNT + i];
        p->programs[i] = *from;
        *from = (clt_step_program){0};
    }
    free_programs(programs, p->all.total);
    clt_free(inputs);
    return status;
}

static clt_status program_alone(clt_predictor *p, int d)
{
    clt_outline outline;
    CLT_TRY(clt_outline_create(p->session->devices[d].plan, &outline));
    const clt_step_program_input input = input_alone(p, &outline);
    const clt_status status = make_programs(&input, 1, p->programs + d * CLT_LOAD_COUNT);
    clt_outline_free(&outline);
    return status;
}

/* --- connections ----------------------------------------------------------------------------- */

static clt_status join_stages(clt_predictor *p, const clt_outline *outlines)
{
    const int stages = clt_store_stages(p->store);
    if (stages == 1)
        return CLT_OK;
    bool *used = clt_calloc((size_t)(stages * stages), sizeof *used);
    for (int i = 0; used && i < p->all.total; i++)
        clt_outline_mark_edges(
            &outlines[i], clt_mesh_coordinate(&p->all.mesh, CLT_AXIS_PIPELINE, i), stages, used);
    clt_status status = clt_world_agree(&p->all, used ? CLT_OK : CLT_OUT_OF_MEMORY);
    CLT_NEXT(status, clt_exchange_join_stages(&p->exchange, &p->all, used, NULL));
    clt_free(used);
    return status;
}

static clt_status prepare(clt_predictor *p)
{
    int most = 0;
    CLT_TRY(clt_segments_check(p->session));
    for (int d = 0; d < p->all.own; d++) {
        const int own = p->session->devices[d].plan->n_collectives;
        most = own > most ? own : most;
    }
    CLT_TRY(clt_exchange_create(p->store->replicas[0].layout, p->all.own, &p->exchange));
    CLT_TRY(clt_exchange_reserve(&p->exchange, most, 0));
    return clt_device_threads_create(p->all.own, &p->threads);
}

static clt_status open(clt_predictor *p, const clt_outline *outlines)
{
    clt_device *devices[CLT_MOST_DEVICES];
    clt_collectives *c = &p->exchange.collectives;
    for (int d = 0; d < p->all.own; d++)
        devices[d] = p->store->replicas[d].device;
    CLT_TRY(clt_collectives_open(devices, p->all.own, p->all.world, p->options.comm_timeout,
                                 CLT_CONNECT_AUTO, c));
    if (c->needs_progress(c->self))
        clt_device_threads_while_waiting(p->threads, c->progress, c->self);
    CLT_TRY(clt_exchange_split(&p->exchange, &p->all));
    CLT_TRY(join_stages(p, outlines));
    return clt_segments_reserve(p->session, p->session, &p->all, &p->exchange);
}

static clt_status connect(clt_predictor *p, clt_outline *outlines)
{
    CLT_TRY(clt_world_agree(&p->all, outlines ? prepare(p) : CLT_OUT_OF_MEMORY));
    CLT_TRY(gather_outlines(p, outlines));
    CLT_TRY(clt_world_agree(&p->all, program_all(p, outlines)));
    return open(p, outlines);
}

clt_status clt_predictor_connect(clt_predictor *p)
{
    p->programs = clt_calloc((size_t)p->all.own * CLT_LOAD_COUNT, sizeof *p->programs);
    CLT_TRY(clt_world_agree(&p->all, p->programs ? CLT_OK : CLT_OUT_OF_MEMORY));
    for (int d = 0; !p->connected && d < p->all.own; d++)
        CLT_TRY(program_alone(p, d));
    if (!p->connected)
        return CLT_OK;
    clt_outline *outlines = clt_calloc((size_t)p->all.total, sizeof *outlines);
    const clt_status status = connect(p, outlines);
    for (int i = 0; outlines && i < p->all.total; i++)
        clt_outline_free(&outlines[i]);
    clt_free(outlines);
    return status;
}

void clt_predictor_disconnect(clt_predictor *p)
{
    clt_exchange_free(&p->exchange);
    clt_device_threads_destroy(p->threads);
    free_programs(p->programs, p->all.own);
}

/* --- runs ------------------------------------------------------------------------------------ */

static clt_status run_device(void *arg, int d)
{
    clt_predictor *p = arg;
    const clt_bound bound = {.device = d,
                             .replica = &p->store->replicas[d],
                             .arena = &p->store->arenas[d],
                             .call = &p->call,
                             .all = &p->all,
                             .exchange = &p->exchange,
                             .share = clt_shares_device(&p->shares, d),
                             .leads = clt_shares_leads(&p->shares, d)};
    const clt_load load = clt_load_of(bound.share.rounds, bound.share.micro_batches);
    const clt_collectives *c = &p->exchange.collectives;
    const clt_status status =
        clt_step_program_run(&bound, &p->programs[d * CLT_LOAD_COUNT + (int)load]);
    if (status == CLT_OK)
        return CLT_OK;
    clt_fail_prefix(status, "prediction: ");
    if (p->connected && status != CLT_ABORTED) /* others wait for this device */
        c->stop(c->self, status, clt_error_message());
    return status;
}

clt_status clt_predictor_run_devices(clt_predictor *p)
{
    if (p->connected)
        return clt_device_threads_run(p->threads, run_device, p);
    for (int d = 0; d < p->all.own; d++)
        CLT_TRY(run_device(p, d));
    return CLT_OK;
}
