#include "ops/harness/golden.h"

static void op_golden_open(op_golden *g, const clt_tensors *tensors, const char *op, int index)
{
    *g = (op_golden){.tensors = (clt_tensors *)(uintptr_t)tensors};
    snprintf(g->prefix, sizeof g->prefix, "c%02d", index);
    snprintf(g->text, sizeof g->text, "%s golden %d", op, index);
    const char *json = clt_tensors_metadata(tensors, g->prefix);
    assert_non_null(json);
    g->attributes = json_loads(json, 0, NULL);
    assert_non_null(g->attributes);
    g->c.text = g->text;
    g->c.batch = 1;
}

static void op_golden_close(op_golden *g)
{
    json_decref(g->attributes);
    free(g->labels);
}

void op_golden_operand(op_golden *g, const char *name, bool batch)
{
    const clt_tensor *tensor = golden_find(g->tensors, g->prefix, name);
    op_operand *o = &g->c.in[g->c.n_in];
    char gradient[OP_TEXT];
    *o = (op_operand){.dtype = CLT_F32, .rank = tensor->rank};
    for (int i = 0; i < tensor->rank; i++)
        o->dims[i] = tensor->dims[i];
    if (batch) {
        g->c.batch = o->dims[0];
        o->dims[0] = CLT_BATCH;
    }
    snprintf(gradient, sizeof gradient, "d%s", name);
    o->gradient = op_golden_has(g, gradient);
    if (tensor->dtype == CLT_FILE_I32) {
        const int32_t *labels = tensor->data;
        const int64_t count = golden_count(tensor);
        o->dtype = CLT_I32;
        g->labels = op_array(count);
        for (int64_t i = 0; i < count; i++)
            g->labels[i] = labels[i];
        o->set = g->labels;
    } else {
        o->set = golden_f64(g->tensors, g->prefix, name, -1);
    }
    if (o->gradient)
        g->c.dx_set[g->c.n_in] = golden_f64(g->tensors, g->prefix, gradient, -1);
    g->c.n_in++;
}

void op_golden_results(op_golden *g)
{
    g->c.y_set[0] = golden_f64(g->tensors, g->prefix, "y", -1);
    g->c.dy_set[0] = golden_f64(g->tensors, g->prefix, "dy", -1);
}

double op_golden_number(const op_golden *g, const char *name)
{
    const json_t *value = json_object_get(g->attributes, name);
    assert_non_null(value);
    return json_is_boolean(value) ? (double)json_is_true(value) : json_number_value(value);
}

void op_golden_pair(const op_golden *g, const char *name, int pair[2])
{
    const json_t *value = json_object_get(g->attributes, name);
    assert_non_null(value);
    for (size_t i = 0; i < 2; i++)
        pair[i] = (int)json_integer_value(json_array_get(value, i));
}

void op_goldens(const char *op, void (*one)(op_golden *g))
{
    char file[OP_TEXT];
    if (clt_test_oclgrind())
        return; /* Oclgrind runs the tests' own small shapes only */
    snprintf(file, sizeof file, "ops/%s.safetensors", op);
    clt_tensors *tensors = golden_open(file);
    const int count = atoi(clt_tensors_metadata(tensors, "cases"));
    assert_true(count > 0);
    for (int i = 0; i < count; i++) {
        op_golden g;
        op_golden_open(&g, tensors, op, i);
        one(&g);
        op_golden_close(&g);
    }
    clt_tensors_close(tensors);
}
