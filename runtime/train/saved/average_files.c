#include "train/saved/average_files.h"

#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "base/alloc.h"
#include "base/log.h"
#include "checkpoint/safetensors.h"
#include "train/step/averages.h"
#include "train/store/parts.h"

clt_status clt_averages_save(clt_trainer *t, clt_tensor_list *list, char **section)
{
    char how[96], text[160];
    int64_t steps;
    CLT_TRY(clt_trainer_averaged(t, &steps));
    clt_averages_text(&t->options.average, how);
    snprintf(text, sizeof text, "{\"of\":\"%s\",\"steps\":%lld}", how, (long long)steps);
    *section = clt_strdup(text);
    CLT_TRY_MEMORY(*section);
    return steps ? clt_tensor_list_averages(t->store, list) : CLT_OK;
}

static clt_status load_one(clt_trainer *t, const clt_participants *leads,
                           const clt_tensors *tensors, const clt_slot *slot)
{
    const clt_tensor *tensor;
    const void *data;
    void *owned;
    CLT_TRY(clt_tensors_find(tensors, slot->name, &tensor));
    CLT_TRY(clt_tensors_load(tensors, tensor, &data, &owned));
    const clt_status status = leads ? clt_whole_set(leads, t->store, CLT_AVERAGES, slot, data)
                                    : clt_store_write(t->store, CLT_AVERAGES, slot, data);
    clt_free(owned);
    return status;
}

static clt_status load_all(clt_trainer *t, const clt_participants *leads,
                           const clt_tensors *tensors)
{
    clt_tensor_list list = {0};
    clt_status status = clt_tensor_list_make(t->store, NULL, &list);
    CLT_NEXT(status, clt_tensors_match(tensors, list.items, list.count, CLT_MATCH_EXACT));
    for (int i = 0; status == CLT_OK && i < list.count; i++)
        status = load_one(t, leads, tensors, list.of[i].slot);
    clt_tensor_list_free(&list);
    return status;
}

clt_status clt_averages_load(clt_trainer *t, const clt_participants *leads,
                             const clt_checkpoint *checkpoint)
{
    const clt_section *section = clt_checkpoint_section(checkpoint, CLT_SECTION_AVERAGE);
    const clt_tensors *tensors = clt_checkpoint_average(checkpoint);
    json_t *json = section ? json_loads(section->text, 0, NULL) : NULL;
    const char *before = json_string_value(json_object_get(json, "of"));
    int64_t steps = (int64_t)json_integer_value(json_object_get(json, "steps"));
    char now[96] = "";
    clt_status status = CLT_OK;
    if (t->options.average.kind)
        clt_averages_text(&t->options.average, now);
    const bool same = before && !strcmp(before, now);
    if (!same && (before || *now))
        clt_log(CLT_LOG_WARN, "%s has %s%s of weights, and this run keeps %s%s: %s",
                clt_checkpoint_path(checkpoint), before ? "averages " : "no averages",
                before ? before : "", *now ? "averages " : "none", now,
                *now ? "they begin anew" : "those of the checkpoint are dropped");
    if (!same)
        steps = 0;
    else if (steps && tensors)
        status = load_all(t, leads, tensors);
    json_decref(json);
    CLT_NEXT(status, clt_averages_set(t, steps));
    return status;
}
