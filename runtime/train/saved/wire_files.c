#include "train/saved/wire_files.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "base/str.h"
#include "checkpoint/safetensors.h"
#include "train/step/wire.h"

/* Bytes of a message between ranks; room for a sender's name. */
enum { PIECE = 4 << 20, NAME = 32 };

static const char *const roundings[] = {"rank", "node", "sum"};

/* Who keeps a residual. `device` is of its rank; -1: the communicator keeps it. */
typedef struct sender {
    char name[NAME];
    int rank, device, rounding;
} sender;

static bool is_on(const clt_trainer *t)
{
    return t->exchange.wire.dtype != CLT_F32;
}

/* --- senders --------------------------------------------------------------------------------- */

/* Which roundings of this rank count: a bit each. */
static int32_t own_roundings(const clt_trainer *t)
{
    const clt_buckets *layout = &t->store->layout;
    int32_t bits = 0;
    for (int b = 0; b < layout->n_buckets; b++)
        for (int k = 0; k < CLT_ROUNDINGS && t->exchange.wire.sums[b]; k++)
            if (t->exchange.collectives.residual_has(t->exchange.wire.sums[b], k) == 1)
                bits |= 1 << k;
    return bits;
}

/* Lists the senders of all ranks. Collective. */
static clt_status list_senders(const clt_trainer *t, sender **out, int *count)
{
    const int32_t own = own_roundings(t);
    void *told;
    CLT_TRY(clt_ranks_gather(t->all.world, &own, sizeof own, &told));
    sender *list = clt_calloc((size_t)(t->all.total + CLT_ROUNDINGS * t->all.ranks), sizeof *list);
    int n = 0;
    for (int r = 0; list && r < t->all.ranks; r++) {
        for (int p = t->all.begins[r]; t->exchange.wire.rounds && p < t->all.begins[r + 1]; p++) {
            list[n] = (sender){.rank = r, .device = p - t->all.begins[r], .rounding = -1};
            snprintf(list[n++].name, NAME, "device%d", p);
        }
        for (int k = 0; k < CLT_ROUNDINGS; k++)
            if (((const int32_t *)told)[r] >> k & 1) {
                list[n] = (sender){.rank = r, .device = -1, .rounding = k};
                snprintf(list[n++].name, NAME, "%s%d", roundings[k], r);
            }
    }
    clt_free(told);
    CLT_TRY(clt_world_agree(&t->all, list ? CLT_OK : CLT_OUT_OF_MEMORY));
    *out = list;
    *count = n;
    return CLT_OK;
}

/* Finds who is named; false: nobody here. */
static bool find_sender(const clt_trainer *t, const char *name, sender *s)
{
    int number;
    *s = (sender){.device = -1, .rounding = -1};
    snprintf(s->name, NAME, "%s", name);
    if (sscanf(name, "device%d", &number) == 1 && number >= 0 && number < t->all.total) {
        while (number >= t->all.begins[s->rank + 1])
            s->rank++;
        s->device = number - t->all.begins[s->rank];
        return true;
    }
    for (int k = 0; k < CLT_ROUNDINGS; k++) {
        const size_t length = strlen(roundings[k]);
        if (strncmp(name, roundings[k], length) || sscanf(name + length, "%d", &s->rank) != 1 ||
            s->rank < 0 || s->rank >= t->all.ranks)
            continue;
        s->rounding = k;
        return true;
    }
    return false;
}

/* Copies a sender's residual of a bucket to the host, if the sender is of this rank. */
static clt_status read_bucket(const clt_trainer *t, const sender *s, int bucket, float *data)
{
    const int64_t bytes = t->store->layout.buckets[bucket].bytes;
    if (s->rank != t->all.rank)
        return CLT_OK;
    if (s->device >= 0) {
        const clt_replica *r = &t->store->replicas[s->device];
        return clt_replica_read(r, r->residuals[bucket], 0, bytes, data);
    }
    t->exchange.collectives.residual_get(t->exchange.wire.sums[bucket], s->rounding, data);
    return CLT_OK;
}

/* Tells all ranks an array of the root. */
static clt_status tell(const clt_trainer *t, int root, float *data, int64_t bytes)
{
    for (int64_t at = 0; at < bytes; at += PIECE)
        CLT_TRY(clt_world_tell(&t->all, root, (char *)data + at,
                               bytes - at < PIECE ? bytes - at : PIECE));
    return CLT_OK;
}

/* --- saving ---------------------------------------------------------------------------------- */

void clt_wire_saved_free(const clt_trainer *t, clt_wire_saved *s)
{
    for (int i = 0; s->data && i < s->n_senders; i++)
        clt_wire_free_arrays(t, s->data[i]);
    for (int i = 0; s->names && i < s->count; i++)
        clt_free(s->names[i]);
    CLT_FREE(s->section, s->items, s->names, s->data);
    *s = (clt_wire_saved){0};
}

/* Lists a tensor for each parameter and sender. */
static clt_status list_items(const clt_trainer *t, const char *const *senders, int n,
                             clt_wire_saved *s)
{
    const clt_store *store = t->store;
    const size_t room = (size_t)(store->layout.n_slots * n) + 1;
    s->items = clt_calloc(room, sizeof *s->items);
    s->names = clt_calloc(room, sizeof *s->names);
    CLT_TRY_MEMORY(s->items && s->names);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < store->layout.n_slots; k++) {
            const clt_slot *slot = &store->layout.slots[store->order[k]];
            char name[512];
            if (slot->state)
                continue;
            snprintf(name, sizeof name, "%s.wire.%s", slot->name, senders[i]);
            s->names[s->count] = clt_strdup(name);
            CLT_TRY_MEMORY(s->names[s->count]);
            CLT_TRY(clt_tensor_init(&s->items[s->count], s->names[s->count], CLT_FILE_F32,
                                    slot->type.rank, slot->type.dims,
                                    s->data ? s->data[i][slot->bucket] + slot->offset / 4 : NULL));
            s->count++;
        }
    return CLT_OK;
}

/* The section: the type, the layout, the senders. */
static clt_status write_section(const clt_trainer *t, const char *layout,
                                const char *const *senders, int n, char **out)
{
    clt_str text = {0};
    clt_str_add(&text, "%s %s", clt_dtype_name(t->options.wire), layout);
    for (int i = 0; i < n; i++)
        clt_str_add(&text, " %s", senders[i]);
    *out = text.failed ? NULL : clt_strdup(clt_str_text(&text));
    clt_str_free(&text);
    CLT_TRY_MEMORY(*out);
    return CLT_OK;
}

static clt_status finish(const clt_trainer *t, const char *layout, const char *const *senders,
                         clt_wire_saved *s)
{
    if (t->all.rank)
        return CLT_OK;
    CLT_TRY(list_items(t, senders, s->n_senders, s));
    return write_section(t, layout, senders, s->n_senders, &s->section);
}

/* One device has at most what was parked. */
static clt_status collect_parked(clt_trainer *t, clt_wire_saved *s)
{
    static const char *const names[] = {"parked"};
    const clt_buckets *layout = &t->store->layout;
    if (t->parked) {
        s->data = clt_calloc(1, sizeof *s->data);
        CLT_TRY_MEMORY(s->data);
        CLT_TRY(clt_wire_arrays(t, &s->data[0]));
        s->n_senders = 1;
        for (int b = 0; b < layout->n_buckets; b++)
            if (!layout->buckets[b].state)
                memcpy(s->data[0][b], t->parked[b], (size_t)layout->buckets[b].bytes);
    }
    return finish(t, "alone", names, s);
}

/* Rank 0 keeps all arrays; the others have one sender's at a time. */
static clt_status collect_sender(clt_trainer *t, const sender *who, float ***arrays)
{
    const clt_buckets *layout = &t->store->layout;
    clt_status status = clt_world_agree(&t->all, clt_wire_arrays(t, arrays));
    for (int b = 0; b < layout->n_buckets && status == CLT_OK; b++)
        if (!layout->buckets[b].state) {
            status = clt_world_agree(&t->all, read_bucket(t, who, b, (*arrays)[b]));
            CLT_NEXT(status, tell(t, who->rank, (*arrays)[b], layout->buckets[b].bytes));
        }
    return status;
}

clt_status clt_wire_collect(clt_trainer *t, clt_wire_saved *s)
{
    sender *senders = NULL;
    int n = 0;
    if (t->options.wire != CLT_F32 && t->all.total == 1)
        return collect_parked(t, s);
    if (!is_on(t))
        return CLT_OK;
    CLT_TRY(clt_world_agree(&t->all, clt_trainer_wait(t)));
    CLT_TRY(list_senders(t, &senders, &n));
    const char **names = clt_calloc((size_t)n + 1, sizeof *names);
    s->data = clt_calloc((size_t)n + 1, sizeof *s->data);
    clt_status status = clt_world_agree(&t->all, names && s->data ? CLT_OK : CLT_OUT_OF_MEMORY);
    for (int i = 0; i < n && status == CLT_OK; i++) {
        names[i] = senders[i].name;
        s->n_senders = i + 1;
        status = collect_sender(t, &senders[i], &s->data[i]);
        if (t->all.rank) {
            clt_wire_free_arrays(t, s->data[i]);
            s->data[i] = NULL;
        }
    }
    CLT_NEXT(status, finish(t, t->exchange.wire.layout, names, s));
    CLT_FREE(names, senders);
    return clt_world_agree(&t->all, status);
}

/* --- restoring ------------------------------------------------------------------------------- */

/* The words of a section. */
typedef struct words {
    char *text;
    const char **of;
    int count;
} words;

static void words_free(words *w)
{
    CLT_FREE(w->text, w->of);
}

static clt_status read_words(const char *text, words *w)
{
    char *save = NULL;
    *w = (words){.text = clt_strdup(text)};
    w->of = clt_calloc(strlen(text) + 1, sizeof *w->of);
    if (!w->text || !w->of) {
        words_free(w);
        return CLT_OUT_OF_MEMORY;
    }
    for (char *at = strtok_r(w->text, " ", &save); at; at = strtok_r(NULL, " ", &save))
        w->of[w->count++] = at;
    return CLT_OK;
}

clt_status clt_wire_expect(const clt_trainer *t, const clt_checkpoint *checkpoint,
                           clt_wire_saved *expected)
{
    const clt_section *section = clt_checkpoint_section(checkpoint, CLT_SECTION_WIRE);
    const char *own = clt_dtype_name(t->options.wire);
    words w;
    if (!section)
        return CLT_OK;
    CLT_TRY(read_words(section->text, &w));
    const char *theirs = w.count ? w.of[0] : "?";
    clt_status status =
        t->is_replica
            ? clt_fail(CLT_MISMATCH,
                       "%s has residuals of gradients (wire %s), and replicas exchange parameters: "
                       "go on without local, or start a new run from its parameters",
                       clt_checkpoint_path(checkpoint), theirs)
        : strcmp(theirs, own)
            ? clt_fail(CLT_MISMATCH,
                       "%s has residuals of wire %s, this run has wire %s: go on with wire %s, or "
                       "start a new run from its parameters",
                       clt_checkpoint_path(checkpoint), theirs, own, theirs)
            : CLT_OK;
    if (status == CLT_OK && w.count > 2)
        status = list_items(t, w.of + 2, w.count - 2, expected);
    words_free(&w);
    return status;
}

/* Reads a sender's tensors. */
static clt_status load(const clt_trainer *t, const clt_tensors *tensors, const char *who,
                       float **arrays)
{
    const clt_buckets *layout = &t->store->layout;
    for (int i = 0; i < layout->n_slots; i++) {
        const clt_slot *slot = &layout->slots[i];
        char name[512];
        const clt_tensor *tensor;
        const void *data;
        void *owned;
        if (slot->state)
            continue;
        snprintf(name, sizeof name, "%s.wire.%s", slot->name, who);
        CLT_TRY(clt_tensors_find(tensors, name, &tensor));
        CLT_TRY(clt_tensors_load(tensors, tensor, &data, &owned));
        memcpy(arrays[slot->bucket] + slot->offset / 4, data, (size_t)slot->bytes);
        clt_free(owned);
    }
    return CLT_OK;
}

/* Writes a sender's residuals if they are of this rank, or if this rank has the same as rank 0. */
static clt_status place(const clt_trainer *t, const sender *s, float *const *arrays)
{
    const clt_buckets *layout = &t->store->layout;
    const clt_collectives *c = &t->exchange.collectives;
    for (int b = 0; b < layout->n_buckets; b++) {
        clt_collective_residual *sum = t->exchange.wire.sums[b];
        if (!sum)
            continue;
        const bool same = s->rounding == CLT_ROUNDS_SUM && s->rank == 0 &&
                          c->residual_has(sum, CLT_ROUNDS_SUM) == 2;
        if (s->rank != t->all.rank && !same)
            continue;
        const clt_replica *r = s->device >= 0 ? &t->store->replicas[s->device] : NULL;
        CLT_TRY(r ? clt_replica_write(r, r->residuals[b], 0, layout->buckets[b].bytes, arrays[b])
                  : c->residual_set(sum, s->rounding, arrays[b]));
    }
    return CLT_OK;
}

/* Sets all residuals of this rank to zero. */
static clt_status forget(clt_trainer *t)
{
    float **zeros;
    clt_wire_free(t);
    if (!is_on(t))
        return CLT_OK;
    CLT_TRY(clt_wire_arrays(t, &zeros));
    clt_status status = CLT_OK;
    for (int d = 0; t->exchange.wire.rounds && d < t->all.own; d++)
        CLT_NEXT(status,
                 place(t, &(sender){.rank = t->all.rank, .device = d, .rounding = -1}, zeros));
    for (int b = 0; b < t->store->layout.n_buckets; b++)
        for (int k = 0; k < CLT_ROUNDINGS && t->exchange.wire.sums[b]; k++)
            if (t->exchange.collectives.residual_has(t->exchange.wire.sums[b], k))
                CLT_NEXT(status, t->exchange.collectives.residual_set(t->exchange.wire.sums[b], k,
                                                                      zeros[b]));
    clt_wire_free_arrays(t, zeros);
    return status;
}

/* Adds a sender's residuals to what rank 0 sends next. */
static clt_status add_to_first(clt_trainer *t, float *const *arrays)
{
    const clt_buckets *layout = &t->store->layout;
    if (t->all.rank)
        return CLT_OK;
    if (!t->parked)
        CLT_TRY(clt_wire_arrays(t, &t->parked));
    for (int b = 0; b < layout->n_buckets; b++)
        for (int64_t i = 0; t->parked[b] && i < layout->buckets[b].bytes / 4; i++)
            t->parked[b][i] += arrays[b][i];
    return CLT_OK;
}

static clt_status restore_sender(clt_trainer *t, const clt_checkpoint *checkpoint, bool together,
                                 bool same, const char *name)
{
    const clt_buckets *layout = &t->store->layout;
    float **arrays = NULL;
    sender s;
    clt_status status = clt_wire_arrays(t, &arrays);
    if (checkpoint)
        CLT_NEXT(status, load(t, clt_checkpoint_optimizer(checkpoint), name, arrays));
    if (together)
        status = clt_world_agree(&t->all, status);
    for (int b = 0; b < layout->n_buckets && together && status == CLT_OK; b++)
        if (arrays[b])
            status = tell(t, 0, arrays[b], layout->buckets[b].bytes);
    if (status == CLT_OK && same && find_sender(t, name, &s))
        status = place(t, &s, arrays);
    else if (status == CLT_OK)
        status = add_to_first(t, arrays);
    clt_wire_free_arrays(t, arrays);
    return status;
}

static clt_status restore_all(clt_trainer *t, const clt_checkpoint *checkpoint, bool together,
                              const words *w)
{
    const bool same = is_on(t) && !strcmp(w->of[1], t->exchange.wire.layout);
    clt_status status = CLT_OK;
    for (int i = 2; i < w->count && status == CLT_OK; i++) {
        status = restore_sender(t, checkpoint, together, same, w->of[i]);
        if (together)
            status = clt_world_agree(&t->all, status);
    }
    if (status == CLT_OK && !same && w->count > 2 && !t->all.rank)
        clt_log(CLT_LOG_WARN,
                "wire %s: the run goes on with other devices or ranks; the residuals of %d senders "
                "are added up, and %s",
                w->of[0], w->count - 2,
                is_on(t) ? "rank 0 adds the sum to what it sends first"
                         : "wait for a run that has several devices again");
    CLT_NEXT(status, clt_wire_unpark(t));
    return status;
}

/* Rank 0's section is told to all ranks. */
static clt_status tell_section(const clt_trainer *t, const clt_checkpoint *checkpoint, char **text)
{
    const clt_section *section =
        checkpoint ? clt_checkpoint_section(checkpoint, CLT_SECTION_WIRE) : NULL;
    int64_t bytes = section ? (int64_t)strlen(section->text) + 1 : 0;
    CLT_TRY(clt_world_tell(&t->all, 0, &bytes, sizeof bytes));
    *text = clt_calloc((size_t)bytes + 1, 1);
    CLT_TRY(clt_world_agree(&t->all, *text ? CLT_OK : CLT_OUT_OF_MEMORY));
    if (section)
        memcpy(*text, section->text, (size_t)bytes);
    return bytes ? clt_world_tell(&t->all, 0, *text, bytes) : CLT_OK;
}

clt_status clt_wire_restore(clt_trainer *t, const clt_checkpoint *checkpoint, bool together)
{
    const clt_section *section =
        checkpoint ? clt_checkpoint_section(checkpoint, CLT_SECTION_WIRE) : NULL;
    char *told = NULL;
    words w = {0};
    if (t->options.wire == CLT_F32)
        return CLT_OK;
    clt_status status = forget(t);
    if (together)
        status = clt_world_agree(&t->all, status);
    if (together)
        CLT_NEXT(status, tell_section(t, checkpoint, &told));
    const char *text = together ? told : section ? section->text : "";
    CLT_NEXT(status, read_words(text, &w));
    if (status == CLT_OK && w.count > 2)
        status = restore_all(t, checkpoint, together, &w);
    words_free(&w);
    clt_free(told);
    return status;
}
