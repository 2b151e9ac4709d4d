#include "saved/saved.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "text/message.h"

static int is_file(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && !S_ISDIR(info.st_mode);
}

static int read_sections(saved *c, const settings *s)
{
    const clt_section *model = clt_checkpoint_section(c->checkpoint, "model");
    const clt_section *use = clt_checkpoint_section(c->checkpoint, "use");
    if (!s->model && model && *model->text && !(c->model = strdup(model->text)))
        return failure("memory does not suffice");
    if (use && !(c->use = json_loads(use->text, 0, NULL)))
        return failure("%s: state.json: the section \"use\" is no JSON", c->file);
    return 0;
}

int saved_open(saved *c, const settings *s)
{
    if (!s->checkpoint)
        return usage_error("--checkpoint is missing: a run's folder, a step's folder, or a "
                           ".safetensors file");
    if (s->model && !(c->model = strdup(s->model)))
        return failure("memory does not suffice");
    c->averaged = s->averaged > 0;
    if (is_file(s->checkpoint) && s->averaged > 0)
        return usage_error("--averaged: %s is a file, not a checkpoint; its averages are in "
                           "average.safetensors",
                           s->checkpoint);
    if (is_file(s->checkpoint)) {
        snprintf(c->file, sizeof c->file, "%s", s->checkpoint);
    } else {
        TRY(library_failure(clt_checkpoint_open(s->checkpoint, &c->checkpoint)));
        snprintf(c->file, sizeof c->file, "%.4070s/%s.safetensors",
                 clt_checkpoint_path(c->checkpoint), c->averaged ? "average" : "model");
        if (c->averaged && !clt_checkpoint_average(c->checkpoint))
            return usage_error("--averaged: %s has no averages of weights; train --average keeps "
                               "them",
                               clt_checkpoint_path(c->checkpoint));
        TRY(read_sections(c, s));
    }
    if (!c->model)
        return usage_error("--model is missing, and %s does not name one; `cltrain models` "
                           "lists them",
                           s->checkpoint);
    return library_failure(c->checkpoint ? CLT_OK : clt_tensors_open(c->file, &c->alone));
}

const clt_tensors *saved_tensors(const saved *c)
{
    return !c->checkpoint ? c->alone
           : c->averaged  ? clt_checkpoint_average(c->checkpoint)
                          : clt_checkpoint_model(c->checkpoint);
}

clt_status saved_load(saved *c, clt_store *store)
{
    const clt_status status = clt_store_load_tensors(store, saved_tensors(c));
    clt_tensors_close(c->alone);
    c->alone = NULL;
    return status;
}

void saved_settings(const saved *c, settings *s)
{
    const char *lora = json_string_value(json_object_get(c->use, "lora"));
    if (s->lora || !lora)
        return;
    s->lora = (char *)(uintptr_t)lora;
    s->lora_dropout = json_number_value(json_object_get(c->use, "lora_dropout"));
}

void saved_close(saved *c)
{
    clt_checkpoint_close(c->checkpoint);
    clt_tensors_close(c->alone);
    json_decref(c->use);
    free(c->model);
}
