/* Helpers that the layer operators share. */
#include "ops/core/nn.h"

#include <limits.h>
#include <string.h>

#include "base/error.h"
#include <cltrain/ops.h>

void clt_options_init(const clt_op *op, void *options)
{
    clt_attributes_init(op, options);
    memcpy(options, &op->attr_bytes, sizeof op->attr_bytes); /* struct_size */
}

clt_status clt_options_read(const char *op, void *own, size_t own_bytes, const void *given)
{
    if (!given)
        return CLT_OK;
    size_t bytes;
    memcpy(&bytes, given, sizeof bytes);
    if (bytes != own_bytes)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "%s: struct_size of the options is %zu, not %zu: set them up with the "
                        "init function of the library in use",
                        op, bytes, own_bytes);
    memcpy(own, given, bytes);
    return CLT_OK;
}

bool clt_options_given(const char *op, const clt_value *x, void *own, size_t own_bytes,
                       const void *given)
{
    const clt_status status = clt_options_read(op, own, own_bytes, given);
    if (status != CLT_OK)
        clt_graph_failed(x->graph, status);
    return status == CLT_OK;
}

bool clt_entries(const clt_op *op, const clt_value *x, const char *name, int64_t *list, int count,
                 int64_t default_value)
{
    const int rank = x->type.rank;
    for (int i = count; count == 0 && i < rank; i++)
        list[i] = default_value;
    if (count != 0 && count != rank)
        clt_graph_failed(x->graph,
                         clt_fail(CLT_SHAPE, "%s: '%s' has %d entries, and x has %d dimensions",
                                  op->name, name, count, rank));
    return count == 0 || count == rank;
}

const char *clt_operand_text(const clt_node *node, int operand, char *text)
{
    if (operand >= node->n_in || !node->in[operand])
        return "none";
    return clt_type_text(&node->in[operand]->type, text);
}

const char *clt_flatten_hint(const clt_type *a, const clt_type *b)
{
    return a->rank == b->rank || a->dims[0] != b->dims[0]
               ? ""
               : ": a flatten is missing before the last linear layer, or before this loss";
}

clt_status clt_check_f32(const clt_node *node, int operand)
{
    char text[CLT_TYPE_TEXT];
    if (node->in[operand]->type.dtype == CLT_F32)
        return CLT_OK;
    return clt_fail(CLT_INVALID_ARGUMENT, "%s: operand %d must be f32, not %s: cast it first",
                    node->op->name, operand, clt_operand_text(node, operand, text));
}

clt_status clt_check_bias(const clt_node *node)
{
    char tb[CLT_TYPE_TEXT], tw[CLT_TYPE_TEXT];
    if (node->n_in < 3 || !node->in[2])
        return CLT_OK;
    CLT_TRY(clt_check_f32(node, 2));
    const clt_type *bias = &node->in[2]->type;
    if (bias->rank == 1 && bias->dims[0] == node->in[1]->type.dims[0])
        return CLT_OK;
    return clt_fail(CLT_SHAPE, "%s: the bias %s does not fit the weight %s", node->op->name,
                    clt_operand_text(node, 2, tb), clt_operand_text(node, 1, tw));
}

clt_status clt_check_image(const clt_node *node, int operand, int from)
{
    const clt_type *type = &node->in[operand]->type;
    char text[CLT_TYPE_TEXT];
    int64_t elements = 1;
    for (int i = from; i < type->rank; i++) {
        if (type->dims[i] < 0)
            return clt_fail(CLT_SHAPE,
                            "%s: operand %d is %s: only its dimensions before %d may depend on "
                            "the batch",
                            node->op->name, operand, clt_type_text(type, text), from);
        elements *= type->dims[i];
    }
    if (elements > INT_MAX)
        return clt_fail(CLT_UNSUPPORTED,
                        "%s: operand %d is %s: more than %d elements from dimension %d on",
                        node->op->name, operand, clt_type_text(type, text), INT_MAX, from);
    return CLT_OK;
}

const char *clt_storage_name(clt_dtype type)
{
    return type == CLT_F32 ? "f" : type == CLT_F16 ? "h" : type == CLT_BF16 ? "w" : NULL;
}

int64_t clt_dims_product(const clt_type *type, int from, int to)
{
    int64_t product = 1;
    bool batch = false;
    for (int i = from; i < to; i++) {
        product *= type->dims[i] < 0 ? -type->dims[i] : type->dims[i];
        batch = batch || type->dims[i] < 0;
    }
    return batch ? -product : product;
}

clt_value *clt_row_as_image(const char *op, const char *what, clt_value *value)
{
    const clt_type *type = &value->type;
    char text[CLT_TYPE_TEXT];
    if (type->rank != 3 || type->dims[2] < 0)
        return clt_graph_failed(value->graph, clt_fail(CLT_SHAPE,
                                                       "%s: the %s %s must have 3 dimensions, the "
                                                       "last of which is constant",
                                                       op, what, clt_type_text(type, text)));
    const int64_t dims[4] = {type->dims[0], type->dims[1], 1, type->dims[2]};
    return clt_reshape(value, 4, dims);
}

clt_value *clt_image_as_row(clt_value *image)
{
    if (!image)
        return NULL;
    const int64_t *d = image->type.dims, dims[3] = {d[0], d[1], d[3]};
    return clt_reshape(image, 3, dims);
}
