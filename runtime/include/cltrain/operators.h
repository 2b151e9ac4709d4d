/*
 * The schema of operators describes names, operands, results and attributes as data. Programs read
 * the schema to offer operators by name: model files, the command's `bench op` and
 * docs/operators.md use it.
 *
 *     clt_value *y;
 *     clt_apply_text(graph, "conv2d", (clt_value *[]){x, weight}, 2, "stride=2 padding=1", &y);
 *
 * A callable operator has a function clt_NAME in <cltrain/ops.h>, with its full documentation. All
 * other operators appear only in plans: gradients, and operators that passes create. Some callable
 * operators become several nodes, or nodes of another name.
 *
 * All functions here are thread-safe except clt_apply and clt_apply_text, which change the graph.
 * Returned operators, names and attributes are constant data of the library.
 */
#ifndef CLTRAIN_OPERATORS_H
#define CLTRAIN_OPERATORS_H

#include <cltrain/graph.h>

CLT_BEGIN_DECLS

/* The most operands and results of an operator, and the most numbers of an attribute. */
#define CLT_MAX_OPERANDS 16
#define CLT_MAX_RESULTS 4
#define CLT_MAX_NUMBERS 16

typedef struct clt_op clt_operator;

/*
 * An operand or a result. `dims` names its dimensions:
 *
 *     a letter   a dimension; the same letter means the same dimension in all operands and results
 *     *          any number of dimensions, which broadcast against those of other operands
 *     1          a dimension of one element
 */
typedef struct clt_operand_schema {
    char name[24];
    char dims[8];
    char type[8]; /* "f32", "i32", "u8" or "any" */
    int optional; /* the operand may be NULL, or left out at the end */
    int repeated; /* one or more such operands; only the last of the list */
    int once;     /* if a summed dimension is split, only one part uses it */
} clt_operand_schema;

typedef enum clt_attribute_kind {
    CLT_ATTRIBUTE_FLAG,   /* 0 or 1 */
    CLT_ATTRIBUTE_INT,    /* an integer */
    CLT_ATTRIBUTE_REAL,   /* a number */
    CLT_ATTRIBUTE_CHOICE, /* one of `choices`, by index */
    CLT_ATTRIBUTE_TYPE,   /* the type of a result: element type and dimensions */
    CLT_ATTRIBUTE_TEXT    /* passes set it */
} clt_attribute_kind;

/* An attribute. The fields from `offset` on locate the attribute in the library's memory. Programs
 * must not use them. */
typedef struct clt_attribute {
    const char *name; /* NULL: the end of the list of attributes */
    const char *doc;  /* one line */
    clt_attribute_kind kind;
    int count;            /* 0: one number. n: n numbers, or one number for all */
    int list;             /* nonzero: 1 to `count` numbers */
    double least, most;   /* range of a number; both 0: any */
    int above;            /* nonzero: `least` itself is not allowed */
    double default_value; /* the default of each number */
    int required;         /* nonzero: there is no default */
    int internal;         /* nonzero: passes and gradient rules set it, and clt_apply refuses it.
                             Operators do not compare it with their operands */
    int untuned;          /* nonzero: it affects no kernel's speed, so tuning keys leave it out */
    const char *const *choices; /* ends with NULL */
    size_t offset;
    int bytes;     /* of all numbers */
    size_t length; /* list: offset of the list's length, an int */
} clt_attribute;

/* How a dimension behaves if operands and results are split along it. */
typedef enum clt_dim_behaviour {
    CLT_DIM_PARALLEL, /* parts of the operands give the same parts of the results */
    CLT_DIM_SUMMED,   /* results lack this dimension: the results of the parts are summed */
    CLT_DIM_HALO,     /* a part also needs neighbouring elements of other parts (convolution) */
    CLT_DIM_SCAN,     /* a part needs the result of the part before it (recurrent layers) */
    CLT_DIM_WHOLE     /* cannot be split (the axis of a softmax, of a mean) */
} clt_dim_behaviour;

/* Returns "parallel", "summed", "halo", "scan" or "whole"; "?" for any other value. */
CLT_API const char *clt_dim_behaviour_name(clt_dim_behaviour behaviour);

/* Return the number of operators, and an operator by index, in a fixed order. An index out of range
 * gives NULL. */
CLT_API int clt_operator_count(void);
CLT_API const clt_operator *clt_operator_at(int index);

/* Returns the operator of a name; NULL if there is none. If a callable operator and a node share
 * the name, returns the callable one. */
CLT_API const clt_operator *clt_operator_find(const char *name);

/* Return the operator's name, and one line about what it computes. */
CLT_API const char *clt_operator_name(const clt_operator *op);
CLT_API const char *clt_operator_doc(const clt_operator *op);

/* Returns nonzero if programs may call the operator; 0 if it is a gradient or created by a pass. */
CLT_API int clt_operator_callable(const clt_operator *op);

/* Returns nonzero if the operator has a gradient with respect to its f32 operands, or consists of
 * operators that have. */
CLT_API int clt_operator_differentiable(const clt_operator *op);

/* Set *out to an operand or result by index and return 1. Return 0 if the index is out of range. */
CLT_API int clt_operator_operand(const clt_operator *op, int index, clt_operand_schema *out);
CLT_API int clt_operator_result(const clt_operator *op, int index, clt_operand_schema *out);

/* Returns the attributes; the last entry has the name NULL. */
CLT_API const clt_attribute *clt_operator_attributes(const clt_operator *op);

/* Returns the behaviour of the dimension that `letter` (or '*') names in the lists, with default
 * attributes. WHOLE also where only some nodes can be split, or only some of the dimensions of '*',
 * because attributes such as an axis decide. */
CLT_API clt_dim_behaviour clt_operator_dim(const clt_operator *op, char letter);

/* Returns nonzero if the range of a FLAG, INT, REAL or CHOICE attribute allows one number. */
CLT_API int clt_attribute_allows(const clt_attribute *attribute, double value);

/* Writes which values an attribute may have, such as "an integer of at least 1", to `text`, at most
 * `room` bytes. Returns `text`. */
CLT_API const char *clt_attribute_text(const clt_attribute *attribute, char *text, size_t room);

/* The value of an attribute. */
typedef struct clt_setting {
    const char *name;
    int count;               /* number of values, at most CLT_MAX_NUMBERS */
    const int64_t *integers; /* values of FLAG, INT and CHOICE; dimensions of TYPE, -c is c times
                                the batch; else NULL */
    double real;             /* value of REAL if count is 1 */
    const double *reals;     /* values of REAL if count is more */
    clt_dtype type;          /* element type of TYPE */
} clt_setting;

/*
 * Adds a callable operator to a graph, to which all of in[0 .. n_in) belong. Attributes that
 * `settings` does not name get their defaults. results[0 .. CLT_MAX_RESULTS) become the operator's
 * results, then NULL. Returns the graph's status. On failure the graph keeps the error, and all
 * results are NULL. Messages name the operator, the attribute, its value and the allowed values.
 *
 * Errors:
 *   - NOT_FOUND: unknown operator or attribute, or one that programs cannot give, because only
 *     gradients and passes use it; the message has the nearest name
 *   - INVALID_ARGUMENT: an attribute is missing, out of its range or named twice, or the number
 *     of operands is wrong
 *   - and the errors of the operator's own function
 */
CLT_API clt_status clt_apply(clt_graph *graph, const char *name, clt_value *const *in, int n_in,
                             const clt_setting *settings, int n_settings, clt_value **results);

/* The same with attributes as text: NAME=VALUE, separated by blanks; NULL means no attributes. A
 * value is a number, several numbers (3,1), true, false, one of the choices, or `end` for
 * CLT_TO_END. */
CLT_API clt_status clt_apply_text(clt_graph *graph, const char *name, clt_value *const *in,
                                  int n_in, const char *attributes, clt_value **results);

CLT_END_DECLS

#endif
