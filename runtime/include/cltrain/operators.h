/*
 * The schema of operators: what each is called, takes and gives, as data. Programs read it to offer
 * operators by name: model files, the command's `bench op` and docs/operators.md come from it.
 *
 *     clt_value *y;
 *     clt_apply_text(graph, "conv2d", (clt_value *[]){x, weight}, 2, "stride=2 padding=1", &y);
 *
 * An operator is callable (a function clt_NAME of <cltrain/ops.h> has its documentation in full),
 * or appears in plans alone: gradients, and what passes make. Some callable operators are several
 * nodes, or nodes of another name. All functions here are thread-safe but for clt_apply, which
 * changes the graph; what they return is constant.
 */
#ifndef CLTRAIN_OPERATORS_H
#define CLTRAIN_OPERATORS_H

#include <cltrain/graph.h>

CLT_BEGIN_DECLS

/* Most operands and results of an operator, and most numbers of an attribute. */
#define CLT_MAX_OPERANDS 16
#define CLT_MAX_RESULTS 4
#define CLT_MAX_NUMBERS 16

typedef struct clt_op clt_operator;

/*
 * An operand or a result. `dims` names its dimensions:
 *
 *     a letter   a dimension; where operands and results have the same letter, it is the same one
 *     *          any number of dimensions, which broadcast against those of other operands
 *     1          a dimension of one element
 */
typedef struct clt_operand_schema {
    char name[24];
    char dims[8];
    char type[8]; /* "f32", "i32", "u8" or "any" */
    int optional; /* NULL may stand for it, or it may be left out at the end */
    int repeated; /* any number of such operands, at least one; the last of the list */
    int once;     /* where a summed dimension is split: only one part takes it */
} clt_operand_schema;

typedef enum clt_attribute_kind {
    CLT_ATTRIBUTE_FLAG,   /* 0 or 1 */
    CLT_ATTRIBUTE_INT,    /* an integer */
    CLT_ATTRIBUTE_REAL,   /* a number */
    CLT_ATTRIBUTE_CHOICE, /* one of `choices`, by its place */
    CLT_ATTRIBUTE_TYPE,   /* the type of a result; passes set it */
    CLT_ATTRIBUTE_TEXT    /* passes set it */
} clt_attribute_kind;

/* An attribute. The fields from `offset` on say where the library keeps it, and are its own. */
typedef struct clt_attribute {
    const char *name; /* NULL ends a list */
    const char *doc;  /* a line */
    clt_attribute_kind kind;
    int count;                  /* 0: one number. n: n numbers, for which one may stand */
    int list;                   /* not 0: 1 to `count` numbers */
    double least, most;         /* of a number; both 0: any of its kind */
    int above;                  /* not 0: `least` itself is not allowed */
    double otherwise;           /* the default; of `count` numbers, of each */
    int required;               /* there is no default */
    int internal;               /* passes and gradient rules set it; callers do not give it */
    int untuned;                /* no kernel is faster or slower for it: no part of a tuning key */
    const char *const *choices; /* ends with NULL */
    size_t offset;
    int bytes;     /* of all numbers */
    size_t length; /* list: where its length is, an int */
} clt_attribute;

/* How a dimension behaves when operands and results are split along it. */
typedef enum clt_dim_behaviour {
    CLT_DIM_PARALLEL, /* parts of the operands give the same parts of the results */
    CLT_DIM_SUMMED,   /* no result has it: the results of the parts are added */
    CLT_DIM_HALO,     /* a part needs neighbouring elements of other parts too (convolution) */
    CLT_DIM_SCAN,     /* a part needs what the part before it gave (recurrent layers) */
    CLT_DIM_WHOLE     /* cannot be split (the axis of a softmax, of a mean) */
} clt_dim_behaviour;

/* "parallel", "summed", "halo", "scan", "whole"; "?" for a value that is none. */
CLT_API const char *clt_dim_behaviour_name(clt_dim_behaviour behaviour);

/* All operators, in a fixed order; NULL for an index that is none. */
CLT_API int clt_operator_count(void);
CLT_API const clt_operator *clt_operator_at(int index);

/* By name: the callable one, where a node has the same name; NULL: there is none. */
CLT_API const clt_operator *clt_operator_find(const char *name);

/* Of what it is a name, and what it computes, in a line. */
CLT_API const char *clt_operator_name(const clt_operator *op);
CLT_API const char *clt_operator_doc(const clt_operator *op);

/* Not 0: programs may call it; 0: it is a gradient or made by a pass. */
CLT_API int clt_operator_callable(const clt_operator *op);

/* Not 0: it has a gradient with respect to its f32 operands, or is made of operators that have. */
CLT_API int clt_operator_differentiable(const clt_operator *op);

/* Sets *out to an operand or result by its index and returns 1; 0: there is none. */
CLT_API int clt_operator_operand(const clt_operator *op, int index, clt_operand_schema *out);
CLT_API int clt_operator_result(const clt_operator *op, int index, clt_operand_schema *out);

/* A list that ends with an entry whose name is NULL. */
CLT_API const clt_attribute *clt_operator_attributes(const clt_operator *op);

/* How the dimension behaves that `letter` (or '*') names in the lists, with default attributes. */
CLT_API clt_dim_behaviour clt_operator_dim(const clt_operator *op, char letter);

/* What an attribute's value must be, as "an integer of at least 1", into `text`, at most `room`
 * bytes. Returns `text`. */
CLT_API const char *clt_attribute_text(const clt_attribute *attribute, char *text, size_t room);

/* The value of an attribute. */
typedef struct clt_setting {
    const char *name;
    int count;               /* of numbers, at most CLT_MAX_NUMBERS */
    const int64_t *integers; /* of FLAG, INT and CHOICE; else NULL */
    double real;             /* of REAL, where count is 1 */
    const double *reals;     /* of REAL, where count is more */
} clt_setting;

/*
 * Adds an operator to a graph, which `in` belongs to: attributes that `settings` does not name have
 * their defaults. results[0 .. CLT_MAX_RESULTS) become its results, then NULL. Returns the graph's
 * status: on failure the graph keeps it, and all results are NULL. Errors, which name the operator,
 * the attribute, its value and what is allowed: NOT_FOUND (operator or attribute; the message has
 * the nearest name), INVALID_ARGUMENT (a missing attribute, one out of its range or given twice, a
 * number of operands), and what the operator's own function fails with.
 */
CLT_API clt_status clt_apply(clt_graph *graph, const char *name, clt_value *const *in, int n_in,
                             const clt_setting *settings, int n_settings, clt_value **results);

/* The same with attributes as text: NAME=VALUE, separated by blanks. A value is a number, several
 * (3,1), true, false, one of the choices, or `end` for CLT_TO_END. NULL: none. */
CLT_API clt_status clt_apply_text(clt_graph *graph, const char *name, clt_value *const *in,
                                  int n_in, const char *attributes, clt_value **results);

CLT_END_DECLS

#endif
