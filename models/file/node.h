/* A node of a model file, as the builders of operators see it. */
#ifndef CLTRAIN_MODELS_FILE_NODE_H
#define CLTRAIN_MODELS_FILE_NODE_H

#include <cltrain/models.h>
#include <cltrain/operators.h>

#include "text.h"

enum { NODE_OPERANDS = CLT_MAX_OPERANDS, NODE_LIST = CLT_MAX_NUMBERS };

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

/* What an operator is in a model file. */
typedef struct model_op {
    const char *name;
    int min_in, max_in;
    const clt_attribute *keys; /* beside the operator's attributes; NULL: none */
    int has_parameters;        /* makes parameters of its own, or shares those of "parameters" */

    /* Adds operands that the file does not name; 0: it has failed. NULL: nothing to add. */
    int (*prepare)(model_node *node);

    /* Builds the node; NULL: the operator of this name does, from its attributes. */
    clt_value *(*build)(const model_node *node);
} model_op;

/* Operators whose layers make parameters. */
extern const model_op model_layers[];
extern const int model_layer_count;

/* Sets *op to the operator of that name and returns 1; 0: there is none, and *near is the nearest
 * name or NULL. */
int model_op_find(const char *name, model_op *op, const char **near);

/* The same for a loss or a metric, whose results are a sum and a weight. */
int model_mean_find(const char *name, int is_loss, model_op *op, const char **near);

/* Fails unless the object's keys are those of `op`, or of the list `common`, and of their kind.
 * `what` names the object in messages. */
clt_status model_node_check(const model_node *node, const char *what, const model_op *op,
                            const clt_attribute *common);

/* Builds what has been checked. Losses and metrics give two values. */
clt_value *model_op_build(const model_op *op, model_node *node);
clt_status model_mean_build(const model_op *op, model_node *node, clt_value **sum,
                            clt_value **weight);

/* Values that have been checked; `otherwise` where one is not given. */
int64_t node_int(const model_node *node, const char *name, int64_t otherwise);
double node_real(const model_node *node, const char *name, double otherwise);

/* Returns the number of entries, at most NODE_LIST; 0: not given. */
int node_list(const model_node *node, const char *name, int64_t *list);

/* Adds the operator `name` with the attributes that the file gives. */
clt_status node_apply(const model_node *node, const char *name, clt_value **results);

/* Fails, with 0, where one of the keys `list` is given, or "parameters": it would have no use. */
int node_has_none(const model_node *node, const clt_attribute *list, const char *why);

#endif
