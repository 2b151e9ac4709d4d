/* `cltrain bench`: selects the subject. Also has the functions that subjects share. */
#include "bench/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "options/commands.h"
#include "job/job.h"
#include "devices/make_runtime.h"
#include "text/message.h"

typedef struct subject_row {
    const char *name;
    unsigned bit;
    int (*run)(const settings *s);
    int least, most; /* number of further arguments */
    int64_t most_blocks;
    const char *arguments;
} subject_row;

static const subject_row subjects[] = {
    {"train", FOR_BENCH_TRAIN, bench_train, 0, 0, 10000, ""},
    {"meshes", FOR_BENCH_MESHES, bench_meshes, 1, 64, 99, "MESH..."},
    {"gemm", FOR_BENCH_GEMM, bench_gemm, 3, 63, 99, "M N K..."},
    {"conv", FOR_BENCH_CONV, bench_conv, 2, 2, 99, "NxCxHxW OxKHxKW"},
    {"op", FOR_BENCH_OP, bench_op, 0, 64, 99, "[NAME|OP:ATTRIBUTES...]"},
    {"scaling", FOR_BENCH_SCALING, bench_scaling, 0, 64, 99, "[CLASS...]"},
    {"allreduce", FOR_BENCH_ALLREDUCE, bench_allreduce, 0, 64, 99, "[SIZE...]"},
    {"load", FOR_BENCH_LOAD, bench_load, 0, 0, 10000, ""},
};
enum { SUBJECTS = sizeof subjects / sizeof *subjects };

int bench_subject(int index, subject_text *out)
{
    if (index >= SUBJECTS)
        return 0;
    const subject_row *row = &subjects[index];
    *out = (subject_text){row->name, row->arguments, row->bit};
    return 1;
}

/* Checks the options before any work is done. */
static int check_options(const settings *s, const subject_row *row)
{
    char name[32];
    double seconds;
    clt_dtype precision;
    snprintf(name, sizeof name, "bench %s", row->name);
    int code = settings_check(s, row->bit, name);
    if (!code && s->blocks > row->most_blocks)
        code = usage_error("--blocks %lld: %s measures at most %lld", (long long)s->blocks, name,
                           (long long)row->most_blocks);
    NEXT(code, read_tune(s->tune, 0, &seconds));
    NEXT(code, read_precision(s, &precision));
    return code ? code : check_variants(s);
}

int run_bench(const settings *s)
{
    const char *names[SUBJECTS];
    for (int i = 0; i < SUBJECTS; i++) {
        names[i] = subjects[i].name;
        if (!s->n_names || strcmp(s->names[0], subjects[i].name))
            continue;
        const int more = s->n_names - 1;
        if (more > subjects[i].most && !subjects[i].most)
            return usage_error("unexpected argument '%s'; --help lists the options", s->names[1]);
        if (more < subjects[i].least)
            return usage_error("bench %s takes %s", subjects[i].name, subjects[i].arguments);
        if (more > subjects[i].most)
            return usage_error("bench %s takes %s, at most %d words", subjects[i].name,
                               subjects[i].arguments, subjects[i].most);
        const int code = check_options(s, &subjects[i]);
        return code ? code : subjects[i].run(s);
    }
    const char *near = s->n_names ? clt_nearest(s->names[0], names, SUBJECTS) : NULL;
    if (near)
        return usage_error("bench %s: did you mean %s?", s->names[0], near);
    return usage_error("bench needs a subject: train, meshes MESH..., gemm M N K..., "
                       "conv NxCxHxW OxKHxKW, op [NAME|OP:ATTRIBUTES...], scaling [CLASS...], "
                       "allreduce [SIZE...], load");
}

int bench_device_open(bench_device *d, const settings *s, int profiling)
{
    *d = (bench_device){0};
    TRY(library_failure(make_runtime(s->cache_dir, &d->runtime)));
    clt_device_options options;
    clt_device_options_init(&options);
    options.profiling = profiling;
    options.share_context = s->share_context;
    return name_failure(clt_devices_open(d->runtime, s->devices, &options, &d->devices, &d->count));
}

int bench_limits(bench_device *d, const settings *s)
{
    if (d->count > 1)
        say("of %d devices the first is measured: %s", d->count, clt_device_label(d->devices[0]));
    TRY(library_failure(clt_meter_create(d->devices[0], (int)s->blocks, &d->meter)));
    d->limits = clt_meter_limits(d->meter);
    return 0;
}

void bench_device_close(bench_device *d)
{
    clt_meter_destroy(d->meter);
    clt_devices_close(d->devices, d->count);
    clt_runtime_destroy(d->runtime);
}

clt_measure_options bench_options(const settings *s, int training, int64_t batch)
{
    clt_measure_options options;
    clt_measure_options_init(&options);
    options.training = training;
    options.batch = batch;
    options.variants = s->variant;
    /* run_bench has checked that these options can be read. */
    read_tune(s->tune, 0, &options.tune_seconds);
    read_precision(s, &options.precision);
    if (s->blocks > 0)
        options.blocks = (int)s->blocks;
    return options;
}

clt_status bench_say_declined(const clt_device *device, const clt_graph *const *graphs,
                              const clt_measure_options *options, int count)
{
    char *text = NULL;
    if (!count || !options->variants)
        return CLT_OK;
    const clt_status status = clt_measure_declined(graphs, options, count, device, &text);
    say_lines(text);
    return status;
}

int bench_graph(const bench_device *d, const settings *s, const clt_graph *graph, int training,
                int64_t batch, clt_node_time **times, int *count)
{
    clt_measure_options options = bench_options(s, training, batch);
    options.meter = d->meter;
    return name_failure(clt_measure_graph(graph, d->devices[0], &options, times, count));
}

double bench_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double bench_median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, compare);
    return 0.5 * (values[(count - 1) / 2] + values[count / 2]);
}

json_t *bench_spread(double *values, int count)
{
    const double middle = bench_median(values, count);
    return json_pack("{s:f, s:f, s:f}", "median", middle, "min", values[0], "max",
                     values[count - 1]);
}

double bench_share(const clt_limits *limits, double flops, double bytes, double seconds)
{
    const double arithmetic = flops / limits->flops, copying = bytes / limits->copy_bytes;
    return (arithmetic > copying ? arithmetic : copying) / seconds;
}

/* Width for the longest names. A row is printed before the next one is measured, so the width must
 * be known before. */
enum { VARIANT_WIDTH = 22 };

/* --- reports --------------------------------------------------------------------------------- */

void bench_report_begin(bench_report *r, const bench_device *d, const settings *s,
                        const char *other)
{
    *r = (bench_report){
        .settings = s, .device = d, .other = other, .rows = s->json ? json_array() : NULL};
    if (s->json)
        return;
    printf("%s: %.1f GFLOP/s in registers, %.1f GB/s copying (read + written)\n",
           clt_device_label(d->devices[0]), 1e-9 * d->limits.flops, 1e-9 * d->limits.copy_bytes);
    if (other)
        printf("beside it %s\n", other);
    printf("%-34s %-*s %10s %21s %9s %8s %9s", "", VARIANT_WIDTH, "variant", "median us",
           "least to most", "GFLOP/s", "GB/s", "of limit");
    printf(other ? " %10s %8s\n" : "\n", "other", "ratio");
}

static void report_json(bench_report *r, const char *name, const clt_node_time *t,
                        const bench_comparison *with)
{
    json_t *row =
        json_pack("{s:s, s:s, s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:s, s:f}", "name", name,
                  "variant", t->variant, "tile", t->tile, "median_seconds", t->median,
                  "min_seconds", t->least, "max_seconds", t->most, "flops_per_s",
                  t->flops / t->median, "bytes_per_s", t->bytes / t->median, "of_limit", t->share,
                  "bound", t->bound == CLT_LIMIT_FLOPS ? "flops" : "copy", "limit_per_s", t->limit);
    if (with) {
        json_object_set_new(row, "other_flops_per_s", json_real(t->flops / with->other_seconds));
        json_object_set_new(row, "ratio", json_real(with->ratio));
    }
    json_array_append_new(r->rows, row);
}

void bench_report_compared(bench_report *r, const char *name, const clt_node_time *t,
                           const bench_comparison *with)
{
    if (r->rows) {
        report_json(r, name, t, with);
        return;
    }
    printf("%-34s %-*s %10.1f %10.1f %10.1f %9.1f %8.1f %9.2f", name, VARIANT_WIDTH, t->variant,
           1e6 * t->median, 1e6 * t->least, 1e6 * t->most, 1e-9 * t->flops / t->median,
           1e-9 * t->bytes / t->median, t->share);
    if (with)
        printf(" %10.1f %8.2f", 1e-9 * t->flops / with->other_seconds, with->ratio);
    printf("%s%s\n", t->tile[0] ? "  " : "", t->tile);
    fflush(stdout);
}

void bench_report_row(bench_report *r, const char *name, const clt_node_time *t)
{
    bench_report_compared(r, name, t, NULL);
}

int bench_report_end(bench_report *r)
{
    if (!r->rows)
        return EXIT_DONE;
    json_t *all =
        json_pack("{s:s, s:f, s:f, s:o}", "device", clt_device_label(r->device->devices[0]),
                  "limit_flops_per_s", r->device->limits.flops, "limit_copy_bytes_per_s",
                  r->device->limits.copy_bytes, "rows", r->rows);
    if (r->other)
        json_object_set_new(all, "other", json_string(r->other));
    return print_object(all, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
}
