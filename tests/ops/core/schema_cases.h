/* Operands for any callable operator, made from its schema. The letters of the schema's dimensions
 * stand for sizes. */
#ifndef TESTS_OPS_SCHEMA_CASES_H
#define TESTS_OPS_SCHEMA_CASES_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cltrain/cltrain.h>

/* Values that an operator needs besides defaults: attributes, and sizes of letters ("g32 w12").
 * NULL: none. Bit k of `given` adds optional operand k, whose `*` has shape `star`. If `star` is 3,
 * `*` stands for no dimension in all operands. */
enum { SCHEMA_TEXT = 160 };

typedef struct schema_case {
    const char *op, *attributes, *sizes;
    unsigned given;
    int star;
} schema_case;

static const schema_case schema_cases[] = {
    {.op = "add_scalar", .attributes = "term=0.5"},
    {.op = "attention", .attributes = "heads=2", .sizes = "w12 v12"},
    {.op = "cast", .attributes = "to=i32"},
    {.op = "correct", .attributes = "k=2"},
    {.op = "group_norm", .attributes = "groups=2"},
    {.op = "gru", .sizes = "g24"},
    {.op = "lstm", .sizes = "g32"},
    {.op = "leaky_relu", .attributes = "slope=0.25"},
    {.op = "pad", .attributes = "before=1,0 after=0,2 value=1.5"},
    {.op = "pow_scalar", .attributes = "exponent=1.5"},
    {.op = "reduce_max", .attributes = "axes=1"},
    {.op = "reduce_mean", .attributes = "axes=1"},
    {.op = "reduce_sum", .attributes = "axes=0,1"},
    {.op = "reshape", .attributes = "shape=4,2"},
    {.op = "scale", .attributes = "factor=-2"},
    {.op = "slice", .attributes = "start=0,1 step=1,2"},
    {.op = "transpose", .attributes = "permutation=1,0"},
    /* Operators that only passes and gradient rules add. */
    {.op = "expand", .attributes = "to=f32[3x2x4]"},
    {.op = "slice_grad", .attributes = "start=1 step=1 to=f32[4x8]"},
    {.op = "split", .attributes = "axis=1 count=4 sizes=1"},
};

static inline schema_case schema_case_of(const char *op)
{
    for (size_t i = 0; i < sizeof schema_cases / sizeof *schema_cases; i++)
        if (!strcmp(schema_cases[i].op, op))
            return schema_cases[i];
    return (schema_case){.op = op};
}

/* Returns the size of a letter: the case's own, 8 for dimensions with windows, or 4. */
static inline int64_t schema_size(const schema_case *c, char letter)
{
    const char *own = c->sizes && letter != '1' ? strchr(c->sizes, letter) : NULL;
    return own ? atoi(own + 1) : letter == '1' ? 1 : strchr("hwdl", letter) ? 8 : 4;
}

/* Sets the dimensions. `*` has shape 2x4, 4, 4x4 or none by `star`. Returns the rank. */
static inline int schema_dims(const schema_case *c, const char *text, int star, int64_t *dims)
{
    int rank = 0;
    for (; *text; text++) {
        if (*text == '*' && star == 3)
            continue;
        if (*text == '*' && star != 1)
            dims[rank++] = star ? 4 : 2;
        dims[rank++] = *text == '*' ? 4 : schema_size(c, *text);
    }
    return rank;
}

static inline clt_dtype schema_dtype(const char *type)
{
    return !strcmp(type, "i32") ? CLT_I32 : !strcmp(type, "u8") ? CLT_U8 : CLT_F32;
}

/* Makes an operand: a parameter, or a constant of zeros if it is not f32. */
static inline clt_value *schema_operand(clt_graph *graph, const schema_case *c,
                                        const clt_operand_schema *o, int number)
{
    static const int32_t words[4096];
    int64_t dims[CLT_MAX_RANK];
    char name[64];
    const int rank = schema_dims(c, o->dims, o->optional || c->star == 3 ? c->star : 0, dims);
    const clt_dtype dtype = schema_dtype(o->type);
    snprintf(name, sizeof name, "%s%d", o->name, number);
    return dtype == CLT_F32
               ? clt_parameter(graph, name, rank, dims, (clt_init){CLT_INIT_UNIFORM, 1, 0})
               : clt_constant(graph, dtype, rank, dims, words);
}

/* Makes the operands that must be given and those of c->given, two of repeated ones, and a bias
 * behind those that must be given. Operands between them are NULL. Returns how many there are. */
static inline int schema_operands(clt_graph *graph, const schema_case *c, const clt_operator *op,
                                  clt_value **in)
{
    clt_operand_schema one;
    int count = 0;
    for (int k = 0; clt_operator_operand(op, k, &one); k++) {
        const int given = !one.optional || (c->given >> k & 1) ||
                          (!c->given && k == count && !strcmp(one.name, "bias"));
        in[k] = NULL;
        for (int i = k; given && i <= k + (one.repeated != 0); i++) {
            in[i] = schema_operand(graph, c, &one, i);
            count = i + 1;
        }
    }
    return count;
}

/* --- other values of attributes --------------------------------------------------------------- */

/* Writes value `index` that a test may give the attribute; returns 0 past the last. The text is
 * empty for a default, and for a number that the range forbids. */
static inline int schema_value(const clt_attribute *a, int index, char text[SCHEMA_TEXT])
{
    enum { NUMBERS = 6 };
    static const double integers[NUMBERS] = {2, 3, 4, 0, 1, -1},
                        reals[NUMBERS] = {0.5, 0.25, 2, 3, -1, 1};
    static const char *const lists[NUMBERS] = {"1", "0,1", "1,1", "1,0", "2,2", "4,2"};
    text[0] = '\0';
    if (a->kind == CLT_ATTRIBUTE_CHOICE) {
        if (a->choices[index])
            snprintf(text, SCHEMA_TEXT, "%s", a->choices[index]);
        return a->choices[index] != NULL;
    }
    if (index >= (a->kind == CLT_ATTRIBUTE_FLAG ? 1 : NUMBERS))
        return 0;
    const double number = a->kind == CLT_ATTRIBUTE_REAL ? reals[index] : integers[index];
    if (a->kind == CLT_ATTRIBUTE_FLAG)
        snprintf(text, SCHEMA_TEXT, "%s", a->default_value != 0 ? "false" : "true");
    else if (a->list)
        snprintf(text, SCHEMA_TEXT, "%s", lists[index]);
    else if (clt_attribute_allows(a, number) && number != a->default_value)
        snprintf(text, SCHEMA_TEXT, "%g", number);
    return 1;
}

/* Whether the text NAME=VALUE.. (NULL: nothing) sets the attribute. */
static inline int schema_sets(const char *text, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = text; at; at = strchr(at, ' ') ? strchr(at, ' ') + 1 : NULL)
        if (!strncmp(at, name, length) && at[length] == '=')
            return 1;
    return 0;
}

/* Writes the text with this value of the attribute, instead of its own if it has one. */
static inline void schema_set(const char *text, const char *name, const char *value,
                              char out[SCHEMA_TEXT])
{
    size_t used = 0;
    for (const char *at = text ? text : ""; *at;) {
        const size_t length = strcspn(at, " "), own = strlen(name);
        if (strncmp(at, name, own) != 0 || at[own] != '=')
            used += (size_t)snprintf(out + used, SCHEMA_TEXT - used, "%.*s ", (int)length, at);
        at += length + (at[length] == ' ');
    }
    snprintf(out + used, SCHEMA_TEXT - used, "%s=%s", name, value);
}

#endif
