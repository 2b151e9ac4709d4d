/*
 * A plan is the immutable result of compiling a graph for one kind of device and a largest batch.
 * It has no OpenCL objects; exec binds it to a device and a store.
 */
#ifndef CLT_PLAN_PLAN_H
#define CLT_PLAN_PLAN_H

#include "passes/passes.h"
#include "plan/buckets.h"
#include <cltrain/unstable.h>

typedef enum clt_plan_mode {
    CLT_PLAN_TRAIN,    /* forward, losses, metrics and gradients of all parameters */
    CLT_PLAN_EVALUATE, /* forward, losses and metrics, with operators as outside training */
    CLT_PLAN_PREDICT   /* outputs only, with operators as outside training: needs no labels */
} clt_plan_mode;

typedef struct clt_plan_options {
    clt_plan_mode mode;
    int64_t max_batch;
    int lanes;       /* vector lanes of the batch-blocked layout, then used for every batch; 0: the
                        device's vector width, and small batches stay plain (passes/choose_layout.c) */
    bool separate;   /* every value has its own buffer of exact size */
    bool repeatable; /* no node overwrites an operand, so that every node can be run repeatedly */
    bool fuse;
    /* Micro-batches in flight: forward of further ones runs before backward of the first. What
     * backward reads of forward exists so many times, and the rest of the arena once. 0: forward
     * and backward of a micro-batch follow each other. */
    int in_flight;
    const clt_mesh *mesh; /* with `participant`: the place in the mesh that the plan is for; NULL:
                             all devices are data parallel. Not kept */
    int participant;
    bool several; /* several devices take part, so collectives stay */
    /* Not 0: the plan is for a shard of a batch of so many, and for a canonical device. Variants do
     * not depend on the number of compute units, nor on measurements, so that parts of a device
     * have the bits of the whole. */
    int64_t virtual_shards;
    bool portable;       /* use the last variant of every operator, as for an unknown device */
    clt_dtype precision; /* stored type of layers' values and all gradients: F32, F16, BF16 */
    /* TRAIN, F32: the gradients of further micro-batches are added to those of the first. */
    bool accumulates;
    bool early_outputs; /* TRAIN: outputs are read before backward, and backward may overwrite them
                         */
    /* TRAIN: the backward pass recomputes forward values, for the least memory that is found. */
    bool recompute;
    /* TRAIN: limit for the bytes of intermediates; 0: no limit. The backward pass recomputes as
     * much as the limit requires. clt_plan_create fails with OUT_OF_DEVICE_MEMORY if recomputing
     * does not suffice. */
    int64_t arena_limit;
    bool as_in_training; /* PREDICT: batch norm and dropout work as in training */
    bool carries;        /* PREDICT: carried states change; see clt_carried */
    /* OP=NAME,...: variants to use for these operators if they accept; NULL: none. The plan does
     * not keep the text. */
    const char *variants;
    clt_merging merge;  /* see plan/merge.c */
    double merge_steps; /* runs of the plan, which must repay AUTO's compiling; 0: very many */
    /* Returns whether a merged launch may contain the kernel. If not, writes the reason to `why`,
     * which has CLT_PLAN_WHY bytes. NULL: no launches merge. */
    bool (*merges)(const char *file, const char *options, const char *kernel, char *why);
} clt_plan_options;

enum { CLT_PLAN_WHY = 128 };

static inline clt_plan_options clt_plan_options_default(clt_plan_mode mode, int64_t max_batch)
{
    return (clt_plan_options){
        .mode = mode, .max_batch = max_batch, .fuse = true, .precision = CLT_F32};
}

/* The memory in which a value lives. */
typedef enum clt_place_kind {
    CLT_PLACE_NONE,     /* a dead value, or an unused input */
    CLT_PLACE_ARENA,    /* index: slab */
    CLT_PLACE_INPUT,    /* index: in plan->inputs */
    CLT_PLACE_CONSTANT, /* index: in plan->constants */
    CLT_PLACE_SLOT,     /* parameter or state; index: bucket */
    CLT_PLACE_GRADIENT, /* index: bucket of the parameter, at the same element */
    CLT_PLACE_TOTAL,    /* the same, but micro-batches add to it; see plan/totals.c */
    CLT_PLACE_RESULT    /* sums and weights of losses and metrics: the small results buffer */
} clt_place_kind;

typedef struct clt_place {
    clt_place_kind kind;
    int index;
    int64_t offset; /* bytes */
} clt_place;

static inline bool clt_place_equal(const clt_place *a, const clt_place *b)
{
    return a->kind == b->kind && a->index == b->index && a->offset == b->offset;
}

typedef struct clt_plan_node {
    const clt_node *node;
    const clt_variant *variant; /* NULL for views and collectives */
    clt_program program;
    clt_place scratch[4];
    char *declined;                /* lines "name: reason" for variants that declined; NULL: none */
    uint64_t key;                  /* of the node's measurements, see clt_plan_key */
    char shape_class[64];          /* the same for readers, as far as there is room */
    const clt_tuning_entry *tuned; /* the measurement that decided, in plan->tuned; NULL: none */
} clt_plan_node;

/* Nodes [first, end) run without a host action in between. After them collective `begins` begins
 * (-1: none), and the gradient buckets ready[first_ready .. end_ready) can be reduced. */
typedef struct clt_segment {
    int first, end;
    int begins;
    int first_ready, end_ready;
} clt_segment;

/* A collective: a node whose output the host computes. From its beginning to its end the operand
 * must stay unchanged and the host owns the output. Collectives begin and end in the same order:
 * none is needed before an earlier one. */
typedef struct clt_plan_collective {
    clt_op_collective kind;
    clt_axis axis;
    int peer;      /* of sends and receives: the place of the other end; else -1 */
    int64_t count; /* elements of a participant's own part; with per_sample for each sample */
    bool per_sample;
    clt_dtype dtype;
    int node;   /* begins when all nodes before this one are enqueued */
    int needed; /* complete before this node, at the latest at the end of forward or backward. What
                   is sent stays until its micro-batch's memory is used again */
    bool whole; /* in place, in a buffer object that nothing else writes meanwhile: a gather in its
                   result, a scatter in its operand, a shift's two ends in two objects */
    char label[160]; /* for messages: "node bn1.sum (all_reduce of f32[64])" */
} clt_plan_collective;

/* Nodes [first, end), whose launches exec makes one. The first `skip` launches of node `first` are
 * not small and stay apart. If `wide`, the launch behind them is not small either: the launch made
 * has its work-items, of which the last one to end does the rest. */
typedef struct clt_plan_merge {
    int first, end, skip;
    int launches;
    bool wide;
} clt_plan_merge;

typedef struct clt_plan {
    clt_plan_options options;
    clt_caps caps; /* of the kind of device that the plan is for */
    clt_graph *graph;
    clt_buckets buckets; /* the layout of the device's parts */
    clt_plan_node *nodes;
    int n_nodes;
    int n_forward;     /* number of forward nodes, which come first */
    clt_place *places; /* by value id */
    /* By value id: the places in the arena of what has kind GRADIENT, for further micro-batches.
     * NULL without options.accumulates. */
    clt_place *further;
    clt_value **inputs;
    int n_inputs;
    clt_value **constants;
    int n_constants;
    clt_value **gradients; /* by slot of `buckets`; NULL: the gradient is zero */
    int64_t *slabs;        /* bytes of each */
    int n_slabs;
    int n_flight_slabs;    /* the first slabs, which exist once for each micro-batch in flight */
    int64_t alive_bytes;   /* the most bytes alive at one node: a lower bound for the arena */
    int64_t plain_bytes;   /* the arena's bytes without recomputation; 0: nothing is recomputed */
    int64_t results_bytes; /* losses, then metrics; sum and weight of each, one f32 each */
    clt_plan_collective *collectives;
    int n_collectives;
    clt_segment *segments;
    int n_segments;
    clt_plan_merge *merges;
    int n_merges;
    char merging[96]; /* why there are these merges, or none */
    char apart[288];  /* the first small node that cannot merge, and why; "": all can */
    int *ready;       /* gradient buckets in the order of becoming ready */
    int n_ready;
    clt_tuning_entry *tuned; /* the measurements used, by number of the node */
    clt_partition_report partition;
    uint64_t hash; /* equal plans have equal hashes */
} clt_plan;

/*
 * Compiles a copy of `graph`. `buckets` is the layout of the device's parts: every parameter and
 * state of the graph must be in it with the same whole type. `tuning` may be NULL.
 */
clt_status clt_plan_create(const clt_graph *graph, const clt_buckets *buckets, const clt_caps *caps,
                           const clt_tuning_record *tuning, const clt_plan_options *options,
                           clt_plan **plan);

void clt_plan_destroy(clt_plan *plan);

/* Returns how many slabs the arena has, and the slab of this number for a micro-batch in `slot`, 0
 * to in_flight - 1. */
int clt_plan_all_slabs(const clt_plan *plan);
int clt_plan_slab(const clt_plan *plan, int slab, int slot);

/* Whether the value is a gradient in a bucket, or an addend that lies there. */
static inline bool clt_plan_in_gradients(const clt_plan *plan, const clt_value *value)
{
    const clt_place_kind kind = plan->places[value->id].kind;
    return kind == CLT_PLACE_GRADIENT || kind == CLT_PLACE_TOTAL;
}

/* Whether micro-batches add to a gradient in the bucket where it is. */
bool clt_plan_has_totals(const clt_plan *plan, int bucket);

/* Returns the bytes of the arena: the peak of intermediates. */
int64_t clt_plan_arena_bytes(const clt_plan *plan);

/* Returns the bytes of the tensors that the plan's collectives along an axis reduce, gather,
 * scatter or pass on in a run of so many samples. *count gets the number of these collectives; it
 * may be NULL. */
int64_t clt_plan_payload(const clt_plan *plan, clt_axis axis, int64_t samples, int *count);

/* Returns the bytes of parameters, gradients (if the plan trains) and `optimizer_slots` times the
 * parameters. */
int64_t clt_plan_store_bytes(const clt_plan *plan, int optimizer_slots);

/* Appends a table of nodes, memory, buckets, segments and variants. `explain` adds why variants
 * declined. */
void clt_plan_print(const clt_plan *plan, bool explain, clt_str *text);

/* --- parts of clt_plan_create ---------------------------------------------------------------- */

/* plan/class.c: the class of shapes for which a node's measurements hold, as a number and as a text
 * for readers. It has the operator, the kind of device, element types, layouts and dimensions of
 * the operands and outputs, with the batch rounded up to a power of two, and the attributes. */
uint64_t clt_plan_key(const clt_node *node, const clt_target *target);
void clt_plan_class(const clt_node *node, int64_t max_batch, char text[64]);

/* The text by which older checkpoints name the class. */
void clt_plan_old_class(const clt_node *node, int64_t max_batch, char text[64]);

/* plan/variants.c: chooses a variant for every node, which writes the node's launches. */
clt_status clt_plan_variants(clt_plan *plan, const clt_target *target);

/* plan/memory.c: finds a place for every value and scratch block. */
clt_status clt_plan_memory(clt_plan *plan, const clt_target *target);

/* plan/memory.c: whether the node may overwrite operand `index`. */
bool clt_plan_may_overwrite(const clt_node *node, int index);

/* plan/carried.c: places new values of carried states. */
clt_status clt_plan_carried(clt_plan *plan);

/* plan/totals.c: finds the gradients that micro-batches add up where they are. Needs the places of
 * gradients. */
clt_status clt_plan_totals(clt_plan *plan);

/* plan.c: lists nodes, chooses variants and lays out memory, after all passes. */
clt_status clt_plan_lay_out(clt_plan *plan, const clt_target *target);

/* plan/recompute_plan.c: replaces *plan by a plan that recomputes values, as its options say. */
clt_status clt_plan_recompute(clt_plan **plan, const clt_target *target);

/* plan/plan_segments.c: lists the collectives, and when they begin and end. */
clt_status clt_plan_collectives(clt_plan *plan);

/* plan/plan_segments.c: cuts the schedule where the host acts: where gradient buckets become ready,
 * and at both ends of collectives. */
clt_status clt_plan_segments(clt_plan *plan);

/* plan/merge.c: finds the nodes whose launches become one. Needs the segments. */
clt_status clt_plan_merges(clt_plan *plan);

#endif
