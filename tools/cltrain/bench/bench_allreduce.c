/*
 * `cltrain bench allreduce`: measures all-reduces of 1 KB to 256 MB between --devices. By turns, it
 * measures two C threads that read two arrays and write two, and the threads of the devices without
 * a sum. With --compare and several ranks, it measures MPI_Allreduce on memory of the host, and on
 * the devices' mapped buffers.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "text/message.h"
#include "ranks/ranks.h"

#ifdef CLT_COMMAND_MPI
#include <mpi.h>
#endif

enum { DEFAULTS = 10, MOST_SIZES = 64 };

typedef struct sizes {
    int64_t bytes[MOST_SIZES];
    int count;
} sizes;

/* Reads a whole number with an optional KB, MB or GB, of 1024 each. */
static int read_size(const char *text, int64_t *bytes)
{
    static const char *const units[] = {"", "KB", "MB", "GB"};
    char *end;
    errno = 0;
    const long long number = strtoll(text, &end, 10);
    for (int i = 0; i < 4; i++) {
        if (end == text || strcmp(end, units[i]))
            continue;
        const long long most = (1LL << 40) >> 10 * i;
        if (errno || number < 1 || number > most)
            break;
        *bytes = number << 10 * i;
        if (*bytes % 4 || *bytes < 64)
            break;
        return 0;
    }
    return usage_error("bench allreduce %s: not a size; give a multiple of 4 of at least 64 bytes, "
                       "as in 4096, 64KB or 16MB",
                       text);
}

static int read_sizes(const settings *s, sizes *to)
{
    for (int i = 1; i < s->n_names; i++) {
        TRY(read_size(s->names[i], &to->bytes[to->count++]));
    }
    for (int i = 0; s->n_names == 1 && i < DEFAULTS; i++)
        to->bytes[to->count++] = (int64_t)1024 << 2 * i;
    return 0;
}

static const char *size_text(int64_t bytes, char text[32])
{
    static const char *const units[] = {"B", "KB", "MB", "GB"};
    int unit = 0;
    while (unit < 3 && bytes % 1024 == 0) {
        bytes /= 1024;
        unit++;
    }
    snprintf(text, 32, "%lld %s", (long long)bytes, units[unit]);
    return text;
}

/* --- printing --------------------------------------------------------------------------------- */

typedef struct report {
    const settings *settings;
    int ranks, prints;
    json_t *rows, *labels, *units;
} report;

/* A time that was measured by turns with ours. */
typedef struct column {
    const char *title, *key;
    const clt_all_reduce_span *span;
    int wanted;
} column;

enum { COLUMNS = 4 };

static void columns_of(const report *r, const clt_all_reduce_time *t, column columns[COLUMNS])
{
    const int compare = r->settings->compare;
    const column all[COLUMNS] = {{"limit us", "limit", &t->limit, t->limit.median > 0},
                                 {"floor us", "floor", &t->floor, t->floor.median > 0},
                                 {"MPI us", "mpi", &t->other, compare},
                                 {"mapped MPI us", "mapped_mpi", &t->mapped, t->mapped.median > 0}};
    memcpy(columns, all, sizeof all);
}

static void print_head(const report *r, const clt_all_reduce_time *t)
{
    column columns[COLUMNS];
    columns_of(r, t, columns);
    if (r->ranks > 1)
        printf("between %d ranks\n", r->ranks);
    printf("transports\n%s", t->transports);
    printf("a small kernel, enqueued and finished: %.1f us\n", 1e6 * t->latency);
    printf("%-10s %10s %21s %8s", "", "median us", "least to most", "GB/s");
    for (int i = 0; i < COLUMNS; i++)
        if (columns[i].wanted)
            printf(" %13s %21s %7s", columns[i].title, "least to most", "ratio");
    printf("\n");
}

static void print_row(const report *r, const clt_all_reduce_time *t)
{
    char text[32];
    column columns[COLUMNS];
    columns_of(r, t, columns);
    printf("%-10s %10.1f %10.1f %10.1f %8.2f", size_text(t->bytes, text), 1e6 * t->ours.median,
           1e6 * t->ours.least, 1e6 * t->ours.most, 1e-9 * (double)t->bytes / t->ours.median);
    for (int i = 0; i < COLUMNS; i++)
        if (columns[i].wanted)
            printf(" %13.1f %10.1f %10.1f %7.2f", 1e6 * columns[i].span->median,
                   1e6 * columns[i].span->least, 1e6 * columns[i].span->most,
                   columns[i].span->ratio);
    printf("\n");
    fflush(stdout);
}

static json_t *row_of(const report *r, const clt_all_reduce_time *t)
{
    json_t *row =
        json_pack("{s:I, s:f, s:f, s:f, s:f, s:f, s:I, s:s}", "bytes", (json_int_t)t->bytes,
                  "median_seconds", t->ours.median, "min_seconds", t->ours.least, "max_seconds",
                  t->ours.most, "bytes_per_s", (double)t->bytes / t->ours.median, "latency_seconds",
                  t->latency, "verified", (json_int_t)t->verified, "transports", t->transports);
    column columns[COLUMNS];
    columns_of(r, t, columns);
    for (int i = 0; i < COLUMNS; i++)
        if (columns[i].wanted)
            json_object_set_new(row, columns[i].key,
                                json_pack("{s:f, s:f, s:f, s:f}", "median_seconds",
                                          columns[i].span->median, "min_seconds",
                                          columns[i].span->least, "max_seconds",
                                          columns[i].span->most, "ratio", columns[i].span->ratio));
    return row;
}

static void report_time(report *r, const clt_all_reduce_time *t, int first)
{
    if (!r->prints)
        return;
    if (r->settings->json) {
        json_array_append_new(r->rows, row_of(r, t));
        return;
    }
    if (first)
        print_head(r, t);
    print_row(r, t);
}

static void report_device(report *r, const clt_device *device)
{
    const char *label = clt_device_label(device);
    clt_device_info info;
    if (!r->prints)
        return;
    clt_device_info_init(&info);
    clt_device_get_info(device, &info);
    if (!r->settings->json)
        printf("device %d   %s, %d compute unit%s\n", (int)json_array_size(r->labels), label,
               info.compute_units, info.compute_units == 1 ? "" : "s");
    json_array_append_new(r->labels, json_string(label));
    json_array_append_new(r->units, json_integer(info.compute_units));
}

/* --- measuring -------------------------------------------------------------------------------- */

static void mpi_sum(void *user, const float *from, float *to, int64_t count)
{
    (void)user;
#ifdef CLT_COMMAND_MPI
    MPI_Allreduce(from == to ? MPI_IN_PLACE : from, to, (int)count, MPI_FLOAT, MPI_SUM,
                  MPI_COMM_WORLD);
#else
    (void)from;
    (void)to;
    (void)count;
#endif
}

/* Finds this rank's part of the devices. Without a division this is all of them. */
static void own_devices(const bench_device *d, const rank_set *ranks, int *first, int *count)
{
    *first = ranks->count ? ranks->first : 0;
    *count = ranks->count ? ranks->count : d->count;
}

static int run(const bench_device *d, const settings *s, const rank_set *ranks, const sizes *all)
{
    clt_all_reduce_options options;
    report r = {.settings = s,
                .ranks = ranks->world.ranks,
                .prints = ranks_prints(ranks),
                .rows = json_array(),
                .labels = json_array(),
                .units = json_array()};
    clt_status status = CLT_OK;
    int first, count;
    own_devices(d, ranks, &first, &count);
    clt_all_reduce_options_init(&options);
    options.staged = s->staged;
    options.peer = s->peer;
    options.world = &ranks->world;
    options.other = s->compare ? mpi_sum : NULL;
    if (s->blocks > 0)
        options.blocks = (int)s->blocks;
    for (int i = 0; i < count; i++)
        report_device(&r, d->devices[first + i]);
    for (int i = 0; status == CLT_OK && i < all->count; i++) {
        clt_all_reduce_time t;
        status = clt_measure_all_reduce(d->devices + first, count, all->bytes[i], &options, &t);
        if (status == CLT_OK)
            report_time(&r, &t, i == 0);
    }
    if (status == CLT_OK && s->json && r.prints)
        return print_object(json_pack("{s:o, s:o, s:i, s:o}", "devices", r.labels, "compute_units",
                                      r.units, "ranks", r.ranks, "rows", r.rows),
                            JSON_INDENT(2) | JSON_REAL_PRECISION(6));
    json_decref(r.labels);
    json_decref(r.units);
    json_decref(r.rows);
    return library_failure(status);
}

int bench_allreduce(const settings *s)
{
    bench_device d = {0};
    rank_set ranks = {0};
    sizes all = {.count = 0};
    TRY(read_sizes(s, &all));
    int code = ranks_begin(&ranks, s);
    if (!code && s->compare && ranks.world.ranks == 1)
        code = usage_error("bench allreduce --compare is between ranks: mpiexec -n 2 cltrain bench "
                           "allreduce --compare");
    if (!code && s->peer && s->staged)
        code = usage_error("bench allreduce: --peer and --staged exclude each other");
    NEXT(code, ranks_agree(&ranks, bench_device_open(&d, s, 1)));
    NEXT(code, run(&d, s, &ranks, &all));
    bench_device_close(&d);
    return ranks_end(&ranks, code);
}
