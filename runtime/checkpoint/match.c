/* Checks that a file holds the tensors of a model. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/tensor.h"

static bool is_float(clt_file_dtype dtype)
{
    return dtype == CLT_FILE_F16 || dtype == CLT_FILE_BF16 || dtype == CLT_FILE_F32 ||
           dtype == CLT_FILE_F64;
}

static bool narrowed(const clt_tensor *file, const clt_tensor *wanted)
{
    return file->dtype == CLT_FILE_I64 && wanted->dtype == CLT_FILE_I32;
}

static bool same(const clt_tensor *file, const clt_tensor *wanted, int flags)
{
    bool types = file->dtype == wanted->dtype ||
                 (flags & CLT_MATCH_FLOATS && is_float(file->dtype) && is_float(wanted->dtype)) ||
                 (flags & CLT_MATCH_INTEGERS && narrowed(file, wanted));
    return types && file->rank == wanted->rank &&
           memcmp(file->dims, wanted->dims, (size_t)file->rank * sizeof *file->dims) == 0;
}

static int compare_pointers(const void *a, const void *b)
{
    return strcmp((*(const clt_tensor *const *)a)->name, (*(const clt_tensor *const *)b)->name);
}

/* Fails if the file has a tensor that the model does not have. */
static clt_status find_extra(const clt_tensors *t, const clt_tensor *expected, int count)
{
    const clt_tensor **sorted = count ? clt_calloc((size_t)count, sizeof *sorted) : NULL;
    if (count && !sorted)
        return CLT_OUT_OF_MEMORY;
    for (int i = 0; i < count; i++)
        sorted[i] = &expected[i];
    if (count)
        qsort(sorted, (size_t)count, sizeof *sorted, compare_pointers);
    clt_status status = CLT_OK;
    for (int i = 0; status == CLT_OK && i < clt_tensors_count(t); i++) {
        const clt_tensor *item = clt_tensors_at(t, i);
        clt_short_text name, shape;
        if (!count || !bsearch(&item, sorted, (size_t)count, sizeof *sorted, compare_pointers))
            status = clt_fail(CLT_MISMATCH,
                              "%s: tensor %s, %s, is not part of the model: the file "
                              "belongs to another one",
                              clt_tensors_path(t), clt_label_of(&name, item->name),
                              clt_label_shape(&shape, item));
    }
    clt_free(sorted);
    return status;
}

static clt_status check_integers(const clt_tensors *t, const clt_tensor *found)
{
    clt_tensor loaded = *found;
    void *owned;
    CLT_TRY(clt_tensors_load(t, found, &loaded.data, &owned));
    const clt_status status = clt_tensor_fits_i32(&loaded);
    clt_free(owned);
    return status == CLT_OK ? CLT_OK : clt_fail_prefix(CLT_MISMATCH, "%s: ", clt_tensors_path(t));
}

clt_status clt_tensors_match(const clt_tensors *t, const clt_tensor *expected, int count, int flags)
{
    for (int i = 0; i < count; i++) {
        clt_short_text name, want, have;
        clt_label_of(&name, expected[i].name);
        clt_label_shape(&want, &expected[i]);
        const clt_tensor *found = clt_tensors_lookup(t, expected[i].name);
        if (!found)
            return clt_fail(CLT_MISMATCH,
                            "%s: tensor %s, %s in the model, is not in the file: it "
                            "belongs to another model",
                            clt_tensors_path(t), name.text, want.text);
        if (!same(found, &expected[i], flags))
            return clt_fail(CLT_MISMATCH,
                            "%s: tensor %s is %s in the file and %s in the model: it "
                            "belongs to another model",
                            clt_tensors_path(t), name.text, clt_label_shape(&have, found),
                            want.text);
        if (narrowed(found, &expected[i]))
            CLT_TRY(check_integers(t, found));
    }
    return flags & CLT_MATCH_EXTRA ? CLT_OK : find_extra(t, expected, count);
}

/* Returns the first element that differs; -1: none does. */
static int64_t first_difference(const clt_tensor *tensor, const char *x, const char *y)
{
    const int64_t bytes = clt_tensor_bytes(tensor);
    for (int64_t i = 0; i < bytes; i++)
        if (x[i] != y[i])
            return i / clt_file_dtype_size(tensor->dtype);
    return -1;
}

clt_status clt_tensors_check_tied(const clt_tensors *tensors, const clt_tensor *copy,
                                  const char *name)
{
    const clt_tensor *own = clt_tensors_lookup(tensors, name);
    if (!own) /* clt_tensors_match reports it as missing */
        return CLT_OK;
    clt_short_text label, a, b;
    clt_label_of(&label, copy->name);
    if (own->dtype != copy->dtype || own->rank != copy->rank ||
        memcmp(own->dims, copy->dims, (size_t)own->rank * sizeof *own->dims))
        return clt_fail(CLT_MISMATCH,
                        "%s: tensor %s is %s, and %s is %s, but the model has one tensor for both",
                        clt_tensors_path(tensors), label.text, clt_label_shape(&a, copy), name,
                        clt_label_shape(&b, own));
    const void *x = NULL, *y = NULL;
    void *owned[2] = {NULL, NULL};
    clt_status status = clt_tensors_load(tensors, own, &x, &owned[0]);
    CLT_NEXT(status, clt_tensors_load(tensors, copy, &y, &owned[1]));
    const int64_t at = status == CLT_OK ? first_difference(own, x, y) : -1;
    CLT_FREE(owned[0], owned[1]);
    if (at >= 0)
        return clt_fail(CLT_MISMATCH,
                        "%s: tensor %s differs from %s, first in element %lld, but the model has "
                        "one tensor for both: the file is of a model whose output layer is not "
                        "tied to its embedding",
                        clt_tensors_path(tensors), label.text, name, (long long)at);
    return status;
}
