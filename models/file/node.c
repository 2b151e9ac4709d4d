/* Attributes of nodes: their kinds, checked before a builder reads them. */
#include "node.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* The next "name:kind" of a list; 0 at its end. */
static int next_attribute(const char **at, char name[64], char kind[16], int *must)
{
    int length = 0;
    kind[0] = '\0';
    if (sscanf(*at, " %63[^: ]%n", name, &length) != 1)
        return 0;
    *at += length;
    if (**at == ':') {
        length = 0;
        if (sscanf(*at, ":%15[a-z]%n", kind, &length) == 1)
            *at += length;
    }
    *must = **at == '!';
    *at += *must;
    return 1;
}

static int is_int(const json_t *v, int64_t least)
{
    return json_is_integer(v) && json_integer_value(v) >= least && json_integer_value(v) <= INT_MAX;
}

static int is_list(const json_t *v, size_t least, size_t most, int64_t least_value, int null)
{
    size_t i;
    const json_t *one;
    if (!json_is_array(v) || json_array_size(v) < least || json_array_size(v) > most)
        return 0;
    json_array_foreach(v, i,
                       one) if (!is_int(one, least_value) && !(null && json_is_null(one))) return 0;
    return 1;
}

/* NULL: the value is of the kind; else what the kind is, for a message. */
static const char *mismatch(const json_t *v, const char *kind, int64_t classes)
{
    if (!strcmp(kind, "count")) {
        const char *text = json_string_value(v);
        if (text && !strcmp(text, "classes"))
            return classes > 0 ? NULL : "a number: there are no labels to count the classes of";
        return is_int(v, 1) ? NULL : "a number of 1 to 2147483647, or \"classes\"";
    }
    if (!strcmp(kind, "int"))
        return is_int(v, INT_MIN) ? NULL : "an integer of 32 bits";
    if (!strcmp(kind, "size"))
        return is_int(v, 0) ? NULL : "an integer of 0 to 2147483647";
    if (!strcmp(kind, "pair"))
        return is_int(v, 0) || is_list(v, 2, 2, 0, 0)
                   ? NULL
                   : "an integer of 0 to 2147483647, or two: [height, width]";
    if (!strcmp(kind, "triple"))
        return is_int(v, 0) || is_list(v, 3, 3, 0, 0)
                   ? NULL
                   : "an integer of 0 to 2147483647, or three: [depth, height, width]";
    if (!strcmp(kind, "real"))
        return json_is_number(v) ? NULL : "a number";
    if (!strcmp(kind, "flag"))
        return json_is_boolean(v) ? NULL : "true or false";
    if (!strcmp(kind, "ints"))
        return is_int(v, INT_MIN) || is_list(v, 1, NODE_LIST, INT_MIN, 0)
                   ? NULL
                   : "an integer of 32 bits or a list of them";
    if (!strcmp(kind, "ends"))
        return is_list(v, 1, NODE_LIST, INT_MIN, 1)
                   ? NULL
                   : "a list of integers of 32 bits, and null for an axis' end";
    if (!strcmp(kind, "text"))
        return json_is_string(v) ? NULL : "a text";
    return NULL; /* read elsewhere */
}

static int find_attribute(const char *list, const char *wanted, char kind[16])
{
    char name[64];
    int must;
    while (next_attribute(&list, name, kind, &must))
        if (!strcmp(name, wanted))
            return 1;
    return 0;
}

static clt_status unknown(const model_node *node, const char *what, const char *key,
                          const char *attributes, const char *common)
{
    static _Thread_local char names[32][64];
    const char *list[32];
    char kind[16], all[512] = "";
    int count = 0, must;
    for (int part = 0; part < 2; part++)
        for (const char *at = part ? common : attributes;
             count < 32 && next_attribute(&at, names[count], kind, &must); count++) {
            list[count] = names[count];
            if (!part)
                snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", *all ? ", " : "",
                         names[count]);
        }
    const char *near = clt_nearest(key, list, count);
    if (near)
        return model_text_fail(node->text, node->json, key, "%s has no '%s'; did you mean %s?",
                               what, key, near);
    return model_text_fail(node->text, node->json, key, "%s has no '%s'; it takes %s", what, key,
                           *all ? all : "no attributes");
}

clt_status model_node_check(const model_node *node, const char *what, const char *attributes,
                            const char *common)
{
    const char *key;
    json_t *value;
    char kind[16], name[64];
    int must;
    json_object_foreach((json_t *)node->json, key, value)
    {
        if (!find_attribute(attributes, key, kind) && !find_attribute(common, key, kind))
            return unknown(node, what, key, attributes, common);
        const char *wanted = mismatch(value, kind, node->classes);
        if (wanted)
            return model_text_fail(node->text, node->json, key, "%s: '%s' must be %s", what, key,
                                   wanted);
    }
    for (const char *at = attributes; next_attribute(&at, name, kind, &must);)
        if (must && !json_object_get(node->json, name))
            return model_text_fail(node->text, node->json, NULL, "%s: '%s' is missing", what, name);
    return CLT_OK;
}

int64_t node_int(const model_node *node, const char *name, int64_t otherwise)
{
    const json_t *v = json_object_get(node->json, name);
    if (json_is_string(v))
        return node->classes;
    if (json_is_boolean(v))
        return json_is_true(v);
    return v ? json_integer_value(v) : otherwise;
}

double node_real(const model_node *node, const char *name, double otherwise)
{
    const json_t *v = json_object_get(node->json, name);
    return v ? json_number_value(v) : otherwise;
}

void node_sizes(const model_node *node, const char *name, int *sizes, int count, int otherwise)
{
    const json_t *v = json_object_get(node->json, name);
    for (int i = 0; i < count; i++) {
        const json_t *one = json_is_array(v) ? json_array_get(v, (size_t)i) : v;
        sizes[i] = one ? (int)json_integer_value(one) : otherwise;
    }
}

void node_pair(const model_node *node, const char *name, int pair[2], int otherwise)
{
    node_sizes(node, name, pair, 2, otherwise);
}

int node_list(const model_node *node, const char *name, int64_t *list)
{
    const json_t *v = json_object_get(node->json, name);
    if (!v)
        return 0;
    if (json_is_integer(v)) {
        list[0] = json_integer_value(v);
        return 1;
    }
    const int count = (int)json_array_size(v);
    for (int i = 0; i < count; i++) {
        const json_t *one = json_array_get(v, (size_t)i);
        list[i] = json_is_null(one) ? CLT_TO_END : json_integer_value(one);
    }
    return count;
}

int node_ints(const model_node *node, const char *name, int *list)
{
    int64_t wide[NODE_LIST];
    const int count = node_list(node, name, wide);
    for (int i = 0; i < count; i++)
        list[i] = wide[i] < INT_MIN ? INT_MIN : wide[i] > INT_MAX ? INT_MAX : (int)wide[i];
    return count;
}

int node_has_none(const model_node *node, const char *names, const char *why)
{
    char name[64], kind[16];
    int must;
    while (next_attribute(&names, name, kind, &must))
        if (json_object_get(node->json, name)) {
            model_text_fail(node->text, node->json, name, "%s: '%s' has no use: %s", node->name,
                            name, why);
            return 0;
        }
    return 1;
}
