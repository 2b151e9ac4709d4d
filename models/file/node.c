/* Keys of nodes: checks their kinds and converts them to attributes for the library. */
#include "node.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

static const clt_attribute parameters_key[] = {{.name = "parameters", .kind = CLT_ATTRIBUTE_TEXT},
                                               {0}};

/* The attributes of the operator; an empty list if it has none. */
static const clt_attribute *attributes_of(const model_op *op)
{
    static const clt_attribute none[] = {{0}};
    const clt_operator *found = op->name && !op->build ? clt_operator_find(op->name) : NULL;
    return found ? clt_operator_attributes(found) : none;
}

/* All lists of keys that an object may have; `lists` ends with NULL. */
static void lists_of(const model_node *node, const clt_attribute *lists[5])
{
    int count = 0;
    if (node->op->has_parameters)
        lists[count++] = parameters_key;
    if (node->op->keys)
        lists[count++] = node->op->keys;
    lists[count++] = attributes_of(node->op);
    if (node->common)
        lists[count++] = node->common;
    lists[count] = NULL;
}

static const clt_attribute *find_key(const clt_attribute *const *lists, const char *name)
{
    for (; *lists; lists++)
        for (const clt_attribute *a = *lists; a->name; a++)
            if (!a->internal && !strcmp(a->name, name))
                return a;
    return NULL;
}

static int is_number(const json_t *v, const clt_attribute *a)
{
    if (json_is_null(v))
        return a->most > INT_MAX; /* CLT_TO_END */
    if (a->kind == CLT_ATTRIBUTE_REAL ? !json_is_number(v) : !json_is_integer(v))
        return 0;
    const double value = json_number_value(v);
    if (a->kind == CLT_ATTRIBUTE_INT && (value < INT_MIN || value > INT_MAX))
        return 0;
    return clt_attribute_allows(a, value);
}

static int counts_classes(const clt_attribute *a)
{
    return a->kind == CLT_ATTRIBUTE_INT && a->least >= 1;
}

static int fits(const json_t *v, const clt_attribute *a, int64_t classes)
{
    const char *text = json_string_value(v);
    size_t i;
    const json_t *one;
    if (a->kind == CLT_ATTRIBUTE_TYPE)
        return 1;
    if (a->kind == CLT_ATTRIBUTE_TEXT)
        return text != NULL;
    if (a->kind == CLT_ATTRIBUTE_FLAG)
        return json_is_boolean(v);
    for (int c = 0; text && a->choices && a->choices[c]; c++)
        if (!strcmp(text, a->choices[c]))
            return 1;
    if (text || a->choices)
        return text && counts_classes(a) && !strcmp(text, "classes") && classes > 0;
    if (!json_is_array(v))
        return !json_is_null(v) && is_number(v, a);
    const size_t count = json_array_size(v);
    if (a->list ? count < 1 || count > (size_t)a->count : count != (size_t)a->count)
        return 0;
    json_array_foreach(v, i, one)
    {
        if (!is_number(one, a))
            return 0;
    }
    return 1;
}

static clt_status fail_kind(const model_node *node, const char *what, const clt_attribute *a)
{
    char text[160];
    const json_t *v = json_object_get(node->json, a->name);
    if (json_is_string(v) && !strcmp(json_string_value(v), "classes") && counts_classes(a))
        return model_text_fail(node->text, node->json, a->name,
                               "%s: '%s' must be a number: there are no labels to count the "
                               "classes of",
                               what, a->name);
    return model_text_fail(node->text, node->json, a->name, "%s: '%s' must be %s%s", what, a->name,
                           clt_attribute_text(a, text, sizeof text),
                           counts_classes(a) ? ", or \"classes\"" : "");
}

static clt_status fail_key(const model_node *node, const char *what, const char *key,
                           const clt_attribute *const *lists)
{
    enum { NAMES = 40 };
    const char *names[NAMES];
    char all[512] = "";
    int count = 0;
    for (; *lists; lists++)
        for (const clt_attribute *a = *lists; a->name && count < NAMES; a++) {
            const size_t used = strlen(all);
            if (a->internal)
                continue;
            names[count++] = a->name;
            if (*lists != node->common)
                snprintf(all + used, sizeof all - used, "%s%s", used ? ", " : "", a->name);
        }
    const char *near = clt_nearest(key, names, count);
    if (near)
        return model_text_fail(node->text, node->json, key, "%s has no '%s'; did you mean %s?",
                               what, key, near);
    return model_text_fail(node->text, node->json, key, "%s has no '%s'; it takes %s", what, key,
                           *all ? all : "no attributes");
}

clt_status model_node_check(const model_node *node, const char *what)
{
    const clt_attribute *lists[5];
    const char *key;
    json_t *value;
    lists_of(node, lists);
    json_object_foreach((json_t *)node->json, key, value)
    {
        const clt_attribute *a = find_key(lists, key);
        if (!a)
            return fail_key(node, what, key, lists);
        if (!fits(value, a, node->classes))
            return fail_kind(node, what, a);
    }
    for (int l = 0; lists[l]; l++)
        for (const clt_attribute *a = lists[l]; a->name; a++)
            if (a->required && !json_object_get(node->json, a->name))
                return model_text_fail(node->text, node->json, NULL, "%s: '%s' is missing", what,
                                       a->name);
    return CLT_OK;
}

static int64_t integer_of(const model_node *node, const json_t *v)
{
    return json_is_string(v)    ? node->classes
           : json_is_boolean(v) ? json_is_true(v)
           : json_is_null(v)    ? CLT_TO_END
                                : json_integer_value(v);
}

static double default_of(const model_node *node, const char *name)
{
    const clt_attribute *lists[5];
    lists_of(node, lists);
    return find_key(lists, name)->default_value;
}

int64_t node_int(const model_node *node, const char *name)
{
    const json_t *v = json_object_get(node->json, name);
    return v ? integer_of(node, v) : (int64_t)default_of(node, name);
}

double node_real(const model_node *node, const char *name)
{
    const json_t *v = json_object_get(node->json, name);
    return v ? json_number_value(v) : default_of(node, name);
}

int node_list(const model_node *node, const char *name, int64_t *list)
{
    const json_t *v = json_object_get(node->json, name);
    if (!v)
        return 0;
    if (!json_is_array(v)) {
        list[0] = integer_of(node, v);
        return 1;
    }
    const int count = (int)json_array_size(v);
    for (int i = 0; i < count; i++)
        list[i] = integer_of(node, json_array_get(v, (size_t)i));
    return count;
}

static int choice_of(const clt_attribute *a, const char *text)
{
    int choice = 0;
    while (strcmp(a->choices[choice], text))
        choice++;
    return choice;
}

clt_status node_apply(const model_node *node, const char *name, clt_value **results)
{
    enum { MOST = 24 };
    const clt_attribute *a = clt_operator_attributes(clt_operator_find(name));
    clt_setting settings[MOST];
    int64_t integers[MOST][NODE_LIST];
    double reals[MOST][NODE_LIST];
    int count = 0;
    for (; a->name && count < MOST; a++) {
        const json_t *v = json_object_get(node->json, a->name);
        const int labels = !v && !strcmp(a->name, "ignore_index");
        if (a->internal || (!v && !labels))
            continue;
        clt_setting *s = &settings[count];
        *s = (clt_setting){.name = a->name, .count = 1, .integers = integers[count]};
        if (labels) {
            integers[count][0] = node->ignore_index;
        } else if (a->kind == CLT_ATTRIBUTE_CHOICE) {
            integers[count][0] = choice_of(a, json_string_value(v));
        } else if (a->kind == CLT_ATTRIBUTE_REAL) {
            s->integers = NULL;
            s->reals = reals[count];
            s->count = json_is_array(v) ? (int)json_array_size(v) : 1;
            for (int i = 0; i < s->count; i++)
                reals[count][i] =
                    json_number_value(json_is_array(v) ? json_array_get(v, (size_t)i) : v);
        } else {
            s->count = node_list(node, a->name, integers[count]);
        }
        count++;
    }
    return clt_apply(node->graph, name, node->in, node->n_in, settings, count, results);
}

int node_has_none(const model_node *node, const clt_attribute *list, const char *why)
{
    const clt_attribute *const lists[] = {list, parameters_key};
    for (int l = 0; l < 2; l++)
        for (const clt_attribute *a = lists[l]; a->name; a++)
            if (json_object_get(node->json, a->name)) {
                model_text_fail(node->text, node->json, a->name, "%s: '%s' has no use: %s",
                                node->name, a->name, why);
                return 0;
            }
    return 1;
}
