#include "output/progress.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "output/means.h"
#include "text/message.h"

#include <cltrain/local.h>

void progress_init(progress *p, int quiet)
{
    *p = (progress){.quiet = quiet, .terminal = isatty(STDOUT_FILENO), .first = -1};
}

void progress_end(progress *p)
{
    if (p->open)
        printf("\n");
    p->open = 0;
    fflush(stdout);
}

/* Writes a duration as "12 s", "3:07" or "1:02:03". */
static void time_text(double seconds, char *text, size_t bytes)
{
    const long long s = (long long)ceil(seconds);
    if (s < 60)
        snprintf(text, bytes, "%lld s", s);
    else if (s < 3600)
        snprintf(text, bytes, "%lld:%02lld", s / 60, s % 60);
    else
        snprintf(text, bytes, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
}

static void begin(progress *p, const clt_progress *now)
{
    p->first = now->step - (now->sync ? now->sync->steps : 1);
    if (p->first > 0)
        printf("resumed after step %lld\n", (long long)p->first);
}

void progress_step(progress *p, const clt_progress *now)
{
    if (p->quiet)
        return;
    if (p->first < 0)
        begin(p, now);
    p->samples += now->samples;
    const double since = now->seconds - p->shown;
    if (since < (p->terminal ? 0.1 : 2.0))
        return;
    const double rate = (double)p->samples / since;
    /* A terminal's line is updated often, and a smooth rate is easier to read. */
    p->rate = p->terminal && p->rate > 0 ? 0.8 * p->rate + 0.2 * rate : rate;
    p->shown = now->seconds;
    p->samples = 0;
    char left[32];
    const double per_step = now->seconds / (double)(now->step - p->first);
    time_text(per_step * (double)(now->total_steps - now->step), left, sizeof left);
    printf("%sepoch %lld  step %lld/%lld  loss %.4f  %.0f samples/s  %s left%s",
           p->terminal ? "\r" : "", (long long)now->epoch, (long long)now->step,
           (long long)now->total_steps, now->loss, p->rate, left, p->terminal ? "\x1b[K" : "\n");
    p->open = p->terminal;
    fflush(stdout);
}

void progress_split(progress *p, const clt_progress *now)
{
    int64_t *offsets = malloc(((size_t)now->n_split + 1) * sizeof *offsets);
    if (!p->quiet && offsets &&
        clt_split(now->samples, now->n_split, now->split, now->quantum, offsets) == CLT_OK) {
        printf("%sstep %lld: the batch is divided", p->open ? "\r\x1b[K" : "",
               (long long)now->step);
        for (int d = 0; d < now->n_split; d++)
            printf("%s %lld", d ? " +" : "", (long long)(offsets[d + 1] - offsets[d]));
        printf("\n");
        p->open = 0;
        fflush(stdout);
    }
    free(offsets);
}

/* Prints the loss and further means of a set. */
static void print_means(const clt_graph *graph, const char *set, double loss, const double *means,
                        int count)
{
    if (isfinite(loss))
        printf("  %s loss %.4f", set, loss);
    else if (count)
        printf("  the %s loss is not finite", set);
    for (int i = 0; i < count; i++)
        if (mean_name(graph, i))
            show("  %s %s %.4f", set, mean_name(graph, i), means[i]);
}

static void print_averages(const clt_graph *graph, const clt_progress *now)
{
    if (now->n_average_val_means || now->n_average_test_means)
        printf("  averages:");
    print_means(graph, "val", now->average_val_loss, now->average_val_means,
                now->n_average_val_means);
    print_means(graph, "test", now->average_test_loss, now->average_test_means,
                now->n_average_test_means);
}

/* Begins a line of its own. */
static void begin_line(progress *p)
{
    printf("%s", p->open ? "\r\x1b[K" : "");
    p->open = 0;
}

void progress_validation(progress *p, const clt_graph *graph, const clt_progress *now)
{
    if (p->quiet)
        return;
    begin_line(p);
    printf("epoch %lld  step %lld  loss %.4f", (long long)now->epoch, (long long)now->step,
           now->loss);
    print_means(graph, "val", now->val_loss, now->val_means, now->n_val_means);
    print_averages(graph, now);
    printf("\n");
    fflush(stdout);
}

void progress_note(progress *p, int64_t step, const char *what)
{
    if (p->quiet)
        return;
    begin_line(p);
    show("step %lld: %s\n", (long long)step, what);
    fflush(stdout);
}

void progress_epoch(progress *p, const clt_graph *graph, const clt_progress *now)
{
    if (p->quiet)
        return;
    char spent[32];
    time_text(now->seconds, spent, sizeof spent);
    printf("%sepoch %lld  step %lld  loss %.4f", p->open ? "\r\x1b[K" : "", (long long)now->epoch,
           (long long)now->step, now->loss);
    print_means(graph, "val", now->val_loss, now->val_means, now->n_val_means);
    print_means(graph, "test", now->test_loss, now->test_means, now->n_test_means);
    print_averages(graph, now);
    printf("  after %s", spent);
    /* Both count from the report of the previous epoch. */
    const double seconds = now->seconds - p->epoch_seconds, wait = now->wait_seconds - p->waited;
    if (seconds > 0 && wait >= 0.0005 * seconds)
        printf(", %.1f %% of it waiting for data", 100 * wait / seconds);
    if (now->asynchronous)
        printf("  %lld gradients discarded so far", (long long)now->discarded);
    printf("\n");
    p->epoch_seconds = now->seconds;
    p->waited = now->wait_seconds;
    p->open = 0;
    p->shown = now->seconds;
    p->samples = 0;
    fflush(stdout);
}
