#include "base/table.h"

#include <string.h>

#include "base/vec.h"

static void put(const clt_table *table, int entry)
{
    const uint64_t mask = (uint64_t)table->n_places - 1;
    uint64_t at = table->entries[entry].hash & mask;
    while (table->places[at])
        at = (at + 1) & mask;
    table->places[at] = entry + 1;
}

/* Puts entries in the order in which they were added, so that equal hashes are found in that
 * order. */
static clt_status grow(clt_table *table)
{
    const int larger = table->n_places ? 2 * table->n_places : 64;
    int *places = clt_calloc((size_t)larger, sizeof *places);
    CLT_TRY_MEMORY(places);
    clt_free(table->places);
    table->places = places;
    table->n_places = larger;
    for (int i = 0; i < table->count; i++)
        put(table, i);
    return CLT_OK;
}

clt_status clt_table_add(clt_table *table, uint64_t hash, int item)
{
    enum { MOST = 1 << 29 };
    if (table->count >= MOST)
        return clt_fail(CLT_OUT_OF_MEMORY, "a table of more than %d names was needed", MOST);
    if (2 * (table->count + 1) > table->n_places)
        CLT_TRY(grow(table));
    CLT_TRY(CLT_PUSH(table->entries, table->count, table->room, (clt_table_entry){hash, item}));
    put(table, table->count - 1);
    return CLT_OK;
}

int clt_table_find(const clt_table *table, uint64_t hash, bool (*matches)(const void *, int),
                   const void *context)
{
    if (!table->n_places)
        return -1;
    const uint64_t mask = (uint64_t)table->n_places - 1;
    for (uint64_t at = hash & mask; table->places[at]; at = (at + 1) & mask) {
        const clt_table_entry *entry = &table->entries[table->places[at] - 1];
        if (entry->hash == hash && matches(context, entry->item))
            return entry->item;
    }
    return -1;
}

void clt_table_clear(clt_table *table)
{
    table->count = 0;
    if (table->places)
        memset(table->places, 0, (size_t)table->n_places * sizeof *table->places);
}

void clt_table_free(clt_table *table)
{
    CLT_FREE(table->entries, table->places);
    *table = (clt_table){0};
}
