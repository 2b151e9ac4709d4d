/* A node of a model file, as the builders of operators see it. */
#ifndef CLTRAIN_MODELS_FILE_NODE_H
#define CLTRAIN_MODELS_FILE_NODE_H

#include <cltrain/models.h>
#include <cltrain/operators.h>

#include "text.h"

enum { NODE_OPERANDS = CLT_MAX_OPERANDS, NODE_LIST = CLT_MAX_NUMBERS };

typedef struct model_op model_op;

typedef struct model_node {
    const model_op *op;
    const clt_attribute *common; /* keys besides the operator's, or NULL */
    const model_text *text;
    const json_t *json;
    clt_graph *graph;
    const char *name;
    const char *prefix; /* prefix of its parameters' names */
    clt_value *in[NODE_OPERANDS];
    int n_in;
    int64_t in_classes[NODE_OPERANDS]; /* classes of an input of labels or tokens; else 0 */
    int64_t classes;                   /* the value of "classes"; 0: undefined */
    int ignore_index;
    const double *class_weights; /* of a loss, as many as `classes`; NULL: none */
} model_node;

/* An operator of model files. */
struct model_op {
    const char *name;
    int min_in, max_in;
    const clt_attribute *keys; /* keys besides the operator's attributes, or NULL */
    int has_parameters; /* creates parameters, or shares those of the node named by "parameters" */

    /* Adds operands that the file does not name; returns 0 on failure. NULL: there are none. */
    int (*prepare)(model_node *node);

    /* Builds the node. NULL: the library's operator of this name is built from its attributes. */
    clt_value *(*build)(const model_node *node);
};

/* Operators whose layers create parameters. */
extern const model_op model_layers[];
extern const int model_layer_count;

/* Sets *op to the operator of that name and returns 1. Without one, returns 0 and sets *near to the
 * nearest name or NULL. */
int model_op_find(const char *name, model_op *op, const char **near);

/* The same for a loss or a metric, whose results are a sum and a weight. */
int model_mean_find(const char *name, int is_loss, model_op *op, const char **near);

/* Fails unless every key of the object belongs to its operator or to the list `common` and its
 * value is of the right kind. `what` names the object in messages. */
clt_status model_node_check(const model_node *node, const char *what);

/* Build a node that has been checked. Losses and metrics have two values. */
clt_value *model_op_build(model_node *node);
clt_status model_mean_build(model_node *node, clt_value **sum, clt_value **weight);

/* Return a value that has been checked, or the key's default if the file does not give it. */
int64_t node_int(const model_node *node, const char *name);
double node_real(const model_node *node, const char *name);

/* Returns the number of entries, at most NODE_LIST; 0 if the file does not give the list. */
int node_list(const model_node *node, const char *name, int64_t *list);

/* Adds the operator `name` with the attributes that the file gives. */
clt_status node_apply(const model_node *node, const char *name, clt_value **results);

/* Fails and returns 0 if the file gives a key of `list` or "parameters", which would have no
 * effect. */
int node_has_none(const model_node *node, const clt_attribute *list, const char *why);

#endif
