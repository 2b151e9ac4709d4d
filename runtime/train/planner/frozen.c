#include "train/planner/frozen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cltrain/checkpoint.h>

#include <jansson.h>

#include "base/alloc.h"
#include "device/core/device.h"
#include "train/ranks/world.h"

static void identify(const clt_device *device, char *text)
{
    snprintf(text, CLT_SPLIT_IDENTITY, "%s, %s, %s, %d compute units", device->caps.platform,
             device->caps.name, device->caps.driver, device->caps.compute_units);
}

void clt_split_identify(clt_device *const *devices, int count, char *identities)
{
    for (int d = 0; d < count; d++)
        identify(devices[d], identities + (size_t)d * CLT_SPLIT_IDENTITY);
}

/* Gathers the identity of the k-th device of every rank that has one. */
static clt_status tell_identity(clt_participants *all, const clt_store *store, int k)
{
    char own[CLT_SPLIT_IDENTITY] = "";
    void *told;
    if (k < all->own)
        identify(store->replicas[k].device, own);
    CLT_TRY(clt_ranks_gather(all->world, own, sizeof own, &told));
    for (int r = 0; r < all->ranks; r++)
        if (all->begins[r] + k < all->begins[r + 1])
            memcpy(all->identities + (size_t)(all->begins[r] + k) * sizeof own,
                   (const char *)told + (size_t)r * sizeof own, sizeof own);
    clt_free(told);
    return CLT_OK;
}

clt_status clt_split_identities(clt_participants *all, const clt_store *store)
{
    int widest = 0;
    if (all->ranks == 1)
        return CLT_OK;
    all->identities = clt_calloc((size_t)all->total, CLT_SPLIT_IDENTITY);
    CLT_TRY(clt_world_agree(all, all->identities ? CLT_OK : CLT_OUT_OF_MEMORY));
    for (int r = 0; r < all->ranks; r++) {
        const int wide = all->begins[r + 1] - all->begins[r];
        widest = wide > widest ? wide : widest;
    }
    for (int k = 0; k < widest; k++)
        CLT_TRY(tell_identity(all, store, k));
    return CLT_OK;
}

static bool add_number(json_t *list, double value)
{
    return json_array_append_new(list, json_real(value)) == 0;
}

/* Steps count from 1 in the file, as in metrics. */
static json_t *pack_history(const clt_split_history *h)
{
    json_t *changes = json_array();
    for (int i = 0; changes && h && i < h->count; i++) {
        json_t *list = json_array();
        bool good = list != NULL;
        for (int d = 0; good && d < h->n; d++)
            good = add_number(list, h->weights[i * h->n + d]);
        json_t *change = json_pack("{s:I, s:o, s:I}", "step", (json_int_t)h->steps[i] + 1,
                                   "weights", list, "quantum", (json_int_t)h->quanta[i]);
        if (!good || json_array_append_new(changes, change)) {
            json_decref(changes);
            changes = NULL;
        }
    }
    return changes;
}

#define DAMAGED "the section \"" CLT_SECTION_SPLIT "\" of the checkpoint's state.json is damaged: "

static clt_status read_change(const json_t *change, int count, double *weights,
                              clt_split_history **history)
{
    const json_t *list = json_object_get(change, "weights");
    const int64_t step = json_integer_value(json_object_get(change, "step")),
                  quantum = json_integer_value(json_object_get(change, "quantum"));
    if (json_array_size(list) != (size_t)count || step < 1 || quantum < 1)
        return clt_fail(CLT_FORMAT,
                        DAMAGED
                        "a change lacks its step, its quantum, or a weight for each of %d devices",
                        count);
    for (int d = 0; d < count; d++)
        weights[d] = json_number_value(json_array_get(list, (size_t)d));
    return clt_split_history_add(history, count, step - 1, weights, quantum);
}

/* A section without "ranks" is of one rank. */
static size_t ranks_in(const json_t *all)
{
    const json_t *ranks = json_object_get(all, "ranks");
    return ranks ? json_array_size(ranks) : 1;
}

clt_status clt_split_read_history(const char *section, int ranks, int count,
                                  clt_split_history **history)
{
    *history = NULL;
    double *weights = clt_calloc((size_t)count, sizeof *weights);
    CLT_TRY_MEMORY(weights);
    json_t *all = json_loads(section, 0, NULL);
    const json_t *changes = json_object_get(all, "changes");
    const bool same = json_array_size(json_object_get(all, "devices")) == (size_t)count &&
                      ranks_in(all) == (size_t)ranks;
    clt_status status = CLT_OK;
    for (size_t i = 0; same && status == CLT_OK && i < json_array_size(changes); i++)
        status = read_change(json_array_get(changes, i), count, weights, history);
    json_decref(all);
    clt_free(weights);
    if (status != CLT_OK) {
        clt_split_history_free(*history);
        *history = NULL;
    }
    return status;
}

/* Adds the number of devices of each rank. */
static bool add_ranks(json_t *all, const clt_division *d)
{
    json_t *ranks = json_array();
    bool good = ranks != NULL;
    for (int r = 0; good && r < d->ranks; r++)
        good = json_array_append_new(ranks, json_integer(d->begins[r + 1] - d->begins[r])) == 0;
    return json_object_set_new(all, "ranks", ranks) == 0 && good;
}

clt_status clt_split_to_json(const clt_division *v, char **out)
{
    json_t *names = json_array(), *list = json_array(), *changes = pack_history(v->history);
    bool good = names && list && changes;
    for (int d = 0; good && d < v->count; d++) {
        const char *name = v->identities + (size_t)d * CLT_SPLIT_IDENTITY;
        good = json_array_append_new(names, json_string(name)) == 0;
        if (v->weights)
            good = good && add_number(list, v->weights[d]);
    }
    json_t *all = json_pack("{s:o, s:o, s:I, s:o, s:I, s:I}", "devices", names, "weights", list,
                            "quantum", (json_int_t)v->quantum, "changes", changes, "per_device",
                            (json_int_t)(v->history ? v->per_device : 0), "bucket_bytes",
                            (json_int_t)v->bucket_bytes);
    if (v->begins)
        good = good && all && add_ranks(all, v);
    char *text = good && all ? json_dumps(all, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(all);
    *out = text ? clt_strdup(text) : NULL;
    free(text); /* allocated by jansson */
    return *out ? CLT_OK : CLT_OUT_OF_MEMORY;
}

/* --- reading --------------------------------------------------------------------------------- */

/* Returns the first free device with that identity; -1 if there is none. */
static int find_device(clt_device *const *devices, int count, const char *name, const int *place)
{
    for (int d = 0; d < count; d++) {
        char own[CLT_SPLIT_IDENTITY];
        identify(devices[d], own);
        if (place[d] < 0 && !strcmp(own, name))
            return d;
    }
    return -1;
}

/* Sets place[d] to the device's number in [begin, end) of the checkpoint's list; -1 if it is not in
 * the list. */
static clt_status find_places(const json_t *names, size_t begin, size_t end,
                              clt_device *const *devices, int count, int *place)
{
    int last = -1;
    for (int d = 0; d < count; d++)
        place[d] = -1;
    for (size_t i = begin; i < end; i++) {
        const char *name = json_string_value(json_array_get(names, i));
        const int d = name ? find_device(devices, count, name, place) : -1;
        /* In another order the devices would get each other's shares. */
        if (d < 0 || d < last)
            return clt_fail(CLT_MISMATCH,
                            "the checkpoint's division of batches is of other devices (%.200s)",
                            name ? name : "without a name");
        place[d] = (int)i;
        last = d;
    }
    return CLT_OK;
}

/* Finds this rank's part of the list of devices. */
static clt_status find_part(const json_t *all, const clt_world *world, size_t n, size_t *begin,
                            size_t *end)
{
    const json_t *ranks = json_object_get(all, "ranks");
    const int count = world ? world->ranks : 1, own = world ? world->rank : 0;
    *begin = 0;
    *end = n;
    if (ranks_in(all) != (size_t)count)
        return clt_fail(CLT_MISMATCH,
                        "the checkpoint's division of batches is of %zu ranks, and this run has %d",
                        ranks_in(all), count);
    size_t all_ranks = ranks ? 0 : n;
    for (int r = 0; ranks && r < count; r++) {
        const json_int_t devices = json_integer_value(json_array_get(ranks, (size_t)r));
        if (devices < 1 || (size_t)devices > n - all_ranks)
            return clt_fail(CLT_FORMAT, DAMAGED "it has no devices of rank %d", r);
        if (r == own)
            *begin = all_ranks;
        all_ranks += (size_t)devices;
        if (r == own)
            *end = all_ranks;
    }
    return all_ranks == n ? CLT_OK
                          : clt_fail(CLT_FORMAT, DAMAGED "it has more devices than its ranks");
}

/* Every listed device is one of a rank's devices, so there are no more weights than devices. */
static clt_status read_split(const json_t *all, const clt_world *world, clt_device *const *devices,
                             int count, int *use, double *weights, int64_t *quantum, int *uneven)
{
    const json_t *names = json_object_get(all, "devices"), *list = json_object_get(all, "weights");
    const int64_t read = json_integer_value(json_object_get(all, "quantum"));
    const size_t n = json_array_size(names), n_weights = json_array_size(list);
    size_t begin, end;
    if (n < 1 || read < 1 || (n_weights && n_weights != n))
        return clt_fail(CLT_FORMAT, DAMAGED
                        "it lacks devices, a quantum of at least 1, or a weight for each device");
    CLT_TRY(find_part(all, world, n, &begin, &end));
    CLT_TRY(find_places(names, begin, end, devices, count, use));
    for (size_t i = 0; i < n; i++)
        weights[i] = n_weights ? json_number_value(json_array_get(list, i)) : 1;
    for (int d = 0; d < count; d++)
        use[d] = use[d] >= 0;
    *quantum = read;
    *uneven = n_weights > 0;
    return CLT_OK;
}

static clt_status read_section(const char *section, const clt_world *world,
                               clt_device *const *devices, int count, int *use, double *weights,
                               int64_t *quantum, int64_t *per_device, int *uneven)
{
    json_error_t error;
    json_t *all = json_loads(section, 0, &error);
    const size_t listed = json_array_size(json_object_get(all, "devices"));
    int *found = clt_calloc((size_t)count, sizeof *found);
    double *read = clt_calloc(listed + 1, sizeof *read);
    clt_status status = found && read ? CLT_OK : CLT_OUT_OF_MEMORY;
    if (status == CLT_OK && !all)
        status = clt_fail(CLT_FORMAT, DAMAGED "%s", error.text);
    CLT_NEXT(status, read_split(all, world, devices, count, found, read, quantum, uneven));
    /* All ranks accept the section, or none does. */
    status = clt_ranks_agree(world, status, NULL);
    if (status == CLT_OK) {
        *per_device = json_integer_value(json_object_get(all, "per_device"));
        memcpy(use, found, (size_t)count * sizeof *use);
        memcpy(weights, read, listed * sizeof *weights);
    }
    CLT_FREE(found, read);
    json_decref(all);
    return status;
}

/* Copies rank 0's section to all ranks. */
static clt_status tell_section(const char *section, const clt_world *world, char **out)
{
    int64_t bytes = section ? (int64_t)strlen(section) + 1 : 1;
    CLT_TRY(clt_ranks_agree(world, CLT_OK, &bytes));
    char *own = clt_calloc((size_t)bytes, 1);
    clt_status status = clt_ranks_agree(world, own ? CLT_OK : CLT_OUT_OF_MEMORY, NULL);
    void *all = NULL;
    if (status == CLT_OK && section && (!world || world->rank == 0))
        memcpy(own, section, (size_t)bytes);
    CLT_NEXT(status, clt_ranks_gather(world, own, (size_t)bytes, &all));
    clt_free(own);
    *out = all;
    return status;
}

clt_status clt_split_frozen(const char *section, const clt_world *world, clt_device *const *devices,
                            int count, int *use, double *weights, int64_t *quantum,
                            int64_t *per_device, int *uneven)
{
    char *told;
    CLT_TRY(tell_section(section, world, &told));
    const clt_status status =
        *told ? read_section(told, world, devices, count, use, weights, quantum, per_device, uneven)
              : clt_fail(CLT_NOT_FOUND, "the checkpoint has no division of batches");
    clt_free(told);
    return status;
}

/* Sections of older runs lack "bucket_bytes". Their buckets had the default size. */
static clt_status read_buckets(const char *section, int64_t *bucket_bytes)
{
    json_error_t error;
    json_t *all = json_loads(section, 0, &error);
    const json_t *bytes = json_object_get(all, "bucket_bytes");
    const int64_t read = bytes ? json_integer_value(bytes) : CLT_BUCKET_BYTES;
    clt_status status = CLT_OK;
    if (!all)
        status = clt_fail(CLT_FORMAT, DAMAGED "%s", error.text);
    else if (read < 1)
        status = clt_fail(CLT_FORMAT, DAMAGED "\"bucket_bytes\" is below 1");
    else
        *bucket_bytes = read;
    json_decref(all);
    return status;
}

clt_status clt_split_frozen_buckets(const char *section, const clt_world *world,
                                    int64_t *bucket_bytes)
{
    char *told;
    CLT_TRY(tell_section(section, world, &told));
    const clt_status status =
        *told ? read_buckets(told, bucket_bytes)
              : clt_fail(CLT_NOT_FOUND, "the checkpoint has no division of batches");
    clt_free(told);
    return status;
}
