/* Saves stores to files, and loads them. */
#include "train/setup/store_files.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "checkpoint/safetensors.h"
#include "train/store/parts.h"
#include <cltrain/fit.h>

void clt_tensor_list_free(clt_tensor_list *list)
{
    for (int i = 0; list->of && i < list->count; i++)
        clt_free(list->of[i].name);
    CLT_FREE(list->of, list->items);
    *list = (clt_tensor_list){0};
}

clt_status clt_tensor_list_make(const clt_store *store, const clt_optimizer_row *optimizer,
                                clt_tensor_list *list)
{
    const int kinds = optimizer ? optimizer->n_slots : 1;
    const size_t room = (size_t)(store->layout.n_slots * kinds) + 1;
    list->items = clt_calloc(room, sizeof *list->items);
    list->of = clt_calloc(room, sizeof *list->of);
    CLT_TRY_MEMORY(list->items && list->of);
    for (int i = 0; i < store->layout.n_slots; i++) {
        const clt_slot *slot = &store->layout.slots[store->order[i]];
        if (slot->carried)
            continue;
        for (int k = 0; k < kinds && !(optimizer && slot->state); k++) {
            char name[512];
            snprintf(name, sizeof name, "%s%s%s", slot->name, optimizer ? "." : "",
                     optimizer ? optimizer->slots[k] : "");
            char *copy = clt_strdup(name);
            CLT_TRY_MEMORY(copy);
            list->of[list->count] = (clt_listed){copy, slot, optimizer ? k : CLT_VALUES};
            CLT_TRY(clt_tensor_init(&list->items[list->count++], copy,
                                    (clt_file_dtype)slot->type.dtype, slot->type.rank,
                                    slot->type.dims, NULL));
        }
    }
    return CLT_OK;
}

static int64_t largest_slot(const clt_store *store)
{
    int64_t bytes = 1;
    for (int i = 0; i < store->layout.n_slots; i++)
        if (store->layout.slots[i].bytes > bytes)
            bytes = store->layout.slots[i].bytes;
    return bytes;
}

clt_status clt_tensor_reader_make(const clt_participants *all, const clt_store *store,
                                  clt_tensor_reader *reader)
{
    *reader = (clt_tensor_reader){
        .all = all, .store = store, .buffer = clt_alloc((size_t)largest_slot(store))};
    return reader->buffer ? CLT_OK : CLT_OUT_OF_MEMORY;
}

clt_status clt_tensor_reader_fetch(void *user, const clt_tensor *tensor, const void **data)
{
    const clt_tensor_reader *r = user;
    for (int i = 0; i < 2; i++)
        if (r->lists[i] && tensor >= r->lists[i]->items &&
            tensor < r->lists[i]->items + r->lists[i]->count) {
            const clt_listed *of = &r->lists[i]->of[tensor - r->lists[i]->items];
            *data = r->buffer;
            return clt_whole_get(r->all, r->store, of->kind, of->slot, r->buffer);
        }
    return clt_fail(CLT_INTERNAL, "tensor %s belongs to nothing", tensor->name);
}

static clt_status save(const clt_participants *all, clt_store *store, const char *path)
{
    static const char *const metadata[] = {"format", "pt"};
    clt_tensor_list list = {0};
    clt_tensor_reader reader;
    clt_tensors_desc desc;
    clt_tensors_desc_init(&desc);
    clt_status status = clt_tensor_reader_make(all, store, &reader);
    CLT_NEXT(status, clt_tensor_list_make(store, NULL, &list));
    reader.lists[0] = &list;
    desc.tensors = list.items;
    desc.count = list.count;
    desc.metadata = metadata;
    desc.metadata_pairs = 1;
    desc.fetch = clt_tensor_reader_fetch;
    desc.fetch_user = &reader;
    CLT_NEXT(status, clt_tensors_save(path, &desc));
    clt_tensor_list_free(&list);
    clt_free(reader.buffer);
    return status;
}

clt_status clt_store_save(clt_store *store, const char *path)
{
    CLT_TRY(clt_store_check_devices(store));
    const clt_participants all = clt_whole_participants(store);
    if (!clt_whole_spread(&all, store))
        return save(&all, store, path);
    return all.rank ? clt_whole_follow(&all, store) : clt_whole_end(&all, save(&all, store, path));
}

/* --- loading --------------------------------------------------------------------------------- */

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
    const int64_t count = slot->bytes / 4; /* f32 and i32 */
    void *converted = clt_alloc((size_t)slot->bytes);
    CLT_TRY_MEMORY(converted);
    clt_status status = slot->type.dtype == CLT_F32 ? clt_tensor_to_f32(tensor, count, converted)
                                                    : clt_tensor_to_i32(tensor, count, converted);
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

clt_status clt_store_load_values(const clt_participants *leads, clt_store *store,
                                 const clt_tensors *tensors, const char *prefix)
{
    for (int i = 0; i < store->layout.n_slots; i++) {
        const clt_slot *slot = &store->layout.slots[i];
        const clt_tensor *tensor;
        char name[512];
        if (slot->carried)
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

/* Renames the tensors as in the file, and adds tensors of the file that are ignored. */
static clt_status list_as_in_file(const clt_store *store, const clt_tensors *tensors,
                                  const char *prefix, clt_tensor_list *list)
{
    const size_t head = strlen(prefix);
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
        int length = 0;
        const char *original = tied_to(store, tensor->name + (prefixed ? head : 0), &length);
        if (original) {
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

/* clt_tensors_match accepts any pair of float types. Only conversions to f32 exist, so all others
 * are refused here. */
static clt_status match_types(const clt_store *store, const clt_tensors *tensors,
                              const char *prefix)
{
    for (int i = 0; i < store->layout.n_slots; i++) {
        const clt_slot *slot = &store->layout.slots[i];
        const clt_tensor *tensor;
        char name[512];
        if (slot->carried || slot->type.dtype == CLT_F32 || slot->type.dtype == CLT_I32)
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

clt_status clt_store_load_tensors(clt_store *store, const clt_tensors *tensors)
{
    clt_tensor_list list = {0};
    const char *prefix = prefix_of(store, tensors);
    CLT_TRY(clt_store_check_devices(store));
    clt_status status = clt_tensor_list_make(store, NULL, &list);
    CLT_NEXT(status, list_as_in_file(store, tensors, prefix, &list));
    CLT_NEXT(status, clt_tensors_match(tensors, list.items, list.count,
                                       CLT_MATCH_FLOATS | CLT_MATCH_INTEGERS));
    CLT_NEXT(status, match_types(store, tensors, prefix));
    CLT_NEXT(status, clt_store_load_values(NULL, store, tensors, prefix));
    clt_tensor_list_free(&list);
    return status;
}

clt_status clt_store_load(clt_store *store, const char *path)
{
    clt_tensors *tensors;
    CLT_TRY(clt_tensors_open_apart(path, &tensors));
    const clt_status status = clt_store_load_tensors(store, tensors);
    clt_tensors_close(tensors);
    return status;
}
