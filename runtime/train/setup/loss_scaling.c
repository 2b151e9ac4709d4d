#include "train/setup/loss_scaling.h"

#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "base/error.h"
#include "base/log.h"

clt_status clt_scaling_to_json(clt_update *update, clt_dtype precision, char *text, size_t bytes)
{
    clt_scaling s;
    CLT_TRY(clt_update_scaling(update, &s));
    if (precision == CLT_F16)
        snprintf(text, bytes, "{\"scale\": %.17g, \"good\": %d, \"skipped\": %d}", (double)s.scale,
                 (int)s.good, (int)s.skipped);
    else
        snprintf(text, bytes, "{}");
    return CLT_OK;
}

/* A checkpoint without the section is older than the other precisions, so it is f32. */
static void compare_precision(clt_dtype precision, const clt_checkpoint *checkpoint)
{
    const clt_section *section = clt_checkpoint_section(checkpoint, CLT_SECTION_PRECISION);
    const char *before = section ? section->text : clt_dtype_name(CLT_F32);
    const char *now = clt_dtype_name(precision);
    if (strcmp(before, now))
        clt_log(CLT_LOG_WARN, "%s was written by a run in %s, this run goes on in %s",
                clt_checkpoint_path(checkpoint), before, now);
}

clt_status clt_scaling_read(clt_dtype precision, const clt_checkpoint *checkpoint, clt_scaling *out)
{
    const clt_section *section = clt_checkpoint_section(checkpoint, CLT_SECTION_SCALING);
    clt_scaling s = clt_scaling_begin();
    json_t *json = section ? json_loads(section->text, 0, NULL) : NULL;
    if (json_object_size(json)) { /* else the earlier run was not in f16 */
        s.scale = (float)json_number_value(json_object_get(json, "scale"));
        s.good = (int32_t)json_integer_value(json_object_get(json, "good"));
        s.skipped = (int32_t)json_integer_value(json_object_get(json, "skipped"));
    }
    json_decref(json);
    if (!clt_scaling_valid(&s))
        return clt_fail(CLT_FORMAT,
                        "%s: the section \"" CLT_SECTION_SCALING
                        "\" of its state.json is damaged: %.200s is no scale with counts of steps: "
                        "resume from another checkpoint",
                        clt_checkpoint_path(checkpoint), section->text);
    compare_precision(precision, checkpoint);
    *out = s;
    return CLT_OK;
}
