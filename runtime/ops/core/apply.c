/* clt_apply: adds an operator by name, with its attributes from settings or text. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "ops/core/ops.h"
#include <cltrain/ops/tensor.h>

enum { SETTINGS = 32, TEXT = 64 };

static clt_status fail_operator(const char *name)
{
    enum { NAMES = 256 };
    const char *names[NAMES];
    int count = 0;
    for (int i = 0; i < clt_operator_count() && count < NAMES; i++)
        if (clt_operator_at(i)->callable)
            names[count++] = clt_operator_at(i)->name;
    const char *near = clt_nearest(name, names, count);
    return clt_fail(CLT_NOT_FOUND, "%s operator '%s'%s%s%s",
                    clt_operator_find(name) ? "programs cannot call" : "there is no", name,
                    near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

/* Finds a callable operator. The builders of other operators do not check what callers may give. */
static clt_status find(const char *name, const clt_op **op)
{
    *op = clt_operator_find(name);
    return *op && (*op)->callable ? CLT_OK : fail_operator(name);
}

/* Pads the operands with NULL up to the most that the operator takes. */
static clt_status read_operands(const clt_op *op, clt_value *const *in, int n_in, clt_value **all)
{
    const int least = clt_op_least(op), most = clt_op_most(op);
    clt_operand_schema one;
    if (n_in < least || n_in > most)
        return clt_fail(CLT_INVALID_ARGUMENT, "%s takes %d to %d operands, not %d", op->name, least,
                        most, n_in);
    for (int i = 0; i < CLT_MAX_OPERANDS; i++)
        all[i] = i < n_in ? in[i] : NULL;
    for (int i = 0; i < n_in; i++)
        if (!in[i] && clt_operand_at(op->operands, i, &one) && !one.optional)
            return clt_fail(CLT_INVALID_ARGUMENT, "%s: the operand %s is missing", op->name,
                            one.name);
    return CLT_OK;
}

static clt_status read_settings(const clt_op *op, const clt_setting *settings, int count,
                                void *attr)
{
    clt_attributes_init(op, attr);
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < i; k++)
            if (!strcmp(settings[i].name, settings[k].name))
                return clt_fail(CLT_INVALID_ARGUMENT, "%s: %s is given twice", op->name,
                                settings[i].name);
        CLT_TRY(clt_attribute_set(op, &settings[i], attr));
    }
    for (const clt_attribute *a = op->attributes; a && a->name; a++) {
        bool given = !a->required;
        for (int i = 0; i < count; i++)
            given = given || !strcmp(settings[i].name, a->name);
        if (!given)
            return clt_fail(CLT_INVALID_ARGUMENT, "%s: '%s' is missing", op->name, a->name);
    }
    return CLT_OK;
}

static clt_status add(clt_graph *graph, const clt_op *op, clt_value *const *in, int n_in,
                      const void *attr, clt_value **results)
{
    if (op->build) {
        op->build(&(clt_op_call){op, in, n_in, attr, results});
    } else {
        const int most = clt_op_most(op);
        const clt_node *node =
            clt_graph_add(graph, op, in, most == CLT_MAX_OPERANDS ? n_in : most, attr);
        for (int i = 0; node && i < node->n_out; i++)
            results[i] = node->out[i];
    }
    return clt_graph_status(graph);
}

static clt_status apply(clt_graph *graph, const clt_op *op, clt_value *const *in, int n_in,
                        const clt_setting *settings, int n_settings, clt_value **results)
{
    clt_value *all[CLT_MAX_OPERANDS];
    void *attr = clt_alloc(op->attr_bytes ? op->attr_bytes : 1);
    clt_status status = attr ? read_operands(op, in, n_in, all) : CLT_OUT_OF_MEMORY;
    CLT_NEXT(status, read_settings(op, settings, n_settings, attr));
    CLT_NEXT(status, add(graph, op, all, n_in, attr, results));
    clt_free(attr);
    return status;
}

static clt_status begin(const clt_graph *graph, clt_value **results)
{
    for (int i = 0; i < CLT_MAX_RESULTS; i++)
        results[i] = NULL;
    return clt_graph_status(graph);
}

/* Keeps an error in the graph, without results. */
static clt_status end(clt_graph *graph, clt_status status, clt_value **results)
{
    if (status != CLT_OK) {
        clt_graph_failed(graph, status);
        for (int i = 0; i < CLT_MAX_RESULTS; i++)
            results[i] = NULL;
    }
    return status;
}

clt_status clt_apply(clt_graph *graph, const char *name, clt_value *const *in, int n_in,
                     const clt_setting *settings, int n_settings, clt_value **results)
{
    const clt_op *op;
    CLT_TRY(begin(graph, results));
    clt_status status = find(name, &op);
    CLT_NEXT(status, apply(graph, op, in, n_in, settings, n_settings, results));
    return end(graph, status, results);
}

/* --- text ------------------------------------------------------------------------------------ */

typedef struct parsed {
    char name[TEXT];
    int64_t integers[CLT_MAX_NUMBERS];
    double reals[CLT_MAX_NUMBERS];
} parsed;

/* Reads a number, true, false, the name of a choice, or `end`; returns false if the text is none
 * of them. */
static bool read_one(const clt_attribute *a, const char *text, int64_t *integer, double *real)
{
    char *end;
    for (int i = 0; a && a->choices && a->choices[i]; i++)
        if (!strcmp(a->choices[i], text)) {
            *integer = i;
            return true;
        }
    if (a && a->most > INT_MAX && !strcmp(text, "end")) {
        *integer = CLT_TO_END;
        return true;
    }
    if (a && a->kind == CLT_ATTRIBUTE_FLAG && (!strcmp(text, "true") || !strcmp(text, "false"))) {
        *integer = *text == 't';
        return true;
    }
    if (a && a->kind == CLT_ATTRIBUTE_REAL)
        *real = strtod(text, &end);
    else
        *integer = strtoll(text, &end, 10);
    return *text && !*end;
}

/* Reads a type as messages write it: f32[2x4], where B is the batch. */
static bool read_type(const char *text, int64_t *dims, clt_setting *s)
{
    const size_t length = strcspn(text, "[");
    int type = CLT_F32;
    while (type <= CLT_F64 && (strlen(clt_dtype_name((clt_dtype)type)) != length ||
                               strncmp(text, clt_dtype_name((clt_dtype)type), length)))
        type++;
    if (type > CLT_F64 || !text[length])
        return false;
    s->type = (clt_dtype)type;
    const char *at = text + length + 1;
    while (*at != ']' && s->count < CLT_MAX_RANK) {
        const size_t digits = strspn(at, "0123456789");
        const bool batch = at[digits] == 'B';
        if (!digits && !batch)
            return false;
        dims[s->count++] = (digits ? strtoll(at, NULL, 10) : 1) * (batch ? CLT_BATCH : 1);
        at += digits + batch;
        if (*at == 'x' && at[1] != ']')
            at++;
        else if (*at != ']')
            return false;
    }
    return *at == ']' && !at[1];
}

/* Reads NAME=VALUE,VALUE.. of `length` bytes. */
static clt_status read_item(const clt_op *op, const char *item, size_t length, parsed *p,
                            clt_setting *s)
{
    const char *equals = memchr(item, '=', length), *end = item + length;
    const size_t name = equals ? (size_t)(equals - item) : 0;
    if (!name || name >= TEXT)
        return clt_fail(CLT_INVALID_ARGUMENT, "%s: '%.*s' is not NAME=VALUE", op->name, (int)length,
                        item);
    memcpy(p->name, item, name);
    p->name[name] = '\0';
    const clt_attribute *a = clt_attribute_find(op, p->name);
    const bool real = a && a->kind == CLT_ATTRIBUTE_REAL;
    const bool type = a && a->kind == CLT_ATTRIBUTE_TYPE;
    *s = (clt_setting){.name = p->name};
    for (const char *at = equals + 1; at <= end;) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        const size_t bytes = (size_t)((comma ? comma : end) - at);
        char one[TEXT] = "";
        if (bytes < TEXT)
            memcpy(one, at, bytes);
        if (type ? at != equals + 1 || !read_type(one, p->integers, s)
                 : s->count == CLT_MAX_NUMBERS ||
                       !read_one(a, one, &p->integers[s->count], &p->reals[s->count])) {
            char wanted[160] = "a number";
            if (a)
                clt_attribute_text(a, wanted, sizeof wanted);
            return clt_fail(CLT_INVALID_ARGUMENT, "%s: %s is %.*s; it must be %s", op->name,
                            p->name, (int)(end - equals - 1), equals + 1, wanted);
        }
        s->count += !type;
        at = comma ? comma + 1 : end + 1;
    }
    s->reals = real ? p->reals : NULL;
    s->integers = real ? NULL : p->integers;
    return CLT_OK;
}

static clt_status apply_text(clt_graph *graph, const clt_op *op, clt_value *const *in, int n_in,
                             const char *attributes, clt_value **results)
{
    clt_setting settings[SETTINGS];
    parsed *all = clt_calloc(SETTINGS, sizeof *all);
    clt_status status = all ? CLT_OK : CLT_OUT_OF_MEMORY;
    int count = 0;
    for (const char *at = attributes ? attributes : ""; status == CLT_OK && *at;) {
        const size_t length = strcspn(at, " ");
        if (length && count == SETTINGS)
            status = clt_fail(CLT_INVALID_ARGUMENT, "%s: too many attributes", op->name);
        else if (length)
            status = read_item(op, at, length, &all[count], &settings[count]);
        count += length > 0;
        at += length + (at[length] == ' ');
    }
    CLT_NEXT(status, apply(graph, op, in, n_in, settings, count, results));
    clt_free(all);
    return status;
}

clt_status clt_apply_op(clt_graph *graph, const clt_op *op, clt_value *const *in, int n_in,
                        const char *attributes, clt_value **results)
{
    CLT_TRY(begin(graph, results));
    return end(graph, apply_text(graph, op, in, n_in, attributes, results), results);
}

clt_status clt_apply_text(clt_graph *graph, const char *name, clt_value *const *in, int n_in,
                          const char *attributes, clt_value **results)
{
    const clt_op *op;
    CLT_TRY(begin(graph, results));
    clt_status status = find(name, &op);
    CLT_NEXT(status, apply_text(graph, op, in, n_in, attributes, results));
    return end(graph, status, results);
}
