#include "job/first_parameters.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cltrain/checkpoint.h>
#include <cltrain/lora.h>

#include "job/replicas.h"
#include "text/message.h"

/* Returns whether a file or checkpoint has adapters. Loading reports what cannot be read. */
static int has_adapters(const char *path)
{
    struct stat info;
    clt_checkpoint *checkpoint = NULL;
    clt_tensors *alone = NULL;
    int has = 0;
    const int folder = !stat(path, &info) && S_ISDIR(info.st_mode);
    if ((folder ? clt_checkpoint_open(path, &checkpoint) : clt_tensors_open(path, &alone)) !=
        CLT_OK)
        return 0;
    const clt_tensors *all = checkpoint ? clt_checkpoint_model(checkpoint) : alone;
    for (int i = 0; i < clt_tensors_count(all); i++)
        has |= strstr(clt_tensors_at(all, i)->name, ".lora_A.") != NULL;
    clt_checkpoint_close(checkpoint);
    clt_tensors_close(alone);
    return has;
}

/* Returns a list of patterns with those of adapters behind it; NULL: memory does not suffice. */
static char *with_adapters(const char *patterns)
{
    const size_t room = strlen(patterns) + sizeof CLT_LORA_TENSORS + 1;
    char *both = malloc(room);
    if (both)
        snprintf(both, room, "%s|%s", patterns, CLT_LORA_TENSORS);
    return both;
}

/* Whether a list of patterns has one that is not about adapters. */
static int skips_others(const char *patterns)
{
    for (const char *next = patterns; next;
         next = strchr(next, '|') ? strchr(next, '|') + 1 : NULL) {
        const size_t length = strcspn(next, "|");
        const char *found = strstr(next, "lora_");
        if (length && (!found || found >= next + length))
            return 1;
    }
    return 0;
}

static clt_status load(job *j, const settings *s, const char *skip, char **report)
{
    clt_status status = clt_store_load_skipping(j->store, s->init, skip, report);
    NEXT(status, replicas_load(j, s, skip));
    return status;
}

int load_first(job *j, const settings *s, int quiet)
{
    char *report = NULL;
    if (!s->init)
        return s->init_skip ? usage_error("--init-skip %s: needs --init", s->init_skip) : 0;
    const int adapted = s->lora && has_adapters(s->init);
    /* The file of a model without adapters: they begin anew. */
    const int begin = s->lora && !adapted;
    char *both = begin && s->init_skip ? with_adapters(s->init_skip) : NULL;
    TRY_MEMORY(!begin || !s->init_skip || both);
    const clt_status status = load(j, s,
                                   both    ? both
                                   : begin ? CLT_LORA_TENSORS
                                           : s->init_skip,
                                   quiet ? NULL : &report);
    free(both);
    if (status == CLT_OK && s->lora && s->init_skip && !quiet && skips_others(s->init_skip))
        say("warning: --init-skip %s: --lora trains adapters only, so what is skipped stays as it "
            "begins; train a new head first, without --lora",
            s->init_skip);
    if (report)
        show("%s", report);
    free(report);
    if (status != CLT_MISMATCH)
        return library_failure(status);
    if (adapted && strstr(clt_error_message(), ".lora_"))
        return failure("%s has adapters of other layers or another rank than --lora %s: give the "
                       "--lora that they were trained with, or begin them anew with --init-skip "
                       "'%s'",
                       s->init, s->lora, CLT_LORA_TENSORS);
    return failure("%s (--init-skip)", clt_error_message());
}
