/* The graph as passes and the plan see it. The public part is <cltrain/graph.h>. */
#ifndef CLT_GRAPH_GRAPH_H
#define CLT_GRAPH_GRAPH_H

#include <stdbool.h>

#include "base/table.h"
#include "base/str.h"
#include <cltrain/graph.h>

typedef struct clt_node clt_node;
typedef struct clt_op clt_op;
struct clt_variant;
struct clt_target;

enum { CLT_MAX_OUTPUTS = 4 };

typedef enum clt_value_kind {
    CLT_VALUE_INPUT,
    CLT_VALUE_CONSTANT,
    CLT_VALUE_PARAMETER,
    CLT_VALUE_STATE,
    CLT_VALUE_INTERMEDIATE
} clt_value_kind;

/*
 * How a value with a leading batch dimension lies in memory. PLAIN: row-major. LANES: the images of
 * a group of L fill the lanes of a vector, [ceil(B / L)][rest...][L]; L is the plan's lane count.
 */
typedef enum clt_layout { CLT_LAYOUT_PLAIN, CLT_LAYOUT_BATCH_BLOCKED } clt_layout;

/* Element type and dimensions. */
typedef struct clt_type {
    clt_dtype dtype;
    int rank;
    int64_t dims[CLT_MAX_RANK]; /* negative: -c is c times the batch */
} clt_type;

struct clt_value {
    clt_graph *graph;
    int id; /* index in graph->values */
    clt_value_kind kind;
    clt_type type;
    clt_layout layout;
    char *name; /* NULL for most intermediates */
    bool output;
    bool kept;          /* a parameter's gradient: passes neither merge nor remove it */
    bool given;         /* INPUT: the gradient of an output, see clt_output_gradient */
    clt_node *producer; /* NULL unless INTERMEDIATE */
    int slot;           /* which of the producer's outputs */
    clt_init init;      /* PARAMETER, STATE */
    bool frozen;        /* PARAMETER: it gets no gradient */
    bool carried;       /* STATE: from one run of a predictor to the next; see clt_carried */
    int group;          /* PARAMETER: number of its group, 0: none; see clt_param_group */
    double rate, decay; /* PARAMETER: what the group says */
    void *data;         /* CONSTANT: its bytes */
};

struct clt_node {
    clt_graph *graph;
    int id; /* index in graph->nodes, which is a topological order */
    const clt_op *op;
    char *name; /* "conv1", "conv1.grad"; never NULL */
    int n_in;
    clt_value **in; /* optional operands may be NULL */
    int n_out;
    clt_value *out[CLT_MAX_OUTPUTS];
    void *attr;             /* op->attr_bytes bytes, NULL if 0 */
    bool backward;          /* added by autodiff, or a copy that backward needs */
    bool again;             /* a copy, of `origin`: see passes/recompute_graph.c */
    const clt_node *origin; /* the forward node that a backward node belongs to; NULL else */
};

typedef struct clt_assignment {
    clt_value *state, *value;
} clt_assignment;

/* A loss or a metric: reported as sum / weight. */
typedef struct clt_mean {
    char *name;
    clt_value *sum, *weight;
    double coefficient;  /* losses */
    clt_value *upstream; /* losses in a training graph: scalar input, coefficient / global weight */
} clt_mean;

/* An output whose gradient the caller gives. */
typedef struct clt_seed {
    clt_value *output, *gradient;
} clt_seed;

struct clt_graph {
    clt_value **values;
    int n_values, room_values;
    clt_node **nodes;
    int n_nodes, room_nodes;
    clt_assignment *assigns;
    int n_assigns, room_assigns;
    clt_mean *losses;
    int n_losses, room_losses;
    clt_mean *metrics;
    int n_metrics, room_metrics;
    clt_seed *seeds; /* not in graphs of plans: autodiff has used them */
    int n_seeds, room_seeds;
    const clt_node *origin;           /* see clt_graph_set_origin */
    int groups;                       /* numbers of groups that clt_param_group gave so far */
    int streams;                      /* random streams handed out so far (dropout) */
    char *file_prefix, *file_ignored; /* see clt_file_names; NULL: nothing */
    clt_table names;                  /* of values, by their names; see graph/names.c */
    bool names_moved;                 /* `names` lacks some of them */
    clt_status status;
    char *message; /* of the first failure */
};

/* See passes/precision.c. Sums, statistics and losses are not to be rounded. */
typedef enum clt_rounding {
    CLT_ROUNDS_FIRST, /* output 0, if it is a layer's values or their gradient */
    CLT_ROUNDS_NONE,
    CLT_ROUNDS_MOVES, /* bits are moved: all outputs, if all operands lie in 16 bits */
    CLT_ROUNDS_ALL
} clt_rounding;

/* What ops/ tells the graph about an operator. Static and constant. */
struct clt_op {
    const char *name;
    int min_in, max_in; /* operands; those from min_in on may be NULL */
    int n_out;
    size_t attr_bytes;

    /* Checks operands and attributes; sets out[0 .. n_out). Messages name both operands. */
    clt_status (*infer)(const clt_node *node, clt_type *out);

    /*
     * Emits nodes that compute the gradients of the operands. dy[o] is the gradient of output o, or
     * NULL where nothing depends on it; wanted[i] tells whether dx[i] (NULL at call) is needed; a
     * rule may leave dx[i] NULL for "zero". NULL: the operator has no gradient, which is an error
     * if one is wanted.
     */
    clt_status (*gradient)(const clt_node *node, clt_value *const *dy, const bool *wanted,
                           clt_value **dx);

    /* Appends the attributes as text ("stride 2x2, pad 1x1"); NULL: none to tell. */
    void (*describe)(const clt_node *node, clt_str *text);

    /* Floating-point operations for a batch of n; NULL: one an output element. */
    double (*flops)(const clt_node *node, int64_t n);

    /* Losses and metrics: what one image adds to the weight that the node computes, where that does
     * not depend on the data; NULL or 0: it does. */
    double (*weight)(const clt_node *node);

    /* Whether the operator works on values in the batch-blocked layout; see clt_lanes. NULL: never.
     */
    int (*batch_blocked)(const clt_node *node);

    /* Output 0 is operand 0's bytes under another shape: no kernel runs. */
    bool view;

    /* Output 0 is made of operand 0 by the host, which acts between the plan's segments, from what
     * all devices have: no kernel runs, and there are no variants. One device: operand 0 itself. */
    bool collective;

    /* Bit i: output 0 may overwrite operand i, since every output element depends on no element of
     * that operand but the one of the same index, or on those of its row, which all kernels have
     * read before they write there. Not where the same bytes are an operand without its bit, too.
     */
    unsigned in_place;

    /* Not 0: output 0 is this operand (zeros where it is absent) plus what the others give:
     * autodiff lets such a node add to a gradient that is already there. */
    int base;

    /* Which outputs the precision pass may keep in 16 bits. */
    clt_rounding rounding;

    /* Whether the kernels for the target read operand `index` (`output`: write output `index`) in
     * 16 bits by themselves, in whatever type the value has, and compute in f32. NULL: none does;
     * conversions then stand around the node. */
    bool (*half)(const clt_node *node, const struct clt_target *target, int index, bool output);

    /* Fusion: takes over the computation of `next`, the only user of output 0 (an activation, a
     * pooling), so that output 0 becomes next's; false: cannot. NULL: never. */
    bool (*absorb)(clt_node *node, const clt_node *next);

    /* What evaluation computes instead of the node (dropout: its operand). NULL: itself. */
    clt_value *(*evaluate)(const clt_node *node);

    const struct clt_variant *variants; /* ends with a row whose name is NULL; see ops/variant.h */
};

/* Answers of clt_op.batch_blocked. */
enum {
    CLT_LANES_NO = 0,             /* plain operands only */
    CLT_BATCH_BLOCKED_FOLLOW = 1, /* works on lanes, if an operand already lies so */
    CLT_BATCH_BLOCKED_WANT = 2    /* is faster on lanes: worth a conversion */
};

/* --- building ------------------------------------------------------------------------------- */

/* Adds a node with operands `in` (NULL for an absent optional one) and a copy of `attr`; the new
 * values are node->out. Returns NULL and sets the graph's status on failure. */
clt_node *clt_graph_add(clt_graph *graph, const clt_op *op, clt_value *const *in, int n_in,
                        const void *attr);

/* The same with operator, attributes and result types of `model`, of another graph. They are not
 * checked: passes leave nodes that no builder makes. */
clt_node *clt_graph_add_twin(clt_graph *graph, const clt_node *model, clt_value *const *in);

/* Adds a node of one output and returns that. Finds the graph from the first operand that is not
 * NULL; NULL if a required operand is NULL. */
clt_value *clt_emit1(const clt_op *op, const void *attr, int n_in, ...);

/* Stores the thread's present message as the graph's failure, unless it has one. */
void clt_graph_failed(clt_graph *graph, clt_status status);

/* A value that is not the output of a node. */
clt_value *clt_graph_value(clt_graph *graph, clt_value_kind kind, const clt_type *type,
                           const char *name);

/* Enters the value under its name, by which clt_graph_find will find it. */
clt_status clt_graph_index_name(clt_graph *graph, const clt_value *value);

/* Enters all values that have names, and no others. */
clt_status clt_graph_index_names(clt_graph *graph);

/* `to` becomes the output of the graph that `from` was, under its name. */
void clt_graph_move_output(clt_value *from, clt_value *to);

/* By value id: the first node that reads the value; n_nodes: none does. */
void clt_graph_first_readers(const clt_graph *graph, int *first);

/* A deep copy: values and nodes keep their ids. */
clt_status clt_graph_copy(const clt_graph *graph, clt_graph **copy);

/* A parameter that is not frozen. */
static inline bool clt_value_trained(const clt_value *value)
{
    return value->kind == CLT_VALUE_PARAMETER && !value->frozen;
}

/* Takes losses and metrics away. */
void clt_graph_forget_means(clt_graph *graph);

/*
 * Values that others take the place of. A pass visits nodes in order, settles the operands of each
 * with clt_replacements_settle_node, and may then enter what replaces the node's outputs: one of
 * its operands, an output of an earlier node, or a value that it has added.
 * clt_replacements_settle_graph settles all operands, assignments, losses and metrics at the end.
 * So a pass takes time in proportion to the graph, whatever it replaces.
 */
typedef struct clt_replacements {
    clt_graph *graph;
    int n_values;       /* entries of `values` */
    clt_value **values; /* by id; NULL: itself */
} clt_replacements;

clt_status clt_replacements_begin(clt_graph *graph, clt_replacements *replacements);
void clt_replacements_settle_node(const clt_replacements *replacements, clt_node *node);
clt_status clt_replacements_add(clt_replacements *replacements, const clt_value *from,
                                clt_value *to);
void clt_replacements_settle_graph(const clt_replacements *replacements);
void clt_replacements_free(clt_replacements *replacements);

/* Puts nodes and values in topological order, drops nodes on which no output, loss, metric,
 * assignment or node of `keep` depends, and numbers ids anew. */
clt_status clt_graph_clean(clt_graph *graph, clt_value *const *keep, int n_keep);

/* While set, nodes added belong to the backward of `origin` and take their names from it; NULL:
 * forward nodes again. */
void clt_graph_set_origin(clt_graph *graph, const clt_node *origin);

/* --- shapes --------------------------------------------------------------------------------- */

/* The dimension's size for a batch of n. */
static inline int64_t clt_dim(int64_t dim, int64_t n)
{
    return dim < 0 ? -dim * n : dim;
}

bool clt_type_has_batch(const clt_type *type);

/* Elements for a batch of n. */
int64_t clt_type_elements(const clt_type *type, int64_t n);

/* Elements of one image: all dimensions but a leading batch dimension's factor of the batch.
 * elements(n) == coefficient * (has_batch ? n : 1). */
int64_t clt_type_coefficient(const clt_type *type);

bool clt_type_equal(const clt_type *a, const clt_type *b);

/* "f32[Bx3x28x28]" into `text` of at least CLT_TYPE_TEXT bytes; returns `text`. */
enum { CLT_TYPE_TEXT = 256 };
const char *clt_type_text(const clt_type *type, char *text);

/* True if the value's first dimension is exactly the batch: it can lie in LANES. */
bool clt_value_leads_with_batch(const clt_value *value);

/* The value whose bytes `value` is: itself, or what it is a view of, view behind view. */
const clt_value *clt_value_root(const clt_value *value);

/* Elements that the value occupies in its layout for a batch of n. */
int64_t clt_value_stored(const clt_value *value, int64_t n, int lanes);

/* A readable listing: a line a node. */
void clt_graph_dump(const clt_graph *graph, clt_str *text);

#endif
