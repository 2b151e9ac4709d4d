#include "output/scalars.h"

#include <string.h>

/* Fields that say which record it is. */
static int is_position(const char *name)
{
    return strcmp(name, "step") == 0 || strcmp(name, "worker") == 0 || strcmp(name, "sync") == 0;
}

clt_status scalars_add(clt_event_file *file, const json_t *record, int64_t step)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)record, name, value)
    {
        if (!json_is_number(value) || is_position(name))
            continue;
        const clt_status status = clt_event_file_scalar(file, name, step, json_number_value(value));
        if (status != CLT_OK)
            return status;
    }
    return CLT_OK;
}
