/* Measures the plans of a mesh's devices, without the collectives between them. */
#include "train/meshes/measure.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "train/core/device_threads.h"
#include "train/ranks/connect.h"
#include "train/ranks/world.h"
#include "tune/lab.h"

enum { ROUNDS = 5, FEW_ROUNDS = 3, MOST_RUNS = 1000 };

/* The least time of a round, in seconds. Noise disturbs runs of LONG seconds little, so few rounds
 * of simulated machines, which have no other ranks to agree with, suffice then. */
static const double ROUND = 0.03, LONG = 0.5;

/* A device with one of its plans. */
typedef struct bench {
    clt_lab lab;
    int nodes; /* how many to run, from the first on */
    int runs;
    double seconds; /* of a run in the last round */
    int *piece_of;  /* by node of the lab's plan; NULL: there is no choice of cuts */
    int n_pieces;
    double *pieces; /* of a run in the last round, see clt_mesh_place; NULL: not wanted */
} bench;

typedef struct lab_set {
    bench *benches;
    int count;
    int rounds;
    const clt_world *world;
    clt_device_threads *threads;
} lab_set;

/* Micro-batches run one after the other here, so a plan has one of them in flight. */
static clt_status open_bench(const clt_mesh_setting *s, const clt_mesh_facts *f, int place,
                             bench *b)
{
    const clt_mesh_place *p = &f->places[place];
    clt_device *device = s->devices[p->device];
    clt_plan_options options = p->plan->options;
    options.in_flight = 0;
    options.mesh = &f->shape;
    options.participant = p->participant;
    CLT_TRY(clt_lab_open(&b->lab, device, f->graph, &options));
    CLT_TRY(clt_lab_plan(&b->lab, f->graph, &options, &s->tuning[p->device]));
    return clt_mesh_pieces_of(b->lab.plan, &b->piece_of, &b->n_pieces);
}

static clt_status run(void *arg, int d)
{
    bench *b = &((lab_set *)arg)->benches[d];
    const double began = clt_clock();
    for (int k = 0; k < b->runs; k++)
        CLT_TRY(clt_lab_run(&b->lab, 0, b->nodes));
    CLT_TRY(clt_device_finish(b->lab.device));
    b->seconds = (clt_clock() - began) / b->runs;
    return CLT_OK;
}

/* The first run compiles kernels. */
static clt_status find_runs(void *arg, int d)
{
    bench *b = &((lab_set *)arg)->benches[d];
    b->runs = 1;
    CLT_TRY(run(arg, d));
    CLT_TRY(run(arg, d));
    b->runs = b->seconds * MOST_RUNS < ROUND ? MOST_RUNS : 1 + (int)(ROUND / b->seconds);
    return CLT_OK;
}

/* Runs forward and then whole plans, by turns. times[d] and times[count + d] become the medians. */
static clt_status run_rounds(lab_set *set, double *times)
{
    double rounds[2][CLT_MOST_DEVICES][ROUNDS];
    for (int r = 0; r < set->rounds; r++)
        for (int w = 0; w < 2; w++) {
            for (int d = 0; d < set->count; d++) {
                const clt_plan *plan = set->benches[d].lab.plan;
                set->benches[d].nodes = w ? plan->n_nodes : plan->n_forward;
            }
            CLT_TRY(
                clt_ranks_agree(set->world, clt_device_threads_run(set->threads, run, set), NULL));
            for (int d = 0; d < set->count; d++)
                rounds[w][d][r] = set->benches[d].seconds;
        }
    for (int w = 0; w < 2; w++)
        for (int d = 0; d < set->count; d++)
            times[w * set->count + d] = clt_clock_median(rounds[w][d], set->rounds);
    return CLT_OK;
}

/* Runs a plan and waits behind each part that lies in one piece. */
static clt_status run_parts(bench *b)
{
    const clt_plan *plan = b->lab.plan;
    double began = clt_clock();
    for (int first = 0, end; first < plan->n_nodes; first = end) {
        const bool backward = first >= plan->n_forward;
        double *own = &b->pieces[2 * b->piece_of[first]];
        for (end = first + 1; end < plan->n_nodes && (end >= plan->n_forward) == backward &&
                              b->piece_of[end] == b->piece_of[first];)
            end++;
        CLT_TRY(clt_lab_run(&b->lab, first, end));
        CLT_TRY(clt_device_finish(b->lab.device));
        const double now = clt_clock();
        own[0] += backward ? 0 : (now - began) / b->runs;
        own[1] += (now - began) / b->runs;
        began = now;
    }
    return CLT_OK;
}

static clt_status run_pieces(void *arg, int d)
{
    bench *b = &((lab_set *)arg)->benches[d];
    for (int k = 0; b->pieces && k < b->runs; k++)
        CLT_TRY(run_parts(b));
    return CLT_OK;
}

/* Writes the medians of the times of its pieces to pieces[d], which has `room` of them. */
static clt_status measure_pieces(lab_set *set, double *const *pieces, int room)
{
    const size_t most = 2 * (size_t)room, each = (size_t)set->count * most;
    double *rounds = clt_calloc(ROUNDS * each + 1, sizeof *rounds);
    clt_status status = clt_ranks_agree(set->world, rounds ? CLT_OK : CLT_OUT_OF_MEMORY, NULL);
    for (int r = 0; status == CLT_OK && r < set->rounds; r++) {
        for (int d = 0; d < set->count; d++)
            if (pieces[d] && set->benches[d].n_pieces)
                set->benches[d].pieces = rounds + (size_t)r * each + (size_t)d * most;
        status = clt_ranks_agree(set->world, clt_device_threads_run(set->threads, run_pieces, set),
                                 NULL);
    }
    for (int d = 0; status == CLT_OK && d < set->count; d++)
        for (int p = 0; pieces[d] && p < 2 * set->benches[d].n_pieces; p++) {
            double own[ROUNDS];
            for (int r = 0; r < set->rounds; r++)
                own[r] = rounds[(size_t)r * each + (size_t)d * most + (size_t)p];
            pieces[d][p] = clt_clock_median(own, set->rounds);
        }
    clt_free(rounds);
    return status;
}

#ifdef CLT_TESTING
const double *clt_mesh_testing_pieces;

/* Replaces what was measured of a plan. */
static void inject(const clt_mesh_plan *plan, double *forward, double *whole, double *pieces)
{
    if (!clt_mesh_testing_pieces || !pieces)
        return;
    *forward = *whole = 0;
    for (int p = 0; p < plan->n_pieces; p++) {
        bool present = false;
        for (int i = 0; i < plan->n_nodes; i++)
            present = present || plan->piece_of[i] == p;
        pieces[2 * p + 1] = present ? clt_mesh_testing_pieces[p] : 0;
        pieces[2 * p] = pieces[2 * p + 1] / 3;
        *forward += pieces[2 * p];
        *whole += pieces[2 * p + 1];
    }
}
#endif

/* Measures `count` places, all at once. pieces[d]: room for the times of the pieces of place d, or
 * NULL. */
static clt_status measure(const clt_mesh_setting *s, const clt_world *world,
                          const clt_mesh_facts *f, const int *places, int count, double *times,
                          double *const *pieces)
{
    lab_set set = {.count = count, .rounds = ROUNDS, .world = world};
    set.benches = clt_calloc((size_t)count, sizeof *set.benches);
    clt_status status = set.benches ? CLT_OK : CLT_OUT_OF_MEMORY;
    for (int d = 0; status == CLT_OK && d < count; d++) {
        status = open_bench(s, f, places[d], &set.benches[d]);
        if (status == CLT_OK)
            set.benches[d].nodes = set.benches[d].lab.plan->n_nodes;
    }
    CLT_NEXT(status, clt_device_threads_create(count, &set.threads));
    CLT_NEXT(status, clt_device_threads_run(set.threads, find_runs, &set));
    status = clt_ranks_agree(world, status, NULL);
    if (status == CLT_OK && s->simulated && set.benches[0].seconds > LONG)
        set.rounds = FEW_ROUNDS;
    CLT_NEXT(status, run_rounds(&set, times));
    if (status == CLT_OK && f->n_pieces)
        status = measure_pieces(&set, pieces, f->n_pieces);
#ifdef CLT_TESTING
    for (int d = 0; status == CLT_OK && d < count; d++)
        inject(f->places[places[d]].plan, &times[d], &times[count + d], pieces[d]);
#endif
    clt_device_threads_destroy(set.threads);
    for (int d = 0; set.benches && d < count; d++) {
        clt_free(set.benches[d].piece_of);
        if (set.benches[d].lab.device)
            clt_lab_close(&set.benches[d].lab);
    }
    clt_free(set.benches);
    return status;
}

/* Gives all ranks the times of all places. */
static clt_status share(const clt_mesh_setting *s, const clt_world *world, const double *own,
                        clt_mesh_facts *f)
{
    const int n = s->count;
    void *all;
    CLT_TRY(clt_ranks_gather(world, own, 2 * (size_t)n * sizeof *own, &all));
    for (int i = 0; i < f->n_places; i++) {
        clt_mesh_place *p = &f->places[i];
        const double *of = (const double *)all + p->participant / n * 2 * n;
        p->forward = of[p->device];
        p->whole = of[n + p->device];
    }
    clt_free(all);
    return CLT_OK;
}

/* Gives all ranks the times of the pieces of all places. */
static clt_status share_pieces(const clt_mesh_setting *s, const clt_world *world, clt_mesh_facts *f)
{
    const size_t each = 2 * (size_t)f->n_pieces, own = (size_t)s->count * each;
    void *all = NULL;
    if (!world || !f->n_pieces)
        return CLT_OK;
    double *mine = clt_calloc(own, sizeof *mine);
    clt_status status = clt_ranks_agree(world, mine ? CLT_OK : CLT_OUT_OF_MEMORY, NULL);
    for (int d = 0; status == CLT_OK && d < s->count; d++)
        memcpy(mine + (size_t)d * each, f->places[s->rank * s->count + d].pieces,
               each * sizeof *mine);
    CLT_NEXT(status, clt_ranks_gather(world, mine, own * sizeof *mine, &all));
    for (int i = 0; status == CLT_OK && i < f->n_places; i++)
        memcpy(f->places[i].pieces, (const double *)all + (size_t)f->places[i].participant * each,
               each * sizeof *mine);
    CLT_FREE(mine, all);
    return status;
}

static clt_status measure_at_hand(const clt_mesh_setting *s, const clt_world *world,
                                  clt_mesh_facts *f)
{
    int places[CLT_MOST_DEVICES];
    double times[2 * CLT_MOST_DEVICES], *pieces[CLT_MOST_DEVICES];
    for (int d = 0; d < s->count; d++) {
        places[d] = s->rank * s->count + d;
        pieces[d] = f->places[places[d]].pieces;
    }
    CLT_TRY(measure(s, world, f, places, s->count, times, pieces));
    CLT_TRY(share(s, world, times, f));
    return share_pieces(s, world, f);
}

/* Devices of other meshes may have had the same plans. */
static clt_status measure_simulated(const clt_mesh_setting *s, clt_mesh_facts *f)
{
    for (int i = 0; i < f->n_places; i++) {
        clt_mesh_plan *plan = f->places[i].plan;
        double times[2];
        if (clt_mesh_plans_measured(s->plans, plan))
            continue;
        CLT_TRY(measure(s, NULL, f, &i, 1, times, &f->places[i].pieces));
        if (plan->n_pieces)
            memcpy(plan->pieces, f->places[i].pieces,
                   2 * (size_t)plan->n_pieces * sizeof *plan->pieces);
        plan->forward = times[0];
        plan->whole = times[1];
        plan->measured = true;
    }
    return CLT_OK;
}

void clt_mesh_take_times(const clt_mesh_setting *s, clt_mesh_facts *f)
{
    bool all = true;
    for (int i = 0; all && i < f->n_places; i++)
        all = clt_mesh_plans_measured(s->plans, f->places[i].plan);
    for (int i = 0; all && i < f->n_places; i++) {
        f->places[i].forward = f->places[i].plan->forward;
        f->places[i].whole = f->places[i].plan->whole;
        if (f->places[i].plan->n_pieces)
            memcpy(f->places[i].pieces, f->places[i].plan->pieces,
                   2 * (size_t)f->places[i].plan->n_pieces * sizeof *f->places[i].pieces);
    }
    f->measured = all;
}

clt_status clt_mesh_measure_plans(const clt_mesh_setting *s, const clt_world *world,
                                  clt_mesh_facts *f)
{
    const clt_status status = s->simulated ? measure_simulated(s, f) : measure_at_hand(s, world, f);
    if (s->simulated && status == CLT_OK)
        clt_mesh_take_times(s, f);
    if (status != CLT_OK)
        return clt_fail_prefix(status, "measuring a step on the mesh '%s': ", f->mesh);
    f->measured = true;
    return CLT_OK;
}
