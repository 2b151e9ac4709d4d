/*
 * Arrays of Fortran as arrays of the library. The compiler describes an actual argument by a C
 * descriptor (Fortran 2018, 18.5). Its layout differs between compilers, so programs compile this
 * file with the C compiler that belongs to their Fortran compiler.
 *
 * Fortran's first dimension varies fastest, C's last one: the order of dimensions is reversed.
 */
#include "arrays.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns the element type; -1 if there is none. Compilers number types of the same bytes alike or
 * not, so several numbers stand for one type. */
static int dtype_of(const CFI_cdesc_t *a)
{
    const CFI_type_t type = a->type;
    if (type == CFI_type_float)
        return CLT_F32;
    if (type == CFI_type_double)
        return CLT_F64;
    if (type == CFI_type_int8_t || type == CFI_type_signed_char)
        return CLT_U8;
    if (type == CFI_type_int32_t || type == CFI_type_int)
        return CLT_I32;
    if (type == CFI_type_int64_t || type == CFI_type_long || type == CFI_type_long_long)
        return a->elem_len == 8 ? CLT_I64 : CLT_I32;
    return -1;
}

static const char *type_name(const CFI_cdesc_t *a)
{
    const CFI_type_t type = a->type;
    if (type == CFI_type_float_Complex || type == CFI_type_double_Complex ||
        type == CFI_type_long_double_Complex)
        return "complex";
    if (type == CFI_type_Bool || (type & 0xff) == (CFI_type_Bool & 0xff))
        return "logical";
    if (type == CFI_type_char)
        return "character";
    if (type == CFI_type_int16_t || type == CFI_type_short)
        return "integer(2)";
    if (type == CFI_type_long_double)
        return "real of more than 8 bytes";
    if (type == CFI_type_struct)
        return "a derived type";
    return "a type of its own";
}

static clt_status refuse(const char *call, const char *what, const char *why)
{
    char text[300];
    snprintf(text, sizeof text, "%s: array %s %s", call, what, why);
    return clt_error_set(CLT_INVALID_ARGUMENT, text);
}

clt_status clt_f_array(const char *call, const char *what, const CFI_cdesc_t *a, clt_array *out)
{
    char text[200];
    const int dtype = dtype_of(a);
    if (dtype < 0) {
        snprintf(text, sizeof text,
                 "is %s; the library takes real(4), real(8), integer(1), integer(4) and integer(8)",
                 type_name(a));
        return refuse(call, what, text);
    }
    if (a->rank > CLT_MAX_RANK) {
        snprintf(text, sizeof text, "has rank %d; the library takes ranks up to %d", (int)a->rank,
                 CLT_MAX_RANK);
        return refuse(call, what, text);
    }
    memset(out, 0, sizeof *out);
    out->host = a->base_addr;
    out->dtype = (clt_dtype)dtype;
    out->rank = a->rank;
    int64_t elements = 1;
    for (int d = 0; d < a->rank; d++) {
        const CFI_dim_t *dim = &a->dim[a->rank - 1 - d];
        if (dim->extent < 0)
            return refuse(call, what,
                          "has assumed size (*), so its size is unknown; give a section "
                          "with bounds, such as x(1:n)");
        out->shape[d] = dim->extent;
        out->strides[d] = dim->sm;
        elements *= dim->extent;
    }
    if (!a->base_addr) {
        /* Arrays without elements may have no address. The library does not read it. */
        static char nothing[8];
        if (elements)
            return refuse(call, what, "is not allocated or not associated");
        out->host = nothing;
    }
    return CLT_OK;
}

clt_status clt_f_memory(const char *call, const char *what, const CFI_cdesc_t *a, void **memory,
                        size_t *bytes)
{
    clt_array array;
    const clt_status status = clt_f_array(call, what, a, &array);
    if (status != CLT_OK)
        return status;
    if (!clt_array_is_dense(&array))
        return refuse(call, what, "is a section with gaps; this call needs a contiguous array");
    *memory = array.host;
    *bytes = (size_t)(clt_array_elements(&array) * clt_dtype_size(array.dtype));
    return CLT_OK;
}

size_t clt_f_array_bytes(void)
{
    return sizeof(clt_array);
}

/* A list of feeds or fetches under construction. */
struct clt_f_list {
    char call[48];
    int n, room;
    clt_feed *entries;
    clt_array *arrays; /* of clt_f_list_arrays */
    clt_status status;
};

_Static_assert(sizeof(clt_feed) == sizeof(clt_fetch) &&
                   offsetof(clt_feed, array) == offsetof(clt_fetch, array),
               "one list serves feeds and fetches");

clt_f_list *clt_f_list_new(const char *call)
{
    clt_f_list *list = calloc(1, sizeof *list);
    if (list)
        snprintf(list->call, sizeof list->call, "%s", call);
    else
        (void)clt_error_set(CLT_OUT_OF_MEMORY, "memory does not suffice for a list of arrays");
    return list;
}

void clt_f_list_add(clt_f_list *list, const char *name, const CFI_cdesc_t *a)
{
    if (!list || list->status != CLT_OK)
        return;
    if (list->n == list->room) {
        clt_feed *entries = realloc(list->entries, (size_t)(list->n + 8) * sizeof *entries);
        if (!entries) {
            list->status = clt_error_set(CLT_OUT_OF_MEMORY, "memory does not suffice for arrays");
            return;
        }
        list->entries = entries;
        list->room = list->n + 8;
    }
    clt_feed *entry = &list->entries[list->n];
    *entry = (clt_feed){.device = -1};
    list->status = clt_f_array(list->call, name, a, &entry->array);
    if (list->status != CLT_OK)
        return;
    entry->name = strdup(name);
    if (entry->name)
        list->n++;
    else
        list->status = clt_error_set(CLT_OUT_OF_MEMORY, "memory does not suffice for a name");
}

void clt_f_list_refuse(clt_f_list *list, const char *text)
{
    char line[160];
    if (!list || list->status != CLT_OK)
        return;
    snprintf(line, sizeof line, "%s: %s", list->call, text);
    list->status = clt_error_set(CLT_INVALID_ARGUMENT, line);
}

int64_t clt_f_list_samples(const clt_f_list *list)
{
    for (int i = 0; i < list->n; i++)
        if (list->entries[i].array.rank > 0)
            return list->entries[i].array.shape[0];
    return list->n ? -1 : 0;
}

clt_status clt_f_list_get(const clt_f_list *list, const clt_feed **entries, int *count)
{
    if (!list)
        return CLT_OUT_OF_MEMORY;
    if (list->status == CLT_OK) {
        *entries = list->entries;
        *count = list->n;
    }
    return list->status;
}

clt_status clt_f_list_arrays(clt_f_list *list, const clt_array **arrays, int *count)
{
    const clt_feed *entries = NULL;
    const clt_status status = clt_f_list_get(list, &entries, count);
    if (status != CLT_OK)
        return status;
    free(list->arrays);
    list->arrays = malloc((size_t)(*count + 1) * sizeof *list->arrays);
    if (!list->arrays)
        return clt_error_set(CLT_OUT_OF_MEMORY, "memory does not suffice for arrays");
    for (int i = 0; i < *count; i++)
        list->arrays[i] = entries[i].array;
    *arrays = list->arrays;
    return CLT_OK;
}

void clt_f_list_free(clt_f_list *list)
{
    if (!list)
        return;
    free(list->arrays);
    for (int i = 0; i < list->n; i++)
        free((void *)list->entries[i].name);
    free(list->entries);
    free(list);
}

/* Copies an array to dense memory of a type that graphs have, and adds a constant. */
clt_status clt_f_constant(clt_graph *graph, const CFI_cdesc_t *a, clt_value **value)
{
    clt_array from, to;
    clt_status status = clt_f_array("clt_constant", "data", a, &from);
    *value = NULL;
    if (status != CLT_OK)
        return status;
    const clt_dtype dtype = from.dtype == CLT_F64   ? CLT_F32
                            : from.dtype == CLT_I64 ? CLT_I32
                                                    : from.dtype;
    void *memory = malloc((size_t)(clt_array_elements(&from) + 1) * 8);
    if (!memory)
        return clt_error_set(CLT_OUT_OF_MEMORY, "memory does not suffice for a constant");
    status = clt_array_of(&to, memory, dtype, from.rank, from.shape);
    if (status == CLT_OK)
        status = clt_array_copy(&from, &to);
    if (status == CLT_OK) {
        *value = clt_constant(graph, dtype, from.rank, from.shape, memory);
        status = *value ? CLT_OK : clt_graph_status(graph);
    }
    free(memory);
    return status;
}
