#include <stdio.h>
#include <string.h>

#include "graph/graph.h"

bool clt_type_has_batch(const clt_type *type)
{
    for (int i = 0; i < type->rank; i++)
        if (type->dims[i] < 0)
            return true;
    return false;
}

int64_t clt_type_elements(const clt_type *type, int64_t n)
{
    int64_t elements = 1;
    for (int i = 0; i < type->rank; i++)
        elements *= clt_dim(type->dims[i], n);
    return elements;
}

int64_t clt_type_coefficient(const clt_type *type)
{
    return clt_type_elements(type, 1);
}

bool clt_type_equal(const clt_type *a, const clt_type *b)
{
    return a->dtype == b->dtype && a->rank == b->rank &&
           !memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims);
}

const char *clt_type_text(const clt_type *type, char *text)
{
    int used = snprintf(text, CLT_TYPE_TEXT, "%s[", clt_dtype_name(type->dtype));
    for (int i = 0; i < type->rank && used < CLT_TYPE_TEXT - 32; i++) {
        const int64_t dim = type->dims[i];
        const char *sep = i ? "x" : "";
        if (dim == CLT_BATCH)
            used += snprintf(text + used, CLT_TYPE_TEXT - (size_t)used, "%sB", sep);
        else if (dim < 0)
            used += snprintf(text + used, CLT_TYPE_TEXT - (size_t)used, "%s%lldB", sep,
                             (long long)-dim);
        else
            used +=
                snprintf(text + used, CLT_TYPE_TEXT - (size_t)used, "%s%lld", sep, (long long)dim);
    }
    snprintf(text + used, CLT_TYPE_TEXT - (size_t)used, "]");
    return text;
}

const clt_value *clt_value_root(const clt_value *value)
{
    while (value->producer && value->producer->op->view)
        value = value->producer->in[0];
    return value;
}

bool clt_value_leads_with_batch(const clt_value *value)
{
    if (value->type.rank < 1 || value->type.dims[0] != CLT_BATCH)
        return false;
    for (int i = 1; i < value->type.rank; i++)
        if (value->type.dims[i] < 0)
            return false;
    return true;
}

int64_t clt_value_stored(const clt_value *value, int64_t n, int lanes)
{
    if (value->layout == CLT_LAYOUT_BATCH_BLOCKED)
        n = (n + lanes - 1) / lanes * lanes;
    return clt_type_elements(&value->type, n);
}
