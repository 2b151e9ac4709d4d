/*
 * A step as data. When a trainer is made, a generator (generate.c) writes for each device the lists
 * of instructions that its calls execute: a training step, the parts of a step, evaluation and so
 * on. A call selects a list and interprets it (train/step/interpret.c). check.c executes the lists
 * of all devices symbolically before the first one runs.
 *
 * Generators are pure functions of a clt_step_program_input. Any rank can write and check the lists
 * of any device.
 */
#ifndef CLT_TRAIN_PROGRAM_PROGRAM_H
#define CLT_TRAIN_PROGRAM_PROGRAM_H

#include <stdbool.h>

#include "base/str.h"
#include "graph/mesh.h"
#include "train/program/outline.h"

/* X(NAME, "name in print") */
#define CLT_INSTRUCTION_KINDS(X)                                                                   \
    X(WAIT, "wait")         /* for the caller's events, and for a free entry of results */         \
    X(MEASURE, "measure")   /* records when the device's own work begins */                        \
    X(MEASURED, "measured") /* waits for the device's work, and records its time */                \
    X(POISON, "poison")     /* fills the arena with NaN (tests) */                                 \
    X(FEED, "feed")         /* inputs of a micro-batch */                                          \
    X(REFEED, "refeed")     /* inputs of a micro-batch of an earlier step, which are kept */       \
    X(FEED_GRADIENTS, "feed_gradients")   /* gradients of outputs that the caller passes */        \
    X(UPSTREAM, "upstream")               /* of the losses: the host knows the weights */          \
    X(UPSTREAM_SCALED, "upstream_scaled") /* the same, times the loss scale on the device */       \
    X(UPSTREAM_DEVICE, "upstream_device") /* the device has just computed the weights */           \
    X(CLEAR, "clear")                     /* gradients that no node of the plan writes */          \
    X(ZERO, "zero")                       /* all gradients, of a device without samples */         \
    X(RUN, "run")                         /* nodes [first, end) */                                 \
    X(STAND_IN, "stand_in") /* copies the device's part of a collective in place of the sum */     \
    X(INSPECT, "inspect")   /* ends the program if a value of nodes [first, end) is not finite */  \
    X(MEAN, "mean")         /* a micro-batch's part in the means of states */                      \
    X(FETCH, "fetch")       /* outputs that the caller asked for */                                \
    X(KEEP, "keep")         /* copies gradients of inputs where the caller can read them */        \
    X(ADD, "add")           /* adds gradients of a further micro-batch to the earlier ones */      \
    X(ADD_HALF, "add_half") /* adds 16-bit gradients to a sum in f32 */                            \
    X(ROUND, "round")       /* rounds the sum to 16 bits */                                        \
    X(MERGE, "merge")       /* adds a virtual shard's gradients in the order of the tree */        \
    X(START, "start")       /* starts a collective: enqueues, does not block */                    \
    X(COMPLETE, "complete") /* completes it: blocks until the host's part is done */               \
    X(WORDS, "words")       /* waits for the norm of this device's gradients, and notes it */      \
    X(LEAVE, "leave")       /* ends the program if a rank votes to drop the step */                \
    X(STATUS, "status")     /* the step status (norm, finite) over all buckets */                  \
    X(COMMIT, "commit")     /* from here on the device's replica changes */                        \
    X(UPDATE, "update")     /* the optimizer: one bucket, or all that the device owns */           \
    X(ASSIGN, "assign")     /* states take their next values */                                    \
    X(AVERAGE, "average")   /* parameters and states of the step join their averages */            \
    X(CARRY, "carry")       /* the same for a predictor, between calls */                          \
    X(READ_STATUS, "read_status")   /* to the host */                                              \
    X(READ_RESULTS, "read_results") /* losses and metrics, to the host */                          \
    X(FLUSH, "flush")               /* the queue */                                                \
    X(COMMITTED, "committed")       /* the step is enqueued whole */                               \
    X(CHECKSUM, "checksum")         /* of each parameter and state, to the host */                 \
    X(COMPARE, "compare")           /* the checksums of all devices */                             \
    X(FINISH, "finish")             /* waits for the device */

typedef enum clt_instruction_kind {
#define X(name, text) CLT_DO_##name,
    CLT_INSTRUCTION_KINDS(X)
#undef X
        CLT_INSTRUCTION_KIND_COUNT
} clt_instruction_kind;

/* The operand of a collective. */
#define CLT_OPERANDS(X)                                                                            \
    X(NONE, "")                                                                                    \
    X(RESULTS, "results")     /* sums and weights of losses and metrics, over ranks */             \
    X(MEANS, "means")         /* of states */                                                      \
    X(GRADIENT, "gradient")   /* a bucket; each device gets its shard, or `peer` all of it */      \
    X(TIED, "tied")           /* the gradient of a parameter of several stages, by its slot */     \
    X(NODE, "node")           /* a collective of the graph, by its number in the plan */           \
    X(VALUES, "values")       /* a bucket of parameters or states, from `peer`; or its shards */   \
    X(SLOT, "slot")           /* an optimizer slot of a bucket, from `peer` */                     \
    X(WORDS, "words")         /* norm, finiteness and vote of all devices, to all devices */       \
    X(CHECKSUMS, "checksums") /* of all devices, to all devices */

typedef enum clt_operand {
#define X(name, text) CLT_ON_##name,
    CLT_OPERANDS(X)
#undef X
        CLT_OPERAND_COUNT
} clt_operand;

/* The devices that take part in a collective: all of all ranks, those that differ only along an
 * axis of the mesh (CLT_GROUP_AXIS + axis), two stages of a pipeline, of which one sends and the
 * other receives (clt_group_edge), or the stages that have a parameter (clt_group_tied). */
enum { CLT_GROUP_ALL, CLT_GROUP_AXIS, CLT_GROUP_EDGE = CLT_GROUP_AXIS + CLT_AXES + 1 };

/* A micro-batch is given by number, or by one of these. */
enum {
    CLT_MICRO_LAST = -1, /* the last one */
    CLT_MICRO_EACH = -2  /* the current one of the program's loop */
};

/* The version of a buffer says which write the buffer must hold. For gradients, losses and means,
 * it is the micro-batch up to which they are summed (a number, LAST or EACH), or one of these
 * values. */
enum {
    CLT_VERSION_REDUCED = -3, /* the sum over all devices, or over ranks for losses */
    CLT_VERSION_OLD = -4,     /* parameters, states and slots before the update */
    CLT_VERSION_NEW = -5,     /* after the update */
    CLT_VERSION_ANY = -6      /* nothing is read */
};

typedef struct clt_instruction {
    clt_instruction_kind kind;
    /* START, COMPLETE, STAND_IN. Of WORDS, LEAVE and STATUS it says where norm and votes are from:
     * NONE: the reductions of buckets; WORDS: the words of all devices; GRADIENT: these words,
     * after each device has measured its gradients */
    clt_operand on;
    int item;       /* bucket, or number of the plan's collective; -1: all */
    int slot;       /* CLT_ON_SLOT */
    int first, end; /* RUN, INSPECT */
    int micro;      /* selects inputs, results and intermediates */
    int ahead;      /* added to `micro` and `version` where they are LAST or EACH */
    int set;        /* RUN: set of gradients to write; 1 for further micro-batches */
    int version;    /* required version of the operand */
    int group;      /* of a collective */
    int peer;       /* the member of the group that has or gets the data; -1: all */
} clt_instruction;

/* code[loop_first .. loop_end) runs for micro-batches 1 to rounds - 1 - behind; all other code runs
 * once. */
typedef struct clt_step_program {
    clt_instruction *code;
    int n, room;
    int loop_first, loop_end, behind;
} clt_step_program;

/* The kinds of calls, each of which has its own programs. */
#define CLT_PROGRAM_KINDS(X)                                                                       \
    X(STEP, "step")                                                                                \
    X(GRADIENTS, "gradients") /* a step up to its update; APPLY follows */                         \
    X(FORWARD, "forward")     /* clt_trainer_forward and the other parts of a step */              \
    X(BACKWARD, "backward")                                                                        \
    X(BACKWARD_AGAIN, "backward_again") /* after another: it has overwritten what forward left */  \
    X(REDUCE, "reduce")                                                                            \
    X(REDUCED, "reduced") /* in place of REDUCE, if the caller has reduced the gradients */        \
    X(APPLY, "apply")                                                                              \
    X(APPLY_GIVEN, "apply_given") /* the same with gradients that the caller has set */            \
    X(WEIGHTS, "weights")   /* forward, run only to learn the weights of losses from labels */     \
    X(VERIFY, "verify")     /* compares the replicas */                                            \
    X(OUTSIDE, "outside")   /* evaluation or prediction */                                         \
    X(DIAGNOSE, "diagnose") /* finds the non-finite value of a step, node by node */               \
    X(COPY, "copy")         /* copies one replica to all devices */

typedef enum clt_step_program_kind {
#define X(name, text) CLT_PROGRAM_##name,
    CLT_PROGRAM_KINDS(X)
#undef X
        CLT_PROGRAM_KIND_COUNT
} clt_step_program_kind;

/* How a device's share of a batch runs. If the plan has collectives and other devices have more
 * micro-batches, the device also runs rounds without samples. */
typedef enum clt_load {
    CLT_LOAD_NONE,       /* no round */
    CLT_LOAD_ONE,        /* one round */
    CLT_LOAD_MANY,       /* two or more */
    CLT_LOAD_EMPTY_ONE,  /* one round, without samples */
    CLT_LOAD_EMPTY_MANY, /* two or more rounds, without samples */
    CLT_LOAD_COUNT
} clt_load;

clt_load clt_load_of(int rounds, int micro_batches);

/* The input of a generator. */
typedef struct clt_step_program_input {
    const clt_outline *plan;
    int participants, ranks, self; /* number of devices and ranks; this device's participant */
    clt_mesh mesh;                 /* of all devices */
    const clt_buckets *layout;     /* of the store, equal on all ranks */
    int n_slots;                   /* of the optimizer, for each parameter */
    bool sharded; /* each device updates its shard of each bucket, or the buckets that it owns */
    bool unlike;  /* devices differ, so states are sent too; only if `sharded` */
    const int *after;  /* by bucket: number of the plan's collectives that start earlier */
    bool half;         /* gradients are in 16 bits */
    bool tree;         /* micro-batches are virtual shards: sums are in the order of a tree */
    bool streams;      /* a bucket is updated as soon as its reduction ends */
    bool means;        /* some states are means over parts of a batch or micro-batches */
    bool host_weights; /* the host knows the weights of the losses */
    bool scaled;       /* losses are multiplied by a scale that is on the device */
    bool measures;     /* records the time of the device's own work */
    bool deferred;     /* reductions start only after the device's own work */
    bool shared;       /* OUTSIDE: results are summed over ranks */
    bool carries;      /* OUTSIDE: states take their next values */
    bool averages;     /* of parameters and states are kept over the steps */
    bool poison;
    /* Forward of so many micro-batches of a step runs before backward of the first; 0: backward
     * follows forward. All steps have `rounds` rounds then, at least as many. */
    int in_flight, rounds;
    int root; /* COPY: source participant. With shards, optimizer slots stay */
} clt_step_program_input;

/* Returns the number of devices that have equal replicas and reduce their gradients: the places of
 * CLT_AXIS_SAMPLES. */
static inline int clt_input_parts(const clt_step_program_input *input)
{
    return clt_mesh_places(&input->mesh, CLT_AXIS_SAMPLES);
}

/* Returns true if buckets of gradients are reduced. With zero 3 the plan's own collectives leave
 * each device the final gradient of its shard. */
static inline bool clt_input_reduces(const clt_step_program_input *input)
{
    return clt_input_parts(input) > 1 && !input->mesh.zero;
}

/* Returns true if the step status is exchanged by itself, because no bucket's reduction reaches all
 * devices. */
static inline bool clt_input_has_words(const clt_step_program_input *input)
{
    return clt_input_parts(input) != input->participants ||
           (input->participants > 1 && input->mesh.zero);
}

/* Returns the participant that alone updates a bucket; -1: there is none. */
static inline int clt_input_owner(const clt_step_program_input *input, int bucket)
{
    const int owner = input->layout->buckets[bucket].owner;
    return input->sharded && owner ? owner : -1;
}

/* Returns true if the device updates its part of a bucket, or all of it. */
static inline bool clt_input_updates(const clt_step_program_input *input, int bucket)
{
    const int owner = clt_input_owner(input, bucket);
    return !input->layout->buckets[bucket].state && (owner < 0 || owner == input->self);
}

/* Returns false if the graph has parameters alone, so that no run writes results. */
static inline bool clt_input_has_results(const clt_step_program_input *input)
{
    return input->plan->n_forward > 0 || input->mesh.size[CLT_AXIS_PIPELINE] > 1;
}

/* Returns true if results are summed over ranks in training. */
static inline bool clt_input_shares_results(const clt_step_program_input *input)
{
    return input->ranks > 1 && clt_input_has_results(input) &&
           (clt_input_parts(input) > 1 || input->mesh.size[CLT_AXIS_PIPELINE] > 1);
}

/* Returns true if there are devices that differ only along the axis, and a bucket can have the same
 * values there. Along dp states have them even if parameters are shards. Stages of a pipeline have
 * buckets of their own. */
static inline bool clt_input_copies_along(const clt_step_program_input *input, clt_axis axis,
                                          int bucket)
{
    const bool whole = axis != clt_mesh_split_axis(&input->mesh) ||
                       !clt_buckets_split(input->layout) ||
                       (axis == CLT_AXIS_DATA && input->layout->buckets[bucket].state);
    return whole && axis != CLT_AXIS_PIPELINE && input->mesh.size[axis] > 1;
}

/* Returns the group along an axis. */
static inline int clt_group_along(const clt_step_program_input *input, clt_axis axis)
{
    const int places = clt_mesh_places(&input->mesh, axis);
    const bool data = axis == CLT_AXIS_SAMPLES && places == input->mesh.size[CLT_AXIS_DATA];
    return places == input->participants ? CLT_GROUP_ALL
                                         : CLT_GROUP_AXIS + (int)(data ? CLT_AXIS_DATA : axis);
}

/* Returns the group over which results are summed. Each stage of a pipeline has its own losses. */
static inline int clt_group_results(const clt_step_program_input *input)
{
    return input->mesh.size[CLT_AXIS_PIPELINE] > 1 ? CLT_GROUP_ALL
                                                   : clt_group_along(input, CLT_AXIS_SAMPLES);
}

/* Returns the group of two stages for what `from` sends to `to`. */
static inline int clt_group_edge(const clt_step_program_input *input, int from, int to)
{
    return CLT_GROUP_EDGE + from * input->mesh.size[CLT_AXIS_PIPELINE] + to;
}

/* Returns the end of all groups. */
static inline int clt_group_end(const clt_step_program_input *input)
{
    return clt_group_edge(input, input->mesh.size[CLT_AXIS_PIPELINE], 0) + input->layout->n_slots;
}

/* Returns the group of the stages that have a tied parameter. Of more than two it is a group of its
 * own, behind those of two stages. */
static inline int clt_group_tied(const clt_step_program_input *input, int slot)
{
    const clt_slot *of = &input->layout->slots[slot];
    const int first = clt_slot_next_stage(of, -1), second = clt_slot_next_stage(of, first);
    return clt_slot_stages(of) > 2
               ? clt_group_edge(input, input->mesh.size[CLT_AXIS_PIPELINE], 0) + slot
               : clt_group_edge(input, first, second);
}

/* Returns the parameter whose stages form the group; NULL: it is another group. */
static inline const clt_slot *clt_group_slot(const clt_step_program_input *input, int group)
{
    const int first = clt_group_edge(input, input->mesh.size[CLT_AXIS_PIPELINE], 0);
    return group >= first ? &input->layout->slots[group - first] : NULL;
}

/* Returns the stage with number `place` in a group of stages: they have their order. */
static inline int clt_group_stage(const clt_step_program_input *input, int group, int place)
{
    const clt_slot *tied = clt_group_slot(input, group);
    int stage = -1;
    for (int k = 0; tied && k <= place; k++)
        stage = clt_slot_next_stage(tied, stage);
    if (tied)
        return stage;
    const int stages = input->mesh.size[CLT_AXIS_PIPELINE];
    const int from = (group - CLT_GROUP_EDGE) / stages, to = (group - CLT_GROUP_EDGE) % stages;
    return (from < to) == (place == 0) ? from : to;
}

static inline int clt_group_size(const clt_step_program_input *input, int group)
{
    const clt_slot *tied = clt_group_slot(input, group);
    if (group >= CLT_GROUP_EDGE)
        return tied ? clt_slot_stages(tied) : 2;
    return group == CLT_GROUP_ALL
               ? input->participants
               : clt_mesh_places(&input->mesh, (clt_axis)(group - CLT_GROUP_AXIS));
}

/* Returns a participant's number in its group; -1: it is not in the group. */
static inline int clt_group_place(const clt_step_program_input *input, int group, int participant)
{
    if (group >= CLT_GROUP_EDGE) {
        const int stage = clt_mesh_coordinate(&input->mesh, CLT_AXIS_PIPELINE, participant);
        int place = clt_group_size(input, group) - 1;
        while (place >= 0 && clt_group_stage(input, group, place) != stage)
            place--;
        return place;
    }
    return group == CLT_GROUP_ALL
               ? participant
               : clt_mesh_coordinate(&input->mesh, (clt_axis)(group - CLT_GROUP_AXIS), participant);
}

/* Returns the participant with a number in the group of `participant`. */
static inline int clt_group_member(const clt_step_program_input *input, int group, int participant,
                                   int place)
{
    if (group >= CLT_GROUP_EDGE)
        return clt_mesh_neighbour(&input->mesh, CLT_AXIS_PIPELINE, participant,
                                  clt_group_stage(input, group, place));
    return group == CLT_GROUP_ALL
               ? place
               : clt_mesh_neighbour(&input->mesh, (clt_axis)(group - CLT_GROUP_AXIS), participant,
                                    place);
}

/* Returns the place of CLT_AXIS_SAMPLES whose states of a bucket go to the other places, if devices
 * are unlike.
 */
static inline int clt_states_sender(const clt_step_program_input *input, int bucket)
{
    return bucket % clt_input_parts(input);
}

/* Appends instructions to *program. Errors: OUT_OF_MEMORY. */
clt_status clt_step_program_generate(const clt_step_program_input *input,
                                     clt_step_program_kind kind, clt_load load,
                                     clt_step_program *program);

void clt_step_program_free(clt_step_program *program);

const char *clt_step_program_kind_name(clt_step_program_kind kind);

/* Writes one line for each instruction. Numbers are indices of the plan's tables. */
void clt_step_program_print(const clt_step_program *program, clt_str *text);

#endif
