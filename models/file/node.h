/* A node of a model file, as the builders of operators see it. */
#ifndef CLTRAIN_MODELS_FILE_NODE_H
#define CLTRAIN_MODELS_FILE_NODE_H

#include <cltrain/models.h>

#include "text.h"

enum { NODE_OPERANDS = 16, NODE_LIST = 2 * CLT_MAX_RANK };

typedef struct model_node {
    const model_text *text;
    const json_t *json;
    clt_graph *graph;
    const char *name;
    const char *prefix; /* of its parameters' names */
    clt_value *in[NODE_OPERANDS];
    int n_in;
    int64_t in_classes[NODE_OPERANDS]; /* of an input whose values are labels or tokens; else 0 */
    int64_t classes;                   /* what "classes" stands for; 0: nothing */
    int ignore_index;
} model_node;

/*
 * What an operator is in a model file. `attributes`: "name:kind", separated by blanks, those that
 * must be given with "!" behind. Kinds: count (1 or more, or "classes"), int, size, pair and triple
 * (of at least 0; one number stands for all), real, flag, ints (one number or a list), ends (the
 * same, and null: CLT_TO_END), text. Integers have 32 bits. One that has "parameters" makes
 * parameters of its own, or shares those of that name.
 */
typedef struct model_op {
    const char *name;
    int min_in, max_in;
    const char *attributes;
    clt_value *(*build)(const model_node *node);
} model_op;
#define MODEL_OWN "parameters:text "

typedef struct model_op_list {
    const model_op *ops;
    int count;
} model_op_list;

extern const model_op_list model_layer_ops, model_tensor_ops; /* those that ops.c does not have */

/* A loss or a metric: sum and weight, as <cltrain/ops_nn.h> describes them. */
typedef struct model_mean {
    const char *name;
    int min_in, max_in;
    const char *attributes;
    clt_status (*build)(const model_node *node, clt_value **sum, clt_value **weight);
    int is_loss;
} model_mean;

/* By name; NULL: none of that name, and *near (may be NULL) is the nearest or NULL. */
const model_op *model_op_find(const char *name, const char **near);
const model_mean *model_mean_find(const char *name, int is_loss, const char **near);

/* Fails unless the object's keys are among `attributes` and `common` (blanks between), and of the
 * right kind. `what` names it in messages. */
clt_status model_node_check(const model_node *node, const char *what, const char *attributes,
                            const char *common);

/* Attributes that have been checked; `otherwise` where one is not given. */
int64_t node_int(const model_node *node, const char *name, int64_t otherwise);
double node_real(const model_node *node, const char *name, double otherwise);
void node_sizes(const model_node *node, const char *name, int *sizes, int count, int otherwise);
void node_pair(const model_node *node, const char *name, int pair[2], int otherwise);

/* Returns the number of entries, at most NODE_LIST; 0: not given. */
int node_list(const model_node *node, const char *name, int64_t *list);
int node_ints(const model_node *node, const char *name, int *list);

/* Fails, with 0, where one of the attributes `names` (blanks between) is given: it would not be
 * used, and `why` says why. */
int node_has_none(const model_node *node, const char *names, const char *why);

/* The node's own parameter PREFIX.KIND; one that the graph has already is shared. */
clt_value *node_parameter(const model_node *node, const char *kind, int rank, const int64_t *dims,
                          clt_init init);

/* The builders of operators of one operand, and of two, without attributes. */
#define MODEL_UNARY(NAME)                                                                          \
    static clt_value *build_##NAME(const model_node *n)                                            \
    {                                                                                              \
        return clt_##NAME(n->in[0]);                                                               \
    }
#define MODEL_BINARY(NAME)                                                                         \
    static clt_value *build_##NAME(const model_node *n)                                            \
    {                                                                                              \
        return clt_##NAME(n->in[0], n->in[1]);                                                     \
    }

#endif
