/* The graph as passes and plans see it. <cltrain/graph.h> has the public part. */
#ifndef CLT_GRAPH_GRAPH_H
#define CLT_GRAPH_GRAPH_H

#include <stdbool.h>

#include "base/table.h"
#include "base/str.h"
#include <cltrain/graph.h>
#include <cltrain/operators.h>

typedef struct clt_node clt_node;
typedef struct clt_op clt_op;
struct clt_node_dims;
struct clt_node_part;
struct clt_window;
struct clt_variant;
struct clt_target;

enum { CLT_MAX_OUTPUTS = CLT_MAX_RESULTS, CLT_MAX_STASH = 4 };

typedef enum clt_value_kind {
    CLT_VALUE_INPUT,
    CLT_VALUE_CONSTANT,
    CLT_VALUE_PARAMETER,
    CLT_VALUE_STATE,
    CLT_VALUE_INTERMEDIATE
} clt_value_kind;

/*
 * The layout of a value with a leading batch dimension. PLAIN: row-major. BATCH_BLOCKED: the images
 * of a group of L fill the lanes of a vector, [ceil(B / L)][rest...][L]. L is the plan's number of
 * vector lanes.
 */
typedef enum clt_layout { CLT_LAYOUT_PLAIN, CLT_LAYOUT_BATCH_BLOCKED } clt_layout;

/* Element type and dimensions. */
typedef struct clt_type {
    clt_dtype dtype;
    int rank;
    int64_t dims[CLT_MAX_RANK]; /* negative: -c is c times the batch */
} clt_type;

/* How the parts of a value lie along one axis of the mesh; see graph/sharding.h. */
typedef struct clt_sharding {
    int dim;    /* the dimension that is divided */
    int blocks; /* each place has a part of each of so many blocks; 0: the value is whole */
} clt_sharding;

struct clt_value {
    clt_graph *graph;
    int id; /* index in graph->values */
    clt_value_kind kind;
    clt_type type;
    clt_layout layout;
    char *name; /* NULL for most intermediates */
    bool output;
    bool spare;           /* an output only as far as its parts need not be gathered */
    bool kept;            /* a parameter's gradient, which passes neither merge nor remove */
    bool exact;           /* stays f32 if values are stored in 16 bits */
    bool output_gradient; /* INPUT: the gradient of an output, see clt_output_gradient */
    /* INPUT: its gradient is wanted (clt_input_gradient). An output of backward: it is one, whose
     * name is the input's with CLT_INPUT_GRADIENT behind it */
    bool input_gradient;
    clt_node *producer; /* NULL unless INTERMEDIATE */
    int slot;           /* index among the producer's outputs */
    int first_reader;   /* 1 + the number that its first reader had when it was added; 0: none */
    clt_init init;      /* PARAMETER, STATE */
    bool frozen;        /* PARAMETER: gets no gradient */
    bool carried;       /* STATE: a predictor keeps it from run to run; see clt_carried */
    bool assigned;      /* STATE: clt_assign was called for it */
    int group;          /* PARAMETER: number of its group, 0: none; see clt_param_group */
    double rate, decay; /* PARAMETER: the group's learning rate factor and weight decay */
    clt_sharding shardings[CLT_AXES]; /* see clt_shard and clt_shard_value */
    int cut;                          /* number of its clt_cut, from 1 on; 0: none */
    uint64_t stages; /* PARAMETER, STATE: bit s: stage s uses it (clt_pass_stages) */
    int tied;        /* PARAMETER: a copy for this stage; 0: no copy */
    void *data;      /* CONSTANT: the elements */
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
    /* op->attr_bytes bytes, NULL if 0. Equal attributes are compared as memory, so these structs
     * have members `unused`, which are 0, in place of padding. */
    void *attr;
    bool backward;          /* added by autodiff, or a copy that backward needs */
    bool recomputed;        /* recomputes `origin`, see passes/recompute_graph.c */
    bool replaced;          /* by other nodes: clt_graph_clean removes it in spite of its effect */
    int stage;              /* of the pipeline, that of the origin; -1: not known yet */
    int piece;              /* that of the origin, see clt_graph_keep_cuts; -1: not known */
    const clt_node *origin; /* the forward node of a backward node; otherwise NULL */
};

typedef struct clt_assignment {
    clt_value *state, *value;
} clt_assignment;

#define CLT_INPUT_GRADIENT ".gradient"

/* A loss or a metric: reported as sum / weight. */
typedef struct clt_mean {
    char *name;
    clt_value *sum, *weight;
    double coefficient; /* losses */
    double each; /* the weight of a sample, if no node says it any more; 0: see clt_op.weight */
    clt_value *upstream; /* losses in a training graph: scalar input, coefficient / global weight */
} clt_mean;

/* An output and its gradient, which comes from the caller. */
typedef struct clt_seed {
    clt_value *output, *gradient;
} clt_seed;

/* A linear layer with adapters, see clt_lora. */
typedef struct clt_lora_site {
    char *layer, *weight; /* names */
    int rank;
    double alpha, dropout;
    bool transposed; /* the weight is [in, out] */
} clt_lora_site;

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
    clt_seed *seeds; /* empty in graphs of plans, where autodiff has used them */
    int n_seeds, room_seeds;
    const clt_node *origin; /* see clt_graph_set_origin */
    int groups;             /* group numbers used so far, see clt_param_group */
    int streams;            /* random streams handed out so far (dropout) */
    int cuts;               /* calls of clt_cut so far */
    clt_lora_site *loras;   /* copies of graphs have none */
    int n_loras, room_loras;
    char *file_prefix, *file_ignored; /* see clt_file_names; NULL: nothing */
    clt_table names;                  /* index of values by name; see graph/names.c */
    bool names_moved;                 /* `names` is incomplete */
    clt_status status;
    char *message; /* message of the first failure */
};

/* Which outputs passes/precision.c may round to 16 bits. Sums, statistics and losses must not be
 * rounded. */
typedef enum clt_rounding {
    CLT_ROUNDS_FIRST, /* output 0, if it holds a layer's values or their gradient */
    CLT_ROUNDS_NONE,
    CLT_ROUNDS_MOVES, /* elements are only moved: all outputs, if all operands are in 16 bits */
    CLT_ROUNDS_ALL
} clt_rounding;

/* What the host does for a node. */
typedef enum clt_op_collective {
    CLT_OP_KERNELS, /* nothing */
    CLT_OP_ALL_REDUCE,
    CLT_OP_ALL_GATHER,
    CLT_OP_REDUCE_SCATTER,
    CLT_OP_SEND,
    CLT_OP_RECEIVE,
    CLT_OP_SHIFT
} clt_op_collective;

/* For clt_op.build: operands (NULL where one is absent) and attr_bytes bytes, from which it sets
 * the results. */
typedef struct clt_op_call {
    const clt_op *op;
    clt_value *const *in;
    int n_in;
    const void *attr;
    clt_value **out;
} clt_op_call;

/* An operator as ops/ describes it. Static and constant. A callable operator that is no node has
 * `build`, and nothing from `infer` on. */
struct clt_op {
    const char *name;
    size_t attr_bytes;

    /*
     * The schema: see <cltrain/operators.h>. Operands and results are texts, "x *k, bias o?!, n 1
     * i32": name, dimensions, flags (? optional, ! once, + repeated), and the type if it is not
     * f32. Those that must be given come first.
     */
    const char *doc, *operands, *results;
    const clt_attribute *attributes; /* in node->attr; end with a row without a name. NULL: none */
    const char *whole, *halo, *scan; /* letters of dimensions that behave so; NULL: none */
    const char *by_node; /* letters whose dimensions only `dims` can tell apart, such as one with
                            the axis in it. The schema alone calls them whole */

    /* How the dimensions of a node behave where its attributes or ranks decide: changes what the
     * letters say. NULL: as the letters say. */
    void (*dims)(const clt_node *node, struct clt_node_dims *dims);

    /* Callable: programs may add it by name, with `build`. NULL: as a node, with its attributes as
     * they are. */
    bool callable;
    void (*build)(const clt_op_call *call);

    /* Checks operands and attributes, and sets a type for each result. Messages name both operands.
     */
    clt_status (*infer)(const clt_node *node, clt_type *out);

    /*
     * Adds nodes that compute the gradients of the operands. dy[o] is the gradient of output o;
     * NULL if nothing depends on output o. wanted[i] says that dx[i] is needed. All dx[i] are NULL
     * at the call, and a rule may leave one NULL for a zero gradient. `gradient` NULL: the operator
     * has no gradient, which is an error if a gradient is wanted.
     */
    clt_status (*gradient)(const clt_node *node, clt_value *const *dy, const bool *wanted,
                           clt_value **dx);

    /* Appends the attributes as text ("stride 2x2, pad 1x1"). NULL: there are none to show. */
    void (*describe)(const clt_node *node, clt_str *text);

    /* Returns the floating-point operations for a batch of n. NULL: one for each output element. */
    double (*flops)(const clt_node *node, int64_t n);

    /* Losses and metrics: returns what one image adds to the weight that the node computes. NULL or
     * 0: the weight depends on the data. */
    double (*weight)(const clt_node *node);

    /* Whether the operator works on values in the batch-blocked layout, as one of the answers
     * below. NULL: never. */
    int (*batch_blocked)(const clt_node *node);

    /* Output 0 has operand 0's bytes with another shape: no kernel runs. */
    bool view;

    /* The host computes output 0 from operand 0 of all places of an axis, between the plan's
     * segments. No kernel runs, and there are no variants. The attributes begin with an int, the
     * axis. */
    clt_op_collective collective;

    /* The node acts outside the graph: it stays although nothing reads its results. */
    bool effect;

    /* Sums of operands give sums of results, all operands taken together. */
    bool linear;

    /* Bit i: output 0 may overwrite operand i. Every output element depends only on the element of
     * operand i with the same index, or only on its row if all kernels read the row before they
     * write there. Not allowed if another operand without this bit has the same bytes. */
    unsigned in_place;

    /* Not 0: output 0 is the sum of this operand (zeros if absent) and a value made from the
     * others. Autodiff lets such a node add to an existing gradient. */
    int base;

    /* Which outputs the precision pass may keep in 16 bits. */
    clt_rounding rounding;

    /* Whether the target's kernels read operand `index` (`output`: write output `index`) in 16 bits
     * themselves, whatever the value's type, and compute in f32. NULL: no kernel does, so
     * conversions are put around the node. */
    bool (*half)(const clt_node *node, const struct clt_target *target, int index, bool output);

    /* Fusion: takes over the computation of `next`, the only user of output 0 (an activation, a
     * pooling). Output 0 then becomes next's. False: not possible. NULL: never. */
    bool (*absorb)(clt_node *node, const clt_node *next);

    /* Returns the value that replaces output 0 outside training (dropout: its operand). NULL:
     * output 0 stays. */
    clt_value *(*evaluate)(const clt_node *node);

    /* Partitioning: changes `attr`, a copy of the node's attributes, to those of a node on one
     * place of an axis (clt_node_part in ops/core/dims.h). NULL: they are the same. */
    clt_status (*localise)(const clt_node *node, const struct clt_node_part *part, void *attr);

    /*
     * Partitioning along a dimension that is WHOLE, by nodes with collectives in place of the node.
     * in[] are the place's operands: parts where they have the label, else whole. Sets out[]: parts
     * where results have the label, else whole values. stash[] (CLT_MAX_STASH values) belongs to
     * the forward node: its call may leave values there for the calls of its backward nodes. NULL:
     * operands are gathered.
     */
    clt_status (*divide)(const clt_node *node, const struct clt_node_part *part,
                         clt_value *const *in, clt_value **stash, clt_value **out);

    /*
     * Partitioning forward nodes along a dimension of operand 0 and result 0 whose elements depend
     * on their neighbours. `reach` finds the window of operand 0 that a part of the result needs
     * (clt_window in ops/core/dims.h); false: the node cannot be divided so. `within` adds nodes
     * that compute the part. in[0] is the window, the other operands are whole. NULL: operands are
     * gathered.
     */
    bool (*reach)(const clt_node *node, struct clt_window *window);
    clt_value *(*within)(const clt_node *node, const struct clt_window *window,
                         clt_value *const *in);

    const struct clt_variant *variants; /* ends with a row whose name is NULL; see ops/variant.h */
};

/* An item of clt_op.operands or results; false: there is none of that index. */
bool clt_operand_at(const char *list, int index, clt_operand_schema *out);

/* Operands that must be given, operands at most, and results. */
int clt_op_least(const clt_op *op);
int clt_op_most(const clt_op *op);
int clt_op_results(const clt_op *op);

/* Begins a row of clt_attribute: its kind, name, place in the struct, and line of documentation. */
#define CLT_ATTRIBUTE(KIND, NAME, STRUCT, FIELD, DOC)                                              \
    .name = NAME, .doc = DOC, .kind = CLT_ATTRIBUTE_##KIND, .offset = offsetof(STRUCT, FIELD),     \
    .bytes = sizeof(((STRUCT *)0)->FIELD)

/* The members of an operator for the attributes in STRUCT; the rows are in braces. */
#define CLT_ATTRIBUTES(STRUCT, ...)                                                                \
    .attributes = (const clt_attribute[]){__VA_ARGS__, {0}}, .attr_bytes = sizeof(STRUCT)

/* Writes the defaults of all attributes into `attr`, whose other bytes become 0. */
void clt_attributes_init(const clt_op *op, void *attr);

/* Fails unless all attributes are in their ranges. */
clt_status clt_attributes_check(const clt_op *op, const void *attr);

/* Returns whether the attribute has its default. Lists and texts have none: they are at it if all
 * their bytes are 0. */
bool clt_attribute_is_default(const clt_attribute *attribute, const void *attr);

/* Returns the operator's attribute of a name; NULL if it has none. */
const clt_attribute *clt_attribute_find(const clt_op *op, const char *name);

/* Sets one attribute; fails unless the setting fits it. */
clt_status clt_attribute_set(const clt_op *op, const clt_setting *setting, void *attr);

/* Answers of clt_op.batch_blocked. */
enum {
    CLT_BATCH_BLOCKED_NO = 0,     /* plain operands only */
    CLT_BATCH_BLOCKED_FOLLOW = 1, /* accepts the layout, if an operand already has it */
    CLT_BATCH_BLOCKED_WANT = 2    /* faster in the layout, so worth a conversion */
};

/* --- building ------------------------------------------------------------------------------- */

/* Adds a node with operands `in` (NULL for an absent optional one) and a copy of `attr`. The new
 * values are node->out. On failure returns NULL and sets the graph's status. */
clt_node *clt_graph_add(clt_graph *graph, const clt_op *op, clt_value *const *in, int n_in,
                        const void *attr);

/* Adds a node with the operator, attributes and result types of `model`. They are not checked
 * again, because passes leave nodes that no builder makes. */
clt_node *clt_graph_add_twin(clt_graph *graph, const clt_node *model, clt_value *const *in);

/* Adds a node with one output and returns the output. The graph is found from the first operand
 * that is not NULL. Returns NULL if a required operand is NULL. */
clt_value *clt_emit1(const clt_op *op, const void *attr, int n_in, ...);

/* Stores the thread's current message as the graph's failure, unless the graph has one already.
 * Returns NULL, for builders. */
void *clt_graph_failed(clt_graph *graph, clt_status status);

/* Adds a value that is not the output of a node. */
clt_value *clt_graph_value(clt_graph *graph, clt_value_kind kind, const clt_type *type,
                           const char *name);

/* Adds the value to the index of names, where clt_graph_find looks. */
clt_status clt_graph_index_name(clt_graph *graph, const clt_value *value);

/* Builds the index of names anew. */
clt_status clt_graph_index_names(clt_graph *graph);

/* Makes `to` the graph's output instead of `from`, with the same name. */
void clt_graph_move_output(clt_value *from, clt_value *to);

/* Writes for each value id the number of the first node that reads the value; n_nodes if there is
 * none. */
void clt_graph_first_readers(const clt_graph *graph, int *first);

/* Makes a deep copy. Values and nodes keep their ids. */
clt_status clt_graph_copy(const clt_graph *graph, clt_graph **copy);

/* Returns how messages call a value: its name, or the name of the node that computes it. */
static inline const char *clt_value_called(const clt_value *value)
{
    return value->name ? value->name : value->producer ? value->producer->name : "a constant";
}

/* Whether the value is a parameter that is not frozen. */
static inline bool clt_value_trained(const clt_value *value)
{
    return value->kind == CLT_VALUE_PARAMETER && !value->frozen;
}

/* Removes the cuts whose numbers are not kept. Nodes remember the piece between two cuts, from 0
 * on, in which they lay before. */
void clt_graph_keep_cuts(clt_graph *graph, const bool *kept);

/* Removes all losses and metrics. */
void clt_graph_forget_means(clt_graph *graph);

/*
 * Replacements of values. A pass visits nodes in order and updates the operands of each with
 * clt_replacements_settle_node. Then it may replace the node's outputs: by one of its operands, by
 * an output of an earlier node, or by a value that the pass has added. At the end
 * clt_replacements_settle_graph updates all operands, assignments, losses and metrics. So a pass
 * takes time in proportion to the graph, however much it replaces.
 */
typedef struct clt_replacements {
    clt_graph *graph;
    int n_values;       /* entries of `values` */
    clt_value **values; /* the replacement by value id; NULL: none */
} clt_replacements;

clt_status clt_replacements_begin(clt_graph *graph, clt_replacements *replacements);
void clt_replacements_settle_node(const clt_replacements *replacements, clt_node *node);
clt_status clt_replacements_add(clt_replacements *replacements, const clt_value *from,
                                clt_value *to);
void clt_replacements_settle_graph(const clt_replacements *replacements);
void clt_replacements_free(clt_replacements *replacements);

/* Sorts nodes and values topologically, drops nodes on which no output, loss, metric, assignment,
 * effect or value of `keep` depends, and assigns new ids. */
clt_status clt_graph_clean(clt_graph *graph, clt_value *const *keep, int n_keep);

/* Makes nodes that are added from now on backward nodes of `origin`, with names made from its name.
 * NULL: forward nodes again. */
void clt_graph_set_origin(clt_graph *graph, const clt_node *origin);

/* --- shapes --------------------------------------------------------------------------------- */

/* Returns the dimension's size for a batch of n. */
static inline int64_t clt_dim(int64_t dim, int64_t n)
{
    return dim < 0 ? -dim * n : dim;
}

bool clt_type_has_batch(const clt_type *type);

/* Returns the number of elements for a batch of n. */
int64_t clt_type_elements(const clt_type *type, int64_t n);

/* Returns the elements of one image, so that elements(n) == coefficient * (has_batch ? n : 1). */
int64_t clt_type_coefficient(const clt_type *type);

bool clt_type_equal(const clt_type *a, const clt_type *b);

/* Writes a type as "f32[Bx3x28x28]" to `text` of at least CLT_TYPE_TEXT bytes, and returns
 * `text`. */
enum { CLT_TYPE_TEXT = 256 };
const char *clt_type_text(const clt_type *type, char *text);

/* Whether the value's first dimension is exactly the batch, so that the value can be
 * batch-blocked. */
bool clt_value_leads_with_batch(const clt_value *value);

/* Returns the value that owns the bytes of `value`: itself, or through all views the value that it
 * is a view of. */
const clt_value *clt_value_root(const clt_value *value);

/* Returns the elements that the value occupies in its layout for a batch of n. */
int64_t clt_value_stored(const clt_value *value, int64_t n, int lanes);

/* Appends a readable listing, one line for each node. */
void clt_graph_dump(const clt_graph *graph, clt_str *text);

#endif
