#include "options/groups.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/message.h"

/* Reads one PATTERN:lr=X,decay=Y and changes `text`. Either number may be missing. */
static int read_group(clt_graph *graph, char *text)
{
    double lr = CLT_COMMON_RATE, decay = CLT_COMMON_DECAY;
    char whole[200];
    snprintf(whole, sizeof whole, "%s", text);
    char *numbers = strrchr(text, ':');
    if (!numbers || numbers == text || !numbers[1])
        return usage_error("--param-group %s: must be PATTERN:lr=X,decay=Y", whole);
    *numbers++ = '\0';
    while (*numbers) {
        const int is_lr = !strncmp(numbers, "lr=", 3), is_decay = !strncmp(numbers, "decay=", 6);
        char *from = numbers + (is_lr ? 3 : 6), *end = NULL;
        const double value = is_lr || is_decay ? strtod(from, &end) : NAN;
        if (!end || end == from || (*end && *end != ',') || !(value >= 0) || !isfinite(value))
            return usage_error("--param-group %s: \"%s\" must be lr=X or decay=X, X finite and at "
                               "least 0",
                               whole, numbers);
        *(is_lr ? &lr : &decay) = value;
        numbers = *end ? end + 1 : end;
    }
    return name_failure(clt_param_group(graph, text, lr, decay, NULL));
}

int measures_stages(const settings *s)
{
    return s->stages && !strcmp(s->stages, "measured");
}

int refuse_measured(const settings *s)
{
    return measures_stages(s) ? usage_error("--stages measured: only train and plan measure; name "
                                            "the layers")
                              : 0;
}

int read_groups(clt_graph *graph, const settings *s)
{
    if (s->freeze)
        TRY(name_failure(clt_freeze(graph, s->freeze, NULL)));
    if (s->stages && !measures_stages(s))
        TRY(name_failure(clt_cut_before(graph, s->stages)));
    char *list = s->param_group ? strdup(s->param_group) : NULL;
    if (s->param_group && !list)
        return failure("memory does not suffice");
    int code = 0;
    for (char *next = list; !code && next;) {
        char *const one = next, *const end = strchr(next, ';');
        if (end)
            *end = '\0';
        next = end ? end + 1 : NULL;
        code = read_group(graph, one);
    }
    free(list);
    return code;
}
