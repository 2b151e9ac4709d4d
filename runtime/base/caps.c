#include "base/caps.h"

#include <string.h>

const clt_tuning_entry *clt_tuning_find(const clt_tuning_record *record, const char *op,
                                        uint64_t key, const char *old_class)
{
    for (int i = 0; record && i < record->count; i++) {
        const clt_tuning_entry *entry = &record->entries[i];
        if (!strcmp(entry->op, op) &&
            (entry->key ? entry->key == key : !strcmp(entry->shape_class, old_class)))
            return entry;
    }
    return NULL;
}
