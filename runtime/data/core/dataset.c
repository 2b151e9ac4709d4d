#include "data/core/dataset.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/array.h"
#include "base/error.h"
#include "base/thread.h"

clt_status clt_dataset_new(clt_data_kind kind, const char *name, int64_t count, clt_dataset **out)
{
    if (!name || !out)
        return clt_fail(CLT_INVALID_ARGUMENT, "a data set needs a name and a place for the result");
    if (count < 1)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "data set '%s': %lld samples, but it needs at least one", name,
                        (long long)count);
    clt_dataset *d = CLT_NEW(clt_dataset);
    CLT_TRY_MEMORY(d);
    d->kind = kind;
    d->count = count;
    d->name = clt_strdup(name);
    if (!d->name) {
        clt_free(d);
        return CLT_OUT_OF_MEMORY;
    }
    pthread_mutex_init(&d->fill_lock, NULL);
    pthread_mutex_init(&d->wait_lock, NULL);
    atomic_store(&d->ready, true);
    *out = d;
    return CLT_OK;
}

clt_status clt_dataset_create_arrays(const char *name, int64_t count, clt_dataset **out)
{
    return clt_dataset_new(CLT_DATA_HOST, name, count, out);
}

clt_status clt_dataset_create_callback(const char *name, int64_t count, clt_fill_fn fill,
                                       void *user, int serial, clt_dataset **out)
{
    if (!fill)
        return clt_fail(CLT_INVALID_ARGUMENT, "data set '%s': the callback is NULL",
                        name ? name : "");
    clt_dataset *d = NULL;
    CLT_TRY(clt_dataset_new(CLT_DATA_CALLBACK, name, count, &d));
    d->fill = fill;
    d->user = user;
    d->serial = serial != 0;
    *out = d;
    return CLT_OK;
}

clt_status clt_dataset_new_device(const char *name, int64_t count, void *payload,
                                  void (*payload_free)(void *payload), clt_dataset **out)
{
    clt_dataset *d = NULL;
    CLT_TRY(clt_dataset_new(CLT_DATA_DEVICE, name, count, &d));
    d->payload = payload;
    d->payload_free = payload_free;
    *out = d;
    return CLT_OK;
}

clt_status clt_dataset_new_fetched(const char *name, int64_t count, clt_fetch_fn fetch,
                                   void *payload, void (*payload_free)(void *payload),
                                   clt_dataset **out)
{
    clt_dataset *d = NULL;
    CLT_TRY(clt_dataset_new(CLT_DATA_CALLBACK, name, count, &d));
    d->fetch = fetch;
    d->payload = payload;
    d->payload_free = payload_free;
    *out = d;
    return CLT_OK;
}

static clt_status check_field(const clt_dataset *d, const char *name, clt_dtype dtype, int rank,
                              const int64_t *shape)
{
    if (!name || !*name)
        return clt_fail(CLT_INVALID_ARGUMENT, "data set '%s': a field needs a name", d->name);
    if (atomic_load(&d->sealed))
        return clt_fail(CLT_STATE, "data set '%s': field '%s' comes too late, a loader reads it",
                        d->name, name);
    for (int i = 0; i < d->field_count; i++)
        if (!strcmp(d->fields[i].name, name))
            return clt_fail(CLT_INVALID_ARGUMENT, "data set '%s' has a field '%s' already", d->name,
                            name);
    if (d->field_count == CLT_DATA_MAX_FIELDS)
        return clt_fail(CLT_INVALID_ARGUMENT, "data set '%s': field '%s' is one more than %d",
                        d->name, name, CLT_DATA_MAX_FIELDS);
    if (!clt_dtype_of_tensor(dtype))
        return clt_fail(CLT_INVALID_ARGUMENT, "data set '%s', field '%s': unknown element type %d",
                        d->name, name, (int)dtype);
    if (rank < 0 || rank > CLT_DATA_MAX_RANK || (rank && !shape))
        return clt_fail(CLT_SHAPE, "data set '%s', field '%s': rank %d is not in 0 to %d", d->name,
                        name, rank, CLT_DATA_MAX_RANK);
    return CLT_OK;
}

clt_status clt_dataset_measure_field(const clt_dataset *dataset, const char *name, clt_dtype dtype,
                                     int rank, const int64_t *shape, clt_data_field *out,
                                     int64_t *total)
{
    if (!dataset)
        return clt_fail(CLT_INVALID_ARGUMENT, "the data set is NULL");
    CLT_TRY(check_field(dataset, name, dtype, rank, shape));
    clt_data_field field = {.dtype = dtype, .rank = rank, .elements = 1};
    for (int i = 0; i < rank; i++) {
        field.shape[i] = shape[i];
        if (shape[i] < 1 || __builtin_mul_overflow(field.elements, shape[i], &field.elements))
            return clt_fail(CLT_SHAPE,
                            "data set '%s', field '%s': dimension %d is %lld: it must be at least "
                            "1, and the product must fit in 63 bits",
                            dataset->name, name, i, (long long)shape[i]);
    }
    if (__builtin_mul_overflow(field.elements, (int64_t)clt_dtype_size(dtype), &field.bytes) ||
        __builtin_mul_overflow(field.bytes, dataset->count, total))
        return clt_fail(CLT_SHAPE,
                        "data set '%s', field '%s': %lld samples of %lld elements are too large",
                        dataset->name, name, (long long)dataset->count, (long long)field.elements);
    *out = field;
    return CLT_OK;
}

clt_status clt_dataset_append_field(clt_dataset *dataset, const char *name,
                                    const clt_data_field *field, int *out)
{
    clt_data_field *place = &dataset->fields[dataset->field_count];
    char *copy = clt_strdup(name);
    CLT_TRY_MEMORY(copy);
    *place = *field;
    place->name = copy;
    if (out)
        *out = dataset->field_count;
    dataset->field_count++;
    return CLT_OK;
}

clt_status clt_dataset_add_field(clt_dataset *dataset, const char *name, clt_dtype dtype, int rank,
                                 const int64_t *shape, const void *data,
                                 clt_data_ownership ownership, int *out)
{
    clt_data_field field;
    int64_t total;
    CLT_TRY(clt_dataset_measure_field(dataset, name, dtype, rank, shape, &field, &total));
    if (dataset->kind == CLT_DATA_DEVICE)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "data set '%s', field '%s': the samples are in device memory: add the "
                        "field with clt_dataset_add_buffer",
                        dataset->name, name);
    if ((dataset->kind == CLT_DATA_HOST) != (data != NULL))
        return clt_fail(CLT_INVALID_ARGUMENT,
                        data ? "data set '%s', field '%s': an array was given, but the samples are "
                               "not in host memory"
                             : "data set '%s', field '%s': the array is NULL",
                        dataset->name, name);
    field.data = data;
    if (data && ownership == CLT_DATA_COPY) {
        field.owned = clt_alloc((size_t)total);
        if (!field.owned)
            return clt_fail_prefix(CLT_OUT_OF_MEMORY, "data set '%s', field '%s': ", dataset->name,
                                   name);
        memcpy(field.owned, data, (size_t)total);
        field.data = field.owned;
    }
    clt_status status = clt_dataset_append_field(dataset, name, &field, out);
    if (status != CLT_OK)
        clt_free(field.owned);
    return status;
}

static clt_status check_samples(const clt_dataset *d, const char *name, const clt_array *samples)
{
    char what[300];
    snprintf(what, sizeof what, "data set '%.120s', field '%.120s': its array", d->name,
             name ? name : "");
    CLT_TRY(clt_array_check(samples, what));
    if (samples->whole || samples->rank < 1)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "%s needs a shape, whose first dimension counts the "
                        "samples",
                        what);
    if (samples->shape[0] != d->count)
        return clt_fail(CLT_INVALID_ARGUMENT, "%s has %lld samples, and the data set %lld", what,
                        (long long)samples->shape[0], (long long)d->count);
    return CLT_OK;
}

clt_status clt_dataset_add_host_array(clt_dataset *dataset, const char *name,
                                      const clt_array *samples, clt_data_ownership ownership,
                                      int *out)
{
    CLT_TRY(check_samples(dataset, name, samples));
    const clt_dtype dtype = samples->dtype == CLT_F64   ? CLT_F32
                            : samples->dtype == CLT_I64 ? CLT_I32
                                                        : samples->dtype;
    const char *first = (const char *)samples->host + samples->offset;
    const int rank = samples->rank - 1;
    if (clt_array_in_place(samples, dtype))
        return clt_dataset_add_field(dataset, name, dtype, rank, samples->shape + 1, first,
                                     ownership, out);
    if (ownership == CLT_DATA_BORROW)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "data set '%s', field '%s': the array has gaps or another type, so it must "
                        "be copied (CLT_DATA_COPY)",
                        dataset->name, name);
    clt_array dense = clt_array_dense(NULL, dtype, samples->rank, samples->shape);
    dense.host = clt_alloc((size_t)dense.bytes + 1);
    CLT_TRY_MEMORY(dense.host);
    int field = -1;
    clt_status status = clt_array_copy(samples, &dense);
    if (status == CLT_OK)
        status = clt_dataset_add_field(dataset, name, dtype, rank, samples->shape + 1, dense.host,
                                       CLT_DATA_BORROW, &field);
    else
        clt_fail_prefix(status, "data set '%s', field '%s': ", dataset->name, name);
    if (status != CLT_OK) {
        clt_free(dense.host);
        return status;
    }
    dataset->fields[field].owned = dense.host;
    if (out)
        *out = field;
    return CLT_OK;
}

static clt_status check_index(const clt_dataset *d, int field)
{
    if (!d)
        return clt_fail(CLT_INVALID_ARGUMENT, "the data set is NULL");
    if (field < 0 || field >= d->field_count)
        return clt_fail(CLT_INVALID_ARGUMENT, "data set '%s': there is no field %d, it has %d",
                        d->name, field, d->field_count);
    return CLT_OK;
}

static void forget_class_names(clt_data_field *field)
{
    for (int64_t i = 0; field->class_names && i < field->classes; i++)
        clt_free(field->class_names[i]);
    clt_free(field->class_names);
    field->class_names = NULL;
}

clt_status clt_dataset_set_classes(clt_dataset *dataset, int field, int64_t classes)
{
    CLT_TRY(check_index(dataset, field));
    clt_data_field *f = &dataset->fields[field];
    if (f->dtype != CLT_U8 && f->dtype != CLT_I32)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "data set '%s', field '%s': labels are u8 or i32, not %s", dataset->name,
                        f->name, clt_dtype_name(f->dtype));
    if (classes < 1 || classes > INT32_MAX)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "data set '%s', field '%s': %lld classes: must be 1 to %d", dataset->name,
                        f->name, (long long)classes, INT32_MAX);
    if (atomic_load(&dataset->sealed))
        return clt_fail(CLT_STATE, "data set '%s': a loader reads it already", dataset->name);
    if (classes != f->classes)
        forget_class_names(f);
    f->classes = classes;
    return CLT_OK;
}

clt_status clt_dataset_set_image(clt_dataset *dataset, int field)
{
    CLT_TRY(check_index(dataset, field));
    clt_data_field *f = &dataset->fields[field];
    if (f->rank < 2)
        return clt_fail(CLT_SHAPE,
                        "data set '%s', field '%s': rank %d, but images have height and width",
                        dataset->name, f->name, f->rank);
    if (atomic_load(&dataset->sealed))
        return clt_fail(CLT_STATE, "data set '%s': a loader reads it already", dataset->name);
    f->image = true;
    return CLT_OK;
}

static void *run_in_background(void *argument)
{
    clt_dataset *d = argument;
    d->status = d->job->run(d->job);
    if (d->status != CLT_OK)
        snprintf(d->message, sizeof d->message, "%s", clt_error_message());
    return NULL;
}

clt_status clt_dataset_run_job(clt_dataset *dataset, clt_data_job *job, bool background)
{
    clt_status status;
    if (background) {
        dataset->job = job;
        atomic_store(&dataset->ready, false);
        const int error = clt_thread_start(&dataset->thread, run_in_background, dataset);
        if (!error) {
            dataset->thread_running = true;
            return CLT_OK;
        }
        status = clt_fail(CLT_OUT_OF_MEMORY, "a thread that reads '%s' cannot be started: %s",
                          dataset->name, strerror(error));
        dataset->job = NULL;
        atomic_store(&dataset->ready, true);
    } else {
        status = job->run(job);
    }
    job->destroy(job);
    return status;
}

clt_status clt_dataset_wait(clt_dataset *dataset)
{
    if (!dataset)
        return clt_fail(CLT_INVALID_ARGUMENT, "the data set is NULL");
    if (dataset->whole)
        return clt_dataset_wait(dataset->whole);
    if (!atomic_load_explicit(&dataset->ready, memory_order_acquire)) {
        pthread_mutex_lock(&dataset->wait_lock);
        if (dataset->thread_running) {
            pthread_join(dataset->thread, NULL);
            dataset->thread_running = false;
            dataset->job->destroy(dataset->job);
            dataset->job = NULL;
            atomic_store_explicit(&dataset->ready, true, memory_order_release);
        }
        pthread_mutex_unlock(&dataset->wait_lock);
    }
    if (dataset->status != CLT_OK)
        clt_error_restore(dataset->message);
    return dataset->status;
}

static void free_now(clt_dataset *dataset)
{
    if (dataset->thread_running) {
        atomic_store(&dataset->job->stop, true);
        pthread_join(dataset->thread, NULL);
        dataset->job->destroy(dataset->job);
    }
    for (int i = 0; i < dataset->field_count; i++) {
        forget_class_names(&dataset->fields[i]);
        CLT_FREE(dataset->fields[i].name, dataset->fields[i].owned);
    }
    if (dataset->payload_free)
        dataset->payload_free(dataset->payload);
    pthread_mutex_destroy(&dataset->fill_lock);
    pthread_mutex_destroy(&dataset->wait_lock);
    CLT_FREE(dataset->name, dataset->map, dataset->drawn, dataset->description, dataset->lacked_why,
             dataset);
}

void clt_dataset_free(clt_dataset *dataset)
{
    if (dataset && clt_in_use_free(&dataset->in_use))
        free_now(dataset);
}

void clt_dataset_hold(clt_dataset *dataset)
{
    for (; dataset; dataset = dataset->whole)
        clt_in_use_begin(&dataset->in_use);
}

void clt_dataset_let_go(clt_dataset *dataset)
{
    while (dataset) {
        clt_dataset *whole = dataset->whole;
        if (clt_in_use_end(&dataset->in_use))
            free_now(dataset);
        dataset = whole;
    }
}

/* Fetches samples one by one. fields[f] is the destination for field f. */
static clt_status fetch_all(clt_dataset *d, const clt_sample_key *key, const int64_t *indices,
                            int64_t count, void *const *fields)
{
    void *to[CLT_DATA_MAX_FIELDS] = {NULL};
    for (int64_t i = 0; i < count; i++) {
        for (int f = 0; f < d->field_count; f++)
            to[f] = fields[f] ? (char *)fields[f] + i * d->fields[f].bytes : NULL;
        CLT_TRY(d->fetch(d, key, indices[i], to));
    }
    return CLT_OK;
}

clt_status clt_dataset_fill(clt_dataset *dataset, const clt_sample_key *key, const int64_t *indices,
                            int64_t count, void *const *fields)
{
    if (dataset->fetch)
        return fetch_all(dataset, key, indices, count, fields);
    pthread_mutex_t *lock = dataset->whole ? &dataset->whole->fill_lock : &dataset->fill_lock;
    if (dataset->serial)
        pthread_mutex_lock(lock);
    /* Clears older messages: a message found after the call is the callback's own. */
    clt_error_restore("");
    clt_status status = dataset->fill(dataset->user, indices, count, fields);
    if (dataset->serial)
        pthread_mutex_unlock(lock);
    if (status == CLT_OK)
        return CLT_OK;
    if (*clt_error_message())
        return clt_fail_prefix(status, "data set '%s': the callback failed: ", dataset->name);
    return clt_fail(
        status,
        "data set '%s': the callback failed (%s) for %lld samples, the first of number %lld",
        dataset->name, clt_status_text(status), (long long)count, (long long)indices[0]);
}

const char *clt_dataset_name(const clt_dataset *dataset)
{
    return dataset->name;
}

clt_data_kind clt_dataset_kind(const clt_dataset *dataset)
{
    return dataset->kind;
}

const char *clt_dataset_description(const clt_dataset *dataset)
{
    return !dataset         ? NULL
           : dataset->whole ? clt_dataset_description(dataset->whole)
                            : dataset->description;
}

const char *clt_dataset_sample_file(const clt_dataset *dataset, int64_t index)
{
    if (dataset && dataset->whole && index >= 0 && index < dataset->count)
        return clt_dataset_sample_file(dataset->whole, dataset->map[index]);
    return dataset && dataset->sample_file && index >= 0 && index < dataset->count
               ? dataset->sample_file(dataset, index)
               : NULL;
}

int64_t clt_dataset_count(const clt_dataset *dataset)
{
    return dataset->present ? *dataset->present : dataset->count;
}

clt_status clt_dataset_need_fixed(const clt_dataset *dataset, const char *what)
{
    return dataset->kind != CLT_DATA_RESERVOIR
               ? CLT_OK
               : clt_fail(CLT_UNSUPPORTED,
                          "data set '%s' is a reservoir, whose samples change: %s need data of "
                          "another kind",
                          dataset->name, what);
}

int clt_dataset_field_count(const clt_dataset *dataset)
{
    return dataset->field_count;
}

clt_status clt_dataset_find_field(const clt_dataset *dataset, const char *name, int *out)
{
    if (!dataset || !name)
        return clt_fail(CLT_INVALID_ARGUMENT, "the data set or the field's name is NULL");
    const char *names[CLT_DATA_MAX_FIELDS];
    for (int i = 0; i < dataset->field_count; i++) {
        names[i] = dataset->fields[i].name;
        if (!strcmp(names[i], name)) {
            *out = i;
            return CLT_OK;
        }
    }
    if (dataset->lacked && !strcmp(name, dataset->lacked))
        return clt_fail(CLT_NOT_FOUND, "data set '%s' has no field '%s': %s", dataset->name, name,
                        dataset->lacked_why);
    const char *near = clt_nearest(name, names, dataset->field_count);
    return clt_fail(CLT_NOT_FOUND, "data set '%s' has no field '%s'%s%s%s", dataset->name, name,
                    near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

clt_status clt_dataset_field_info(const clt_dataset *dataset, int field, const char **name,
                                  clt_dtype *dtype, int *rank, int64_t *shape,
                                  int64_t *sample_bytes)
{
    CLT_TRY(check_index(dataset, field));
    const clt_data_field *f = &dataset->fields[field];
    if (name)
        *name = f->name;
    if (dtype)
        *dtype = f->dtype;
    if (rank)
        *rank = f->rank;
    for (int i = 0; shape && i < f->rank; i++)
        shape[i] = f->shape[i];
    if (sample_bytes)
        *sample_bytes = f->bytes;
    return CLT_OK;
}

int64_t clt_dataset_classes(const clt_dataset *dataset, int field)
{
    return check_index(dataset, field) == CLT_OK ? dataset->fields[field].classes : 0;
}

int clt_dataset_is_image(const clt_dataset *dataset, int field)
{
    return check_index(dataset, field) == CLT_OK && dataset->fields[field].image;
}

clt_status clt_dataset_field_data(clt_dataset *dataset, int field, const void **out)
{
    CLT_TRY(check_index(dataset, field));
    if (dataset->kind != CLT_DATA_HOST)
        return clt_fail(CLT_UNSUPPORTED,
                        "data set '%s', field '%s': samples are not in host memory", dataset->name,
                        dataset->fields[field].name);
    if (dataset->whole)
        return clt_fail(CLT_UNSUPPORTED,
                        "data set '%s', field '%s': the samples of a part do not lie together",
                        dataset->name, dataset->fields[field].name);
    CLT_TRY(clt_dataset_wait(dataset));
    *out = dataset->fields[field].data;
    return CLT_OK;
}
