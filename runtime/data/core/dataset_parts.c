/* Parts of a data set, such as the samples for validation. A part borrows fields and samples, and
 * has the numbers of its samples in the whole. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "data/core/dataset.h"

/* Keeps the draw of the validation samples apart from the orders of epochs, which the same seed
 * determines. */
static const int64_t DRAW_EPOCH = INT64_MAX;

void clt_dataset_translate(const clt_dataset *dataset, int64_t count, int64_t *indices)
{
    for (int64_t i = 0; dataset->map && i < count; i++)
        indices[i] = dataset->map[indices[i]];
}

int64_t clt_dataset_number(const clt_dataset *dataset, int64_t sample)
{
    if (dataset->map && sample >= 0 && sample < dataset->count)
        clt_dataset_translate(dataset, 1, &sample);
    return sample;
}

static clt_status copy_fields(const clt_dataset *whole, clt_dataset *part)
{
    for (int i = 0; i < whole->field_count; i++) {
        clt_data_field field = whole->fields[i];
        const char *const *names = (const char *const *)field.class_names;
        field.owned = NULL;
        field.class_names = NULL;
        CLT_TRY(clt_dataset_append_field(part, field.name, &field, NULL));
        if (names)
            CLT_TRY(clt_dataset_name_classes(part, i, names));
    }
    return CLT_OK;
}

/* Makes the part of the samples whose `held` is `wanted`. */
static clt_status make(clt_dataset *whole, const char *held, char wanted, const char *what,
                       clt_dataset **out)
{
    char name[512];
    int64_t count = 0;
    clt_dataset *d = NULL;
    for (int64_t i = 0; i < whole->count; i++)
        count += held[i] == wanted;
    snprintf(name, sizeof name, "%.400s%s", whole->name, what);
    CLT_TRY(clt_dataset_new(whole->kind, name, count, &d));
    d->whole = whole;
    d->fill = whole->fill;
    d->fetch = whole->fetch;
    d->augments = whole->augments;
    d->changes = whole->changes;
    d->user = whole->user;
    d->serial = whole->serial;
    d->payload = whole->payload; /* the whole frees it */
    d->map = clt_calloc((size_t)count, sizeof *d->map);
    clt_status status = d->map ? copy_fields(whole, d) : CLT_OUT_OF_MEMORY;
    if (status != CLT_OK) {
        clt_dataset_free(d);
        return status;
    }
    int64_t at = 0;
    for (int64_t i = 0; i < whole->count; i++)
        if (held[i] == wanted)
            d->map[at++] = i;
    *out = d;
    return CLT_OK;
}

/* Keeps the samples for validation out of means and deviations, which would tell training about
 * them. Loaders and earlier parts have the present ones. */
static clt_status refit(clt_dataset *whole, const char *held)
{
    if (!whole->refit)
        return CLT_OK;
    if (atomic_load(&whole->sealed))
        return clt_fail(CLT_STATE,
                        "data set '%s' has been read or divided already, and its means would "
                        "change: open it again",
                        whole->name);
    return whole->refit(whole, held);
}

/* Makes both parts from held[], which it frees. */
static clt_status make_both(clt_dataset *whole, char *held, clt_dataset **rest, clt_dataset **part)
{
    clt_dataset *others = NULL;
    clt_status status = refit(whole, held);
    CLT_NEXT(status, make(whole, held, 0, " without validation", &others));
    CLT_NEXT(status, make(whole, held, 1, " for validation", part));
    clt_free(held);
    if (status != CLT_OK) {
        clt_dataset_free(others);
        return status;
    }
    atomic_store(&whole->sealed, true); /* the parts have copies of the fields */
    *rest = others;
    return CLT_OK;
}

static clt_status check(const clt_dataset *d, const void *rest, const void *part)
{
    if (!d || !rest || !part)
        return clt_fail(CLT_INVALID_ARGUMENT, "a data set, or a place for its parts, is NULL");
    CLT_TRY(clt_dataset_need_fixed(d, "parts for validation"));
    if (d->whole)
        return clt_fail(CLT_INVALID_ARGUMENT, "data set '%s' is a part already: divide the whole",
                        d->name);
    if (d->changes)
        return clt_fail(CLT_UNSUPPORTED,
                        "data set '%s' has %s: those of training would cover tokens of validation; "
                        "take fixed windows, or validate on other files",
                        d->name, d->changes);
    return CLT_OK;
}

clt_status clt_dataset_split(clt_dataset *dataset, double fraction, int64_t seed,
                             clt_dataset **rest, clt_dataset **part)
{
    CLT_TRY(check(dataset, rest, part));
    if (!(fraction > 0 && fraction < 1))
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "data set '%s': a fraction of %g for validation: must be between 0 and 1",
                        dataset->name, fraction);
    const int64_t total = dataset->count;
    int64_t count = llround(fraction * (double)total);
    count = count < 1 ? 1 : count;
    if (count >= total)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "data set '%s': a fraction of %g for validation leaves none of its %lld "
                        "samples for training",
                        dataset->name, fraction, (long long)total);
    char *held = clt_calloc((size_t)total, 1);
    int64_t *drawn = clt_calloc((size_t)count, sizeof *drawn);
    clt_status status = held && drawn ? CLT_OK : CLT_OUT_OF_MEMORY;
    CLT_NEXT(status, clt_data_order(total, seed, DRAW_EPOCH, 1, 0, count, drawn));
    for (int64_t i = 0; status == CLT_OK && i < count; i++)
        held[drawn[i]] = 1;
    clt_free(drawn);
    if (status != CLT_OK) {
        clt_free(held);
        return status;
    }
    return make_both(dataset, held, rest, part);
}

static bool is_marked(const clt_data_field *f, int64_t i)
{
    return f->dtype == CLT_U8    ? ((const unsigned char *)f->data)[i] != 0
           : f->dtype == CLT_I32 ? ((const int32_t *)f->data)[i] != 0
                                 : ((const float *)f->data)[i] != 0;
}

clt_status clt_dataset_split_by(clt_dataset *dataset, const char *field, clt_dataset **rest,
                                clt_dataset **part)
{
    int number;
    int64_t marked = 0;
    CLT_TRY(check(dataset, rest, part));
    CLT_TRY(clt_dataset_find_field(dataset, field, &number));
    const clt_data_field *f = &dataset->fields[number];
    if (dataset->kind != CLT_DATA_HOST || f->elements != 1 ||
        (f->dtype != CLT_U8 && f->dtype != CLT_I32 && f->dtype != CLT_F32))
        return clt_fail(CLT_UNSUPPORTED,
                        "data set '%s', field '%s': marks for validation are one number a sample "
                        "(u8, i32 or f32) in the memory of the host",
                        dataset->name, field);
    CLT_TRY(clt_dataset_wait(dataset));
    char *held = clt_calloc((size_t)dataset->count, 1);
    CLT_TRY_MEMORY(held);
    for (int64_t i = 0; i < dataset->count; i++)
        marked += held[i] = (char)is_marked(f, i);
    if (!marked || marked == dataset->count) {
        clt_free(held);
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "data set '%s', field '%s': it marks %s samples for validation, so the %s "
                        "has none",
                        dataset->name, field, marked ? "all" : "no",
                        marked ? "training" : "validation");
    }
    return make_both(dataset, held, rest, part);
}
