/* Operators of model files by name: numbers, masks, indices and parts of tensors. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "node.h"

/* A tensor of one number, which broadcasts unless a shape is given. */
static clt_value *build_constant(const model_node *n)
{
    int64_t dims[NODE_LIST] = {1}, elements = 1;
    const int rank = node_list(n, "shape", dims), most = 1 << 24;
    for (int i = 0; i < rank; i++) {
        if (dims[i] < 1 || dims[i] > most || elements * dims[i] > most || rank > CLT_MAX_RANK) {
            model_text_fail(n->text, n->json, "shape",
                            "%s: 'shape' must be at most %d numbers of at least 1, of %d elements "
                            "in all",
                            n->name, CLT_MAX_RANK, most);
            return NULL;
        }
        elements *= dims[i];
    }
    float *data = malloc((size_t)elements * sizeof *data);
    for (int64_t i = 0; data && i < elements; i++)
        data[i] = (float)node_real(n, "number", 0);
    clt_value *value = data ? clt_constant(n->graph, CLT_F32, rank ? rank : 1, dims, data) : NULL;
    if (!data)
        clt_error_set(CLT_OUT_OF_MEMORY, "memory does not suffice");
    free(data);
    return value;
}

/* --- element by element ----------------------------------------------------------------------- */

MODEL_UNARY(ln)
MODEL_UNARY(rsqrt)
MODEL_UNARY(detach)
MODEL_UNARY(logical_not)
MODEL_BINARY(eq)
MODEL_BINARY(ne)
MODEL_BINARY(lt)
MODEL_BINARY(le)
MODEL_BINARY(gt)
MODEL_BINARY(ge)
MODEL_BINARY(logical_and)
MODEL_BINARY(logical_or)
MODEL_BINARY(logical_xor)

/* The second operand, or a number. */
static clt_value *build_pow(const model_node *n)
{
    const json_t *exponent = json_object_get(n->json, "exponent");
    if (!exponent == (n->n_in < 2)) {
        model_text_fail(n->text, n->json, NULL,
                        "%s: give the exponent, either as a number or as a second operand",
                        n->name);
        return NULL;
    }
    return exponent ? clt_pow_scalar(n->in[0], json_number_value(exponent))
                    : clt_pow(n->in[0], n->in[1]);
}

static clt_value *build_clamp(const model_node *n)
{
    return clt_clamp(n->in[0], node_real(n, "min", -INFINITY), node_real(n, "max", INFINITY));
}

static clt_value *build_where(const model_node *n)
{
    return clt_where(n->in[0], n->in[1], n->in[2]);
}

static clt_value *build_cast(const model_node *n)
{
    static const struct {
        const char *name;
        clt_dtype type;
    } types[] = {{"f32", CLT_F32}, {"i32", CLT_I32}, {"u8", CLT_U8}};
    const char *wanted = json_string_value(json_object_get(n->json, "to"));
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(wanted, types[i].name))
            return clt_cast(n->in[0], types[i].type);
    model_text_fail(n->text, n->json, "to", "%s: 'to' must be f32, i32 or u8", n->name);
    return NULL;
}

static clt_value *build_cosine_similarity(const model_node *n)
{
    return clt_cosine_similarity(n->in[0], n->in[1], (int)node_int(n, "axis", 1),
                                 node_real(n, "eps", 1e-8));
}

/* --- indices ---------------------------------------------------------------------------------- */

static clt_value *build_gather(const model_node *n)
{
    return clt_gather(n->in[0], (int)node_int(n, "axis", 1), n->in[1]);
}

static clt_value *build_scatter_add(const model_node *n)
{
    return clt_scatter_add(n->in[0], (int)node_int(n, "axis", 1), n->in[1], n->in[2]);
}

static clt_value *build_index_select(const model_node *n)
{
    return clt_index_select(n->in[0], (int)node_int(n, "axis", 1), n->in[1]);
}

static clt_value *build_index_add(const model_node *n)
{
    return clt_index_add(n->in[0], (int)node_int(n, "axis", 1), n->in[1], n->in[2]);
}

/* --- parts ------------------------------------------------------------------------------------ */

static clt_value *build_stack(const model_node *n)
{
    return clt_stack(n->in, n->n_in, (int)node_int(n, "axis", 1));
}

/* A node is one value, so it is one of the parts. What is not used costs nothing. */
static clt_value *build_split(const model_node *n)
{
    int64_t sizes[NODE_LIST];
    clt_value *parts[NODE_LIST];
    const int count = node_list(n, "sizes", sizes), part = (int)node_int(n, "part", 0);
    if (part < 0 || part >= count) {
        model_text_fail(n->text, n->json, "part", "%s: 'part' must be 0 to %d", n->name, count - 1);
        return NULL;
    }
    clt_split_with_sizes(n->in[0], sizes, count, (int)node_int(n, "axis", 1), parts);
    return parts[part];
}

static const model_op ops[] = {
    {"constant", 0, 0, "number:real! shape:ints", build_constant},
    {"log", 1, 1, "", build_ln},
    {"rsqrt", 1, 1, "", build_rsqrt},
    {"pow", 1, 2, "exponent:real", build_pow},
    {"clamp", 1, 1, "min:real max:real", build_clamp},
    {"detach", 1, 1, "", build_detach},
    {"cast", 1, 1, "to:text!", build_cast},
    {"eq", 2, 2, "", build_eq},
    {"ne", 2, 2, "", build_ne},
    {"lt", 2, 2, "", build_lt},
    {"le", 2, 2, "", build_le},
    {"gt", 2, 2, "", build_gt},
    {"ge", 2, 2, "", build_ge},
    {"logical_and", 2, 2, "", build_logical_and},
    {"logical_or", 2, 2, "", build_logical_or},
    {"logical_xor", 2, 2, "", build_logical_xor},
    {"logical_not", 1, 1, "", build_logical_not},
    {"where", 3, 3, "", build_where},
    {"cosine_similarity", 2, 2, "axis:int eps:real", build_cosine_similarity},
    {"gather", 2, 2, "axis:int", build_gather},
    {"scatter_add", 3, 3, "axis:int", build_scatter_add},
    {"index_select", 2, 2, "axis:int", build_index_select},
    {"index_add", 3, 3, "axis:int", build_index_add},
    {"stack", 1, NODE_OPERANDS, "axis:int", build_stack},
    {"split", 1, 1, "sizes:ints! part:int! axis:int", build_split},
};

const model_op_list model_tensor_ops = {ops, sizeof ops / sizeof *ops};
