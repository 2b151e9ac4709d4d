/* Model files: JSON that lists inputs, nodes, outputs, losses and metrics. docs/models.md
 * describes them. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "builders.h"
#include "node.h"

typedef struct named_value {
    const char *name; /* owned by the JSON tree */
    clt_value *value;
    int64_t classes; /* classes of an input of labels or tokens; else 0 */
} named_value;

typedef struct model_file {
    model_text text;
    const clt_model_input *in;
    clt_graph *graph;
    named_value *values; /* the inputs in use and the nodes */
    int n_values, room;
    json_t *numbers;  /* from a name to its index in `values` */
    json_t *prefixes; /* names of nodes and of their parameters' prefixes */
    clt_value *last;  /* value of the last node */
    int64_t classes;  /* value of "classes": classes of the input "label", else of the last input of
                         labels */
    int has_label;
} model_file;

/* Fails with the message of the graph or of a builder, and adds the line in the file. */
static clt_status fail_at(const model_file *f, const json_t *at, const char *what)
{
    char text[768];
    if (clt_graph_status(f->graph) == CLT_OUT_OF_MEMORY)
        return CLT_OUT_OF_MEMORY;
    snprintf(text, sizeof text, "%s", clt_error_message());
    if (!strncmp(text, f->text.path, strlen(f->text.path))) /* has the line already */
        return CLT_FORMAT;
    return model_text_fail(&f->text, at, NULL, "%s: %s", what, text);
}

static clt_status add_value(model_file *f, const char *name, clt_value *value, int64_t classes)
{
    if (f->n_values == f->room) {
        const int room = f->room ? 2 * f->room : 64;
        named_value *values = realloc(f->values, (size_t)room * sizeof *values);
        if (!values)
            return clt_model_fail(CLT_OUT_OF_MEMORY, "memory does not suffice");
        f->values = values;
        f->room = room;
    }
    if (!json_object_get(f->numbers, name) &&
        json_object_set_new(f->numbers, name, json_integer(f->n_values)))
        return clt_model_fail(CLT_OUT_OF_MEMORY, "memory does not suffice");
    f->values[f->n_values++] = (named_value){name, value, classes};
    return CLT_OK;
}

/* Finds a value by name. *classes is the number of classes of an input of labels, else 0. */
static clt_value *find_value(const model_file *f, const char *name, int64_t *classes)
{
    *classes = 0;
    const json_t *number = json_object_get(f->numbers, name);
    if (!number)
        return clt_graph_find(f->graph, name);
    const named_value *found = &f->values[json_integer_value(number)];
    *classes = found->classes;
    return found->value;
}

static clt_value *value_of(const model_file *f, const char *name)
{
    int64_t classes;
    return find_value(f, name, &classes);
}

static const char *text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

/* Reads an array of objects under a key of the file. An absent array is empty. */
static clt_status list_of(const model_file *f, const char *key, const json_t **out)
{
    size_t i;
    const json_t *list = json_object_get(f->text.root, key), *one;
    *out = list;
    if (list && !json_is_array(list))
        return model_text_fail(&f->text, f->text.root, key, "'%s' must be a list", key);
    json_array_foreach(list, i, one) if (!json_is_object(one)) return model_text_fail(
        &f->text, list, NULL, "'%s': entry %d is not an object", key, (int)i + 1);
    return CLT_OK;
}

/* --- inputs ---------------------------------------------------------------------------------- */

/* Reads an input. The data supplies the values that the file omits. */
static clt_status read_input(const model_file *f, const json_t *json, clt_model_field *field)
{
    static const clt_attribute keys[] = {
        {.name = "name", .kind = CLT_ATTRIBUTE_TEXT, .required = 1},
        {.name = "shape", .kind = CLT_ATTRIBUTE_TYPE},
        {.name = "type", .kind = CLT_ATTRIBUTE_TEXT},
        {.name = "classes", .kind = CLT_ATTRIBUTE_INT, .least = 1, .most = INT_MAX},
        {.name = "space", .kind = CLT_ATTRIBUTE_INT, .least = 1, .most = CLT_MAX_RANK - 1},
        {.name = "time", .kind = CLT_ATTRIBUTE_INT, .least = 1, .most = CLT_MAX_RANK - 1},
        {0}};
    const model_node node = {.op = &(model_op){.keys = keys}, .text = &f->text, .json = json};
    MODEL_TRY(model_node_check(&node, "an input"));
    const char *name = text_of(json, "name"), *type = text_of(json, "type");
    const clt_model_field *data = clt_model_field_find(f->in, name);
    const json_t *shape = json_object_get(json, "shape");
    if (!data && !f->in->n_fields && !shape)
        return model_text_fail(&f->text, json, "name",
                               "input '%s': no 'shape' here, and no data to take it from", name);
    if (!data && f->in->n_fields) {
        char text[512];
        clt_model_fields_text(f->in, text, sizeof text);
        return model_text_fail(&f->text, json, "name", "input '%s': the data have %s", name, text);
    }
    *field = data ? *data : (clt_model_field){.name = name};
    if (shape && (!json_is_array(shape) || json_array_size(shape) >= CLT_MAX_RANK))
        return model_text_fail(&f->text, json, "shape",
                               "input '%s': 'shape' must be a list of at most %d numbers, without "
                               "the batch",
                               name, CLT_MAX_RANK - 1);
    const int rank = shape ? (int)json_array_size(shape) : field->rank;
    int differs = data && rank != data->rank;
    for (int d = 0; shape && d < rank; d++) {
        const json_int_t size = json_integer_value(json_array_get(shape, (size_t)d));
        if (size < 1)
            return model_text_fail(&f->text, json, "shape",
                                   "input '%s': dimension %d must be a number of at least 1", name,
                                   d);
        differs = differs || (data && data->dims[d] != size);
        field->dims[d] = size;
    }
    field->rank = rank;
    if (differs) {
        char text[512];
        clt_model_fields_text(f->in, text, sizeof text);
        return model_text_fail(&f->text, json, "shape",
                               "input '%s' has another shape than the data, which have %s", name,
                               text);
    }
    const int64_t classes =
        data && !json_object_get(json, "classes") ? data->classes : node_int(&node, "classes");
    if (data && classes != data->classes)
        return model_text_fail(&f->text, json, "classes",
                               "input '%s' has %lld classes here, and %lld in the data", name,
                               (long long)classes, (long long)data->classes);
    field->classes = classes;
    if (type && strcmp(type, "f32") != 0 && strcmp(type, "i32") != 0)
        return model_text_fail(&f->text, json, "type", "input '%s': 'type' must be f32 or i32",
                               name);
    if (!data && !type)
        field->dtype = classes ? CLT_I32 : CLT_F32;
    if (!type)
        return CLT_OK;
    const clt_dtype wanted = *type == 'f' ? CLT_F32 : CLT_I32;
    if (data && clt_model_input_dtype(data) != wanted)
        return model_text_fail(&f->text, json, "type",
                               "input '%s' is %s here, and %s as the data are read; cast makes "
                               "another one of it",
                               name, type, clt_dtype_name(clt_model_input_dtype(data)));
    field->dtype = wanted;
    return CLT_OK;
}

static clt_status add_input(model_file *f, const clt_model_field *field, const json_t *at)
{
    clt_value *value = clt_model_input_of(f->graph, field);
    if (!value)
        return fail_at(f, at, field->name);
    /* Keep the classes of "label": CIFAR-100 has an input of coarse labels too. */
    if (field->classes && !f->has_label)
        f->classes = field->classes;
    f->has_label = f->has_label || !strcmp(field->name, "label");
    return add_value(f, field->name, value, field->classes);
}

/* Splits the input that was added last over the axes that the file names. */
static clt_status split_input(const model_file *f, const json_t *json)
{
    static const struct {
        const char *key;
        clt_axis axis;
    } axes[] = {{"space", CLT_AXIS_SPACE}, {"time", CLT_AXIS_TIME}};
    clt_value *value = f->values[f->n_values - 1].value;
    for (size_t i = 0; i < sizeof axes / sizeof *axes; i++) {
        const json_t *dim = json_object_get(json, axes[i].key);
        if (dim && clt_shard_value(value, axes[i].axis, (int)json_integer_value(dim)) != CLT_OK)
            return fail_at(f, json, axes[i].key);
    }
    return CLT_OK;
}

static clt_status read_inputs(model_file *f)
{
    const json_t *list, *one;
    size_t i;
    clt_status status = list_of(f, "inputs", &list);
    json_array_foreach(list, i, one)
    {
        clt_model_field field;
        MODEL_NEXT(status, read_input(f, one, &field));
        MODEL_NEXT(status, add_input(f, &field, one));
        MODEL_NEXT(status, split_input(f, one));
    }
    for (int j = 0; !list && status == CLT_OK && j < f->in->n_fields; j++)
        status = add_input(f, &f->in->fields[j], f->text.root);
    if (status == CLT_OK && !f->n_values)
        status = model_text_fail(&f->text, f->text.root, "inputs",
                                 "a model needs inputs: list them, with shapes, or give data");
    return status;
}

/* --- parameters ------------------------------------------------------------------------------ */

static clt_status read_init(const model_file *f, const json_t *json, clt_init *init)
{
    const json_t *v = json_object_get(json, "init");
    const json_t *normal = json_object_get(v, "normal");
    const json_t *uniform = json_object_get(v, "uniform");
    if (!v || json_is_number(v))
        *init = (clt_init){CLT_INIT_CONSTANT, json_number_value(v), 0};
    else if (json_object_size(v) == 1 && json_is_number(uniform))
        *init = (clt_init){CLT_INIT_UNIFORM, json_number_value(uniform), 0};
    else if (json_object_size(v) == 1 && json_is_number(normal))
        *init = (clt_init){CLT_INIT_NORMAL, 0, json_number_value(normal)};
    else
        return model_text_fail(&f->text, json, "init",
                               "'init' must be a number, {\"uniform\": BOUND} or {\"normal\": "
                               "STANDARD DEVIATION}");
    return CLT_OK;
}

static clt_status read_parameters(const model_file *f)
{
    const json_t *list, *one;
    size_t i;
    static const clt_attribute keys[] = {
        {.name = "name", .kind = CLT_ATTRIBUTE_TEXT, .required = 1},
        {.name = "shape", .kind = CLT_ATTRIBUTE_INT, .count = NODE_LIST, .list = 1, .required = 1},
        {.name = "init", .kind = CLT_ATTRIBUTE_TYPE},
        {0}};
    clt_status status = list_of(f, "parameters", &list);
    json_array_foreach(list, i, one)
    {
        const model_node node = {
            .op = &(model_op){.keys = keys}, .text = &f->text, .json = one, .classes = f->classes};
        int64_t dims[NODE_LIST];
        clt_init init;
        MODEL_TRY(status);
        MODEL_TRY(model_node_check(&node, "a parameter"));
        MODEL_TRY(read_init(f, one, &init));
        const int rank = node_list(&node, "shape", dims);
        if (!clt_parameter(f->graph, text_of(one, "name"), rank, dims, init))
            return fail_at(f, one, text_of(one, "name"));
    }
    return status;
}

/* --- nodes ----------------------------------------------------------------------------------- */

static clt_status unknown_value(const model_file *f, const json_t *json, const char *key,
                                const char *what, const char *name)
{
    const char **names = malloc(((size_t)f->n_values + 1) * sizeof *names);
    for (int i = 0; names && i < f->n_values; i++)
        names[i] = f->values[i].name;
    const char *near = names ? clt_nearest(name, names, f->n_values) : NULL;
    free((void *)names);
    return model_text_fail(&f->text, json, key,
                           "%s: no input, parameter or node before it is '%s'%s%s%s", what, name,
                           near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

/* Reads "in": a name or a list of names. Without the key, the operand is the previous node. */
static clt_status read_operands(const model_file *f, model_node *node, int least, int most)
{
    const json_t *in = json_object_get(node->json, "in");
    const size_t count = json_is_array(in) ? json_array_size(in) : most > 0 || in;
    if (count < (size_t)least || count > (size_t)most) {
        char range[48];
        snprintf(range, sizeof range, least == most ? "%d" : "%d to %d", least, most);
        return model_text_fail(&f->text, node->json, in ? "in" : NULL,
                               "%s: takes %s operands ('in'), not %d", node->name, range,
                               (int)count);
    }
    if (!in && !most)
        return CLT_OK;
    if (!in) {
        node->in[0] = f->last ? f->last : f->values[0].value;
        node->in_classes[0] = f->last ? 0 : f->values[0].classes;
        node->n_in = 1;
        return CLT_OK;
    }
    for (size_t i = 0; i < count; i++) {
        const char *name = json_string_value(json_is_array(in) ? json_array_get(in, i) : in);
        if (!name)
            return model_text_fail(&f->text, node->json, "in",
                                   "%s: 'in' must be a name or a list of names", node->name);
        node->in[i] = find_value(f, name, &node->in_classes[i]);
        if (!node->in[i])
            return unknown_value(f, node->json, "in", node->name, name);
    }
    node->n_in = (int)count;
    return CLT_OK;
}

/* Reads name and operator of an entry. `made` has room for a generated name. */
static clt_status begin_node(const model_file *f, const json_t *json, const char *list, size_t at,
                             char *made, size_t room, model_node *node)
{
    const json_t *op = json_object_get(json, "op"), *name = json_object_get(json, "name");
    *node = (model_node){.text = &f->text,
                         .json = json,
                         .graph = f->graph,
                         .classes = f->classes,
                         .ignore_index = f->in->ignore_index};
    if (!json_is_string(op))
        return model_text_fail(&f->text, json, op ? "op" : NULL,
                               "entry %d of '%s': 'op' must name an operator", (int)at + 1, list);
    if (name && (!json_is_string(name) || !*json_string_value(name)))
        return model_text_fail(&f->text, json, "name", "entry %d of '%s': 'name' must be a text",
                               (int)at + 1, list);
    snprintf(made, room, "%s%d", json_string_value(op), (int)at + 1);
    node->name = name ? json_string_value(name) : made;
    node->prefix = text_of(json, "parameters");
    if (!node->prefix)
        node->prefix = node->name;
    return CLT_OK;
}

static clt_status list_prefixes(model_file *f)
{
    const json_t *one;
    size_t i;
    int failed = 0;
    json_array_foreach(json_object_get(f->text.root, "nodes"), i, one)
    {
        const char *name = text_of(one, "name"), *prefix = text_of(one, "parameters");
        failed |= name && json_object_set_new(f->prefixes, name, json_true());
        failed |= prefix && json_object_set_new(f->prefixes, prefix, json_true());
    }
    return failed ? clt_model_fail(CLT_OUT_OF_MEMORY, "memory does not suffice") : CLT_OK;
}

/* Fails if the generated name of a node is already the name of another node or the prefix of its
 * parameters. */
static clt_status check_made_name(const model_file *f, const model_node *node)
{
    if (!json_object_get(f->prefixes, node->prefix))
        return CLT_OK;
    return model_text_fail(&f->text, node->json, NULL,
                           "two nodes would have the name %s; give this one another with 'name'",
                           node->prefix);
}

/* Keys of every node and of every loss. The type of "in" is checked when it is read. */
#define NODE_KEYS                                                                                  \
    {.name = "op", .kind = CLT_ATTRIBUTE_TEXT}, {.name = "name", .kind = CLT_ATTRIBUTE_TEXT},      \
    {                                                                                              \
        .name = "in", .kind = CLT_ATTRIBUTE_TYPE                                                   \
    }
static const clt_attribute node_keys[] = {NODE_KEYS, {0}};
static const clt_attribute loss_keys[] = {
    NODE_KEYS, {.name = "weight", .kind = CLT_ATTRIBUTE_REAL, .default_value = 1}, {0}};

static clt_status read_node(model_file *f, const json_t *json, size_t at)
{
    char made[128], what[256];
    const char *near = NULL;
    model_node node;
    MODEL_TRY(begin_node(f, json, "nodes", at, made, sizeof made, &node));
    const char *name = text_of(json, "op");
    model_op op;
    if (!model_op_find(name, &op, &near))
        return model_text_fail(&f->text, json, "op", "%s: there is no operator '%s'%s%s%s",
                               node.name, name, near ? "; did you mean " : "", near ? near : "",
                               near ? "?" : "");
    snprintf(what, sizeof what, "%s (%s)", node.name, op.name);
    node.op = &op;
    node.common = node_keys;
    MODEL_TRY(model_node_check(&node, what));
    if (node.prefix == made && op.has_parameters)
        MODEL_TRY(check_made_name(f, &node));
    MODEL_TRY(read_operands(f, &node, op.min_in, op.max_in));
    clt_error_set(CLT_OK, "");
    clt_value *value = model_op_build(&node);
    if (value && (json_object_get(json, "name") || op.has_parameters))
        value = clt_label(value, node.name);
    if (!value)
        return fail_at(f, json, what);
    f->last = value;
    const json_t *own = json_object_get(json, "name");
    if (own && value_of(f, json_string_value(own)))
        return model_text_fail(&f->text, json, "name", "%s: the name is taken", what);
    return own ? add_value(f, json_string_value(own), value, 0) : CLT_OK;
}

static clt_status read_nodes(model_file *f)
{
    const json_t *list, *one;
    size_t i;
    clt_status status = list_of(f, "nodes", &list);
    if (status == CLT_OK && !json_array_size(list))
        status = model_text_fail(&f->text, f->text.root, "nodes", "'nodes' has no entry");
    MODEL_NEXT(status, list_prefixes(f));
    json_array_foreach(list, i, one) if (status == CLT_OK) status = read_node(f, one, i);
    return status;
}

/* --- outputs, losses, metrics ------------------------------------------------------------------
 */

/* Reads {"logits": "fc2"}: names of results and of their nodes. Without the key, the last node is
 * "output". */
static clt_status read_outputs(const model_file *f)
{
    json_t *outputs = json_object_get(f->text.root, "outputs"), *one;
    const char *name;
    if (outputs && !json_is_object(outputs))
        return model_text_fail(&f->text, f->text.root, "outputs",
                               "'outputs' must be an object: {\"logits\": \"fc2\"}");
    if (!outputs)
        return clt_output(f->last, "output") ? CLT_OK : fail_at(f, f->text.root, "output");
    json_object_foreach(outputs, name, one)
    {
        const char *from = json_string_value(one);
        clt_value *value = from ? value_of(f, from) : NULL;
        if (!from)
            return model_text_fail(&f->text, outputs, name, "output '%s' must name a node", name);
        if (!value)
            return unknown_value(f, outputs, name, name, from);
        if (!clt_output(value, name))
            return fail_at(f, outputs, name);
    }
    return CLT_OK;
}

/* The name of a loss or metric. If the first entry has no name, it is "loss" or the metric's
 * operator. Later entries get the operator's name and their number. */
static const char *mean_name(const json_t *json, size_t at, int is_loss, char made[128])
{
    const char *name = text_of(json, "name"), *op = text_of(json, "op");
    if (name)
        return name;
    if (!at)
        return is_loss ? "loss" : op;
    snprintf(made, 128, "%s%d", op, (int)at + 1);
    return made;
}

static clt_status read_mean(const model_file *f, const json_t *json, const char *list, size_t at,
                            int is_loss)
{
    char made[128], other[128];
    const char *near = NULL;
    model_node node;
    clt_value *sum, *weight;
    MODEL_TRY(begin_node(f, json, list, at, made, sizeof made, &node));
    node.name = mean_name(json, at, is_loss, made);
    const char *name = text_of(json, "op");
    model_op op;
    if (!model_mean_find(name, is_loss, &op, &near))
        return model_text_fail(&f->text, json, "op", "%s: there is no %s '%s'%s%s%s", node.name,
                               is_loss ? "loss" : "metric", name, near ? "; did you mean " : "",
                               near ? near : "", near ? "?" : "");
    node.op = &op;
    node.common = is_loss ? loss_keys : node_keys;
    node.class_weights = is_loss ? f->in->class_weights : NULL;
    MODEL_TRY(model_node_check(&node, node.name));
    for (size_t i = 0; i < at; i++) {
        const json_t *before = json_array_get(json_object_get(f->text.root, list), i);
        if (!strcmp(mean_name(before, i, is_loss, other), node.name))
            return model_text_fail(&f->text, json, "name", "%s: the name is taken", node.name);
    }
    MODEL_TRY(read_operands(f, &node, op.min_in, op.max_in));
    clt_status status = model_mean_build(&node, &sum, &weight);
    MODEL_NEXT(status, is_loss
                           ? clt_loss(f->graph, node.name, sum, weight, node_real(&node, "weight"))
                           : clt_metric(f->graph, node.name, sum, weight));
    return status == CLT_OK ? CLT_OK : fail_at(f, json, node.name);
}

static clt_status read_means(const model_file *f, const char *key, int is_loss)
{
    const json_t *list, *one;
    size_t i;
    int weighted = !is_loss || !f->in->class_weights;
    clt_status status = list_of(f, key, &list);
    if (status == CLT_OK && is_loss && !json_array_size(list))
        status = model_text_fail(&f->text, f->text.root, key, "'%s' has no entry", key);
    json_array_foreach(list, i, one) if (status == CLT_OK)
    {
        status = read_mean(f, one, key, i, is_loss);
        weighted = weighted || !strcmp(text_of(one, "op"), "cross_entropy");
    }
    if (status == CLT_OK && !weighted)
        status = model_text_fail(&f->text, f->text.root, key,
                                 "weights of classes need a loss cross_entropy");
    return status;
}

/* Reads which parameters an axis of the mesh splits. */
static clt_status read_split(const model_file *f, const json_t *json)
{
    static const clt_attribute keys[] = {
        {.name = "parameters", .kind = CLT_ATTRIBUTE_TEXT, .required = 1},
        {.name = "dim", .kind = CLT_ATTRIBUTE_INT, .least = 0, .most = CLT_MAX_RANK - 1},
        {.name = "blocks", .kind = CLT_ATTRIBUTE_INT, .least = 1, .most = 256, .default_value = 1},
        {0}};
    const model_node node = {.op = &(model_op){.keys = keys}, .text = &f->text, .json = json};
    MODEL_TRY(model_node_check(&node, "an entry of 'tp'"));
    const clt_status status =
        clt_shard(f->graph, text_of(json, "parameters"), CLT_AXIS_TENSOR,
                  (int)node_int(&node, "dim"), (int)node_int(&node, "blocks"), NULL);
    return status == CLT_OK ? CLT_OK : fail_at(f, json, "tp");
}

static clt_status read_splits(const model_file *f)
{
    const json_t *list, *one;
    size_t i;
    clt_status status = list_of(f, "tp", &list);
    json_array_foreach(list, i, one) if (status == CLT_OK) status = read_split(f, one);
    return status;
}

/* Reads the layers at which stages of a pipeline begin. */
static clt_status read_stages(const model_file *f)
{
    const json_t *list = json_object_get(f->text.root, "pp"), *one;
    char patterns[4096] = "";
    size_t i, length = 0;
    if (!list)
        return CLT_OK;
    json_array_foreach(list, i, one)
    {
        const char *pattern = json_string_value(one);
        const int room = (int)(sizeof patterns - length);
        const int n =
            snprintf(patterns + length, (size_t)room, "%s%s", i ? "|" : "", pattern ? pattern : "");
        if (!pattern || strchr(pattern, '|') || n >= room)
            break;
        length += (size_t)n;
    }
    if (!length || i < json_array_size(list))
        return model_text_fail(&f->text, f->text.root, "pp",
                               "'pp' must be a list of patterns, one for each stage but the first");
    const clt_status status = clt_cut_before(f->graph, patterns);
    return status == CLT_OK ? CLT_OK : fail_at(f, list, "pp");
}

static clt_status check_keys(const model_file *f)
{
    static const clt_attribute keys[] = {
        {.name = "nodes", .kind = CLT_ATTRIBUTE_TYPE, .required = 1},
        {.name = "losses", .kind = CLT_ATTRIBUTE_TYPE, .required = 1},
        {.name = "inputs", .kind = CLT_ATTRIBUTE_TYPE},
        {.name = "parameters", .kind = CLT_ATTRIBUTE_TYPE},
        {.name = "outputs", .kind = CLT_ATTRIBUTE_TYPE},
        {.name = "metrics", .kind = CLT_ATTRIBUTE_TYPE},
        {.name = "tp", .kind = CLT_ATTRIBUTE_TYPE},
        {.name = "pp", .kind = CLT_ATTRIBUTE_TYPE},
        {.name = "name", .kind = CLT_ATTRIBUTE_TEXT},
        {0}};
    const model_node node = {
        .op = &(model_op){.keys = keys}, .text = &f->text, .json = f->text.root};
    return model_node_check(&node, "a model file");
}

clt_status clt_model_file_build(const char *path, const clt_model_input *in, clt_graph *graph)
{
    model_file f = {.in = in, .graph = graph};
    clt_status status = model_text_read(path, &f.text);
    if (status != CLT_OK)
        return status;
    f.numbers = json_object();
    f.prefixes = json_object();
    status = f.numbers && f.prefixes ? check_keys(&f)
                                     : clt_model_fail(CLT_OUT_OF_MEMORY, "memory does not suffice");
    MODEL_NEXT(status, read_inputs(&f));
    MODEL_NEXT(status, read_parameters(&f));
    MODEL_NEXT(status, read_nodes(&f));
    MODEL_NEXT(status, read_stages(&f)); /* outputs give nodes other names */
    MODEL_NEXT(status, read_means(&f, "losses", 1));
    MODEL_NEXT(status, read_means(&f, "metrics", 0));
    MODEL_NEXT(status, read_outputs(&f));
    MODEL_NEXT(status, read_splits(&f));
    free(f.values);
    json_decref(f.numbers);
    json_decref(f.prefixes);
    model_text_free(&f.text);
    return status;
}
