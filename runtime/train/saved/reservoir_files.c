#include "train/saved/reservoir_files.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/array.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/str.h"
#include "checkpoint/folder.h"
#include "data/reservoir/reservoir.h"

/* What is before a record's fields. */
typedef struct head {
    int64_t index, number;
    double key;
    uint64_t hash; /* of everything before it, and the fields */
} head;

/* Bytes of a tensor, unless a record is larger. */
enum { BLOCK = 16 << 20, NAME = 32 };

static int64_t record_bytes(const clt_dataset *d)
{
    int64_t bytes = sizeof(head);
    for (int f = 0; f < d->field_count; f++)
        bytes += d->fields[f].bytes;
    return bytes;
}

static uint64_t hash_of(const head *h, const char *fields, int64_t bytes)
{
    return clt_hash(fields, (size_t)bytes, clt_hash(h, offsetof(head, hash), 0));
}

/* Describes what the samples of two reservoirs must have in common. */
static void describe(const clt_dataset *d, clt_str *text)
{
    static const char *const policies[] = {"uniform", "newest", "weighted"};
    const clt_reservoir *r = d->payload;
    char shape[CLT_SHAPE_TEXT];
    clt_str_add(text, "%lld samples, %s", (long long)r->capacity, policies[r->options.policy]);
    for (int f = 0; f < d->field_count; f++)
        clt_str_add(text, ", %s %s %s", d->fields[f].name, clt_dtype_name(d->fields[f].dtype),
                    clt_shape_text(d->fields[f].rank, d->fields[f].shape, shape));
}

/* The folder of a rank's files. `dir` is the run's folder, or that of a step or the link to the
 * best one in it. */
static clt_status folder_of(const char *dir, int rank, char *folder, size_t room)
{
    clt_step_name name;
    size_t length = strlen(dir);
    while (length > 1 && dir[length - 1] == '/')
        length--;
    size_t begin = length;
    while (begin && dir[begin - 1] != '/')
        begin--;
    char last[NAME * 2];
    snprintf(last, sizeof last, "%.*s", (int)(length - begin), dir + begin);
    const bool step = length - begin < sizeof last &&
                      (clt_step_name_parse(last, &name) || !strcmp(last, CLT_BEST_LINK));
    const int used = snprintf(folder, room, "%.*s%s/reservoirs/rank-%d",
                              (int)(step ? begin : length), dir, step && !begin ? "." : "", rank);
    return used > 0 && (size_t)used < room
               ? CLT_OK
               : clt_fail(CLT_INVALID_ARGUMENT, "the path of the folder %s is too long", dir);
}

/* --- saving ------------------------------------------------------------------------------------
 */

typedef struct writer {
    clt_dataset *dataset;
    int64_t *indices; /* that hold samples */
    int64_t count, most, record;
    char *block, (*names)[NAME];
    int64_t *places;
} writer;

static void write_record(const writer *w, char *to, const head *h, int64_t place)
{
    head full = *h;
    char *fields = to + sizeof full;
    for (int f = 0; f < w->dataset->field_count; f++) {
        const clt_data_field *field = &w->dataset->fields[f];
        memcpy(fields, (const char *)field->data + place * field->bytes, (size_t)field->bytes);
        fields += field->bytes;
    }
    full.hash = hash_of(&full, to + sizeof full, w->record - (int64_t)sizeof full);
    memcpy(to, &full, sizeof full);
}

/* Writes the records of a tensor to w->block. Their places are pinned for so long. */
static clt_status fetch_block(void *user, const clt_tensor *tensor, const void **data)
{
    const writer *w = user;
    clt_reservoir *r = w->dataset->payload;
    const int64_t first = strtoll(tensor->name + strlen("samples."), NULL, 10) * w->most;
    const int64_t n = tensor->dims[0];
    pthread_mutex_lock(&r->lock);
    for (int64_t i = 0; i < n; i++) {
        const int64_t index = w->indices[first + i];
        const head h = {index, r->entries[index].number, r->keys ? r->keys[index] : 0, 0};
        memcpy(w->block + i * w->record, &h, sizeof h);
        w->places[i] = r->entries[index].place;
        r->states[w->places[i]].readers++;
    }
    pthread_mutex_unlock(&r->lock);
    for (int64_t i = 0; i < n; i++) {
        head h;
        memcpy(&h, w->block + i * w->record, sizeof h);
        write_record(w, w->block + i * w->record, &h, w->places[i]);
    }
    clt_reservoir_unpin(r, w->places, n);
    *data = w->block;
    return CLT_OK;
}

/* Lists the indices that hold samples, which they always will, and the counters. Samples that are
 * being pushed are not among them. */
static clt_status snapshot(writer *w, clt_str *counters)
{
    clt_reservoir *r = w->dataset->payload;
    w->indices = clt_calloc((size_t)r->capacity, sizeof *w->indices);
    CLT_TRY_MEMORY(w->indices);
    pthread_mutex_lock(&r->lock);
    for (int64_t i = 0; r->made && i < r->begun; i++)
        if (r->entries[i].place >= 0)
            w->indices[w->count++] = i;
    clt_str_add(counters,
                "%" PRIu64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64,
                r->options.seed, r->number, r->begun, w->count, r->replaced, r->declined,
                r->dropped);
    pthread_mutex_unlock(&r->lock);
    return CLT_OK;
}

static clt_status make_tensors(writer *w, clt_tensor **tensors, int64_t *count)
{
    w->record = record_bytes(w->dataset);
    w->most = w->record < BLOCK ? BLOCK / w->record : 1;
    *count = (w->count + w->most - 1) / w->most;
    *tensors = clt_calloc((size_t)*count + 1, sizeof **tensors);
    w->names = clt_calloc((size_t)*count + 1, sizeof *w->names);
    w->places = clt_calloc((size_t)w->most, sizeof *w->places);
    w->block = clt_alloc((size_t)(w->most * w->record));
    CLT_TRY_MEMORY(*tensors && w->names && w->places && w->block);
    for (int64_t i = 0; i < *count; i++) {
        const int64_t left = w->count - i * w->most;
        const int64_t dims[] = {left < w->most ? left : w->most, w->record};
        snprintf(w->names[i], NAME, "samples.%lld", (long long)i);
        CLT_TRY(clt_tensor_init(&(*tensors)[i], w->names[i], CLT_FILE_U8, 2, dims, NULL));
    }
    return CLT_OK;
}

/* Files of the best checkpoint stay, as the checkpoint does. */
static void delete_older(const clt_trainer *t, const char *folder, int64_t keep)
{
    clt_step_name *items;
    int count;
    if (!keep || clt_folder_list(folder, &items, &count) != CLT_OK)
        return;
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int64_t kept = 1;
    for (int i = 0; i < count; i++)
        if (items[i].step < t->steps && kept++ >= keep && items[i].step != t->best_step &&
            (fd < 0 || !clt_folder_remove(fd, items[i].text)))
            clt_log(CLT_LOG_WARN, "cannot delete %s/%s", folder, items[i].text);
    if (fd >= 0)
        close(fd);
    clt_free(items);
}

clt_status clt_reservoir_save(const clt_trainer *t, const char *dir, int64_t keep)
{
    writer w = {.dataset = t->reservoir};
    clt_str text = {0}, counters = {0};
    clt_tensor *tensors = NULL;
    clt_tensors_desc desc;
    char folder[4096], path[4200];
    clt_tensors_desc_init(&desc);
    describe(w.dataset, &text);
    clt_status status = folder_of(dir, t->all.rank, folder, sizeof folder);
    CLT_NEXT(status, snapshot(&w, &counters));
    CLT_NEXT(status, make_tensors(&w, &tensors, &desc.count));
    if (status == CLT_OK && (text.failed || counters.failed))
        status = CLT_OUT_OF_MEMORY;
    char hash[24];
    snprintf(hash, sizeof hash, "%016" PRIx64, clt_hash_text(clt_str_text(&counters), 0));
    const char *const metadata[] = {
        "reservoir", clt_str_text(&text), "counters", clt_str_text(&counters), "hash", hash};
    desc.tensors = tensors;
    desc.metadata = metadata;
    desc.metadata_pairs = 3;
    desc.fetch = fetch_block;
    desc.fetch_user = &w;
    snprintf(path, sizeof path, "%s/%s", folder, clt_step_name_of(t->steps).text);
    CLT_NEXT(status, clt_folder_make(folder));
    CLT_NEXT(status, clt_tensors_save(path, &desc));
    if (status == CLT_OK)
        delete_older(t, folder, keep);
    else
        status = clt_fail_prefix(
            status, "the samples of reservoir '%s' were not saved: ", clt_dataset_name(w.dataset));
    clt_str_free(&text);
    clt_str_free(&counters);
    CLT_FREE(w.indices, w.names, w.places, w.block, tensors);
    return status;
}

/* --- restoring ---------------------------------------------------------------------------------
 */

struct clt_reservoir_file {
    clt_dataset *dataset;
    clt_tensors *tensors;
    uint64_t seed;
    int64_t number, begun, count, replaced, declined, dropped;
};

bool clt_reservoir_saves(const clt_dataset *dataset)
{
    const clt_reservoir *r = dataset->payload;
    return dataset->kind == CLT_DATA_RESERVOIR && r->options.save;
}

static clt_status damaged(const char *path, const char *what)
{
    return clt_fail(CLT_FORMAT, "%s is damaged: %s; resume from another checkpoint", path, what);
}

/* Returns record `i` of a tensor, and its head. */
static const char *record_at(const clt_tensor *tensor, int64_t i, head *h)
{
    const char *record = (const char *)tensor->data + i * tensor->dims[1];
    memcpy(h, record, sizeof *h);
    return record + sizeof *h;
}

static clt_status check_records(clt_reservoir_file *file, const char *path)
{
    const clt_reservoir *r = file->dataset->payload;
    const int64_t bytes = record_bytes(file->dataset);
    unsigned char *have = clt_calloc((size_t)r->capacity, 1);
    clt_status status = have ? CLT_OK : CLT_OUT_OF_MEMORY;
    int64_t count = 0;
    for (int n = 0; status == CLT_OK && n < clt_tensors_count(file->tensors); n++) {
        const clt_tensor *tensor = clt_tensors_at(file->tensors, n);
        if (tensor->dtype != CLT_FILE_U8 || tensor->rank != 2 || tensor->dims[1] != bytes)
            status = damaged(path, "a tensor has another shape than records");
        for (int64_t i = 0; status == CLT_OK && i < tensor->dims[0]; i++, count++) {
            head h;
            const char *fields = record_at(tensor, i, &h);
            if (h.index < 0 || h.index >= file->begun || have[h.index]++ || h.number < 1 ||
                h.hash != hash_of(&h, fields, bytes - (int64_t)sizeof h))
                status = damaged(path, "a sample has another hash or index than it must");
            /* Of samples that came while the file was written. Later ones must have larger numbers.
             */
            if (h.number > file->number)
                file->number = h.number;
        }
    }
    if (status == CLT_OK && count != file->count)
        status = damaged(path, "it has another number of samples than it must");
    clt_free(have);
    return status;
}

static clt_status read_counters(clt_reservoir_file *file, const char *path)
{
    const clt_reservoir *r = file->dataset->payload;
    const char *text = clt_tensors_metadata(file->tensors, "counters");
    const char *hash = clt_tensors_metadata(file->tensors, "hash");
    if (!text || !hash || strtoull(hash, NULL, 16) != clt_hash_text(text, 0) ||
        sscanf(text,
               "%" SCNu64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64,
               &file->seed, &file->number, &file->begun, &file->count, &file->replaced,
               &file->declined, &file->dropped) != 7 ||
        file->number < 0 || file->begun < 0 || file->begun > r->capacity)
        return damaged(path, "its counters are missing, or have another hash than they must");
    return CLT_OK;
}

static clt_status read_file(clt_reservoir_file *file, const char *path)
{
    clt_str own = {0};
    CLT_TRY(clt_tensors_open(path, &file->tensors));
    const char *text = clt_tensors_metadata(file->tensors, "reservoir");
    describe(file->dataset, &own);
    clt_status status = own.failed ? CLT_OUT_OF_MEMORY : CLT_OK;
    if (status == CLT_OK && (!text || strcmp(text, clt_str_text(&own))))
        status = clt_fail(CLT_MISMATCH, "%s has samples of a reservoir for %s; '%s' is for %s",
                          path, text ? text : "an unknown kind", clt_dataset_name(file->dataset),
                          clt_str_text(&own));
    clt_str_free(&own);
    CLT_NEXT(status, read_counters(file, path));
    CLT_NEXT(status, check_records(file, path));
    return status;
}

clt_status clt_reservoir_open(const clt_trainer *t, clt_dataset *reservoir, const char *path,
                              int64_t step, int64_t ranks, clt_reservoir_file **out)
{
    const clt_reservoir *r = reservoir->payload;
    char folder[4096], name[4200];
    *out = NULL;
    if (!ranks || !r->options.save)
        return CLT_OK;
    if (ranks != t->all.ranks)
        return clt_fail(CLT_MISMATCH,
                        "%s has reservoirs of %lld ranks, and this run has %d: resume on as many, "
                        "or begin with empty reservoirs (clt_reservoir_options.save 0)",
                        path, (long long)ranks, t->all.ranks);
    CLT_TRY(folder_of(path, t->all.rank, folder, sizeof folder));
    snprintf(name, sizeof name, "%s/%s", folder, clt_step_name_of(step).text);
    clt_reservoir_file *file = CLT_NEW(clt_reservoir_file);
    CLT_TRY_MEMORY(file);
    file->dataset = reservoir;
    const clt_status status = read_file(file, name);
    if (status != CLT_OK) {
        clt_reservoir_close(file);
        return status;
    }
    *out = file;
    return CLT_OK;
}

/* Puts the record of a sample into a free place. */
static void put_record(clt_reservoir *r, const clt_dataset *d, const head *h, const char *fields)
{
    const int64_t place = r->free[--r->n_free];
    for (int f = 0; f < d->field_count; f++) {
        const clt_data_field *field = &d->fields[f];
        memcpy((char *)field->owned + place * field->bytes, fields, (size_t)field->bytes);
        fields += field->bytes;
    }
    r->entries[h->index] = (clt_reservoir_entry){place, h->number};
    if (r->keys)
        r->keys[h->index] = h->key;
}

clt_status clt_reservoir_fill(const clt_reservoir_file *file)
{
    if (!file)
        return CLT_OK;
    clt_reservoir *r = file->dataset->payload;
    CLT_TRY(clt_reservoir_make(file->dataset));
    pthread_mutex_lock(&r->lock);
    clt_reservoir_empty(r, file->count);
    for (int n = 0; n < clt_tensors_count(file->tensors); n++) {
        const clt_tensor *tensor = clt_tensors_at(file->tensors, n);
        for (int64_t i = 0; i < tensor->dims[0]; i++) {
            head h;
            const char *fields = record_at(tensor, i, &h);
            put_record(r, file->dataset, &h, fields);
        }
    }
    r->options.seed = file->seed;
    r->number = file->number;
    r->begun = file->begun;
    r->kept = file->count;
    /* Pushes that were under way when the file was written were seen, and are gone. */
    r->seen = file->count + file->replaced + file->declined + file->dropped;
    r->replaced = file->replaced;
    r->declined = file->declined;
    r->dropped = file->dropped;
    clt_reservoir_order(r);
    clt_reservoir_restored(r);
    if (r->kept >= r->options.least)
        pthread_cond_broadcast(&r->arrived);
    pthread_mutex_unlock(&r->lock);
    return CLT_OK;
}

void clt_reservoir_close(clt_reservoir_file *file)
{
    if (file)
        clt_tensors_close(file->tensors);
    clt_free(file);
}
