/* Numbers that a tuner chose, as text: NAME=NUMBER,... */
#include <stdlib.h>
#include <string.h>

#include "ops/core/launch.h"

int64_t clt_tile_number(const clt_target *target, const char *name, int64_t least, int64_t most,
                        int64_t default_value)
{
    const size_t length = strlen(name);
    for (const char *at = target->tile; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        if (strncmp(at, name, length) || at[length] != '=')
            continue;
        const int64_t value = strtoll(at + length + 1, NULL, 10);
        return value < least || value > most ? default_value : value;
    }
    return default_value;
}
