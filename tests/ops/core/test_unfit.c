/* Every callable operator refuses operands that do not fit: of a rank that its schema does not
 * have, or where a dimension differs from the same dimension of another operand by one or depends
 * on the batch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "ops/core/ops.h"
#include "ops/core/schema_cases.h"

/* Dimensions of `*` that may differ, as bits: the axis along which an operator joins or counts, and
 * parts of larger tensors. */
static const struct {
    const char *op, *operand;
    unsigned dims;
} free_dims[] = {{"concat", "x", 2},          {"gather", "x", 3},          {"gather", "index", 2},
                 {"index_add", "x", 2},       {"index_copy", "x", 2},      {"scatter_add", "x", 2},
                 {"scatter_add", "index", 2}, {"scatter_add", "source", 3}};

static bool is_free(const char *op, const char *operand, int dim)
{
    for (size_t i = 0; i < sizeof free_dims / sizeof *free_dims; i++)
        if (!strcmp(free_dims[i].op, op) && !strcmp(free_dims[i].operand, operand))
            return free_dims[i].dims >> dim & 1;
    return false;
}

/* Operands beyond the schema's last are repetitions of it. */
static clt_operand_schema schema_of(const clt_operator *op, int operand)
{
    clt_operand_schema one;
    while (!clt_operator_operand(op, operand, &one))
        operand--;
    return one;
}

/* The letter of dimension k. */
static char letter_of(const clt_operand_schema *one, int rank, int k)
{
    const char *star = strchr(one->dims, '*');
    const int letters = (int)strlen(one->dims), before = star ? (int)(star - one->dims) : letters;
    return k < before                           ? one->dims[k]
           : k >= rank - (letters - before - 1) ? one->dims[k - rank + letters]
                                                : '*';
}

/* Whether another operand has dimension k too. Dimensions of `*` correspond from the last on. */
static bool is_shared(const clt_operator *op, clt_value *const *in, int count, int operand, int k)
{
    const int rank = in[operand]->type.rank;
    const clt_operand_schema own = schema_of(op, operand);
    const char letter = letter_of(&own, rank, k);
    for (int i = 0; i < count; i++)
        if (i != operand && in[i] && strchr(schema_of(op, i).dims, letter) &&
            (letter != '*' || in[i]->type.rank >= rank - k))
            return letter != '1';
    return false;
}

/* Applies the operator. If operand `changed` is not negative, it has another type. */
static clt_status apply(const clt_operator *op, const schema_case *c, int changed,
                        const clt_type *type)
{
    clt_graph *graph = NULL;
    clt_value *in[CLT_MAX_OPERANDS], *results[CLT_MAX_RESULTS];
    assert_int_equal(clt_graph_create(&graph), CLT_OK);
    const int count = schema_operands(graph, c, op, in);
    if (changed >= 0)
        in[changed] = clt_input(graph, "changed", type->dtype, type->rank, type->dims);
    const clt_status status = clt_apply_text(graph, op->name, in, count, c->attributes, results);
    clt_graph_destroy(graph);
    return status;
}

static void refused(const clt_operator *op, const schema_case *c, int operand, const clt_type *type)
{
    const clt_operand_schema one = schema_of(op, operand);
    char text[CLT_TYPE_TEXT];
    clt_type_text(type, text);
    const clt_status status = apply(op, c, operand, type);
    if (status != CLT_SHAPE && status != CLT_INVALID_ARGUMENT && status != CLT_UNSUPPORTED)
        fail_msg("%s: %s as %s: %s", op->name, one.name, text, clt_status_name(status));
    if (strchr(clt_error_message(), '\n') || !strchr(clt_error_message(), ':'))
        fail_msg("%s: %s as %s: '%s'", op->name, one.name, text, clt_error_message());
}

/* Returns the number of changes that were tried. */
static int change(const clt_operator *op, const schema_case *c, clt_value *const *in, int count,
                  int operand)
{
    const clt_type *usual = &in[operand]->type;
    const clt_operand_schema one = schema_of(op, operand);
    int tried = 0;
    for (int k = 0; k < usual->rank; k++) {
        if (is_free(op->name, one.name, k) || !is_shared(op, in, count, operand, k))
            continue;
        const int64_t sizes[] = {usual->dims[k] - 1, usual->dims[k] + 1, CLT_BATCH};
        for (int s = 0; s < 3; s++, tried++) {
            clt_type type = *usual;
            type.dims[k] = sizes[s];
            if (sizes[s] != 1) /* broadcasts */
                refused(op, c, operand, &type);
        }
    }
    if (strchr(one.dims, '*') || !strcmp(one.dims, "1"))
        return tried;
    for (int by = -1; by <= 1; by += 2, tried++) {
        clt_type type = *usual;
        type.rank += by;
        if (by > 0)
            type.dims[type.rank - 1] = 1;
        refused(op, c, operand, &type);
    }
    return tried;
}

static void operands_that_do_not_fit_are_refused(void **state)
{
    int tried = 0;
    (void)state;
    for (int i = 0; i < clt_operator_count(); i++) {
        const clt_operator *op = clt_operator_at(i);
        schema_case c = schema_case_of(op->name);
        clt_value *in[CLT_MAX_OPERANDS];
        clt_graph *graph = NULL;
        if (!clt_operator_callable(op) || !strcmp(op->name, "batch_rows_put"))
            continue;
        c.given = ~0u;
        if (apply(op, &c, -1, NULL) != CLT_OK)
            c.star = 1; /* weights of the last axis */
        if (apply(op, &c, -1, NULL) != CLT_OK)
            c.given = 7; /* batch_norm's others are states */
        if (apply(op, &c, -1, NULL) != CLT_OK)
            fail_msg("%s: %s", op->name, clt_error_message());
        assert_int_equal(clt_graph_create(&graph), CLT_OK);
        const int count = schema_operands(graph, &c, op, in);
        for (int k = 0; k < count; k++)
            tried += in[k] ? change(op, &c, in, count, k) : 0;
        clt_graph_destroy(graph);
    }
    assert_true(tried > 400);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operands_that_do_not_fit_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
