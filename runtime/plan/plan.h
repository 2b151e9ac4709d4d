/*
 * A plan: the immutable result of compiling a graph for one kind of device and a largest batch. It
 * has no OpenCL object; exec binds it to a device and a store.
 */
#ifndef CLT_PLAN_PLAN_H
#define CLT_PLAN_PLAN_H

#include "ops/core/launch.h"
#include "plan/buckets.h"

typedef enum clt_plan_mode {
    CLT_PLAN_TRAIN,    /* forward, losses, metrics and gradients of all parameters */
    CLT_PLAN_EVALUATE, /* forward, losses and metrics, as outside training */
    CLT_PLAN_PREDICT   /* outputs only, as outside training: needs no labels */
} clt_plan_mode;

typedef struct clt_plan_options {
    clt_plan_mode mode;
    int64_t max_batch;
    int lanes;       /* of LANES, which then serves every batch; 0: as wide as the device's vectors,
                        and values of small batches lie PLAIN (passes/choose_layout.c) */
    bool separate;   /* every value its own buffer of exact size */
    bool repeatable; /* no node overwrites an operand, so that each can run again and again */
    bool fuse;
    bool several;        /* more than one device takes part, so that collectives stay */
    bool portable;       /* the last variant of every operator, as for an unknown device */
    clt_dtype precision; /* F32; F16 or BF16: what layers' values, and all gradients, are kept in */
    bool early_outputs;  /* TRAIN: outputs are read before backward, which may overwrite them */
    /* TRAIN: backward computes forward's values again, for the least memory that is found. */
    bool recompute;
    /* TRAIN: not 0: the most bytes of intermediates; backward computes as much again as that takes,
     * and clt_plan_create fails with OUT_OF_DEVICE_MEMORY where nothing suffices. */
    int64_t arena_limit;
    bool as_in_training; /* PREDICT: operators compute what they do in training: batch norm, dropout
                          */
    bool carries;        /* PREDICT: states that are carried change; see clt_carried */
    /* OP=NAME,...: the variants to take for these operators, where they accept; NULL: none. Not
     * kept by the plan. */
    const char *variants;
} clt_plan_options;

static inline clt_plan_options clt_plan_options_default(clt_plan_mode mode, int64_t max_batch)
{
    return (clt_plan_options){
        .mode = mode, .max_batch = max_batch, .fuse = true, .precision = CLT_F32};
}

/* Where a value lives. */
typedef enum clt_place_kind {
    CLT_PLACE_NONE,     /* a dead value, or an input that this plan does not use */
    CLT_PLACE_ARENA,    /* index: slab */
    CLT_PLACE_INPUT,    /* index: in plan->inputs */
    CLT_PLACE_CONSTANT, /* index: in plan->constants */
    CLT_PLACE_SLOT,     /* parameter or state; index: bucket */
    CLT_PLACE_GRADIENT, /* index: bucket of the parameter; the same element */
    CLT_PLACE_RESULT    /* sums and weights of losses and metrics: the small results buffer */
} clt_place_kind;

typedef struct clt_place {
    clt_place_kind kind;
    int index;
    int64_t offset; /* bytes */
} clt_place;

typedef struct clt_plan_node {
    const clt_node *node;
    const clt_variant *variant; /* NULL for views and collectives */
    clt_program program;
    clt_place scratch[4];
    char *declined;       /* "name: reason" lines of the variants passed over; NULL if none */
    char shape_class[64]; /* under which its measurements are kept */
    const clt_tuning_entry *tuned; /* the plan's copy of the measurement that decided; NULL: none */
} clt_plan_node;

/* Nodes [first, end) run without a host action between them; then collective `begins` begins (-1:
 * none), and the gradient buckets ready[first_ready .. end_ready) can be reduced. */
typedef struct clt_segment {
    int first, end;
    int begins;
    int first_ready, end_ready;
} clt_segment;

/* A node whose output the host makes: between the two ends the operand stays and the output is the
 * host's. Both come in the same order: no later one is needed before an earlier one. */
typedef struct clt_plan_collective {
    int node;   /* it begins when the nodes before this one are enqueued */
    int needed; /* it must be complete before this node is; at the latest the end of forward, or of
                   backward */
    char label[160]; /* for messages: "node bn1.sum (all_reduce of f32[64])" */
} clt_plan_collective;

typedef struct clt_plan {
    clt_plan_options options;
    clt_caps caps; /* of the device kind it was made for */
    clt_graph *graph;
    clt_buckets buckets; /* the store's layout */
    clt_plan_node *nodes;
    int n_nodes;
    int n_forward;     /* nodes before the first one of backward */
    clt_place *places; /* by value id */
    clt_value **inputs;
    int n_inputs;
    clt_value **constants;
    int n_constants;
    clt_value **gradients; /* by slot of `buckets`; NULL: zero */
    int64_t *slabs;        /* bytes of each */
    int n_slabs;
    int64_t alive_bytes;   /* the most that is alive at one node: the arena cannot be smaller */
    int64_t plain_bytes;   /* the arena's bytes if nothing were computed again; 0: nothing is */
    int64_t results_bytes; /* losses then metrics, sum and weight of each, one f32 each */
    clt_plan_collective *collectives;
    int n_collectives;
    clt_segment *segments;
    int n_segments;
    int *ready; /* gradient buckets in the order in which they become ready */
    int n_ready;
    clt_tuning_entry *tuned; /* the measurements used, by node */
    uint64_t hash;           /* equal plans have equal hashes */
} clt_plan;

/*
 * Compiles a copy of `graph`. `buckets` is the store's layout: every parameter and state of the
 * graph must be in it with the same type. `tuning` may be NULL.
 */
clt_status clt_plan_create(const clt_graph *graph, const clt_buckets *buckets, const clt_caps *caps,
                           const clt_tuning_record *tuning, const clt_plan_options *options,
                           clt_plan **plan);

void clt_plan_destroy(clt_plan *plan);

/* Bytes of the arena: the peak of intermediates. */
int64_t clt_plan_arena_bytes(const clt_plan *plan);

/* Bytes of parameters plus gradients (if it trains) plus `optimizer_slots` times the parameters. */
int64_t clt_plan_store_bytes(const clt_plan *plan, int optimizer_slots);

/* A table of nodes, memory, buckets, segments and variants; `explain` adds why variants declined.
 */
void clt_plan_print(const clt_plan *plan, bool explain, clt_str *text);

/* --- parts of clt_plan_create ---------------------------------------------------------------- */

/* plan/variants.c: the class of shapes whose measurements hold for the node: element types, layouts
 * and dimensions of its operands, the batch rounded up to a power of two, and its attributes. */
void clt_plan_class(const clt_node *node, int64_t max_batch, char text[64]);

/* plan/variants.c: chooses a variant for every node and lets it write its launches. */
clt_status clt_plan_variants(clt_plan *plan, const clt_target *target);

/* plan/memory.c: a place for every value and scratch block. */
clt_status clt_plan_memory(clt_plan *plan, const clt_target *target);

/* plan.c: nodes, variants and memory of the plan's graph, whose passes are done. */
clt_status clt_plan_lay_out(clt_plan *plan, const clt_target *target);

/* plan/recompute_plan.c: replaces *plan by one that computes values again, as its options say. */
clt_status clt_plan_again(clt_plan **plan, const clt_target *target);

/* plan/plan_segments.c: which collectives there are, and when they begin and end. */
clt_status clt_plan_collectives(clt_plan *plan);

/* plan/plan_segments.c: cuts where the host acts: where gradient buckets become ready, and at both
 * ends of collectives. */
clt_status clt_plan_segments(clt_plan *plan);

#endif
