/* Operands for any callable operator, made from its schema. The letters of the schema's dimensions
 * stand for sizes. */
#ifndef TESTS_OPS_SCHEMA_CASES_H
#define TESTS_OPS_SCHEMA_CASES_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cltrain/cltrain.h>

/* Values that an operator needs besides defaults: attributes, and sizes of letters ("g32 w12"). */
typedef struct schema_case {
    const char *op, *attributes, *sizes;
} schema_case;

static const schema_case schema_cases[] = {
    {"add_scalar", "term=0.5", ""},
    {"attention", "heads=2", "w12"},
    {"cast", "to=i32", ""},
    {"correct", "k=2", ""},
    {"group_norm", "groups=2", ""},
    {"gru", "", "g24"},
    {"lstm", "", "g32"},
    {"leaky_relu", "slope=0.25", ""},
    {"pad", "before=1,0 after=0,2 value=1.5", ""},
    {"pow_scalar", "exponent=1.5", ""},
    {"reduce_max", "axes=1", ""},
    {"reduce_mean", "axes=1", ""},
    {"reduce_sum", "axes=0,1", ""},
    {"reshape", "shape=4,2", ""},
    {"scale", "factor=-2", ""},
    {"slice", "start=0,1 step=1,2", ""},
    {"transpose", "permutation=1,0", ""},
};

static inline schema_case schema_case_of(const char *op)
{
    for (size_t i = 0; i < sizeof schema_cases / sizeof *schema_cases; i++)
        if (!strcmp(schema_cases[i].op, op))
            return schema_cases[i];
    return (schema_case){op, "", ""};
}

/* Returns the size of a letter: the case's own, 8 for dimensions with windows, or 4. */
static inline int64_t schema_size(const schema_case *c, char letter)
{
    const char *own = strchr(c->sizes, letter);
    return own ? atoi(own + 1) : letter == '1' ? 1 : strchr("hwdl", letter) ? 8 : 4;
}

/* Sets the dimensions; `*` is 2 x 4. Returns the rank. */
static inline int schema_dims(const schema_case *c, const char *text, int64_t *dims)
{
    int rank = 0;
    for (; *text; text++) {
        if (*text == '*')
            dims[rank++] = 2;
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
    const int rank = schema_dims(c, o->dims, dims);
    const clt_dtype dtype = schema_dtype(o->type);
    snprintf(name, sizeof name, "%s%d", o->name, number);
    return dtype == CLT_F32
               ? clt_parameter(graph, name, rank, dims, (clt_init){CLT_INIT_UNIFORM, 1, 0})
               : clt_constant(graph, dtype, rank, dims, words);
}

/* Makes the operands that must be given, and two of repeated ones. Returns how many there are. */
static inline int schema_operands(clt_graph *graph, const schema_case *c, const clt_operator *op,
                                  clt_value **in)
{
    clt_operand_schema one;
    int count = 0;
    for (int k = 0; clt_operator_operand(op, k, &one); k++)
        for (int i = 0; (!one.optional || (k == count && !strcmp(one.name, "bias"))) &&
                        i <= (one.repeated != 0);
             i++) {
            in[count] = schema_operand(graph, c, &one, count);
            count++;
        }
    return count;
}

#endif
