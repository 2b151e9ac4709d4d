/*
 * Chooses the stages of a pipeline before a store is made. The graph's cuts divide it into pieces.
 * Work of the pieces on each device, arithmetic or measured, decides which cuts are used. A stage
 * that does not fit its device is remembered, and the choice is made again without it.
 */
#include "train/setup/measure_stages.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/str.h"
#include "device/program/tuning_file.h"
#include "passes/passes.h"
#include "train/ranks/world.h"
#include "train/setup/capacity.h"
#include "train/setup/stages.h"
#include "tune/lab.h"
#include "tune/measure_node.h"
#include <cltrain/planner.h>

/* Devices whose times differ by less than this factor count as equally fast: measurements have
 * noise. */
static const double ALIKE = 1.25;

enum { BLOCKS = 5, MOST = 64 /* stages */, TEXT = 768 };
static const double BLOCK_SECONDS = 0.02;

typedef struct chooser {
    clt_graph *graph;
    clt_device *const *devices;
    int count; /* of this rank's devices */
    clt_mesh mesh;
    int first, total; /* this rank's first participant, and the number of all */
    clt_store_options store_options;
    clt_trainer_options options; /* with the weights of parts of a batch */
    double *weights;
    int pieces, stages;
    double *seconds; /* [total][pieces]; of this rank's devices until they are shared */
    double *work;    /* [stages][pieces] */
    int *ends;       /* [stages][pieces], see clt_stage_costs */
    int begins[MOST];
    bool measured, moved; /* moved: a stage did not fit */
    char why[TEXT];       /* the message about the last stage that did not fit */
} chooser;

static int stage_of(const chooser *c, int device)
{
    return clt_mesh_coordinate(&c->mesh, CLT_AXIS_PIPELINE, c->first + device);
}

static int end_of(const chooser *c, int stage)
{
    return stage + 1 < c->stages ? c->begins[stage + 1] : c->pieces;
}

/* --- work ------------------------------------------------------------------------------------ */

static clt_status count_work(chooser *c)
{
    double *work = clt_calloc((size_t)c->pieces, sizeof *work);
    CLT_TRY_MEMORY(work);
    const clt_status status = clt_stages_work(c->graph, work);
    for (int i = 0; i < c->stages * c->pieces; i++)
        c->work[i] = work[i % c->pieces];
    clt_free(work);
    return status;
}

static clt_status run_all(void *lab)
{
    return clt_lab_run(lab, 0, ((clt_lab *)lab)->plan->n_nodes);
}

/* Measures forward and backward of a micro-batch in one piece, as a stage of its own. */
static clt_status measure_piece(const chooser *c, clt_device *device,
                                const clt_tuning_record *record, int piece, double *seconds)
{
    char text[32];
    clt_mesh mesh;
    clt_lab lab = {0};
    clt_timing timing;
    int64_t share;
    snprintf(text, sizeof text, "pp=%d", c->pieces);
    CLT_TRY(clt_mesh_parse(text, c->pieces, &mesh));
    CLT_TRY(clt_capacity_share(c->mesh.size[CLT_AXIS_DATA], &c->options, c->options.batch, &share));
    clt_plan_options plan = clt_capacity_options(&c->options, CLT_PLAN_TRAIN, share);
    plan.recompute = plan.early_outputs = false;
    plan.in_flight = 0;
    plan.mesh = &mesh;
    plan.participant = piece;
    clt_status status = clt_lab_open(&lab, device, c->graph, &plan);
    CLT_NEXT(status, clt_lab_plan(&lab, c->graph, &plan, record));
    CLT_NEXT(status, run_all(&lab)); /* compiles kernels */
    CLT_NEXT(status, clt_time_calls(device, run_all, &lab, BLOCKS, BLOCK_SECONDS, &timing));
    clt_lab_close(&lab);
    *seconds = status == CLT_OK ? timing.least : 0;
    return status;
}

static clt_status measure_own(void *arg)
{
    chooser *c = arg;
    for (int d = 0; d < c->count; d++) {
        clt_tuning_record record;
        clt_tuning_load(c->devices[d], &record);
        clt_status status = CLT_OK;
        for (int p = 0; status == CLT_OK && p < c->pieces; p++)
            status = measure_piece(c, c->devices[d], &record, p,
                                   &c->seconds[(c->first + d) * c->pieces + p]);
        clt_tuning_free(&record);
        if (status != CLT_OK)
            return clt_fail_prefix(status,
                                   "measuring stages on %s: ", clt_device_label(c->devices[d]));
    }
    return CLT_OK;
}

/* Gives all ranks the times of all devices. */
static clt_status share_times(chooser *c)
{
    const clt_world *world = c->options.world;
    const size_t n = (size_t)(c->total * c->pieces);
    void *all;
    CLT_TRY(clt_ranks_gather(world, c->seconds, n * sizeof *c->seconds, &all));
    for (size_t r = 0; r < (size_t)(world ? world->ranks : 1); r++)
        for (size_t i = 0; i < n; i++)
            if (((const double *)all)[r * n + i] > c->seconds[i])
                c->seconds[i] = ((const double *)all)[r * n + i];
    clt_free(all);
    return CLT_OK;
}

static double total_of(const chooser *c, int stage, int from, int to)
{
    double sum = 0;
    for (int p = from; p < to; p++)
        sum += c->work[stage * c->pieces + p];
    return sum;
}

/* The slowest device of a stage counts. If all stages have about the same speed, the shortest time
 * of each piece counts for all. */
static void take_times(chooser *c)
{
    double least = 0, most = 0;
    memset(c->work, 0, (size_t)(c->stages * c->pieces) * sizeof *c->work);
    for (int d = 0; d < c->total; d++)
        for (int p = 0; p < c->pieces; p++) {
            double *work =
                &c->work[clt_mesh_coordinate(&c->mesh, CLT_AXIS_PIPELINE, d) * c->pieces + p];
            const double own = c->seconds[d * c->pieces + p];
            *work = own > *work ? own : *work;
        }
    for (int s = 0; s < c->stages; s++) {
        const double all = total_of(c, s, 0, c->pieces);
        least = s && least < all ? least : all;
        most = most > all ? most : all;
    }
    for (int p = 0; most < ALIKE * least && p < c->pieces; p++) {
        double shortest = c->work[p];
        for (int s = 1; s < c->stages; s++)
            if (c->work[s * c->pieces + p] < shortest)
                shortest = c->work[s * c->pieces + p];
        for (int s = 0; s < c->stages; s++)
            c->work[s * c->pieces + p] = shortest;
    }
}

#ifdef CLT_TESTING
double *clt_stages_testing_work;
#endif

static clt_status find_work(chooser *c)
{
    if (!c->measured)
        return count_work(c);
    CLT_TRY(clt_ranks_in_turns(c->options.world, measure_own, c));
    CLT_TRY(share_times(c));
    take_times(c);
#ifdef CLT_TESTING
    if (clt_stages_testing_work)
        memcpy(clt_stages_testing_work, c->work, (size_t)(c->stages * c->pieces) * sizeof *c->work);
#endif
    return CLT_OK;
}

/* --- memory ---------------------------------------------------------------------------------- */

/* Keeps the cuts before the first pieces of the stages. */
static clt_status keep_cuts(const chooser *c, clt_graph *graph)
{
    bool *kept = clt_calloc((size_t)c->pieces + 1, sizeof *kept);
    CLT_TRY_MEMORY(kept);
    for (int s = 1; s < c->stages; s++)
        kept[c->begins[s]] = true;
    clt_graph_keep_cuts(graph, kept);
    clt_free(kept);
    return CLT_OK;
}

/* Sets full[stage] for this rank's devices that lack memory for their stage. */
static clt_status check_own(chooser *c, char full[MOST])
{
    clt_graph *graph;
    clt_store *store = NULL;
    CLT_TRY(clt_graph_copy(c->graph, &graph));
    clt_status status = keep_cuts(c, graph);
    CLT_NEXT(status, clt_store_outline(graph, c->devices, c->count, &c->store_options, &store));
    for (int d = 0; status == CLT_OK && d < c->count; d++) {
        status = clt_capacity_check_device(graph, store, &c->options, c->mesh.size[CLT_AXIS_DATA],
                                           c->options.batch, d);
        if (status != CLT_OUT_OF_DEVICE_MEMORY)
            continue;
        full[stage_of(c, d)] = 1;
        snprintf(c->why, sizeof c->why, "%s", clt_error_message());
        status = CLT_OK;
    }
    clt_store_destroy(store);
    clt_graph_destroy(graph);
    return status;
}

/* Remembers that the stage has too many pieces. It also has if it begins earlier. */
static void remember(chooser *c, int stage)
{
    const int end = end_of(c, stage) - 1;
    for (int begin = 0; begin <= c->begins[stage]; begin++) {
        int *own = &c->ends[stage * c->pieces + begin];
        *own = end < *own ? end : *own;
    }
    c->moved = true;
}

/* Checks the memory of all devices of all ranks. */
static clt_status check_all(chooser *c, bool *fits)
{
    const clt_world *world = c->options.world;
    char full[MOST] = {0};
    void *all;
    CLT_TRY(clt_ranks_agree(world, check_own(c, full), NULL));
    CLT_TRY(clt_ranks_gather(world, full, sizeof full, &all));
    *fits = true;
    for (int s = 0; s < c->stages; s++) {
        bool any = false;
        for (int r = 0; r < (world ? world->ranks : 1); r++)
            any = any || ((const char *)all)[r * MOST + s];
        if (any)
            remember(c, s);
        *fits = *fits && !any;
    }
    clt_free(all);
    return CLT_OK;
}

static clt_status choose(chooser *c)
{
    const clt_stage_costs costs = {c->pieces, c->stages, c->work, c->ends};
    bool fits = false, found;
    while (!fits) {
        CLT_TRY(clt_stages_balance(&costs, c->begins, &found));
        if (!found)
            return clt_fail(CLT_OUT_OF_DEVICE_MEMORY,
                            "mesh: with none of the %d cuts of the graph the %d stages of axis pp "
                            "fit their devices: %s",
                            c->pieces - 1, c->stages,
                            *c->why ? c->why : "devices of other ranks lack memory");
        CLT_TRY(check_all(c, &fits));
    }
    return CLT_OK;
}

/* --- report ---------------------------------------------------------------------------------- */

static int piece_behind(const clt_node *node, int piece)
{
    for (int o = 0; o < node->n_out; o++)
        piece += node->out[o]->cut != 0;
    return piece;
}

/* Writes a line for each stage, and the names that give the same stages. */
static void describe(const chooser *c, clt_str *text)
{
    const clt_graph *g = c->graph;
    clt_str names = {0};
    double all = 0;
    for (int s = 0; s < c->stages; s++)
        all += total_of(c, s, c->begins[s], end_of(c, s));
    for (int i = 0, s = 0, piece = 0; i < g->n_nodes && s < c->stages; s++) {
        const int begin = i;
        while (i < g->n_nodes && piece < end_of(c, s))
            piece = piece_behind(g->nodes[i++], piece);
        const double own = total_of(c, s, c->begins[s], end_of(c, s));
        clt_str_add(text, "stage %d: %s to %s, %.0f %% of the %s", s, g->nodes[begin]->name,
                    g->nodes[i - 1]->name, all > 0 ? 100 * own / all : 0,
                    c->measured ? "time" : "work");
        if (c->measured)
            clt_str_add(text, " (%.3g ms for a micro-batch)", 1000 * own);
        clt_str_add(text, "\n");
        if (s)
            clt_str_add(&names, "%s%s", s > 1 ? "|" : "", g->nodes[begin]->name);
    }
    clt_str_add(text, "%sthe same stages by names: '%s'\n",
                c->moved ? "a larger stage does not fit its device\n" : "", clt_str_text(&names));
    clt_str_free(&names);
}

/* --- the whole ------------------------------------------------------------------------------- */

static clt_status allocate_work(chooser *c)
{
    const size_t entries = (size_t)(c->stages * c->pieces);
    c->work = clt_calloc(entries, sizeof *c->work);
    c->ends = clt_calloc(entries, sizeof *c->ends);
    CLT_TRY_MEMORY(c->work && c->ends);
    for (size_t i = 0; i < entries; i++)
        c->ends[i] = c->pieces;
    return CLT_OK;
}

static clt_status allocate(chooser *c, const clt_trainer_options *options)
{
    const int parts = c->mesh.size[CLT_AXIS_DATA];
    CLT_TRY(allocate_work(c));
    c->seconds = clt_calloc((size_t)(c->total * c->pieces), sizeof *c->seconds);
    c->weights = clt_calloc((size_t)parts, sizeof *c->weights);
    CLT_TRY_MEMORY(c->seconds && c->weights);
    for (int i = 0; options->weights && i < parts; i++)
        c->weights[i] = options->weights[clt_mesh_neighbour(&c->mesh, CLT_AXIS_DATA, 0, i)];
    c->options.weights = options->weights ? c->weights : NULL;
    return CLT_OK;
}

static clt_status run(chooser *c, const clt_trainer_options *options, char **text)
{
    clt_str report = {0};
    CLT_TRY(allocate(c, options));
    CLT_TRY(find_work(c));
    CLT_TRY(choose(c));
    if (c->measured || c->moved)
        describe(c, &report);
    const clt_status status = report.failed ? CLT_OUT_OF_MEMORY : keep_cuts(c, c->graph);
    if (status != CLT_OK || !text)
        clt_str_free(&report);
    else
        *text = clt_alloc_give(report.text);
    return status;
}

/* Too few cuts, and too many stages, are told when the store is made. */
static bool has_choice(const chooser *c)
{
    return c->stages > 1 && c->stages <= MOST && c->pieces > c->stages;
}

clt_status clt_stages_propose(clt_graph *graph, int stages)
{
    chooser c = {.graph = graph, .stages = stages, .pieces = graph->cuts + 1};
    bool found;
    if (!has_choice(&c))
        return CLT_OK;
    clt_status status = allocate_work(&c);
    const clt_stage_costs costs = {c.pieces, c.stages, c.work, c.ends};
    CLT_NEXT(status, count_work(&c));
    CLT_NEXT(status, clt_stages_balance(&costs, c.begins, &found));
    CLT_NEXT(status, keep_cuts(&c, graph));
    CLT_FREE(c.work, c.ends);
    return status;
}

clt_status clt_stages_choose(clt_graph *graph, clt_device *const *devices, int count,
                             const char *parallel, const clt_trainer_options *options, int measured,
                             char **text)
{
    CLT_TRY(clt_graph_status(graph));
    CLT_TRY(clt_trainer_check_options(options));
    chooser c = {.graph = graph,
                 .devices = devices,
                 .count = count,
                 .options = *options,
                 .pieces = graph->cuts + 1,
                 .measured = measured != 0};
    clt_store_options_init(&c.store_options);
    c.store_options.parallel = parallel;
    c.store_options.world = options->world;
    if (text)
        *text = NULL;
    CLT_TRY(clt_world_count(options->world, count, &c.first, &c.total));
    CLT_TRY(clt_mesh_parse(parallel, c.total, &c.mesh));
    c.stages = c.mesh.size[CLT_AXIS_PIPELINE];
    if (!has_choice(&c))
        return CLT_OK;
    const clt_status status = run(&c, options, text);
    CLT_FREE(c.seconds, c.work, c.ends, c.weights);
    return status;
}
