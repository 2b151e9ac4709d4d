/* Lists of tensors, and saving stores to files. */
#include "train/saved/store_files.h"

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
            if (optimizer && !clt_store_keeps(store, slot, k))
                continue;
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

clt_status clt_tensor_list_averages(const clt_store *store, clt_tensor_list *list)
{
    CLT_TRY(clt_tensor_list_make(store, NULL, list));
    for (int i = 0; i < list->count; i++)
        list->of[i].kind = CLT_AVERAGES;
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
    for (int i = 0; i < 3; i++)
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
