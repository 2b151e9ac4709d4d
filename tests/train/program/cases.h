/* Plans and cases of programs, for tests of generators and of the checker. */
#ifndef TESTS_TRAIN_PROGRAM_CASES_H
#define TESTS_TRAIN_PROGRAM_CASES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "train/program/check.h"

/* The third part's number of samples is also that of all further parts of a batch. */
enum { BUCKETS = 4, SHARES = 3, FEW = 4, THOUSANDS = 4096 };

static void ok(clt_status status)
{
    if (status != CLT_OK)
        fail_msg("%s", clt_error_message());
}

/* --- a plan ---------------------------------------------------------------------------------- */

/* Ten nodes, six of them forward. Buckets 0 to 2 become ready one after the other, and bucket 3 has
 * states. Optional collectives are node 2, which node 4 needs, and node 7, which node 9 needs. */
static clt_segment cut[] = {
    {0, 6, -1, 0, 0}, {6, 8, -1, 0, 1}, {8, 9, -1, 1, 2}, {9, 10, -1, 2, 3}};
static clt_segment cut_more[] = {{0, 3, 0, 0, 0}, {3, 4, -1, 0, 0}, {4, 6, -1, 0, 0},
                                 {6, 8, 1, 0, 1}, {8, 9, -1, 1, 2}, {9, 10, -1, 2, 3}};
static int ready[] = {0, 1, 2};
static clt_outline_collective sums[] = {
    {2, 4, CLT_OP_ALL_REDUCE, CLT_AXIS_DATA, -1, 8, false, 11, CLT_F32},
    {7, 9, CLT_OP_ALL_REDUCE, CLT_AXIS_DATA, -1, 8, false, 12, CLT_F32}};
/* The same along tp, on values with samples. */
static clt_outline_collective sums_of_parts[] = {
    {2, 4, CLT_OP_ALL_REDUCE, CLT_AXIS_TENSOR, -1, 8, true, 11, CLT_BF16},
    {7, 9, CLT_OP_ALL_GATHER, CLT_AXIS_TENSOR, -1, 8, true, 12, CLT_F32}};
static clt_bucket buckets[BUCKETS] = {[BUCKETS - 1] = {.state = true}};
static const clt_buckets layout = {.n_buckets = BUCKETS, .buckets = buckets};
/* The same with owners: device 2 of buckets 0 and 1, device 1 of bucket 2. */
static clt_bucket owned[BUCKETS] = {
    {.owner = 2}, {.owner = 2}, {.owner = 1}, [BUCKETS - 1] = {.state = true}};
static const clt_buckets owned_layout = {.n_buckets = BUCKETS, .buckets = owned};
static const int none_after[BUCKETS] = {0, 0, 0, 0}, some_after[BUCKETS] = {2, 2, 2, 0};

static clt_outline plan_of(bool collectives, bool given)
{
    return (clt_outline){.n_nodes = 10,
                         .n_forward = 6,
                         .n_segments = collectives ? 6 : 4,
                         .n_ready = 3,
                         .n_collectives = collectives ? 2 : 0,
                         .n_assigns = 1,
                         .output_gradients = given,
                         .unwritten = true,
                         .segments = collectives ? cut_more : cut,
                         .ready = ready,
                         .collectives = sums};
}

/* --- cases ----------------------------------------------------------------------------------- */

/* Whether devices update shards: because they shall, or because they are of several kinds. Or
 * owners update whole buckets, and may be of another kind. */
typedef enum sharding { WHOLE, SHARDED, UNLIKE, OWNED, OWNED_UNLIKE } sharding;

typedef struct program_case {
    const char *name;
    clt_step_program_kind kind;
    int devices, ranks, micro_batches[SHARES];
    bool collectives;
    sharding sharding;
    bool half, streams, measures, carries, scaled, given, tree;
    bool keeps;       /* gradients of inputs */
    const char *mesh; /* NULL: dp alone */
    int in_flight;
    clt_axis axis; /* of the collectives */
} program_case;

static const program_case cases[] = {
    {"one device", CLT_PROGRAM_STEP, 1, 1, {1}, 0, WHOLE, .mesh = NULL},
    {"accumulated", CLT_PROGRAM_STEP, 1, 1, {4}, 0, WHOLE, .mesh = NULL},
    {"accumulated in 16 bits", CLT_PROGRAM_STEP, 2, 1, {3, 2}, 0, WHOLE, .half = true},
    {"two devices", CLT_PROGRAM_STEP, 2, 1, {1, 1}, 0, WHOLE, .mesh = NULL},
    {"two ranks, one without samples", CLT_PROGRAM_STEP, 3, 2, {1, 0, 1}, 0, WHOLE, .mesh = NULL},
    {"collectives of the graph", CLT_PROGRAM_STEP, 3, 1, {1, 1, 0}, 1, WHOLE, .mesh = NULL},
    {"collectives, accumulated", CLT_PROGRAM_STEP, 2, 2, {4, 2}, 1, WHOLE, .measures = true},
    {"unlike devices", CLT_PROGRAM_STEP, 3, 3, {1, 1, 1}, 0, UNLIKE, .mesh = NULL},
    {"unlike devices, streamed", CLT_PROGRAM_STEP, 3, 1, {1, 2, 0}, 0, UNLIKE, .streams = true},
    {"shards", CLT_PROGRAM_STEP, 3, 3, {1, 1, 0}, 0, SHARDED, .mesh = NULL},
    {"shards, streamed, 16 bits",
     CLT_PROGRAM_STEP,
     2,
     1,
     {3, 1},
     0,
     SHARDED,
     .half = true,
     .streams = true},
    {"offload", CLT_PROGRAM_STEP, 3, 1, {1, 0, 0}, 0, OWNED, .mesh = NULL},
    {"offload, several kinds", CLT_PROGRAM_STEP, 3, 3, {1, 0, 0}, 0, OWNED_UNLIKE, .mesh = NULL},
    {"offload, collectives", CLT_PROGRAM_STEP, 3, 1, {3, 0, 0}, 1, OWNED, .mesh = NULL},
    {"offload, streamed, 16 bits",
     CLT_PROGRAM_STEP,
     3,
     1,
     {3, 0, 0},
     0,
     OWNED,
     .half = true,
     .streams = true},
    {"offload, samples on an owner", CLT_PROGRAM_STEP, 3, 2, {1, 2, 0}, 0, OWNED, .scaled = true},
    {"offload, reduce", CLT_PROGRAM_REDUCE, 3, 1, {1, 0, 0}, 0, OWNED, .mesh = NULL},
    {"offload, apply", CLT_PROGRAM_APPLY, 3, 1, {1, 0, 0}, 0, OWNED, .mesh = NULL},
    {"offload, copy", CLT_PROGRAM_COPY, 3, 2, {0, 0, 0}, 0, OWNED, .mesh = NULL},
    {"virtual shards", CLT_PROGRAM_STEP, 1, 1, {4}, 0, WHOLE, .tree = true},
    {"virtual shards, 16 bits",
     CLT_PROGRAM_STEP,
     2,
     2,
     {2, 2},
     0,
     WHOLE,
     .half = true,
     .tree = true},
    {"virtual shards of several sizes", CLT_PROGRAM_STEP, 3, 1, {2, 1, 0}, 0, WHOLE, .tree = true},
    {"virtual shards, streamed",
     CLT_PROGRAM_STEP,
     2,
     2,
     {4, 4},
     0,
     WHOLE,
     .half = true,
     .streams = true,
     .scaled = true,
     .tree = true},
    {"scaled losses", CLT_PROGRAM_STEP, 2, 1, {2, 1}, 0, WHOLE, .half = true, .scaled = true},
    {"gradients of outputs", CLT_PROGRAM_STEP, 2, 1, {3, 1}, 0, WHOLE, .given = true},
    {"measured", CLT_PROGRAM_STEP, 2, 2, {1, 1}, 0, WHOLE, .measures = true},
    {"streamed", CLT_PROGRAM_STEP, 2, 1, {1, 1}, 0, WHOLE, .streams = true},
    {"forward", CLT_PROGRAM_FORWARD, 2, 2, {1, 1}, 1, WHOLE, .mesh = NULL},
    {"backward", CLT_PROGRAM_BACKWARD, 2, 1, {1, 0}, 0, WHOLE, .mesh = NULL},
    {"backward, given gradients", CLT_PROGRAM_BACKWARD, 2, 1, {1, 1}, 0, WHOLE, .given = true},
    {"reduce", CLT_PROGRAM_REDUCE, 2, 1, {1, 1}, 0, WHOLE, .mesh = NULL},
    {"apply", CLT_PROGRAM_APPLY, 3, 1, {1, 1, 1}, 0, UNLIKE, .mesh = NULL},
    {"apply, replicas", CLT_PROGRAM_APPLY, 3, 3, {1, 1, 0}, 0, WHOLE, .mesh = NULL},
    {"apply on one device", CLT_PROGRAM_APPLY, 1, 1, {1}, 0, WHOLE, .mesh = NULL},
    {"reduced by the caller", CLT_PROGRAM_REDUCED, 3, 2, {1, 1, 0}, 0, WHOLE, .mesh = NULL},
    {"apply what was given", CLT_PROGRAM_APPLY_GIVEN, 3, 2, {1, 1, 0}, 0, WHOLE, .mesh = NULL},
    {"apply what was given, one device",
     CLT_PROGRAM_APPLY_GIVEN,
     1,
     1,
     {1},
     0,
     WHOLE,
     .half = true},
    {"apply what was given, unlike",
     CLT_PROGRAM_APPLY_GIVEN,
     3,
     3,
     {1, 0, 1},
     0,
     UNLIKE,
     .mesh = NULL},
    {"apply what was given, shards",
     CLT_PROGRAM_APPLY_GIVEN,
     2,
     1,
     {1, 1},
     0,
     SHARDED,
     .mesh = NULL},
    {"apply what was given, offload",
     CLT_PROGRAM_APPLY_GIVEN,
     3,
     1,
     {1, 0, 0},
     0,
     OWNED,
     .mesh = NULL},
    {"weights", CLT_PROGRAM_WEIGHTS, 2, 2, {3, 1}, 1, WHOLE, .mesh = NULL},
    {"evaluation", CLT_PROGRAM_OUTSIDE, 3, 3, {4, 3, 0}, 0, WHOLE, .mesh = NULL},
    {"predictor", CLT_PROGRAM_OUTSIDE, 1, 1, {1}, 0, WHOLE, .carries = true},
    {"predictor without samples", CLT_PROGRAM_OUTSIDE, 1, 1, {0}, 0, WHOLE, .carries = true},
    {"diagnosis", CLT_PROGRAM_DIAGNOSE, 2, 1, {4, 2}, 1, WHOLE, .mesh = NULL},
    {"diagnosis in 16 bits", CLT_PROGRAM_DIAGNOSE, 1, 1, {3}, 0, WHOLE, .half = true},
    {"checksums", CLT_PROGRAM_VERIFY, 3, 1, {1, 1, 1}, 0, WHOLE, .mesh = NULL},
    {"copy", CLT_PROGRAM_COPY, 3, 1, {0, 0, 0}, 0, WHOLE, .mesh = NULL},
    {"copy beside shards", CLT_PROGRAM_COPY, 3, 2, {0, 0, 0}, 0, SHARDED, .mesh = NULL},
    {"tp", CLT_PROGRAM_STEP, 2, 1, {1, 1}, 0, WHOLE, .mesh = "tp=2"},
    {"tp over ranks",
     CLT_PROGRAM_STEP,
     2,
     2,
     {3, 3},
     0,
     WHOLE,
     .half = true,
     .scaled = true,
     .mesh = "tp=2"},
    {"dp and tp", CLT_PROGRAM_STEP, 4, 1, {1, 2}, 0, WHOLE, .mesh = "dp=2,tp=2"},
    {"dp and tp over ranks", CLT_PROGRAM_STEP, 4, 4, {1, 1}, 1, WHOLE, .mesh = "dp=2,tp=2"},
    {"tp and dp, shards",
     CLT_PROGRAM_STEP,
     4,
     2,
     {1, 0},
     0,
     SHARDED,
     .half = true,
     .mesh = "tp=2,dp=2"},
    {"forward on a mesh", CLT_PROGRAM_FORWARD, 4, 4, {1, 0}, 1, WHOLE, .mesh = "dp=2,tp=2"},
    {"backward on a mesh", CLT_PROGRAM_BACKWARD, 4, 1, {1, 0}, 0, WHOLE, .mesh = "dp=2,tp=2"},
    {"reduce on a mesh", CLT_PROGRAM_REDUCE, 4, 2, {1, 0}, 0, WHOLE, .mesh = "dp=2,tp=2"},
    {"reduce along tp", CLT_PROGRAM_REDUCE, 2, 1, {1, 1}, 0, WHOLE, .mesh = "tp=2"},
    {"apply on a mesh", CLT_PROGRAM_APPLY, 4, 2, {1, 1}, 0, SHARDED, .mesh = "dp=2,tp=2"},
    {"apply what was given on a mesh",
     CLT_PROGRAM_APPLY_GIVEN,
     4,
     2,
     {1, 1},
     0,
     SHARDED,
     .mesh = "dp=2,tp=2"},
    {"apply what was given along tp",
     CLT_PROGRAM_APPLY_GIVEN,
     2,
     2,
     {1, 1},
     0,
     WHOLE,
     .mesh = "tp=2"},
    {"apply along tp", CLT_PROGRAM_APPLY, 2, 2, {1, 1}, 0, WHOLE, .mesh = "tp=2"},
    {"weights on a mesh", CLT_PROGRAM_WEIGHTS, 4, 4, {3, 1}, 1, WHOLE, .mesh = "dp=2,tp=2"},
    {"evaluation on a mesh", CLT_PROGRAM_OUTSIDE, 4, 4, {4, 3}, 0, WHOLE, .mesh = "dp=2,tp=2"},
    {"checksums on a mesh", CLT_PROGRAM_VERIFY, 4, 1, {1, 1}, 0, WHOLE, .mesh = "tp=2,dp=2"},
    {"copy on a mesh", CLT_PROGRAM_COPY, 4, 1, {0, 0}, 0, WHOLE, .mesh = "dp=2,tp=2"},
    {"collectives along tp",
     CLT_PROGRAM_STEP,
     4,
     2,
     {3, 1},
     1,
     WHOLE,
     .mesh = "dp=2,tp=2",
     .axis = CLT_AXIS_TENSOR},
    {"collectives along tp alone",
     CLT_PROGRAM_STEP,
     2,
     2,
     {2, 2},
     1,
     WHOLE,
     .mesh = "tp=2",
     .axis = CLT_AXIS_TENSOR},
    {"evaluation along tp",
     CLT_PROGRAM_OUTSIDE,
     4,
     2,
     {2, 0},
     1,
     WHOLE,
     .mesh = "tp=2,dp=2",
     .axis = CLT_AXIS_TENSOR},
    {"one in flight", CLT_PROGRAM_STEP, 1, 1, {4}, 0, WHOLE, .in_flight = 1},
    {"two of five in flight", CLT_PROGRAM_STEP, 1, 1, {5}, 0, WHOLE, .in_flight = 2},
    {"two of three in flight", CLT_PROGRAM_STEP, 1, 1, {3}, 1, WHOLE, .in_flight = 2},
    {"all in flight", CLT_PROGRAM_STEP, 2, 1, {4, 2}, 0, WHOLE, .half = true, .in_flight = 4},
    {"in flight on two ranks",
     CLT_PROGRAM_STEP,
     2,
     2,
     {5, 0},
     1,
     WHOLE,
     .given = true,
     .in_flight = 2},
    {"in flight, shards",
     CLT_PROGRAM_STEP,
     2,
     1,
     {6, 1},
     0,
     SHARDED,
     .streams = true,
     .in_flight = 3},
    {"weights with flights", CLT_PROGRAM_WEIGHTS, 2, 1, {4, 4}, 1, WHOLE, .in_flight = 3},
    {"diagnosis with flights", CLT_PROGRAM_DIAGNOSE, 1, 1, {4}, 1, WHOLE, .in_flight = 2},
    {"gradients of inputs", CLT_PROGRAM_STEP, 2, 1, {3, 1}, 0, WHOLE, .keeps = true},
    {"gradients of inputs, collectives", CLT_PROGRAM_STEP, 2, 2, {2, 0}, 1, WHOLE, .keeps = true},
    {"gradients of inputs in flight",
     CLT_PROGRAM_STEP,
     2,
     1,
     {5, 3},
     0,
     WHOLE,
     .keeps = true,
     .in_flight = 2},
    {"backward, gradients of inputs", CLT_PROGRAM_BACKWARD, 2, 1, {1, 0}, 0, WHOLE, .keeps = true},
    {"backward again", CLT_PROGRAM_BACKWARD_AGAIN, 2, 1, {1, 0}, 0, WHOLE, .given = true},
    {"backward again, collectives",
     CLT_PROGRAM_BACKWARD_AGAIN,
     2,
     2,
     {1, 0},
     1,
     WHOLE,
     .given = true,
     .keeps = true},
    {"gradients", CLT_PROGRAM_GRADIENTS, 1, 1, {3}, 0, WHOLE, .keeps = true},
    {"gradients on two ranks", CLT_PROGRAM_GRADIENTS, 3, 2, {2, 0, 1}, 0, WHOLE, .measures = true},
    {"gradients, streamed", CLT_PROGRAM_GRADIENTS, 2, 1, {3, 1}, 0, SHARDED, .streams = true},
    {"gradients in 16 bits", CLT_PROGRAM_GRADIENTS, 2, 1, {3, 2}, 1, WHOLE, .half = true},
    {"gradients of virtual shards", CLT_PROGRAM_GRADIENTS, 1, 1, {4}, 0, WHOLE, .tree = true},
    {"gradients in flight", CLT_PROGRAM_GRADIENTS, 2, 2, {5, 0}, 1, WHOLE, .in_flight = 2},
    {"gradients on a mesh", CLT_PROGRAM_GRADIENTS, 4, 4, {2, 1}, 0, SHARDED, .mesh = "dp=2,tp=2"},
    {"apply after micro-batches", CLT_PROGRAM_APPLY, 2, 2, {3, 1}, 0, WHOLE, .half = true},
    {"apply after virtual shards", CLT_PROGRAM_APPLY, 1, 1, {4}, 0, WHOLE, .tree = true},
    {"apply after flights", CLT_PROGRAM_APPLY, 2, 1, {5, 3}, 0, SHARDED, .in_flight = 2},
    {"apply what was given after micro-batches",
     CLT_PROGRAM_APPLY_GIVEN,
     2,
     1,
     {3, 1},
     0,
     WHOLE,
     .half = true},
    {"thousands", CLT_PROGRAM_STEP, THOUSANDS, 512, {1, 0, 1}, 0, WHOLE, .mesh = NULL},
    {"thousands of several kinds",
     CLT_PROGRAM_STEP,
     THOUSANDS,
     512,
     {4, 2, 3},
     1,
     UNLIKE,
     .mesh = NULL},
};

enum { CASES = sizeof cases / sizeof *cases };

typedef struct made {
    clt_outline plan;
    clt_step_program_input *inputs;
    clt_step_program *programs;
    clt_check_device *devices;
} made;

static clt_mesh mesh_of(const program_case *c)
{
    clt_mesh mesh;
    ok(clt_mesh_parse(c->mesh, c->devices, &mesh));
    return mesh;
}

static int micro_batches_of(const program_case *c, int device)
{
    const clt_mesh mesh = mesh_of(c);
    const int part = clt_mesh_coordinate(&mesh, CLT_AXIS_DATA, device);
    return c->micro_batches[part < SHARES ? part : SHARES - 1];
}

static void *zeros(int count, size_t bytes)
{
    void *array = clt_calloc((size_t)count, bytes);
    assert_non_null(array);
    return array;
}

static void make(const program_case *c, made *m)
{
    const int parts = mesh_of(c).size[CLT_AXIS_DATA];
    int most = 0;
    *m = (made){.plan = plan_of(c->collectives, c->given),
                .inputs = zeros(c->devices, sizeof *m->inputs),
                .programs = zeros(c->devices, sizeof *m->programs),
                .devices = zeros(c->devices, sizeof *m->devices)};
    m->plan.input_gradients = c->keeps;
    if (c->axis == CLT_AXIS_TENSOR)
        m->plan.collectives = sums_of_parts;
    if (c->kind == CLT_PROGRAM_OUTSIDE)
        m->plan.n_nodes = m->plan.n_forward;
    for (int d = 0; d < c->devices; d++)
        most = micro_batches_of(c, d) > most ? micro_batches_of(c, d) : most;
    for (int d = 0; d < c->devices; d++) {
        const bool joins = c->collectives && c->axis == CLT_AXIS_DATA;
        const bool meets = (joins || c->in_flight) && c->kind != CLT_PROGRAM_DIAGNOSE;
        const int micro_batches = micro_batches_of(c, d), rounds = meets ? most : micro_batches;
        m->inputs[d] =
            (clt_step_program_input){.plan = &m->plan,
                                     .participants = c->devices,
                                     .ranks = c->ranks,
                                     .mesh = mesh_of(c),
                                     .self = d,
                                     .layout = c->sharding >= OWNED ? &owned_layout : &layout,
                                     .n_slots = 2,
                                     .sharded = c->sharding != WHOLE,
                                     .unlike = c->sharding == UNLIKE || c->sharding == OWNED_UNLIKE,
                                     .after = c->collectives ? some_after : none_after,
                                     .half = c->half,
                                     .tree = c->tree,
                                     .streams = c->streams,
                                     .means = parts > 1 || c->micro_batches[0] > 1,
                                     .host_weights = true,
                                     .measures = c->measures,
                                     .deferred = c->measures,
                                     .shared = c->ranks > 1 && parts > 1,
                                     .carries = c->carries,
                                     .scaled = c->scaled,
                                     .averages = true,
                                     .poison = true,
                                     .in_flight = c->in_flight,
                                     .rounds = rounds,
                                     .root = c->devices == FEW ? 2 : 1};
        ok(clt_step_program_generate(&m->inputs[d], c->kind, clt_load_of(rounds, micro_batches),
                                     &m->programs[d]));
        m->devices[d] = (clt_check_device){&m->inputs[d], &m->programs[d], rounds, micro_batches};
    }
}

static void release(const program_case *c, made *m)
{
    for (int d = 0; d < c->devices; d++)
        clt_step_program_free(&m->programs[d]);
    clt_free(m->inputs);
    clt_free(m->programs);
    clt_free(m->devices);
}

#endif
