/* Measures the plans of a mesh's devices, without the collectives between them. */
#include "train/meshes/measure.h"

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
    return clt_lab_plan(&b->lab, f->graph, &options, &s->tuning[p->device]);
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

/* Measures `count` places, all at once. */
static clt_status measure(const clt_mesh_setting *s, const clt_world *world,
                          const clt_mesh_facts *f, const int *places, int count, double *times)
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
    clt_device_threads_destroy(set.threads);
    for (int d = 0; set.benches && d < count; d++)
        if (set.benches[d].lab.device)
            clt_lab_close(&set.benches[d].lab);
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

static clt_status measure_at_hand(const clt_mesh_setting *s, const clt_world *world,
                                  clt_mesh_facts *f)
{
    int places[CLT_MOST_DEVICES];
    double times[2 * CLT_MOST_DEVICES];
    for (int d = 0; d < s->count; d++)
        places[d] = s->rank * s->count + d;
    CLT_TRY(measure(s, world, f, places, s->count, times));
    return share(s, world, times, f);
}

/* Devices of other meshes may have had the same plans. */
static clt_status measure_simulated(const clt_mesh_setting *s, clt_mesh_facts *f)
{
    for (int i = 0; i < f->n_places; i++) {
        clt_mesh_plan *plan = f->places[i].plan;
        double times[2];
        if (clt_mesh_plans_measured(s->plans, plan))
            continue;
        CLT_TRY(measure(s, NULL, f, &i, 1, times));
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
