/*
 * A hash table from keys to items of an array that the caller owns. The table stores only hashes
 * and positions: the caller hashes keys and compares items.
 */
#ifndef CLT_BASE_TABLE_H
#define CLT_BASE_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

typedef struct clt_table_entry {
    uint64_t hash;
    int item;
} clt_table_entry;

/* All zero: empty. Free with clt_table_free. */
typedef struct clt_table {
    clt_table_entry *entries; /* in the order of clt_table_add */
    int count, room;
    int *places;  /* by hash: number of an entry plus one; 0: free */
    int n_places; /* 0 or a power of two, at least twice `count` */
} clt_table;

/* Adds an item. Several items may have the same hash. After OUT_OF_MEMORY the table is
 * unchanged. */
clt_status clt_table_add(clt_table *table, uint64_t hash, int item);

/* Finds the item with this hash that `matches` accepts, the first added if there are several; -1 if
 * there is none. */
int clt_table_find(const clt_table *table, uint64_t hash, bool (*matches)(const void *, int),
                   const void *context);

/* Empties the table and keeps its memory. */
void clt_table_clear(clt_table *table);

void clt_table_free(clt_table *table);

#endif
