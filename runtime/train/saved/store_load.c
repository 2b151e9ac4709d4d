/* Loads stores from files. */
#include "train/saved/store_files.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/patterns.h"
#include "base/str.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/tensor.h"
#include "train/store/parts.h"
#include <cltrain/fit.h>

static clt_status set(const clt_participants *leads, clt_store *store, const clt_slot *slot,
                      const void *data)
{
    return leads ? clt_whole_set(leads, store, CLT_VALUES, slot, data)
                 : clt_store_write(store, CLT_VALUES, slot, data);
}

/* Sets a tensor of another type in the file. PyTorch's counters, such as num_batches_tracked, are
 * I64. */
static clt_status set_converted(const clt_participants *leads, clt_store *store,
                                const clt_slot *slot, const clt_tensor *tensor)
{
    const clt_dtype type = slot->type.dtype;
    const int64_t count = slot->bytes / clt_dtype_size(type);
    void *converted = clt_alloc((size_t)slot->bytes);
    CLT_TRY_MEMORY(converted);
    clt_status status = type == CLT_F32 ? clt_tensor_to_f32(tensor, count, converted)
                        : type == CLT_I32
                            ? clt_tensor_to_i32(tensor, count, converted)
                            : clt_tensor_to_half(tensor, count, (clt_file_dtype)type, converted);
    CLT_NEXT(status, set(leads, store, slot, converted));
    clt_free(converted);
    return status;
}

static clt_status load_value(const clt_participants *leads, clt_store *store,
                             const clt_tensors *tensors, const clt_tensor *tensor,
                             const clt_slot *slot)
{
    clt_tensor loaded = *tensor;
    void *owned;
    CLT_TRY(clt_tensors_load(tensors, tensor, &loaded.data, &owned));
    const clt_status status = tensor->dtype == (clt_file_dtype)slot->type.dtype
                                  ? set(leads, store, slot, loaded.data)
                                  : set_converted(leads, store, slot, &loaded);
    clt_free(owned);
    return status;
}

/* Whether the tensor keeps its value. */
static bool stays(const clt_slot *slot, const char *skip)
{
    return slot->carried || clt_patterns_match(skip, slot->name, slot->type.rank <= 1);
}

clt_status clt_store_load_values(const clt_participants *leads, clt_store *store,
                                 const clt_tensors *tensors, const char *prefix, const char *skip)
{
    for (int i = 0; i < store->layout.n_slots; i++) {
        const clt_slot *slot = &store->layout.slots[i];
        const clt_tensor *tensor;
        char name[512];
        if (stays(slot, skip))
            continue;
        snprintf(name, sizeof name, "%s%s", prefix, slot->name);
        CLT_TRY(clt_tensors_find(tensors, name, &tensor));
        CLT_TRY(load_value(leads, store, tensors, tensor, slot));
    }
    return CLT_OK;
}

/* Returns the prefix of the names in the file: the model's, if any tensor has it. */
static const char *prefix_of(const clt_store *store, const clt_tensors *tensors)
{
    const char *prefix = store->file_prefix;
    for (int i = 0; prefix && i < clt_tensors_count(tensors); i++)
        if (!strncmp(clt_tensors_at(tensors, i)->name, prefix, strlen(prefix)))
            return prefix;
    return "";
}

static bool is_ignored(const clt_store *store, const char *name)
{
    char pattern[256];
    if (clt_buckets_find(&store->layout, name))
        return false;
    for (const char *next = store->file_ignored; next && *next;) {
        const size_t length = strcspn(next, "|");
        snprintf(pattern, sizeof pattern, "%.*s", (int)length, next);
        if (!fnmatch(pattern, name, 0))
            return true;
        next += length + (next[length] == '|');
    }
    return false;
}

/* Returns the tensor that the model's files may hold a second time under this name, *length bytes
 * long; NULL if there is none. */
static const char *tied_to(const clt_store *store, const char *name, int *length)
{
    if (clt_buckets_find(&store->layout, name))
        return NULL;
    for (const char *next = store->file_ignored; next && *next;) {
        const size_t all = strcspn(next, "|"), left = strcspn(next, "=|");
        if (next[left] == '=' && strlen(name) == left && !strncmp(next, name, left)) {
            *length = (int)(all - left - 1);
            return next + left + 1;
        }
        next += all + (next[all] == '|');
    }
    return NULL;
}

/* Removes the tensors that keep their values. */
static void drop_skipped(clt_tensor_list *list, const char *skip)
{
    int kept = 0;
    for (int i = 0; i < list->count; i++) {
        if (stays(list->of[i].slot, skip)) {
            clt_free(list->of[i].name);
            continue;
        }
        list->items[kept] = list->items[i];
        list->of[kept++] = list->of[i];
    }
    list->count = kept;
}

/* Renames the tensors as in the file, and adds tensors of the file that are not loaded. */
static clt_status list_as_in_file(const clt_store *store, const clt_tensors *tensors,
                                  const char *prefix, const char *skip, clt_tensor_list *list)
{
    const size_t head = strlen(prefix);
    drop_skipped(list, skip);
    for (int i = 0; *prefix && i < list->count; i++) {
        char name[512], *copy;
        snprintf(name, sizeof name, "%s%s", prefix, list->of[i].name);
        CLT_TRY_MEMORY(copy = clt_strdup(name));
        clt_free(list->of[i].name);
        list->of[i].name = copy;
        list->items[i].name = copy;
    }
    for (int i = 0; i < clt_tensors_count(tensors); i++) {
        const clt_tensor *tensor = clt_tensors_at(tensors, i);
        const bool prefixed = !strncmp(tensor->name, prefix, head);
        const char *own = tensor->name + (prefixed ? head : 0);
        int length = 0;
        const char *original = tied_to(store, own, &length);
        if (clt_patterns_match(skip, own, tensor->rank <= 1)) {
            /* Skipped, whatever it holds. */
        } else if (original) {
            char name[512];
            snprintf(name, sizeof name, "%s%.*s", prefix, length, original);
            CLT_TRY(clt_tensors_check_tied(tensors, tensor, name));
        } else if (!prefixed || !is_ignored(store, tensor->name + head))
            continue;
        const size_t room = (size_t)list->count + 2;
        clt_tensor *items = clt_realloc(list->items, room * sizeof *items);
        clt_listed *of = items ? clt_realloc(list->of, room * sizeof *of) : NULL;
        list->items = items ? items : list->items;
        list->of = of ? of : list->of;
        char *copy = of ? clt_strdup(tensor->name) : NULL;
        CLT_TRY_MEMORY(copy);
        list->items[list->count] = *tensor;
        list->items[list->count].name = copy;
        list->of[list->count++] = (clt_listed){.name = copy};
    }
    return CLT_OK;
}

/* clt_tensors_match accepts any pair of float types. Conversions to f32 and to 16 bits exist, so
 * all others are refused here. */
static clt_status match_types(const clt_store *store, const clt_tensors *tensors,
                              const char *prefix, const char *skip)
{
    for (int i = 0; i < store->layout.n_slots; i++) {
        const clt_slot *slot = &store->layout.slots[i];
        const clt_tensor *tensor;
        char name[512];
        if (stays(slot, skip) || slot->type.dtype == CLT_F32 || slot->type.dtype == CLT_I32 ||
            slot->type.dtype == CLT_F16 || slot->type.dtype == CLT_BF16)
            continue;
        snprintf(name, sizeof name, "%s%s", prefix, slot->name);
        CLT_TRY(clt_tensors_find(tensors, name, &tensor));
        if (tensor->dtype != (clt_file_dtype)slot->type.dtype)
            return clt_fail(CLT_MISMATCH, "tensor %s is %s in the file and %s in the model", name,
                            clt_file_dtype_name(tensor->dtype),
                            clt_file_dtype_name((clt_file_dtype)slot->type.dtype));
    }
    return CLT_OK;
}

/* Names a pattern for the tensors of a layer: "fc.*" for fc.weight. */
static const char *layer_pattern(const char *name, clt_short_text *label)
{
    const char *dot = strrchr(name, '.');
    clt_short_text own;
    clt_label_of(&own, name);
    snprintf(label->text, sizeof label->text, "%.*s%s",
             dot && dot - name < 150 ? (int)(dot - name) : 150, own.text, dot ? ".*" : "");
    return label->text;
}

/* Fails with MISMATCH at the first tensor that cannot be loaded and is not skipped, and names a
 * pattern that skips it. */
static clt_status suggest(const clt_store *store, const clt_tensors *tensors, const char *prefix,
                          const clt_tensor_list *list)
{
    const char *path = clt_tensors_path(tensors);
    const size_t head = strlen(prefix);
    clt_short_text name, have, want, pattern;
    for (int i = 0; i < list->count; i++) {
        const clt_tensor *wanted = &list->items[i];
        const clt_tensor *found = clt_tensors_lookup(tensors, wanted->name);
        if (found && found->rank == wanted->rank &&
            !memcmp(found->dims, wanted->dims, (size_t)wanted->rank * sizeof *wanted->dims))
            continue;
        return clt_fail(
            CLT_MISMATCH,
            "%s: tensor %s is %s%s and %s in the model: skip '%s' to initialise it anew", path,
            clt_label_of(&name, wanted->name), found ? clt_label_shape(&have, found) : "not",
            " in the file", clt_label_shape(&want, wanted),
            layer_pattern(wanted->name + head, &pattern));
    }
    for (int i = 0; i < clt_tensors_count(tensors); i++) {
        const clt_tensor *found = clt_tensors_at(tensors, i);
        bool listed = false;
        for (int k = 0; k < list->count && !listed; k++)
            listed = !strcmp(list->items[k].name, found->name);
        const char *own = found->name + (strncmp(found->name, prefix, head) ? 0 : head);
        if (!listed && !clt_buckets_find(&store->layout, own))
            return clt_fail(CLT_MISMATCH,
                            "%s: tensor %s, %s, is not part of the model: skip '%s' to leave it "
                            "out",
                            path, clt_label_of(&name, found->name), clt_label_shape(&have, found),
                            layer_pattern(own, &pattern));
    }
    return CLT_OK;
}

/* Says of each tensor that was not loaded why. */
static clt_status describe(const clt_store *store, const clt_tensors *tensors, const char *prefix,
                           const char *skip, char **report)
{
    clt_str text = {0};
    int loaded = 0, all = 0;
    const size_t head = strlen(prefix);
    for (int i = 0; i < store->layout.n_slots; i++) {
        const clt_slot *slot = &store->layout.slots[store->order[i]];
        all += !slot->carried;
        loaded += !stays(slot, skip);
    }
    clt_str_add(&text, "%s: %d of %d tensors loaded\n", clt_tensors_path(tensors), loaded, all);
    for (int i = 0; i < store->layout.n_slots; i++) {
        const clt_slot *slot = &store->layout.slots[store->order[i]];
        clt_short_text have, want;
        clt_tensor wanted;
        char name[512];
        if (slot->carried || !stays(slot, skip))
            continue;
        snprintf(name, sizeof name, "%s%s", prefix, slot->name);
        const clt_tensor *found = clt_tensors_lookup(tensors, name);
        CLT_TRY(clt_tensor_init(&wanted, slot->name, (clt_file_dtype)slot->type.dtype,
                                slot->type.rank, slot->type.dims, NULL));
        clt_str_add(&text, "%s: %s, %s; initialised anew\n", found ? "skipped" : "missing",
                    slot->name,
                    found ? clt_label_shape(&have, found) : clt_label_shape(&want, &wanted));
    }
    for (int i = 0; i < clt_tensors_count(tensors); i++) {
        const clt_tensor *found = clt_tensors_at(tensors, i);
        const char *own = found->name + (strncmp(found->name, prefix, head) ? 0 : head);
        clt_short_text name, have;
        if (clt_patterns_match(skip, own, found->rank <= 1) &&
            !clt_buckets_find(&store->layout, own))
            clt_str_add(&text, "left out: %s, %s; not part of the model\n",
                        clt_label_of(&name, found->name), clt_label_shape(&have, found));
    }
    *report = text.failed ? NULL : clt_alloc_give(clt_strdup(clt_str_text(&text)));
    clt_str_free(&text);
    return *report ? CLT_OK : CLT_OUT_OF_MEMORY;
}

/* A pattern that matches nothing is a mistake. */
static clt_status check_skip(const clt_store *store, const clt_tensors *tensors, const char *prefix,
                             const char *skip)
{
    bool found = !skip || !*skip;
    for (int i = 0; i < store->layout.n_slots && !found; i++)
        found = stays(&store->layout.slots[i], skip) && !store->layout.slots[i].carried;
    for (int i = 0; i < clt_tensors_count(tensors) && !found; i++) {
        const clt_tensor *tensor = clt_tensors_at(tensors, i);
        const bool prefixed = !strncmp(tensor->name, prefix, strlen(prefix));
        found = clt_patterns_match(skip, tensor->name + (prefixed ? strlen(prefix) : 0),
                                   tensor->rank <= 1);
    }
    return found ? CLT_OK
                 : clt_fail(CLT_NOT_FOUND, "no tensor of the model or of %s matches '%s'",
                            clt_tensors_path(tensors), skip);
}

static clt_status load(clt_store *store, const clt_tensors *tensors, bool suggests,
                       const char *skip, char **report)
{
    clt_tensor_list list = {0};
    const char *prefix = prefix_of(store, tensors);
    CLT_TRY(clt_store_check_devices(store));
    clt_status status = clt_tensor_list_make(store, NULL, &list);
    CLT_NEXT(status, check_skip(store, tensors, prefix, skip));
    CLT_NEXT(status, list_as_in_file(store, tensors, prefix, skip, &list));
    if (suggests)
        CLT_NEXT(status, suggest(store, tensors, prefix, &list));
    CLT_NEXT(status, clt_tensors_match(tensors, list.items, list.count,
                                       CLT_MATCH_FLOATS | CLT_MATCH_INTEGERS));
    CLT_NEXT(status, match_types(store, tensors, prefix, skip));
    CLT_NEXT(status, clt_store_load_values(NULL, store, tensors, prefix, skip));
    if (report)
        CLT_NEXT(status, describe(store, tensors, prefix, skip, report));
    clt_tensor_list_free(&list);
    return status;
}

clt_status clt_store_load_tensors(clt_store *store, const clt_tensors *tensors)
{
    return load(store, tensors, false, NULL, NULL);
}

clt_status clt_store_load(clt_store *store, const char *path)
{
    clt_tensors *tensors;
    CLT_TRY(clt_tensors_open_apart(path, &tensors));
    const clt_status status = clt_store_load_tensors(store, tensors);
    clt_tensors_close(tensors);
    return status;
}

static bool is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

clt_status clt_store_load_skipping(clt_store *store, const char *path, const char *skip,
                                   char **report)
{
    clt_checkpoint *checkpoint = NULL;
    clt_tensors *alone = NULL;
    if (report)
        *report = NULL;
    CLT_TRY(is_folder(path) ? clt_checkpoint_open_apart(path, &checkpoint)
                            : clt_tensors_open_apart(path, &alone));
    const clt_status status =
        load(store, checkpoint ? clt_checkpoint_model(checkpoint) : alone, true, skip, report);
    clt_checkpoint_close(checkpoint);
    clt_tensors_close(alone);
    return status;
}
