/* Every operator has a complete schema. clt_apply builds nodes from the schema, and refuses what
 * the schema does not allow. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "ops/core/dims.h"
#include "ops/core/ops.h"
#include "ops/elementwise/elementwise.h"
#include "ops/core/schema_cases.h"

static clt_graph *test_graph(void)
{
    clt_graph *graph = NULL;
    assert_int_equal(clt_graph_create(&graph), CLT_OK);
    return graph;
}

static void check_list(const clt_op *op, const char *list, bool results)
{
    clt_operand_schema one, other;
    bool optional = false, repeated = false;
    int count = 0;
    for (; clt_operand_at(list, count, &one); count++) {
        const bool typed = !strcmp(one.type, "f32") || !strcmp(one.type, "i32") ||
                           !strcmp(one.type, "u8") || !strcmp(one.type, "any");
        if (!one.name[0] || !one.dims[0] || !typed || repeated || (optional && one.repeated) ||
            (one.once && !one.optional) || (results && (one.optional || one.repeated)))
            fail_msg("%s: item %d of '%s'", op->name, count, list);
        for (int i = 0; i < count && clt_operand_at(list, i, &other); i++)
            assert_string_not_equal(one.name, other.name);
        optional = optional || one.optional;
        repeated = one.repeated;
    }
    int commas = 0;
    for (const char *at = list; (at = strchr(at, ',')) != NULL; at++)
        commas++;
    assert_int_equal(count, commas + 1);
    assert_true(count <= (results ? CLT_MAX_RESULTS : CLT_MAX_OPERANDS));
    assert_false(clt_operand_at(list, -1, &one));
}

/* Checks the attributes' rows, and marks the bytes that they describe. */
static void check_attributes(const clt_op *op)
{
    unsigned char seen[2048] = {0}, room[2048];
    assert_true(op->attr_bytes <= sizeof seen);
    for (const clt_attribute *a = op->attributes; a && a->name; a++) {
        const int count = a->count ? a->count : 1;
        if (!a->doc || !*a->doc || a->bytes < 1 || a->bytes % count ||
            a->offset + (size_t)a->bytes > op->attr_bytes ||
            (a->kind == CLT_ATTRIBUTE_CHOICE) != (a->choices != NULL) || a->least > a->most)
            fail_msg("%s: the row of %s is not complete", op->name, a->name);
        for (const clt_attribute *b = op->attributes; b != a; b++)
            assert_string_not_equal(a->name, b->name);
        memset(seen + a->offset, 1, (size_t)a->bytes);
        if (a->list)
            memset(seen + a->length, 1, sizeof(int));
    }
    /* For operators of nodes, the rows leave out only padding, and numbers that an expression does
     * not use. */
    const size_t unused = sizeof(clt_elementwise_attr);
    for (size_t i = 0, gap = 0; op->infer && i < op->attr_bytes; i++) {
        gap = seen[i] ? 0 : gap + 1;
        if (gap > unused)
            fail_msg("%s: the attributes leave out byte %zu of %zu", op->name, i, op->attr_bytes);
    }
    clt_attributes_init(op, room);
    if (clt_attributes_check(op, room) != CLT_OK)
        fail_msg("a default is out of its range: %s", clt_error_message());
}

static void test_complete(void **state)
{
    (void)state;
    int nodes;
    clt_ops(&nodes);
    assert_true(nodes > 100 && clt_operator_count() > nodes);
    assert_null(clt_operator_at(-1));
    assert_null(clt_operator_at(clt_operator_count()));
    for (int i = 0; i < clt_operator_count(); i++) {
        const clt_op *op = clt_operator_at(i);
        if (!clt_operator_doc(op) || !*clt_operator_doc(op) || !op->operands || !op->results)
            fail_msg("%s has no schema", clt_operator_name(op));
        check_list(op, op->operands, false);
        check_list(op, op->results, true);
        check_attributes(op);
        assert_true(clt_operator_callable(op) || op->infer);
        if (clt_operator_callable(op))
            assert_ptr_equal(clt_operator_find(op->name), op);
        for (const char *letter = op->whole; letter && *letter; letter++)
            assert_int_equal(clt_operator_dim(op, *letter), CLT_DIM_WHOLE);
    }
    assert_null(clt_operator_find("convolution"));
    assert_int_equal(clt_operator_dim(clt_operator_find("linear"), 'k'), CLT_DIM_SUMMED);
    assert_int_equal(clt_operator_dim(clt_operator_find("linear"), 'o'), CLT_DIM_PARALLEL);
    assert_int_equal(clt_operator_dim(clt_operator_find("conv2d"), 'h'), CLT_DIM_HALO);
    assert_int_equal(clt_operator_dim(clt_operator_find("lstm"), 't'), CLT_DIM_SCAN);
    assert_string_equal(clt_dim_behaviour_name(CLT_DIM_SCAN), "scan");
    assert_string_equal(clt_dim_behaviour_name((clt_dim_behaviour)9), "?");
}

/* --- applying -------------------------------------------------------------------------------- */

/* Checks that the results have the number, types and ranks of the schema. */
static void check_results(const clt_op *op, clt_value *const *results)
{
    clt_operand_schema one;
    int count = 0;
    for (; clt_operator_result(op, count, &one); count++) {
        const clt_type *type = &results[count]->type;
        const int letters = (int)strlen(one.dims), star = strchr(one.dims, '*') != NULL;
        if ((strcmp(one.type, "any") && strcmp(one.type, clt_dtype_name(type->dtype))) ||
            type->rank < letters - star || (!star && type->rank != letters))
            fail_msg("%s: the result %s is of another type", op->name, one.name);
    }
    for (; count < CLT_MAX_RESULTS; count++)
        assert_null(results[count]);
}

static clt_status apply(const char *op, const char *attributes)
{
    clt_value *in[16], *results[CLT_MAX_RESULTS];
    clt_graph *graph = test_graph();
    const schema_case c = schema_case_of(op);
    const clt_operator *found = clt_operator_find(op);
    const int count = found ? schema_operands(graph, &c, found, in) : 0;
    const clt_status status = found ? clt_apply_op(graph, found, in, count, attributes, results)
                                    : clt_apply_text(graph, op, in, count, attributes, results);
    assert_int_equal(status == CLT_OK, results[0] != NULL);
    assert_int_equal(clt_graph_status(graph), status);
    if (status == CLT_OK)
        check_results(found, results);
    clt_graph_destroy(graph);
    return status;
}

/* Returns the letter of dimension k of a value, as the schema's text names it. */
static char letter_at(const char *dims, int rank, int k)
{
    const int letters = (int)strlen(dims);
    const char *star = strchr(dims, '*');
    const int before = star ? (int)(star - dims) : letters, after = letters - before - 1;
    return k < before ? dims[k] : k >= rank - after ? dims[letters - (rank - k)] : '*';
}

/* The schema must not promise more than a node of default attributes allows. */
static int check_behaviours(const clt_node *node)
{
    clt_node_dims dims;
    clt_operand_schema one;
    int compared = 0;
    clt_node_dims_of(node, &dims);
    for (int i = 0; i < node->n_in; i++) {
        if (!node->in[i] || !clt_operator_operand(node->op, i, &one))
            continue;
        for (int k = 0; k < node->in[i]->type.rank; k++) {
            const char letter = letter_at(one.dims, node->in[i]->type.rank, k);
            if (dims.in[i][k] < 0 || letter == '1')
                continue;
            const clt_dim_behaviour schema = clt_operator_dim(node->op, letter);
            if (schema != CLT_DIM_WHOLE && schema != dims.behaviour[dims.in[i][k]])
                fail_msg("%s: '%c' is %s, but dimension %d of %s is %s", node->op->name, letter,
                         clt_dim_behaviour_name(schema), k, one.name,
                         clt_dim_behaviour_name(dims.behaviour[dims.in[i][k]]));
            compared++;
        }
    }
    return compared;
}

static void test_behaviours(void **state)
{
    (void)state;
    int compared = 0;
    for (int i = 0; i < clt_operator_count(); i++) {
        clt_value *in[16], *results[CLT_MAX_RESULTS];
        const clt_operator *op = clt_operator_at(i);
        const schema_case c = schema_case_of(op->name);
        clt_graph *graph = test_graph();
        if (clt_operator_callable(op) && strcmp(op->name, "batch_rows_put") &&
            clt_apply_text(graph, op->name, in, schema_operands(graph, &c, op, in), c.attributes,
                           results) == CLT_OK)
            for (int n = 0; n < graph->n_nodes; n++)
                compared += check_behaviours(graph->nodes[n]);
        clt_graph_destroy(graph);
    }
    assert_true(compared > 100);
    assert_int_equal(clt_operator_dim(clt_operator_find("softmax"), '*'), CLT_DIM_WHOLE);
    assert_int_equal(clt_operator_dim(clt_operator_find("concat"), '*'), CLT_DIM_WHOLE);
    assert_int_equal(clt_operator_dim(clt_operator_find("layer_norm"), '*'), CLT_DIM_WHOLE);
    assert_int_equal(clt_operator_dim(clt_operator_find("relu"), '*'), CLT_DIM_PARALLEL);
}

/* Only flags are true or false. A number of that name would be 0 or 1 without a word. */
static void test_flags(void **state)
{
    (void)state;
    assert_int_equal(apply("matmul", "trans_a=false trans_b=false"), CLT_OK);
    assert_int_equal(apply("leaky_relu", "slope=true"), CLT_INVALID_ARGUMENT);
    assert_non_null(strstr(clt_error_message(), "leaky_relu: slope is true; it must be"));
}

static void test_every_call(void **state)
{
    (void)state;
    for (int i = 0; i < clt_operator_count(); i++) {
        const clt_operator *op = clt_operator_at(i);
        const char *name = clt_operator_name(op);
        if (!clt_operator_callable(op) || !strcmp(name, "batch_rows_put"))
            continue;
        if (apply(name, schema_case_of(name).attributes) != CLT_OK)
            fail_msg("%s: %s", name, clt_error_message());
    }
}

static void refuse(const char *op, const char *attributes, clt_status status, const char *message)
{
    assert_int_equal(apply(op, attributes), status);
    if (!strstr(clt_error_message(), message))
        fail_msg("%s %s: the message is '%s', without '%s'", op, attributes, clt_error_message(),
                 message);
}

/* Tries a number just outside the range of every attribute that has a range. */
static void test_ranges(void **state)
{
    (void)state;
    int tried = 0;
    for (int i = 0; i < clt_operator_count(); i++) {
        const clt_operator *op = clt_operator_at(i);
        for (const clt_attribute *a = clt_operator_attributes(op); a->name; a++) {
            char text[128], message[64];
            if (!clt_operator_callable(op) || a->internal || (a->least == 0 && a->most == 0) ||
                a->least < -1e6 || !strcmp(clt_operator_name(op), "batch_rows_put"))
                continue;
            snprintf(text, sizeof text, "%s=%.17g", a->name,
                     a->kind == CLT_ATTRIBUTE_INT ? a->least - 1 : a->least - 1e-3);
            snprintf(message, sizeof message, "%s: %s%s is ", clt_operator_name(op), a->name,
                     a->count ? "[0]" : "");
            refuse(clt_operator_name(op), text, CLT_INVALID_ARGUMENT, message);
            tried++;
        }
    }
    assert_true(tried > 60);
}

static void test_messages(void **state)
{
    (void)state;
    refuse("convv2d", "", CLT_NOT_FOUND, "there is no operator 'convv2d'; did you mean conv2d?");
    refuse("conv2d", "strides=2", CLT_NOT_FOUND, "conv2d has no 'strides'; did you mean stride?");
    refuse("conv2d", "xyz=2", CLT_NOT_FOUND, "it takes stride, padding, dilation, groups");
    refuse("relu", "xyz=2", CLT_NOT_FOUND, "relu has no 'xyz'; it takes no attributes");
    refuse("conv2d", "stride=2 stride=2", CLT_INVALID_ARGUMENT, "conv2d: stride is given twice");
    refuse("conv2d", "stride", CLT_INVALID_ARGUMENT, "conv2d: 'stride' is not NAME=VALUE");
    refuse("conv2d", "stride=0", CLT_INVALID_ARGUMENT,
           "conv2d: stride[0] is 0; it must be an integer of at least 1, or two (height, width)");
    refuse("conv2d", "stride=1,2,3", CLT_INVALID_ARGUMENT, "conv2d: stride is 3 numbers; it must");
    refuse("conv2d", "stride=1.5", CLT_INVALID_ARGUMENT, "conv2d: stride is 1.5; it must be");
    refuse("conv2d", "stride=4294967297", CLT_INVALID_ARGUMENT, "conv2d: stride[0] is 4294967297;");
    refuse("dropout", "p=1.5", CLT_INVALID_ARGUMENT,
           "dropout: p is 1.5; it must be a number of 0 to 1");
    refuse("dropout", "p=nan", CLT_INVALID_ARGUMENT, "dropout: p is nan; it must be");
    refuse("huber", "delta=0", CLT_INVALID_ARGUMENT, "delta is 0; it must be a number above 0");
    refuse("cast", "to=f99", CLT_INVALID_ARGUMENT,
           "cast: to is f99; it must be f32, f16, bf16, i32, u8 or f64");
    refuse("cast", "", CLT_INVALID_ARGUMENT, "cast: 'to' is missing");
    refuse("reduce_sum", "keepdims=2", CLT_INVALID_ARGUMENT, "it must be true or false");
    refuse("transpose", "permutation=0,1,2", CLT_SHAPE,
           "'permutation' has 3 entries, and x has 2 dimensions");
    /* Operators that only passes add would read or write outside their operands: x is 2x4. */
    refuse("concat_part", "axis=1 start=2 to=f32[2x3]", CLT_SHAPE, "has no part f32[2x3] at 2");
    refuse("concat_part", "axis=2 to=f32[2x4]", CLT_SHAPE, "of axis 2");
    refuse("slice_grad", "start=6 step=1 to=f32[9x9]", CLT_SHAPE, "do not fit f32[9x9]");
}

/* Attributes and operators that only gradient rules and passes give. Their kernels would read
 * outside of operands that do not fit. */
static void test_internal(void **state)
{
    (void)state;
    static const char *const names[] = {"sum", "split", "max_pool2d_grad", "concat_part"};
    for (int i = 0; i < clt_operator_count(); i++) {
        const clt_operator *op = clt_operator_at(i);
        for (const clt_attribute *a = clt_operator_attributes(op); a->name; a++) {
            char text[128], message[128];
            if (!a->internal || !clt_operator_callable(op))
                continue;
            snprintf(text, sizeof text, "%s=1", a->name);
            snprintf(message, sizeof message, "%s has no '%s'", op->name, a->name);
            refuse(op->name, text, CLT_NOT_FOUND, message);
        }
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const int64_t dims[2] = {2, 4};
        char message[128];
        clt_graph *graph = test_graph();
        clt_value *results[CLT_MAX_RESULTS];
        clt_value *x = clt_parameter(graph, "x", 2, dims, (clt_init){CLT_INIT_ZERO, 0, 0});
        snprintf(message, sizeof message, "programs cannot call operator '%s'", names[i]);
        assert_int_equal(clt_apply_text(graph, names[i], &x, 1, NULL, results), CLT_NOT_FOUND);
        assert_non_null(strstr(clt_error_message(), message));
        assert_null(results[0]);
        clt_graph_destroy(graph);
    }
}

/* Each operator takes the attributes that change its result, and no others. */
static void test_own_attributes(void **state)
{
    (void)state;
    for (int i = 1; i <= 2; i++) {
        char average[16], maximum[16], message[128];
        snprintf(average, sizeof average, "avg_pool%dd", i);
        snprintf(maximum, sizeof maximum, "max_pool%dd", i);
        assert_int_equal(apply(average, "count_include_pad=false"), CLT_OK);
        assert_int_equal(apply(maximum, "dilation=2"), CLT_OK);
        snprintf(message, sizeof message,
                 "%s has no 'dilation'; it takes kernel, stride, padding, ceil_mode, "
                 "count_include_pad",
                 average);
        refuse(average, "dilation=1", CLT_NOT_FOUND, message);
        snprintf(message, sizeof message,
                 "%s has no 'count_include_pad'; it takes kernel, stride, padding, dilation, "
                 "ceil_mode",
                 maximum);
        refuse(maximum, "count_include_pad=true", CLT_NOT_FOUND, message);
    }
}

/* Operands: a wrong number of them, and a missing one. */
static void test_operands(void **state)
{
    (void)state;
    const int64_t dims[2] = {4, 8};
    clt_value *results[CLT_MAX_RESULTS];
    for (int i = 0; i < 2; i++) {
        static const char *const messages[] = {"add takes 2 to 2 operands, not 1",
                                               "add: the operand b is missing"};
        clt_graph *graph = test_graph();
        clt_value *x = clt_parameter(graph, "x", 2, dims, (clt_init){CLT_INIT_ZERO, 0, 0});
        clt_value *in[] = {x, NULL};
        assert_int_equal(clt_apply(graph, "add", in, 1 + i, NULL, 0, results),
                         CLT_INVALID_ARGUMENT);
        assert_string_equal(clt_error_message(), messages[i]);
        clt_graph_destroy(graph);
    }
}

/* Settings give the same node as the function. */
static void test_settings(void **state)
{
    (void)state;
    const int64_t x[4] = {2, 4, 9, 9}, w[4] = {6, 2, 3, 3}, stride[] = {2, 1}, groups = 2;
    const clt_init zero = {CLT_INIT_ZERO, 0, 0};
    clt_graph *graph = test_graph();
    clt_value *in[] = {clt_parameter(graph, "x", 4, x, zero),
                       clt_parameter(graph, "w", 4, w, zero)};
    clt_value *results[CLT_MAX_RESULTS];
    const clt_setting settings[] = {{.name = "stride", .count = 2, .integers = stride},
                                    {.name = "groups", .count = 1, .integers = &groups}};
    assert_int_equal(clt_apply(graph, "conv2d", in, 2, settings, 2, results), CLT_OK);
    clt_conv2d_options o;
    clt_conv2d_options_init(&o);
    o.stride[0] = 2;
    o.groups = 2;
    const clt_value *same = clt_conv2d(in[0], in[1], NULL, &o);
    assert_true(clt_type_equal(&results[0]->type, &same->type));
    assert_memory_equal(results[0]->producer->attr, same->producer->attr,
                        same->producer->op->attr_bytes);
    assert_null(results[1]);
    clt_graph_destroy(graph);
}

/* A type as text. */
static void test_types(void **state)
{
    (void)state;
    const int64_t dims[2] = {1, 4};
    clt_graph *graph = test_graph();
    clt_value *x = clt_parameter(graph, "x", 2, dims, (clt_init){CLT_INIT_ZERO, 0, 0});
    clt_value *read[CLT_MAX_RESULTS];
    assert_int_equal(clt_apply_op(graph, &clt_op_expand, &x, 1, "to=f32[3x2x4]", read), CLT_OK);
    const clt_type want = {.dtype = CLT_F32, .rank = 3, .dims = {3, 2, 4}};
    assert_true(clt_type_equal(&read[0]->type, &want));
    assert_int_equal(clt_apply_op(graph, &clt_op_expand, &x, 1, "to=f32[2Bx4]", read), CLT_OK);
    assert_int_equal(read[0]->type.dims[0], 2 * CLT_BATCH);
    clt_graph_destroy(graph);
    static const char *const wrong[] = {"3,2,4",
                                        "f32",
                                        "f33[2x4]",
                                        "f32[2x4",
                                        "f32[2x]",
                                        "f32[x4]",
                                        "f32[2B3]",
                                        "f32[2x4]3",
                                        "f32[2,4]",
                                        "f32[2x4],1",
                                        "f32[-1x4]",
                                        "[2x4]",
                                        "f32[1x1x1x1x1x1x1x2x4]"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char text[64], message[128];
        snprintf(text, sizeof text, "to=%s", wrong[i]);
        snprintf(message, sizeof message, "expand: to is %s; it must be a type, such as f32[2x4]",
                 wrong[i]);
        refuse("expand", text, CLT_INVALID_ARGUMENT, message);
    }
    refuse("expand", "to=i32[2x4]", CLT_SHAPE, "expand: f32[2x4] does not broadcast to i32[2x4]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_complete),       cmocka_unit_test(test_every_call),
        cmocka_unit_test(test_behaviours),     cmocka_unit_test(test_flags),
        cmocka_unit_test(test_ranges),         cmocka_unit_test(test_messages),
        cmocka_unit_test(test_internal),       cmocka_unit_test(test_operands),
        cmocka_unit_test(test_settings),       cmocka_unit_test(test_types),
        cmocka_unit_test(test_own_attributes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
