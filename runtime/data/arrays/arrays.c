#include "data/arrays/arrays.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/vec.h"

static const char TRAIN[] = "_train", TEST[] = "_test";

int64_t clt_array_bytes(const clt_stored_array *a)
{
    int64_t bytes = a->bytes;
    for (int i = 0; i < a->rank; i++)
        bytes *= a->shape[i];
    return bytes;
}

/* Finds the element type of the field made from an array. False if no field can be made. */
static bool dtype_of(const clt_stored_array *a, clt_dtype *dtype)
{
    *dtype = a->type == 'f' ? CLT_F32 : a->type == 'i' ? CLT_I32 : CLT_U8;
    return (a->type == 'u' && a->bytes == 1) ||
           ((a->type == 'f' || a->type == 'i') && (a->bytes == 4 || a->bytes == 8));
}

clt_status clt_arrays_add(clt_array_file *file, const clt_stored_array *a, const char *dtype)
{
    clt_dtype unused;
    int64_t bytes = a->bytes;
    if (strchr(a->name, '\n')) /* it would forge a line of a listing */
        return clt_fail(CLT_FORMAT, "%s: the name of an array has a line break: rename the array",
                        file->path);
    if (!dtype_of(a, &unused))
        return clt_fail(CLT_UNSUPPORTED,
                        "%s: array '%s': elements of type %s; there are: f4, f8 (as f32), i4, i8 "
                        "(as i32) and u1",
                        file->path, a->name, dtype);
    if (a->rank < 1 || a->rank > CLT_DATA_MAX_RANK + 1)
        return clt_fail(
            CLT_FORMAT,
            "%s: array '%s': has %d axes: must have 1 to %d, the first of them over samples",
            file->path, a->name, a->rank, CLT_DATA_MAX_RANK + 1);
    for (int i = 0; i < a->rank; i++)
        if (a->shape[i] < 1 || __builtin_mul_overflow(bytes, a->shape[i], &bytes))
            return clt_fail(
                CLT_FORMAT,
                "%s: array '%s': axis %d has %lld elements: at least 1, and the product "
                "must fit in 63 bits",
                file->path, a->name, i, (long long)a->shape[i]);
    return CLT_PUSH(file->arrays, file->count, file->room, *a);
}

/* --- which arrays ----------------------------------------------------------------------------- */

static bool ends_so(const char *name, const char *ending)
{
    const size_t a = strlen(name), b = strlen(ending);
    return a > b && !strcmp(name + a - b, ending);
}

/* Finds whether arrays are named by splits, such as x_train and x_test. If one is, all must be. */
static clt_status find_suffixes(const clt_array_file *file, bool *suffixes)
{
    int with = 0, without = -1;
    for (int i = 0; i < file->count; i++)
        if (ends_so(file->arrays[i].name, TRAIN) || ends_so(file->arrays[i].name, TEST))
            with++;
        else
            without = i;
    *suffixes = with > 0;
    if (with && without >= 0)
        return clt_fail(CLT_FORMAT,
                        "%s: array '%s': its name must end in _train or _test, as names of other "
                        "arrays here do",
                        file->path, file->arrays[without].name);
    return CLT_OK;
}

/* --- elements --------------------------------------------------------------------------------- */

static clt_status too_large(const clt_array_file *file, const clt_stored_array *a, int64_t sample,
                            int64_t value)
{
    return clt_fail(CLT_FORMAT, "%s: array '%s': %lld in sample %lld does not fit in 32 bits",
                    file->path, a->name, (long long)value, (long long)sample);
}

/* Converts `count` samples from sample `first` on, with `n` elements each. */
static clt_status convert(const clt_array_file *file, const clt_stored_array *a, const void *raw,
                          int64_t first, int64_t count, void *to)
{
    const int64_t n = clt_array_bytes(a) / a->bytes / a->shape[0], end = count * n;
    if (a->bytes != 8) {
        memcpy(to, (const char *)raw + first * n * a->bytes, (size_t)(end * a->bytes));
        return CLT_OK;
    }
    const double *f64 = (const double *)raw + first * n;
    const int64_t *i64 = (const int64_t *)raw + first * n;
    for (int64_t i = 0; i < end; i++)
        if (a->type == 'f' && isfinite(f64[i]) && fabs(f64[i]) > FLT_MAX)
            return clt_fail(CLT_FORMAT, "%s: array '%s': %g in sample %lld does not fit in f32",
                            file->path, a->name, f64[i], (long long)(first + i / n));
        else if (a->type == 'f')
            ((float *)to)[i] = (float)f64[i];
        else if (i64[i] < INT32_MIN || i64[i] > INT32_MAX)
            return too_large(file, a, first + i / n, i64[i]);
        else
            ((int32_t *)to)[i] = (int32_t)i64[i];
    return CLT_OK;
}

static int64_t label_at(const clt_stored_array *a, const void *raw, int64_t i)
{
    return a->bytes == 8   ? ((const int64_t *)raw)[i]
           : a->bytes == 4 ? ((const int32_t *)raw)[i]
                           : ((const unsigned char *)raw)[i];
}

/* Sets the classes of the field "label", which has one number for each sample. There is one class
 * more than the largest label in the whole array. More classes than samples look like a wrong
 * label. */
static clt_status set_classes(clt_dataset *d, const clt_array_file *file, const clt_stored_array *a,
                              const void *raw, const clt_data_request *r)
{
    const int64_t said = r->options->classes, most = said ? said : a->shape[0];
    int64_t largest = 0;
    for (int64_t i = 0; i < a->shape[0]; i++) {
        const int64_t label = label_at(a, raw, i);
        if (label < 0 || label >= most)
            return clt_fail(CLT_FORMAT,
                            "%s: array '%s': label %lld of sample %lld is out of range: 0 to "
                            "%lld%s",
                            file->path, a->name, (long long)label, (long long)i,
                            (long long)most - 1,
                            said || label < 0 ? ""
                                              : ", as many as there are samples; if it is right, "
                                                "give the number of classes");
        largest = label > largest ? label : largest;
    }
    return clt_dataset_set_classes(d, d->field_count - 1, said ? said : largest + 1);
}

static clt_status add_field(clt_dataset *d, const clt_array_file *file, const clt_stored_array *a,
                            const clt_data_request *r, size_t name_length, int64_t first)
{
    clt_dtype dtype = CLT_F32;
    char name[sizeof a->name];
    void *raw = NULL, *to;
    dtype_of(a, &dtype);
    memcpy(name, a->name, name_length);
    name[name_length] = '\0';
    CLT_TRY(clt_dataset_add_owned(d, name, dtype, a->rank - 1, a->shape + 1, &to));
    clt_status status = file->read(file, a, &raw);
    CLT_NEXT(status, convert(file, a, raw, first, d->count, to));
    if (status == CLT_OK && !strcmp(name, "image") && a->rank > 2)
        status = clt_dataset_set_image(d, d->field_count - 1);
    if (status == CLT_OK && !strcmp(name, "label") && a->rank == 1 && dtype != CLT_F32)
        status = set_classes(d, file, a, raw, r);
    clt_free(raw);
    return status;
}

clt_status clt_arrays_open(const clt_array_file *file, const clt_data_request *r, bool divided,
                           clt_dataset **out)
{
    bool suffixes = false;
    const char *ending = r->test ? TEST : TRAIN;
    int64_t total = 0, first = 0, count;
    const clt_stored_array *leader = NULL;
    CLT_TRY(divided || r->all ? CLT_OK : find_suffixes(file, &suffixes));
    for (int i = 0; i < file->count; i++) {
        const clt_stored_array *a = &file->arrays[i];
        if (suffixes && !ends_so(a->name, ending))
            continue;
        if (leader && a->shape[0] != total)
            return clt_fail(CLT_FORMAT, "%s: array '%s' has %lld samples, but '%s' has %lld",
                            file->path, a->name, (long long)a->shape[0], leader->name,
                            (long long)total);
        leader = a;
        total = a->shape[0];
    }
    if (!leader)
        return clt_fail(CLT_FORMAT, "%s: has no arrays for the split %s", file->path,
                        r->test ? "test" : "train");
    count = total;
    if (!divided && !suffixes && !r->all)
        CLT_TRY(clt_data_tenths(file->path, total, r->test, &first, &count));
    clt_dataset *d;
    CLT_TRY(clt_dataset_new(CLT_DATA_HOST, r->name, count, &d));
    clt_status status = CLT_OK;
    for (int i = 0; status == CLT_OK && i < file->count; i++) {
        const clt_stored_array *a = &file->arrays[i];
        const size_t length = strlen(a->name);
        if (!suffixes || ends_so(a->name, ending))
            status = add_field(d, file, a, r, suffixes ? length - strlen(ending) : length, first);
    }
    if (status == CLT_OK)
        *out = d;
    else
        clt_dataset_free(d);
    return status;
}
