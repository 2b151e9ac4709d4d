#include "train/local/further.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "train/local/outer_wire.h"
#include "train/saved/store_files.h"
#include "train/step/shards.h"
#include "train/store/parts.h"

static const char *const roundings[CLT_ROUNDINGS] = {"rank", "node", "sum"};

void clt_further_list_free(clt_further_list *list)
{
    CLT_FREE(list->tensors, list->of, list->names);
    *list = (clt_further_list){0};
}

/* Writes the name of a tensor. */
static void name_it(const clt_local *local, const clt_further *f, char *name, size_t room)
{
    const clt_optimizer_row *row = clt_optimizer_of(&local->trainers[0]->options);
    if (f->kind == CLT_FURTHER_INNER)
        snprintf(name, room, "replica.%d.%s.%s", f->owner, f->slot->name, row->slots[f->index]);
    else if (f->kind == CLT_FURTHER_VELOCITY)
        snprintf(name, room, "outer.%s.momentum_buffer", f->slot->name);
    else
        snprintf(name, room, "%s.wire.%s%d", f->slot->name,
                 f->kind == CLT_FURTHER_SENT ? "replica" : roundings[f->index], f->owner);
}

static clt_status add(const clt_local *local, clt_further_list *list, clt_further f)
{
    char *name = list->names[list->count];
    name_it(local, &f, name, sizeof *list->names);
    list->of[list->count] = f;
    list->largest = f.slot->bytes > list->largest ? f.slot->bytes : list->largest;
    return clt_tensor_init(&list->tensors[list->count++], name, (clt_file_dtype)f.slot->type.dtype,
                           f.slot->type.rank, f.slot->type.dims, NULL);
}

/* Adds the tensors of a parameter. */
static clt_status add_slot(const clt_local *local, const clt_further_wanted *w,
                           clt_further_list *list, const clt_slot *slot)
{
    const clt_optimizer_row *row = clt_optimizer_of(&local->trainers[0]->options);
    for (int r = 1; r < w->inner; r++)
        for (int k = 0; k < row->n_slots; k++)
            if (clt_store_keeps(local->trainers[0]->store, slot, k))
                CLT_TRY(add(local, list, (clt_further){CLT_FURTHER_INNER, r, k, slot}));
    if (w->velocity)
        CLT_TRY(add(local, list, (clt_further){CLT_FURTHER_VELOCITY, 0, 0, slot}));
    for (int r = 0; r < w->sent; r++)
        CLT_TRY(add(local, list, (clt_further){CLT_FURTHER_SENT, r, 0, slot}));
    for (int r = 0; r < w->ranks; r++)
        for (int k = 0; k < CLT_ROUNDINGS; k++)
            if (w->roundings[r] >> k & 1)
                CLT_TRY(add(local, list, (clt_further){CLT_FURTHER_SUM, r, k, slot}));
    return CLT_OK;
}

clt_status clt_further_list_make(const clt_local *local, const clt_further_wanted *w,
                                 clt_further_list *list)
{
    const clt_trainer *t = local->trainers[0];
    const clt_buckets *layout = &t->store->layout;
    const clt_optimizer_row *row = clt_optimizer_of(&t->options);
    const size_t each = (size_t)w->inner * (size_t)row->n_slots + 1 + (size_t)w->sent +
                        (size_t)w->ranks * CLT_ROUNDINGS;
    const size_t room = (size_t)layout->n_slots * each + 1;
    *list = (clt_further_list){.tensors = clt_calloc(room, sizeof *list->tensors),
                               .of = clt_calloc(room, sizeof *list->of),
                               .names = clt_calloc(room, sizeof *list->names),
                               .largest = 1};
    CLT_TRY_MEMORY(list->tensors && list->of && list->names);
    for (int i = 0; i < layout->n_slots; i++)
        if (!layout->slots[i].state)
            CLT_TRY(add_slot(local, w, list, &layout->slots[i]));
    return CLT_OK;
}

int clt_further_rank(const clt_local *local, const clt_further *f)
{
    int rank = 0;
    if (f->kind == CLT_FURTHER_SUM)
        return f->owner;
    while (f->owner >= local->begins[rank + 1])
        rank++;
    return rank;
}

float *clt_further_velocity(const clt_local *local, const clt_slot *slot)
{
    const clt_outer_state *o = &local->outer;
    return o->velocity + clt_outer_place(o, slot);
}

clt_status clt_further_get(const clt_local *local, const clt_further *f, void *data)
{
    const int own = f->owner - local->first;
    if (f->kind == CLT_FURTHER_VELOCITY)
        memcpy(data, clt_further_velocity(local, f->slot), (size_t)f->slot->bytes);
    else if (f->kind == CLT_FURTHER_SENT)
        memcpy(data, local->outer.wire.residuals[own] + clt_outer_place(&local->outer, f->slot),
               (size_t)f->slot->bytes);
    else if (f->kind == CLT_FURTHER_SUM)
        return clt_outer_wire_get(local, f->index, f->slot, data);
    else
        return clt_whole_get(&local->trainers[own]->all, local->trainers[own]->store, f->index,
                             f->slot, data);
    return CLT_OK;
}

clt_status clt_further_set(const clt_local *local, const clt_further *f, const void *data)
{
    const int own = f->owner - local->first;
    const bool here = clt_further_rank(local, f) == local->all.rank;
    if (f->kind == CLT_FURTHER_VELOCITY)
        memcpy(clt_further_velocity(local, f->slot), data, (size_t)f->slot->bytes);
    else if (f->kind == CLT_FURTHER_SUM)
        return clt_outer_wire_set(local, f->owner, f->index, f->slot, data);
    else if (here && f->kind == CLT_FURTHER_SENT)
        memcpy(local->outer.wire.residuals[own] + clt_outer_place(&local->outer, f->slot), data,
               (size_t)f->slot->bytes);
    else if (here)
        return clt_shards_write(local->trainers[own], f->index, f->slot, data);
    return CLT_OK;
}
