/* `cltrain export`: parameters of a checkpoint as files for other programs. */
#include <stdio.h>
#include <string.h>

#include <cltrain/lora.h>

#include "options/commands.h"
#include "job/job.h"
#include "saved/label_names.h"
#include "saved/saved.h"
#include "text/message.h"

/* Makes the model and loads the checkpoint. */
static int make(job *j, settings *s, saved *c)
{
    if (s->normalize)
        TRY(read_normalize(j, s));
    if (c->use)
        TRY(use_read(j, s, c->use, c->file));
    else if (s->data)
        TRY(job_data(j, s, DATA_TEST));
    else
        return usage_error("%s does not say what its model was trained on: give --data SPEC",
                           s->checkpoint);
    TRY(job_devices(j, s));
    TRY(job_graph(j, s));
    TRY(job_store(j, s));
    return library_failure(saved_load(c, j->store));
}

int run_export(const settings *given)
{
    job j = {0};
    saved c = {0};
    settings s = *given;
    int code = !s.output ? usage_error("--output is missing: the file or folder to write") : 0;
    if (!code && s.merge_lora && s.adapter)
        code = usage_error("--merge-lora and --adapter exclude each other");
    clt_trainer_options_init(&j.options);
    NEXT(code, saved_open(&c, &s));
    s.model = c.model;
    if (!code)
        saved_settings(&c, &s);
    NEXT(code, make(&j, &s, &c));
    if (!code && (s.merge_lora || s.adapter) && !s.lora)
        code = usage_error("--%s: %s has no adapters of --lora",
                           s.adapter ? "adapter" : "merge-lora", s.checkpoint);
    if (!code)
        code = library_failure(s.adapter      ? clt_lora_save(j.graph, j.store, s.output)
                               : s.merge_lora ? clt_lora_save_merged(j.graph, j.store, s.output)
                                              : clt_store_save(j.store, s.output));
    if (!code)
        show("%s\n", s.output);
    code = job_close(&j, code);
    saved_close(&c);
    return code;
}
