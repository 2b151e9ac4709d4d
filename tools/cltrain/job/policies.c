#include "job/policies.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "output/means.h"
#include "text/message.h"

static int is_plateau(const settings *s)
{
    return s->schedule && !strncmp(s->schedule, "plateau", 7);
}

/* Divides "plateau:0.5:3,warmup:100" at the comma. Returns 0 if the text is too long. */
static int divide(const char *text, char plateau[128], char rest[160])
{
    const size_t length = strcspn(text, ",");
    if (length >= 128 || strlen(text + length) >= 128)
        return 0;
    snprintf(plateau, 128, "%.*s", (int)length, text);
    snprintf(rest, 160, "constant%s", text + length);
    return 1;
}

clt_status schedule_read(const char *text, int64_t steps, clt_schedule *schedule)
{
    char plateau[128], rest[160];
    clt_plateau read;
    if (strncmp(text, "plateau", 7) != 0 || !divide(text, plateau, rest))
        return clt_schedule_parse(text, steps, schedule);
    const clt_status status = clt_plateau_parse(plateau, &read);
    return status == CLT_OK ? clt_schedule_parse(rest, steps, schedule) : status;
}

/* The metric that patience and plateau watch. */
static const char *monitored(const settings *s)
{
    return s->monitor ? s->monitor : s->keep_best ? s->keep_best : "val_loss";
}

/* A direction before a name: "min:NAME" or "max:NAME". */
static const char *name_in(const char *text)
{
    return !strncmp(text, "min:", 4) || !strncmp(text, "max:", 4) ? text + 4 : text;
}

static int needs_validation(const settings *s, const char *option, const char *metric)
{
    const char *name = name_in(metric);
    const int averaged = !strncmp(name, "average_", 8);
    if (averaged && !s->average)
        return usage_error("--%s: %s needs --average", option, name);
    return !s->val && !strncmp(name + (averaged ? 8 : 0), "val_", 4)
               ? usage_error("--%s: %s needs --val, the samples to evaluate (or --monitor "
                             "test_loss or loss)",
                             option, name)
               : 0;
}

int check_policies(const settings *s)
{
    const int watches = s->patience > 0 || is_plateau(s);
    if (s->keep_best && !s->checkpoint_dir)
        return usage_error("--keep-best needs --checkpoint-dir");
    if (!isnan(s->min_delta) && s->patience <= 0)
        return usage_error("--min-delta %g: is for --patience", s->min_delta);
    if (s->monitor && !watches)
        return usage_error("--monitor %s: is for --patience and --schedule plateau", s->monitor);
    if (s->keep_best)
        TRY(needs_validation(s, "keep-best", s->keep_best));
    if (s->patience > 0)
        TRY(needs_validation(s, "patience", monitored(s)));
    if (is_plateau(s))
        TRY(needs_validation(s, "schedule plateau", monitored(s)));
    return 0;
}

/* Names of metrics, for messages. */
typedef struct names {
    char (*texts)[160];
    const char **list;
    int count;
} names;

static void add(names *n, const char *prefix, const char *name)
{
    snprintf(n->texts[n->count], sizeof *n->texts, "%s%s", prefix, name);
    n->list[n->count] = n->texts[n->count];
    n->count++;
}

/* Lists the metrics that evaluations have. */
static int list_metrics(const job *j, names *n)
{
    static const char *const prefixes[] = {"val_", "test_", "average_val_", "average_test_"};
    const clt_dataset *const sets[] = {j->validation, j->test,
                                       j->options.average.kind ? j->validation : NULL,
                                       j->options.average.kind ? j->test : NULL};
    const size_t room = 4 * (size_t)mean_count(j->graph) + 6;
    *n = (names){calloc(room, sizeof *n->texts), calloc(room, sizeof *n->list), 0};
    TRY_MEMORY(n->texts && n->list);
    add(n, "", "loss");
    for (int k = 0; k < 4; k++) {
        if (!sets[k])
            continue;
        add(n, prefixes[k], "loss");
        for (int i = 0; i < mean_count(j->graph); i++)
            if (mean_name(j->graph, i))
                add(n, prefixes[k], mean_name(j->graph, i));
    }
    return 0;
}

/* Reads a metric of an option. */
static int read_metric(const job *j, const char *option, const char *text, clt_watched *watched)
{
    names n;
    const char *name = name_in(text);
    *watched = (clt_watched){.metric = name, .larger = text[1] == 'a'};
    int code = list_metrics(j, &n), known = 0;
    for (int i = 0; !code && i < n.count; i++)
        known |= !strcmp(n.list[i], name);
    if (!code && !known) {
        char what[64];
        snprintf(what, sizeof what, "metric of --%s", option);
        code = unknown_name(what, name, n.list, n.count);
    }
    free(n.texts);
    free(n.list);
    if (code || name != text)
        return code;
    return clt_metric_direction(name, &watched->larger) == CLT_OK
               ? 0
               : usage_error("--%s %s: say which values are better, by min:%s or max:%s", option,
                             name, name, name);
}

static int add_policy(job *j, clt_status status, clt_policy *policy)
{
    if (status == CLT_OK)
        j->policies[j->n_policies++] = policy;
    return library_failure(status);
}

static int add_plateau(job *j, const settings *s, const clt_watched *watched)
{
    char plateau[128], rest[160];
    clt_plateau p;
    clt_policy *policy = NULL;
    if (!divide(s->schedule, plateau, rest))
        return usage_error("--schedule %.40s...: is too long", s->schedule);
    clt_status status = clt_plateau_parse(plateau, &p);
    p.minimum *= j->scaled.batch ? j->rate_factor : 1;
    NEXT(status, clt_policy_plateau(watched, &p, &policy));
    return add_policy(j, status, policy);
}

int job_policies(job *j, const settings *s, clt_fit_options *fit)
{
    clt_watched best, watched;
    clt_policy *policy = NULL;
    if (s->keep_best) {
        TRY(read_metric(j, "keep-best", s->keep_best, &best));
        const clt_status status = clt_policy_best(&best, &policy);
        TRY(add_policy(j, status, policy));
    }
    const char *from = s->monitor ? "monitor" : s->patience > 0 ? "patience" : "schedule plateau";
    if (s->patience > 0 || is_plateau(s))
        TRY(read_metric(j, from, monitored(s), &watched));
    /* Plateau comes first: a lower rate is reported before the end. */
    if (is_plateau(s))
        TRY(add_plateau(j, s, &watched));
    if (s->patience > 0) {
        watched.least = isnan(s->min_delta) ? 0 : s->min_delta;
        const clt_status status = clt_policy_patience(&watched, s->patience, &policy);
        TRY(add_policy(j, status, policy));
    }
    fit->policies = j->policies;
    fit->n_policies = j->n_policies;
    return 0;
}

void job_policies_close(job *j)
{
    for (int i = 0; i < j->n_policies; i++)
        clt_policy_destroy(j->policies[i]);
}
