/*
 * A hash table from keys to items of an array that the caller owns. The table stores hashes and
 * positions only: the caller hashes the key, and compares the items that the table proposes.
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
    int *places;  /* by hash: the entry's number plus one; 0: free */
    int n_places; /* 0 or a power of two, at least twice `count` */
} clt_table;

/* Adds an item; several may have one hash. OUT_OF_MEMORY leaves the table as it was. */
clt_status clt_table_add(clt_table *table, uint64_t hash, int item);

/* Find the item of that hash that was added first and that `matches` accepts; -1: none. */
int clt_table_find(const clt_table *table, uint64_t hash, bool (*matches)(const void *, int),
                   const void *context);

/* Empties the table and keeps its memory. */
void clt_table_clear(clt_table *table);

void clt_table_free(clt_table *table);

#endif
