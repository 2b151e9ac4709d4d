/* --lora and --lora-dropout, and the number of parameters that are left to train. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cltrain/lora.h>

#include "job/job.h"
#include "text/message.h"

/* Reads the number behind the last ':' of `text`, and cuts it off. Returns 0 if there is none. */
static int take_number(char *text, double *value)
{
    char *colon = strrchr(text, ':'), *end = NULL;
    if (!colon || !colon[1])
        return 0;
    *value = strtod(colon + 1, &end);
    if (*end || !isfinite(*value))
        return 0;
    *colon = '\0';
    return 1;
}

/* Reads one PATTERN:RANK[:ALPHA], which it changes. `whole` is the same for messages. */
static int read_one(clt_graph *graph, char *text, const char *whole, double dropout)
{
    double last = 0, before = 0;
    clt_lora_options options;
    clt_lora_options_init(&options);
    const int numbers = take_number(text, &last) ? 1 + take_number(text, &before) : 0;
    const double rank = numbers == 2 ? before : last;
    if (!numbers || !*text || !(rank >= 1 && rank < 1e6) || rank != floor(rank) ||
        (numbers == 2 && !(last > 0)))
        return usage_error("--lora %s: must be PATTERN:RANK or PATTERN:RANK:ALPHA, with a whole "
                           "rank of at least 1 and alpha above 0",
                           whole);
    options.pattern = text;
    options.rank = (int)rank;
    options.alpha = numbers == 2 ? last : 0;
    options.dropout = dropout;
    return name_failure(clt_lora(graph, &options, NULL));
}

void show_parameters(const job *j)
{
    const int64_t all = clt_store_parameters(j->store), trained = clt_store_trained(j->store);
    show("%lld parameters", (long long)all);
    if (trained < all)
        show(", of which %lld are trained (%.2g %%)", (long long)trained,
             100 * (double)trained / (double)all);
}

int read_lora(clt_graph *graph, const settings *s)
{
    const double dropout = isnan(s->lora_dropout) ? 0 : s->lora_dropout;
    int code = 0;
    if (!s->lora)
        return isnan(s->lora_dropout)
                   ? 0
                   : usage_error("--lora-dropout %g: needs --lora", s->lora_dropout);
    if (!(dropout >= 0 && dropout < 1))
        return usage_error("--lora-dropout %g: must be at least 0 and below 1", dropout);
    char *list = strdup(s->lora);
    TRY_MEMORY(list);
    for (char *next = list; !code && next;) {
        char *const one = next, *const end = strchr(next, ';');
        if (end)
            *end = '\0';
        next = end ? end + 1 : NULL;
        char *whole = strdup(one);
        code = whole ? read_one(graph, one, whole, dropout) : failure("memory does not suffice");
        free(whole);
    }
    free(list);
    return code;
}
