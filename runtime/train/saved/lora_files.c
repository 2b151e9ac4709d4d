/* Saves, loads and merges the adapters of clt_lora. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <jansson.h>

#include "base/alloc.h"
#include "base/error.h"
#include "checkpoint/folder.h"
#include "checkpoint/outfile.h"
#include "checkpoint/safetensors.h"
#include "graph/graph.h"
#include "train/store/store.h"
#include <cltrain/checkpoint.h>
#include <cltrain/lora.h>

/* peft's names: this, the model's own prefix, the layer, and the part. */
#define PREFIX "base_model.model."
enum { NAME = 512 };
static const char *const parts[] = {"lora_A.weight", "lora_B.weight"};
enum { PARTS = 2 };

static clt_status check(const clt_graph *graph)
{
    CLT_TRY(clt_graph_status(graph));
    return graph->n_loras ? CLT_OK
                          : clt_fail(CLT_INVALID_ARGUMENT,
                                     "the graph has no adapters: call clt_lora before the store is "
                                     "made");
}

static void own_name(const clt_lora_site *site, int part, char *name)
{
    snprintf(name, NAME, "%s.%s", site->layer, parts[part]);
}

static void file_name(const clt_store *store, const clt_lora_site *site, int part, char *name)
{
    snprintf(name, NAME, PREFIX "%s%s.%s", store->file_prefix ? store->file_prefix : "",
             site->layer, parts[part]);
}

static clt_status read_tensor(clt_store *store, const char *name, const clt_slot **slot,
                              float **data)
{
    CLT_TRY(clt_store_slot(store, name, slot));
    *data = clt_alloc((size_t)(*slot)->bytes);
    CLT_TRY_MEMORY(*data);
    const clt_status status = clt_store_get(store, name, *data, (size_t)(*slot)->bytes);
    if (status != CLT_OK) {
        clt_free(*data);
        *data = NULL;
    }
    return status;
}

/* --- the adapters alone ----------------------------------------------------------------------- */

/* The tensors of all adapters, with data. */
typedef struct tensors {
    clt_tensor *items;
    char (*names)[NAME];
    int count;
} tensors;

static void free_tensors(tensors *t)
{
    for (int i = 0; t->items && i < t->count; i++)
        clt_free((void *)(uintptr_t)t->items[i].data);
    CLT_FREE(t->items, t->names);
}

static clt_status read_all(const clt_graph *graph, clt_store *store, tensors *t)
{
    const size_t room = (size_t)graph->n_loras * PARTS;
    t->items = clt_calloc(room, sizeof *t->items);
    t->names = clt_calloc(room, sizeof *t->names);
    CLT_TRY_MEMORY(t->items && t->names);
    for (int i = 0; i < graph->n_loras; i++)
        for (int part = 0; part < PARTS; part++) {
            char own[NAME];
            const clt_slot *slot;
            float *data;
            own_name(&graph->loras[i], part, own);
            file_name(store, &graph->loras[i], part, t->names[t->count]);
            CLT_TRY(read_tensor(store, own, &slot, &data));
            const clt_status status =
                clt_tensor_init(&t->items[t->count], t->names[t->count], CLT_FILE_F32,
                                slot->whole.rank, slot->whole.dims, data);
            if (status != CLT_OK)
                clt_free(data);
            CLT_TRY(status);
            t->count++;
        }
    return CLT_OK;
}

/* The settings as peft reads them. Layers that differ from the first one are in patterns. */
static json_t *describe(const clt_graph *graph, const clt_store *store)
{
    const clt_lora_site *first = &graph->loras[0];
    json_t *modules = json_array(), *ranks = json_object(), *alphas = json_object();
    int transposed = 0;
    for (int i = 0; i < graph->n_loras; i++) {
        const clt_lora_site *s = &graph->loras[i];
        char name[NAME];
        snprintf(name, sizeof name, "%s%s", store->file_prefix ? store->file_prefix : "", s->layer);
        json_array_append_new(modules, json_string(name));
        transposed |= s->transposed;
        if (s->rank != first->rank)
            json_object_set_new(ranks, name, json_integer(s->rank));
        if (s->alpha < first->alpha || s->alpha > first->alpha)
            json_object_set_new(alphas, name, json_real(s->alpha));
    }
    return json_pack("{s:s, s:n, s:n, s:i, s:f, s:f, s:s, s:b, s:b, s:o, s:o, s:o}", "peft_type",
                     "LORA", "base_model_name_or_path", "task_type", "r", first->rank, "lora_alpha",
                     first->alpha, "lora_dropout", first->dropout, "bias", "none", "fan_in_fan_out",
                     transposed, "inference_mode", 1, "target_modules", modules, "rank_pattern",
                     ranks, "alpha_pattern", alphas);
}

static clt_status write_config(const clt_graph *graph, const clt_store *store, const char *folder)
{
    json_t *config = describe(graph, store);
    char *text = config ? json_dumps(config, JSON_INDENT(2) | JSON_SORT_KEYS) : NULL;
    clt_outfile *file = NULL;
    char path[4200];
    snprintf(path, sizeof path, "%s/adapter_config.json", folder);
    clt_status status = text ? clt_outfile_create(AT_FDCWD, path, &file) : CLT_OUT_OF_MEMORY;
    CLT_NEXT(status, clt_outfile_write(file, text, (int64_t)strlen(text)));
    if (status == CLT_OK)
        status = clt_outfile_finish(file, NULL, NULL);
    else
        clt_outfile_abandon(file);
    free(text);
    json_decref(config);
    return status;
}

clt_status clt_lora_save(const clt_graph *graph, clt_store *store, const char *folder)
{
    static const char *const metadata[] = {"format", "pt"};
    tensors t = {0};
    clt_tensors_desc desc;
    char path[4200];
    CLT_TRY(check(graph));
    CLT_TRY(clt_store_check_devices(store));
    clt_status status = read_all(graph, store, &t);
    CLT_NEXT(status, clt_folder_make(folder));
    clt_tensors_desc_init(&desc);
    desc.tensors = t.items;
    desc.count = t.count;
    desc.metadata = metadata;
    desc.metadata_pairs = 1;
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder);
    CLT_NEXT(status, clt_tensors_save(path, &desc));
    CLT_NEXT(status, write_config(graph, store, folder));
    free_tensors(&t);
    return status;
}

static clt_status set_from(clt_store *store, const clt_tensors *file, const char *name,
                           const char *own)
{
    const clt_tensor *tensor;
    const clt_slot *slot;
    void *owned;
    CLT_TRY(clt_tensors_find(file, name, &tensor));
    CLT_TRY(clt_store_slot(store, own, &slot));
    clt_tensor loaded = *tensor;
    float *values = clt_alloc((size_t)slot->bytes);
    CLT_TRY_MEMORY(values);
    clt_status status = clt_tensors_load(file, tensor, &loaded.data, &owned);
    if (status == CLT_OK) {
        status = clt_tensor_to_f32(&loaded, slot->bytes / 4, values);
        CLT_NEXT(status, clt_store_set(store, own, values, (size_t)slot->bytes));
        clt_free(owned);
    }
    clt_free(values);
    return status;
}

static clt_status load(const clt_graph *graph, clt_store *store, const clt_tensors *file)
{
    char name[NAME], own[NAME];
    const int count = graph->n_loras * PARTS;
    clt_tensor *wanted = clt_calloc((size_t)count, sizeof *wanted);
    char(*names)[NAME] = clt_calloc((size_t)count, sizeof *names);
    clt_status status = wanted && names ? CLT_OK : CLT_OUT_OF_MEMORY;
    for (int i = 0; status == CLT_OK && i < count; i++) {
        const clt_slot *slot;
        file_name(store, &graph->loras[i / PARTS], i % PARTS, names[i]);
        own_name(&graph->loras[i / PARTS], i % PARTS, own);
        status = clt_store_slot(store, own, &slot);
        CLT_NEXT(status, clt_tensor_init(&wanted[i], names[i], CLT_FILE_F32, slot->whole.rank,
                                         slot->whole.dims, NULL));
    }
    CLT_NEXT(status, clt_tensors_match(file, wanted, count, CLT_MATCH_FLOATS));
    for (int i = 0; status == CLT_OK && i < count; i++) {
        file_name(store, &graph->loras[i / PARTS], i % PARTS, name);
        own_name(&graph->loras[i / PARTS], i % PARTS, own);
        status = set_from(store, file, name, own);
    }
    CLT_FREE(wanted, names);
    return status;
}

clt_status clt_lora_load(const clt_graph *graph, clt_store *store, const char *path)
{
    struct stat info;
    clt_tensors *file;
    char inside[4200];
    CLT_TRY(check(graph));
    CLT_TRY(clt_store_check_devices(store));
    const bool folder = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
    snprintf(inside, sizeof inside, "%s%s", path, folder ? "/adapter_model.safetensors" : "");
    CLT_TRY(clt_tensors_open_apart(inside, &file));
    const clt_status status = load(graph, store, file);
    clt_tensors_close(file);
    return status;
}

/* --- merging ---------------------------------------------------------------------------------- */

/* Adds alpha / rank * B A to a weight, in double. */
static void add_product(const clt_lora_site *s, const float *a, const float *b, int64_t in,
                        int64_t out, float *weight)
{
    const double scale = s->alpha / s->rank;
    for (int64_t o = 0; o < out; o++)
        for (int64_t i = 0; i < in; i++) {
            float *w = &weight[s->transposed ? i * out + o : o * in + i];
            double sum = 0;
            for (int r = 0; r < s->rank; r++)
                sum += (double)b[o * s->rank + r] * (double)a[r * in + i];
            *w = (float)((double)*w + scale * sum);
        }
}

/* Computes the merged weight of a layer. Free *weight with clt_free. */
static clt_status merge(clt_store *store, const clt_lora_site *s, const clt_slot **slot,
                        float **weight)
{
    float *a = NULL, *b = NULL;
    const clt_slot *slot_a, *slot_b;
    char name[NAME];
    *weight = NULL;
    own_name(s, 0, name);
    clt_status status = read_tensor(store, name, &slot_a, &a);
    own_name(s, 1, name);
    CLT_NEXT(status, read_tensor(store, name, &slot_b, &b));
    CLT_NEXT(status, read_tensor(store, s->weight, slot, weight));
    if (status == CLT_OK)
        add_product(s, a, b, slot_a->whole.dims[1], slot_b->whole.dims[0], *weight);
    CLT_FREE(a, b);
    return status;
}

clt_status clt_lora_merge(const clt_graph *graph, clt_store *store)
{
    CLT_TRY(check(graph));
    CLT_TRY(clt_store_check_devices(store));
    for (int i = 0; i < graph->n_loras; i++) {
        const clt_lora_site *s = &graph->loras[i];
        const clt_slot *slot, *b;
        float *weight;
        char name[NAME];
        own_name(s, 1, name);
        CLT_TRY(clt_store_slot(store, name, &b));
        CLT_TRY(merge(store, s, &slot, &weight));
        clt_status status = clt_store_set(store, s->weight, weight, (size_t)slot->bytes);
        clt_free(weight);
        float *zeros = clt_calloc(1, (size_t)b->bytes);
        CLT_NEXT(status,
                 zeros ? clt_store_set(store, name, zeros, (size_t)b->bytes) : CLT_OUT_OF_MEMORY);
        clt_free(zeros);
        CLT_TRY(status);
    }
    return CLT_OK;
}

/* Gives the file's tensors one at a time. */
typedef struct merger {
    const clt_graph *graph;
    clt_store *store;
    float *data;
} merger;

static clt_status fetch(void *user, const clt_tensor *tensor, const void **data)
{
    merger *m = user;
    const clt_slot *slot;
    clt_free(m->data);
    m->data = NULL;
    for (int i = 0; i < m->graph->n_loras; i++)
        if (!strcmp(m->graph->loras[i].weight, tensor->name)) {
            CLT_TRY(merge(m->store, &m->graph->loras[i], &slot, &m->data));
            *data = m->data;
            return CLT_OK;
        }
    CLT_TRY(read_tensor(m->store, tensor->name, &slot, &m->data));
    *data = m->data;
    return CLT_OK;
}

static bool is_adapter(const clt_graph *graph, const char *name)
{
    char own[NAME];
    for (int i = 0; i < graph->n_loras; i++)
        for (int part = 0; part < PARTS; part++) {
            own_name(&graph->loras[i], part, own);
            if (!strcmp(own, name))
                return true;
        }
    return false;
}

clt_status clt_lora_save_merged(const clt_graph *graph, clt_store *store, const char *path)
{
    static const char *const metadata[] = {"format", "pt"};
    merger m = {graph, store, NULL};
    clt_tensors_desc desc;
    CLT_TRY(check(graph));
    CLT_TRY(clt_store_check_devices(store));
    clt_tensor *items = clt_calloc((size_t)store->layout.n_slots + 1, sizeof *items);
    CLT_TRY_MEMORY(items);
    clt_tensors_desc_init(&desc);
    clt_status status = CLT_OK;
    for (int i = 0; status == CLT_OK && i < store->layout.n_slots; i++) {
        const clt_slot *slot = &store->layout.slots[store->order[i]];
        if (!slot->carried && !is_adapter(graph, slot->name))
            status =
                clt_tensor_init(&items[desc.count++], slot->name, (clt_file_dtype)slot->whole.dtype,
                                slot->whole.rank, slot->whole.dims, NULL);
    }
    desc.tensors = items;
    desc.metadata = metadata;
    desc.metadata_pairs = 1;
    desc.fetch = fetch;
    desc.fetch_user = &m;
    CLT_NEXT(status, clt_tensors_save(path, &desc));
    CLT_FREE(items, m.data);
    return status;
}
