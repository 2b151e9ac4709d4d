#include "data/folders/class_names.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <cltrain/text.h>
#include <jansson.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/vec.h"

enum { MOST_CLASSES = 1 << 20 };

/* Returns the name as JSON keeps it. */
static json_t *kept(const char *name)
{
    char shown[4 * NAME_MAX + 1];
    json_t *text = json_string(name);
    if (text)
        return text;
    clt_printable(name, shown, sizeof shown);
    return json_string(shown);
}

bool clt_class_has_name(const char *name, const char *folder)
{
    json_t *text = kept(folder);
    const bool has = text && !strcmp(json_string_value(text), name);
    json_decref(text);
    return has;
}

clt_status clt_class_names_write(const clt_listing *classes, char **json)
{
    json_t *list = json_array();
    for (int i = 0; i < classes->count; i++)
        json_array_append_new(list, kept(classes->names[i]));
    const bool whole = (int)json_array_size(list) == classes->count;
    json_t *all = json_pack("{s:o}", "classes", list);
    char *text = all && whole ? json_dumps(all, JSON_COMPACT) : NULL;
    json_decref(all);
    *json = text ? clt_strdup(text) : NULL;
    free(text);
    return *json ? CLT_OK : clt_fail(CLT_OUT_OF_MEMORY, "the classes cannot be described");
}

static clt_status add(const char *name, clt_listing *out)
{
    if (!name || !*name || out->count == MOST_CLASSES)
        return clt_fail(CLT_FORMAT, "the description of the classes is not one that "
                                    "clt_dataset_description gave");
    char *copy = clt_strdup(name);
    CLT_TRY_MEMORY(copy);
    const clt_status status = CLT_PUSH(out->names, out->count, out->room, copy);
    if (status != CLT_OK)
        clt_free(copy);
    return status;
}

clt_status clt_class_names_read(const char *json, clt_listing *out)
{
    size_t i;
    json_t *all = json_loads(json, 0, NULL), *name;
    const json_t *list = json_object_get(all, "classes");
    clt_status status = json_array_size(list) ? CLT_OK : add(NULL, out);
    *out = (clt_listing){0};
    json_array_foreach(list, i, name)
    {
        CLT_NEXT(status, add(json_string_value(name), out));
    }
    json_decref(all);
    return status;
}
