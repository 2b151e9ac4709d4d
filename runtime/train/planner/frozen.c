#include "train/planner/frozen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/alloc.h"
#include "device/device.h"

/* What must be the same for a device to take the place of one that a checkpoint names. */
static void identify(const clt_device *device, char *text, size_t bytes)
{
    snprintf(text, bytes, "%s, %s, %s, %d compute units", device->caps.platform, device->caps.name,
             device->caps.driver, device->caps.compute_units);
}

enum { IDENTITY = 512 };

static bool add_number(json_t *list, double value)
{
    return json_array_append_new(list, json_real(value)) == 0;
}

/* Steps count from 1 here, as in metrics. */
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

static clt_status read_change(const json_t *change, int count, clt_split_history **history)
{
    const json_t *list = json_object_get(change, "weights");
    const int64_t step = json_integer_value(json_object_get(change, "step")),
                  quantum = json_integer_value(json_object_get(change, "quantum"));
    double weights[CLT_MOST_DEVICES];
    if (json_array_size(list) != (size_t)count || step < 1 || quantum < 1)
        return clt_fail(CLT_FORMAT, "the checkpoint's changes of the division are none");
    for (int d = 0; d < count; d++)
        weights[d] = json_number_value(json_array_get(list, (size_t)d));
    return clt_split_history_add(history, count, step - 1, weights, quantum);
}

clt_status clt_split_read_history(const char *section, int count, clt_split_history **history)
{
    *history = NULL;
    json_t *all = json_loads(section, 0, NULL);
    const json_t *changes = json_object_get(all, "changes");
    const bool same = json_array_size(json_object_get(all, "devices")) == (size_t)count &&
                      count <= CLT_MOST_DEVICES;
    clt_status status = CLT_OK;
    for (size_t i = 0; same && status == CLT_OK && i < json_array_size(changes); i++)
        status = read_change(json_array_get(changes, i), count, history);
    json_decref(all);
    if (status != CLT_OK) {
        clt_split_history_free(*history);
        *history = NULL;
    }
    return status;
}

clt_status clt_split_to_json(clt_device *const *devices, int count, const double *weights,
                             int64_t quantum, int64_t per_device, const clt_split_history *history,
                             char **out)
{
    json_t *names = json_array(), *list = json_array(), *changes = pack_history(history);
    bool good = names && list && changes;
    for (int d = 0; good && d < count; d++) {
        char name[IDENTITY];
        identify(devices[d], name, sizeof name);
        good = json_array_append_new(names, json_string(name)) == 0;
        if (weights)
            good = good && add_number(list, weights[d]);
    }
    json_t *all = json_pack("{s:o, s:o, s:I, s:o, s:I}", "devices", names, "weights", list,
                            "quantum", (json_int_t)quantum, "changes", changes, "per_device",
                            (json_int_t)(history ? per_device : 0));
    char *text = good && all ? json_dumps(all, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(all);
    *out = text ? clt_strdup(text) : NULL;
    free(text); /* jansson's */
    return *out ? CLT_OK : CLT_OUT_OF_MEMORY;
}

/* The first device of that identity that is not taken; -1 if there is none. */
static int find_device(clt_device *const *devices, int count, const char *name, const int *place)
{
    for (int d = 0; d < count; d++) {
        char own[IDENTITY];
        identify(devices[d], own, sizeof own);
        if (place[d] < 0 && !strcmp(own, name))
            return d;
    }
    return -1;
}

/* place[d] becomes the device's number in the checkpoint's list, -1 for one that is not in it. */
static clt_status find_places(const json_t *names, clt_device *const *devices, int count,
                              int *place)
{
    int last = -1;
    for (int d = 0; d < count; d++)
        place[d] = -1;
    for (size_t i = 0; i < json_array_size(names); i++) {
        const char *name = json_string_value(json_array_get(names, i));
        const int d = name ? find_device(devices, count, name, place) : -1;
        /* In another order they would get each other's shares. */
        if (d < 0 || d < last)
            return clt_fail(CLT_MISMATCH, "the checkpoint's split is of other devices (%.200s)",
                            name ? name : "none");
        place[d] = (int)i;
        last = d;
    }
    return CLT_OK;
}

static clt_status read_split(const json_t *all, clt_device *const *devices, int count, int *use,
                             double *weights, int64_t *quantum, int *uneven)
{
    const json_t *names = json_object_get(all, "devices"), *list = json_object_get(all, "weights");
    const int64_t read = json_integer_value(json_object_get(all, "quantum"));
    const size_t n = json_array_size(names), n_weights = json_array_size(list);
    if (n < 1 || read < 1 || (n_weights && n_weights != n))
        return clt_fail(CLT_FORMAT, "the checkpoint's split is none");
    CLT_TRY(find_places(names, devices, count, use));
    for (size_t i = 0; i < n; i++)
        weights[i] = n_weights ? json_number_value(json_array_get(list, i)) : 1;
    for (int d = 0; d < count; d++)
        use[d] = use[d] >= 0;
    *quantum = read;
    *uneven = n_weights > 0;
    return CLT_OK;
}

clt_status clt_split_frozen(const char *section, clt_device *const *devices, int count, int *use,
                            double *weights, int64_t *quantum, int64_t *per_device, int *uneven)
{
    json_error_t error;
    json_t *all = json_loads(section, 0, &error);
    if (!all)
        return clt_fail(CLT_FORMAT, "the checkpoint's split is no JSON: %s", error.text);
    int *found = clt_calloc((size_t)count, sizeof *found);
    double *read =
        clt_calloc((size_t)count + json_array_size(json_object_get(all, "devices")), sizeof *read);
    clt_status status = found && read ? CLT_OK : CLT_OUT_OF_MEMORY;
    if (status == CLT_OK)
        status = read_split(all, devices, count, found, read, quantum, uneven);
    if (status == CLT_OK) {
        *per_device = json_integer_value(json_object_get(all, "per_device"));
        memcpy(use, found, (size_t)count * sizeof *use);
        memcpy(weights, read, (size_t)count * sizeof *weights);
    }
    clt_free(found);
    clt_free(read);
    json_decref(all);
    return status;
}
