/*
 * `cltrain bench scaling`: compares kernels on all of --devices at once with the first device
 * alone. Each device has a thread of its own. For example, pocl/2 on two cores compares two cores
 * with one. The devices share one batch, as in training, so caches hold the same part of it in both
 * cases.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "text/message.h"

/* --- a meeting of the threads before each block ----------------------------------------------- */

typedef struct meeting {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int members, waiting, runs, next_runs;
    int64_t round;
} meeting;

static void meeting_open(meeting *m, int members)
{
    *m = (meeting){.members = members};
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->changed, NULL);
}

static void meeting_close(meeting *m)
{
    pthread_cond_destroy(&m->changed);
    pthread_mutex_destroy(&m->lock);
}

/* Starts the next round. The caller holds the lock. */
static void go_on(meeting *m)
{
    m->runs = m->next_runs;
    m->next_runs = m->waiting = 0;
    m->round++;
    pthread_cond_broadcast(&m->changed);
}

/* Waits for all members. Every member then makes as many runs as the largest number asked for. */
static int meet(void *user, int runs)
{
    meeting *m = user;
    pthread_mutex_lock(&m->lock);
    const int64_t round = m->round;
    if (runs > m->next_runs)
        m->next_runs = runs;
    if (++m->waiting == m->members)
        go_on(m);
    while (m->round == round)
        pthread_cond_wait(&m->changed, &m->lock);
    runs = m->runs;
    pthread_mutex_unlock(&m->lock);
    return runs;
}

/* Removes a member that is done or that failed. */
static void leave(meeting *m)
{
    pthread_mutex_lock(&m->lock);
    m->members--;
    if (m->members && m->waiting == m->members)
        go_on(m);
    pthread_mutex_unlock(&m->lock);
}

/* --- classes of kernels ----------------------------------------------------------------------- */

typedef struct class_row {
    const char *name;
    const char *op; /* a case of bench op; NULL for gemm or a convolution */
    int64_t gemm[3];
    bench_conv_shape conv;
} class_row;

/* Sizes that keep half of a small CPU busy for a while. */
static const class_row classes[] = {
    {"gemm", NULL, {512, 512, 512}, {{0}, {0}, 0, 0, 0, 0}},
    {"conv5x5", NULL, {0}, {{256, 20, 12, 12}, {50, 5, 5}, 1, 0, 1, 1}},
    {"conv3x3", NULL, {0}, {{32, 64, 32, 32}, {64, 3, 3}, 1, 1, 1, 1}},
    {"elementwise", "chain", {0}, {{0}, {0}, 0, 0, 0, 0}},
    {"max_pool2d", "max_pool2d", {0}, {{0}, {0}, 0, 0, 0, 0}},
    {"softmax", "softmax", {0}, {{0}, {0}, 0, 0, 0, 0}},
    {"cross_entropy", "cross_entropy", {0}, {{0}, {0}, 0, 0, 0, 0}},
};
enum { CLASSES = sizeof classes / sizeof *classes };

/* Builds the graph with a `parts`-th of the batch, or of the rows of the product. */
static clt_status build(const class_row *row, int parts, clt_graph **graph, int *training,
                        int64_t *batch)
{
    if (row->op) {
        const clt_status status = bench_op_graph(row->op, graph, training, batch);
        *batch = (*batch + parts - 1) / parts;
        return status;
    }
    if (row->gemm[0]) {
        const int64_t size[3] = {(row->gemm[0] + parts - 1) / parts, row->gemm[1], row->gemm[2]};
        return bench_gemm_graph(size, "NN", graph);
    }
    *training = 1;
    *batch = (row->conv.x[0] + parts - 1) / parts;
    return bench_conv_graph(&row->conv, graph);
}

/* --- measuring -------------------------------------------------------------------------------- */

typedef struct worker {
    const settings *settings;
    const class_row *row; /* NULL to measure the device's limits */
    clt_device *device;
    meeting *meeting; /* NULL for a single device */
    int parts;        /* devices that share the work */
    pthread_t thread;
    clt_limits limits;
    clt_node_time *times;
    int count;
    clt_status status;
    char message[300];
} worker;

static clt_status measure(worker *w)
{
    clt_graph *graph = NULL;
    int training = 0;
    int64_t batch = 1;
    if (!w->row) {
        if (w->meeting)
            meet(w->meeting, 1);
        return clt_device_measure_limits(w->device, (int)w->settings->blocks, &w->limits);
    }
    clt_status status = build(w->row, w->parts, &graph, &training, &batch);
    clt_measure_options options = bench_options(w->settings, training, batch);
    if (w->meeting) {
        options.before = meet;
        options.user = w->meeting;
    }
    NEXT(status, clt_measure_graph(graph, w->device, &options, &w->times, &w->count));
    clt_graph_destroy(graph);
    return status;
}

static void *work(void *user)
{
    worker *w = user;
    w->status = measure(w);
    if (w->status != CLT_OK)
        snprintf(w->message, sizeof w->message, "%s", clt_error_message());
    if (w->meeting)
        leave(w->meeting);
    return NULL;
}

/* Measures the first device alone, or all devices at once. */
static int measure_on(const bench_device *d, const settings *s, const class_row *row, int count,
                      worker *workers)
{
    meeting together;
    int code = 0, started = 0;
    meeting_open(&together, count);
    for (int i = 0; i < count; i++)
        workers[i] = (worker){.settings = s,
                              .row = row,
                              .device = d->devices[i],
                              .meeting = count > 1 ? &together : NULL,
                              .parts = count};
    for (; started < count; started++)
        if (pthread_create(&workers[started].thread, NULL, work, &workers[started]))
            break;
    for (int i = started; i < count; i++)
        leave(&together);
    if (started < count)
        code = failure("no thread can be started for %s", clt_device_label(d->devices[started]));
    for (int i = 0; i < started; i++)
        pthread_join(workers[i].thread, NULL);
    for (int i = 0; !code && i < count; i++)
        if (workers[i].status != CLT_OK)
            code = failure("%s", workers[i].message);
    meeting_close(&together);
    return code;
}

typedef struct report {
    const settings *settings;
    json_t *rows; /* --json */
} report;

/* Prints a row. `alone` and `together` are rates a second. */
static void print_row(report *r, const char *name, const char *variant, const char *unit,
                      double alone, double together)
{
    if (r->rows)
        json_array_append_new(r->rows, json_pack("{s:s, s:s, s:s, s:f, s:f, s:f}", "name", name,
                                                 "variant", variant, "unit", unit, "alone", alone,
                                                 "together", together, "ratio", together / alone));
    else
        printf("%-36s %-18s %10.1f %10.1f %-8s %6.2f\n", name, variant, 1e-9 * alone,
               1e-9 * together, unit, together / alone);
    fflush(stdout);
}

static void report_node(report *r, const class_row *row, const worker *first, const worker *again,
                        const worker *all, int count, int node)
{
    const clt_node_time *t = &first->times[node];
    /* The rate counts the work that limits this node on most devices. */
    const int arithmetic = t->flops > 8 * t->bytes;
    double together = 0;
    char name[128];
    for (int i = 0; i < count; i++) {
        const clt_node_time *part = &all[i].times[node];
        together += (arithmetic ? part->flops : part->bytes) / part->median;
    }
    snprintf(name, sizeof name, "%s: %.100s", row->name, t->op);
    print_row(r, name, t->variant, arithmetic ? "GFLOP/s" : "GB/s",
              (arithmetic ? t->flops : t->bytes) / (0.5 * (t->median + again->times[node].median)),
              together);
}

static void report_limits(report *r, const worker *first, const worker *again, const worker *all,
                          int count)
{
    double flops = 0, bytes = 0;
    for (int i = 0; i < count; i++) {
        flops += all[i].limits.flops;
        bytes += all[i].limits.copy_bytes;
    }
    print_row(r, "limit: registers", "", "GFLOP/s",
              0.5 * (first->limits.flops + again->limits.flops), flops);
    print_row(r, "limit: copying, 64 MiB each", "", "GB/s",
              0.5 * (first->limits.copy_bytes + again->limits.copy_bytes), bytes);
}

/* Measures all devices together, and the first device alone before and after. */
static int measure_class(report *r, const bench_device *d, const class_row *row)
{
    worker first = {0}, again = {0}, *all = calloc((size_t)d->count, sizeof *all);
    TRY_MEMORY(all);
    int code = measure_on(d, r->settings, row, 1, &first);
    NEXT(code, measure_on(d, r->settings, row, d->count, all));
    NEXT(code, measure_on(d, r->settings, row, 1, &again));
    for (int i = 0; !code && i < d->count; i++)
        if (all[i].count != first.count)
            code = failure("%s runs %s by other kernels than %s: their rates cannot be compared",
                           clt_device_label(d->devices[i]), row ? row->name : "limits",
                           clt_device_label(d->devices[0]));
    if (!code && !row)
        report_limits(r, &first, &again, all, d->count);
    for (int i = 0; !code && row && i < first.count; i++)
        report_node(r, row, &first, &again, all, d->count, i);
    for (int i = 0; i < d->count; i++)
        free(all[i].times);
    free(first.times);
    free(again.times);
    free(all);
    return code;
}

static int find_classes(const settings *s, int *chosen)
{
    const char *names[CLASSES];
    for (int i = 0; i < CLASSES; i++) {
        names[i] = classes[i].name;
        chosen[i] = s->n_names == 1;
    }
    for (int k = 1; k < s->n_names; k++) {
        int found = 0;
        for (int i = 0; i < CLASSES; i++)
            if (!strcmp(s->names[k], names[i]))
                found = chosen[i] = 1;
        if (!found)
            return unknown_name("bench scaling", s->names[k], names, CLASSES);
    }
    return 0;
}

static int run(const bench_device *d, const settings *s, const int *chosen)
{
    report r = {.settings = s, .rows = s->json ? json_array() : NULL};
    json_t *labels = json_array();
    for (int i = 0; i < d->count; i++)
        json_array_append_new(labels, json_string(clt_device_label(d->devices[i])));
    if (!s->json) {
        for (int i = 0; i < d->count; i++)
            printf("device %d   %s\n", i, clt_device_label(d->devices[i]));
        printf("%-36s %-18s %10s %10s %-8s %6s\n", "", "variant", "device 0", "all", "", "ratio");
    }
    int code = measure_class(&r, d, NULL);
    for (int i = 0; !code && i < CLASSES; i++)
        if (chosen[i])
            code = measure_class(&r, d, &classes[i]);
    if (!r.rows || code) {
        json_decref(labels);
        json_decref(r.rows);
        return code;
    }
    return print_object(json_pack("{s:o, s:o}", "devices", labels, "rows", r.rows),
                        JSON_INDENT(2) | JSON_REAL_PRECISION(6));
}

/* Prints the variants that no graph uses, before any graph is measured. */
static int say_declined(const bench_device *d, const settings *s, const int *chosen)
{
    clt_graph *graphs[CLASSES] = {NULL};
    clt_measure_options options[CLASSES] = {{0}};
    int count = 0;
    clt_status status = CLT_OK;
    for (int i = 0; status == CLT_OK && s->variant && i < CLASSES; i++) {
        int training = 0;
        int64_t batch = 1;
        if (!chosen[i])
            continue;
        status = build(&classes[i], 1, &graphs[count], &training, &batch);
        options[count++] = bench_options(s, training, batch);
    }
    NEXT(status,
         bench_say_declined(d->devices[0], (const clt_graph *const *)graphs, options, count));
    for (int i = 0; i < count; i++)
        clt_graph_destroy(graphs[i]);
    return name_failure(status);
}

int bench_scaling(const settings *s)
{
    bench_device d = {0};
    int chosen[CLASSES];
    TRY(find_classes(s, chosen));
    int code = bench_device_open(&d, s, 0);
    if (!code && d.count < 2)
        code = usage_error("bench scaling needs several devices, as in --devices pocl/2");
    NEXT(code, say_declined(&d, s, chosen));
    NEXT(code, run(&d, s, chosen));
    bench_device_close(&d);
    return code;
}
