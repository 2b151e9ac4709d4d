/*
 * `cltrain bench meshes`: compares training steps of several meshes, each on the first of
 * --devices. The meshes take turns, so that all are measured on the same machine in the same state.
 * A mesh may end with settings of its own: zero=N, accumulate=K, virtual-shards=V and stages=NAMES.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include <cltrain/unstable.h>

#include "bench/bench.h"
#include "job/job.h"
#include "text/message.h"

typedef struct contender {
    const char *name; /* as the user wrote it */
    settings
        settings; /* those of the command line, changed by `name`; owns only `mesh`, `stages` */
    char *mesh, *stages;
    job job;
    int places;          /* devices that the mesh needs */
    int64_t first, last; /* steps between whose reports the clock runs */
    double began, ended; /* when they were reported */
    int64_t samples;     /* of the steps between */
    double *rates;       /* samples a second of each block */
    double *ratios;      /* of the rate to the first mesh's in the same turn */
} contender;

typedef struct contest {
    contender *list;
    int count, blocks;
    int64_t steps, warmup;
} contest;

static void on_step(void *user, const clt_progress *p)
{
    contender *c = user;
    if (p->step > c->first && p->step <= c->last)
        c->samples += p->samples;
    if (p->step == c->first)
        c->began = bench_clock();
    if (p->step == c->last)
        c->ended = bench_clock();
}

/* Reads one word of a mesh: a setting of the trainer, or an axis, which is kept in c->mesh. */
static int read_word(contender *c, const char *word)
{
    const char *const number = strchr(word, '=');
    char *end = NULL;
    const long value = number ? strtol(number + 1, &end, 10) : 0;
    if (!strncmp(word, "stages=", 7)) {
        free(c->stages);
        c->settings.stages = c->stages = strdup(number + 1);
        TRY_MEMORY(c->stages);
        return 0;
    }
    if (!number || end == number + 1 || value < 0 || value > 100000)
        return usage_error("bench meshes %s: '%s' must be AXIS=N, zero=N, accumulate=K, "
                           "virtual-shards=V or stages=NAMES",
                           c->name, word);
    if (!strncmp(word, "zero=", 5)) {
        c->settings.zero = value;
    } else if (!strncmp(word, "accumulate=", 11)) {
        c->settings.accumulate = value;
    } else if (!strncmp(word, "virtual-shards=", 15)) {
        c->settings.virtual_shards = value;
    } else {
        if (c->mesh[0])
            strcat(c->mesh, ",");
        strcat(c->mesh, word);
        c->places *= (int)value;
    }
    return 0;
}

static int read_mesh(contender *c, const settings *s, const char *name)
{
    c->name = name;
    c->settings = *s;
    c->places = 1;
    c->mesh = calloc(1, strlen(name) + 1);
    char *words = strdup(name), *rest = words;
    int code = c->mesh && words ? 0 : failure("memory does not suffice");
    for (char *word; !code && (word = strsep(&rest, ","));)
        code = read_word(c, word);
    free(words);
    c->settings.parallel = c->mesh;
    if (c->mesh && !strstr(c->mesh, "pp="))
        c->settings.stages = NULL;
    if (!code && !c->mesh[0])
        code = usage_error("bench meshes %s: names no axis, as in dp=2", name);
    return code;
}

/* Makes the trainer of a mesh on the first devices. */
static int make(contender *c, const contest *all)
{
    job *j = &c->job;
    j->silent = j->benchmark = 1;
    TRY(job_read(j, &c->settings));
    TRY(job_devices(j, &c->settings));
    if (j->n_devices < c->places)
        return usage_error("bench meshes %s: needs %d devices, but --devices names %d", c->name,
                           c->places, j->n_devices);
    while (c->places && j->n_devices > c->places)
        clt_device_close(j->devices[--j->n_devices]);
    TRY(job_data(j, &c->settings, DATA_TRAIN | DATA_SYNTHETIC));
    TRY(job_model(j, &c->settings));
    TRY(job_trainer(j, &c->settings, 0));
    c->rates = calloc((size_t)all->blocks, sizeof *c->rates);
    c->ratios = calloc((size_t)all->blocks, sizeof *c->ratios);
    TRY_MEMORY(c->rates && c->ratios);
    return 0;
}

/* Trains a block of steps. The steps before the clock starts fill caches that another mesh used. A
 * report may come when the next step is under way already, but for the run's last one, so the clock
 * stops a step before the run does. */
static int train(contender *c, const contest *all, int block)
{
    clt_fit_options fit;
    job_fit(&c->job, &c->settings, &fit);
    c->samples = 0;
    c->first = clt_trainer_steps(c->job.trainer) + all->warmup;
    c->last = c->first + all->steps;
    fit.steps = c->last + 1;
    fit.on_step = on_step;
    fit.user = c;
    TRY(library_failure(clt_fit(c->job.trainer, c->job.train, NULL, &fit)));
    c->rates[block] = (double)c->samples / (c->ended - c->began);
    c->ratios[block] = c->rates[block] / all->list[0].rates[block];
    return 0;
}

static int report(const contest *all, const settings *s)
{
    const job *first = &all->list[0].job;
    json_t *rows = s->json ? json_array() : NULL;
    if (!s->json) {
        printf("%s on %s, batch %lld; %d blocks of %lld steps, by turns\n", s->model,
               clt_dataset_name(first->train), (long long)first->options.batch, all->blocks,
               (long long)all->steps);
        printf("%-24s %7s %12s %22s %8s %18s\n", "mesh", "devices", "samples/s", "least to most",
               "ratio", "least to most");
    }
    for (int i = 0; i < all->count; i++) {
        contender *c = &all->list[i];
        if (rows) {
            json_array_append_new(rows, json_pack("{s:s, s:i, s:o, s:o}", "mesh", c->name,
                                                  "devices", c->job.n_devices, "samples_per_s",
                                                  bench_spread(c->rates, all->blocks), "ratio",
                                                  bench_spread(c->ratios, all->blocks)));
            continue;
        }
        const double rate = bench_median(c->rates, all->blocks);
        const double ratio = bench_median(c->ratios, all->blocks);
        printf("%-24s %7d %12.2f %10.2f to %8.2f %8.3f %8.3f to %6.3f\n", c->name, c->job.n_devices,
               rate, c->rates[0], c->rates[all->blocks - 1], ratio, c->ratios[0],
               c->ratios[all->blocks - 1]);
    }
    if (!rows)
        return EXIT_DONE;
    return print_object(json_pack("{s:s, s:I, s:i, s:I, s:o}", "model", s->model, "batch",
                                  (json_int_t)first->options.batch, "blocks", all->blocks,
                                  "steps_per_block", (json_int_t)all->steps, "rows", rows),
                        JSON_INDENT(2) | JSON_REAL_PRECISION(6));
}

int bench_meshes(const settings *s)
{
    contest all = {.count = s->n_names - 1,
                   .blocks = s->blocks > 0 ? (int)s->blocks : 9,
                   .steps = s->steps > 0 ? s->steps : 5,
                   .warmup = s->warmup > 0 ? s->warmup : 1};
    int code = 0;
    if (all.steps > 1000000 || all.warmup > 1000000)
        return usage_error("--steps and --warmup: at most 1000000");
    all.list = calloc((size_t)all.count, sizeof *all.list);
    TRY_MEMORY(all.list);
    for (int i = 0; !code && i < all.count; i++)
        code = read_mesh(&all.list[i], s, s->names[i + 1]);
    for (int i = 0; !code && i < all.count; i++)
        code = make(&all.list[i], &all);
    for (int block = 0; block < all.blocks; block++)
        for (int i = 0; !code && i < all.count; i++)
            code = train(&all.list[i], &all, block);
    NEXT(code, report(&all, s));
    for (int i = 0; i < all.count; i++) {
        contender *c = &all.list[i];
        code = job_close(&c->job, code);
        free(c->mesh);
        free(c->stages);
        free(c->rates);
        free(c->ratios);
    }
    free(all.list);
    return code;
}
