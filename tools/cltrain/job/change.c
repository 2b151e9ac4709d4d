#include "job/change.h"

#include <stdio.h>
#include <time.h>

#include <jansson.h>

#include "text/message.h"

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Replicas that are synchronised by time count steps of their own in between. A step of the run is
 * the mean of theirs. */
static void read_before(change *c, const char *folder)
{
    const int by_time = replicas_by_time(c->job);
    char path[4096];
    snprintf(path, sizeof path, "%s/change.json", folder);
    json_t *before = json_load_file(path, 0, NULL);
    c->ranks = (int)json_integer_value(json_object_get(before, "ranks"));
    c->step = json_integer_value(json_object_get(before, by_time ? "mean_step" : "step"));
    const char *cause = json_string_value(json_object_get(before, "cause"));
    snprintf(c->cause, sizeof c->cause, "%s", cause ? cause : "");
    c->stopped = json_number_value(json_object_get(before, "stopped"));
    json_decref(before);
}

static json_t *describe(const change *c)
{
    const job *j = c->job;
    return json_pack("{s:i, s:I, s:I, s:f, s:s}", "ranks", j->ranks.world.ranks, "devices",
                     (json_int_t)j->all_devices, "batch", (json_int_t)j->options.batch, "lr",
                     j->options.lr, "global_batch", c->how);
}

/* A launcher without this file does not know how many devices a rank has, and asks less of the
 * user's numbers. So a failure is no reason to end the run. */
static void tell_launcher(const change *c, const char *folder)
{
    char path[4096], made[4096 + 8];
    snprintf(path, sizeof path, "%s/job.json", folder);
    snprintf(made, sizeof made, "%s.new", path);
    json_t *record = describe(c);
    if (json_dump_file(record, made, JSON_COMPACT) == 0)
        rename(made, path);
    json_decref(record);
}

void change_begin(change *c, const job *j, const settings *s)
{
    if (!s->global_batch || j->ranks.world.rank)
        return;
    *c = (change){.due = 1, .job = j, .how = s->global_batch};
    if (!s->heartbeat)
        return;
    read_before(c, s->heartbeat);
    tell_launcher(c, s->heartbeat);
}

static const char *plural(int64_t n)
{
    return n == 1 ? "" : "s";
}

static void print(const change *c, int64_t after, double seconds, int64_t lost)
{
    const job *j = c->job;
    printf("%d rank%s with %lld device%s", j->ranks.world.ranks, plural(j->ranks.world.ranks),
           (long long)j->all_devices, plural(j->all_devices));
    if (c->ranks && c->ranks != j->ranks.world.ranks)
        printf(" instead of %d rank%s", c->ranks, plural(c->ranks));
    printf(" after step %lld: batch %lld, rate %g (--global-batch %s)", (long long)after,
           (long long)j->options.batch, j->options.lr, c->how);
    if (c->stopped > 0)
        printf("; %.1f s without training, %lld step%s lost", seconds, (long long)lost,
               plural(lost));
    printf("\n");
    fflush(stdout);
}

int change_report(change *c, const clt_progress *first, metrics *m, int quiet)
{
    const double seconds = now() - c->stopped;                  /* until the first step is done */
    const int64_t steps = first->sync ? first->sync->steps : 1; /* until the first report */
    const int64_t after = first->step - steps, lost = c->step - 1 > after ? c->step - 1 - after : 0;
    c->due = 0;
    if (!quiet)
        print(c, after, seconds, lost);
    if (!m)
        return 0;
    json_t *record = describe(c);
    json_object_set_new(record, "after_step", json_integer(after));
    if (c->ranks)
        json_object_set_new(record, "ranks_before", json_integer(c->ranks));
    if (*c->cause)
        json_object_set_new(record, "cause", json_text(c->cause));
    if (c->stopped > 0) {
        json_object_set_new(record, "seconds_without_training", json_real(seconds));
        json_object_set_new(record, "steps_lost", json_integer(lost));
    }
    return metrics_change(m, record, first);
}
