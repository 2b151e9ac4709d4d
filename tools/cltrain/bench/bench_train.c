/* `cltrain bench train`: times training steps, with data loading. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include <cltrain/unstable.h>

#include "bench/bench.h"
#include "job/job.h"
#include "text/message.h"
#include "bench/bench_nodes.h"
#include "job/device_split.h"

typedef struct bench {
    const settings *settings;
    job job;
    int64_t steps, warmup; /* steps of a block, and steps before the first block */
    int blocks;
    double began; /* when the previous block ended */
    int64_t samples;
    double *rates;   /* samples a second of each block */
    double *times;   /* seconds a step of each block */
    double *exposed; /* of these seconds, those that device 0 waited for reductions */
    double limit;    /* FLOP/s of all participants, measured one after the other */
    double memory;   /* bytes a second that updates can move, measured likewise */
} bench;

static void on_step(void *user, const clt_progress *p)
{
    bench *b = user;
    const int64_t timed = p->step - b->warmup;
    b->samples += p->samples;
    if (timed < 0 || timed % b->steps)
        return;
    const double exposed = clt_trainer_exposed(b->job.trainer, 0);
    const double at = bench_clock();
    if (timed > 0) {
        const int64_t block = timed / b->steps - 1;
        b->rates[block] = (double)b->samples / (at - b->began);
        b->times[block] = (at - b->began) / (double)b->steps;
        b->exposed[block] = exposed / (double)b->steps;
    }
    b->began = at;
    b->samples = 0;
}

static int participants(const bench *b)
{
    const int ranks = b->job.ranks.world.ranks;
    return b->job.n_devices * (ranks > 1 ? ranks : 1);
}

/* Returns the tokens of a sample of text, or 0 for other samples. */
static int64_t tokens_of(const bench *b)
{
    int64_t shape[CLT_DATA_MAX_RANK];
    const char *name;
    int rank = 0;
    if (clt_dataset_field_info(b->job.train, 0, &name, NULL, &rank, shape, NULL) != CLT_OK)
        return 0;
    return rank == 1 && !strcmp(name, "tokens") ? shape[0] : 0;
}

/* Returns the FLOP/s of our kernels at this rate. */
static double flops_at(const bench *b, double rate)
{
    return rate * clt_trainer_flops(b->job.trainer);
}

/* Measures limits after the steps, when nothing else runs. Other ranks' devices are assumed to be
 * like these. */
static clt_status measure_limit(bench *b)
{
    const int ranks = b->job.ranks.world.ranks;
    for (int i = 0; i < b->job.n_devices; i++) {
        clt_limits limits;
        const clt_status status = clt_device_measure_limits(b->job.devices[i], b->blocks, &limits);
        if (status != CLT_OK)
            return status;
        b->limit += limits.flops * (ranks > 1 ? ranks : 1);
        b->memory += limits.update_bytes * (ranks > 1 ? ranks : 1);
    }
    return CLT_OK;
}

/* Returns the shortest possible time of a step in seconds: its arithmetic, then the update of every
 * participant. */
static double least_step(const bench *b)
{
    const double flops = clt_trainer_flops(b->job.trainer) * (double)b->job.options.batch;
    return flops / b->limit +
           clt_trainer_update_bytes(b->job.trainer) * participants(b) / b->memory;
}

static int print_json(const bench *b)
{
    const job *j = &b->job;
    int programs, kernels;
    clt_device_kernel_count(j->devices[0], &programs, &kernels);
    json_t *labels = json_array();
    for (int i = 0; i < j->n_devices; i++)
        json_array_append_new(labels, json_string(clt_device_label(j->devices[i])));
    json_t *all =
        json_pack("{s:s, s:s, s:I, s:i, s:s, s:o, s:i, s:i, s:I, s:i, s:o, s:o, s:o, s:i}", "model",
                  b->settings->model, "data", clt_dataset_name(j->train), "batch",
                  (json_int_t)j->options.batch, "accumulate", j->options.accumulate, "optimizer",
                  clt_optimizer_name(j->options.optimizer), "devices", labels, "programs", programs,
                  "kernels", kernels, "steps_per_block", (json_int_t)b->steps, "blocks", b->blocks,
                  "samples_per_s", bench_spread(b->rates, b->blocks), "step_seconds",
                  bench_spread(b->times, b->blocks), "exposed_seconds",
                  bench_spread(b->exposed, b->blocks), "participants", participants(b));
    const double flops = flops_at(b, bench_median(b->rates, b->blocks));
    json_object_set_new(all, "flops_per_sample", json_real(clt_trainer_flops(j->trainer)));
    json_object_set_new(all, "flops_per_s", json_real(flops));
    json_object_set_new(all, "limit_flops_per_s", json_real(b->limit));
    json_object_set_new(all, "of_limit", json_real(flops / b->limit));
    json_object_set_new(all, "update_bytes", json_real(clt_trainer_update_bytes(j->trainer)));
    json_object_set_new(all, "limit_update_bytes_per_s", json_real(b->memory));
    json_object_set_new(all, "limit_step_seconds", json_real(least_step(b)));
    json_object_set_new(all, "of_step_limit",
                        json_real(least_step(b) / bench_median(b->times, b->blocks)));
    if (tokens_of(b))
        json_object_set_new(all, "tokens_per_sample", json_integer(tokens_of(b)));
    if (j->prediction.step > 0) {
        json_object_set_new(all, "predicted_step_seconds", json_real(j->prediction.step));
        json_object_set_new(all, "predicted_exposed_seconds", json_real(j->prediction.exposed));
    }
    return print_object(all, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
}

static int print_table(const bench *b)
{
    const job *j = &b->job;
    printf("%s on %s, batch %lld, %s; %d blocks of %lld steps\n", b->settings->model,
           clt_dataset_name(j->train), (long long)j->options.batch,
           clt_optimizer_name(j->options.optimizer), b->blocks, (long long)b->steps);
    if (j->ranks.world.ranks > 1)
        printf("%d ranks; this is one of them\n", j->ranks.world.ranks);
    for (int i = 0; i < j->n_devices; i++)
        printf("device %d   %s\n", i, clt_device_label(j->devices[i]));
    const double rate = bench_median(b->rates, b->blocks), step = bench_median(b->times, b->blocks);
    const int64_t tokens = tokens_of(b);
    const double counted = tokens ? (double)tokens : 1;
    printf("%s  %.0f  (%.0f to %.0f)\n", tokens ? "tokens/s " : "samples/s", counted * rate,
           counted * b->rates[0], counted * b->rates[b->blocks - 1]);
    printf("step       %.3f ms  (%.3f to %.3f)\n", 1e3 * step, 1e3 * b->times[0],
           1e3 * b->times[b->blocks - 1]);
    const double flops = flops_at(b, rate);
    printf("compute    %.1f GFLOP/s, %.2f MFLOP a sample as our kernels execute it; %.2f of the "
           "%.1f GFLOP/s of %d device%s\n",
           1e-9 * flops, 1e-6 * clt_trainer_flops(j->trainer), flops / b->limit, 1e-9 * b->limit,
           participants(b), participants(b) > 1 ? "s" : "");
    printf(
        "limit      %.3f ms: that arithmetic, and %.1f MB that the optimizer moves at %.1f GB/s; "
        "%.2f of it reached\n",
        1e3 * least_step(b), 1e-6 * clt_trainer_update_bytes(j->trainer) * participants(b),
        1e-9 * b->memory, least_step(b) / step);
    if (participants(b) > 1) {
        const double exposed = bench_median(b->exposed, b->blocks);
        printf("exposed    %.3f ms  (%.3f to %.3f) a step wait for reductions, %.1f %%\n",
               1e3 * exposed, 1e3 * b->exposed[0], 1e3 * b->exposed[b->blocks - 1],
               100 * exposed / step);
    }
    if (j->prediction.step > 0)
        printf("predicted  %.3f ms, %.2f of the step\n", 1e3 * j->prediction.step,
               j->prediction.step / step);
    return EXIT_DONE;
}

/* Measures each command of the steps. This slows the steps down, so rates are not reported. */
static int measure_nodes(bench *b, clt_fit_options *fit)
{
    clt_limits limits;
    clt_profile *profile = NULL;
    const clt_profile_record *records;
    int count;
    fit->steps = b->warmup + b->steps;
    clt_status status = clt_device_measure_limits(b->job.devices[0], 0, &limits);
    NEXT(status, clt_profile_start(b->job.trainer, &profile));
    NEXT(status, clt_fit(b->job.trainer, b->job.train, NULL, fit));
    NEXT(status, clt_profile_read(profile, &records, &count));
    int code = library_failure(status);
    if (!code && ranks_prints(&b->job.ranks))
        code = print_by_node(records, count, b->warmup, fit->steps, &limits,
                             clt_device_label(b->job.devices[0]), b->settings->json);
    clt_profile_stop(profile);
    return code;
}

static int measure(bench *b)
{
    clt_fit_options fit;
    job_fit(&b->job, b->settings, &fit);
    fit.steps = b->warmup + b->steps * b->blocks;
    fit.on_step = on_step;
    fit.user = b;
    b->rates = calloc((size_t)b->blocks, sizeof *b->rates);
    b->times = calloc((size_t)b->blocks, sizeof *b->times);
    b->exposed = calloc((size_t)b->blocks, sizeof *b->exposed);
    TRY_MEMORY(b->rates && b->times && b->exposed);
    if (b->settings->by_node)
        return measure_nodes(b, &fit);
    TRY(library_failure(clt_fit(b->job.trainer, b->job.train, NULL, &fit)));
    if (!ranks_prints(&b->job.ranks))
        return EXIT_DONE;
    TRY(library_failure(measure_limit(b)));
    return b->settings->json ? print_json(b) : print_table(b);
}

int bench_train(const settings *s)
{
    bench b = {.settings = s,
               .steps = s->steps > 0 ? s->steps : 50,
               .warmup = s->warmup > 0 ? s->warmup : 20,
               .blocks = s->blocks > 0 ? (int)s->blocks : 9};
    int code = 0;
    if (b.steps > 1000000000 || b.warmup > 1000000000)
        code = usage_error("--steps and --warmup: at most 1000000000");
    else if (s->by_node && s->blocks > 0)
        code = usage_error("--by-node profiles one block: --blocks does not apply; see --steps");
    if (code)
        return code;
    code = job_ranks(&b.job, s);
    NEXT(code, job_read(&b.job, s));
    NEXT(code, check_split(s));
    b.job.splits = 1;
    b.job.options.rebalance = s->rebalance;
    b.job.silent = s->json || !ranks_prints(&b.job.ranks);
    b.job.predicts = s->predict;
    b.job.benchmark = !s->by_node; /* which is for the kernels of single nodes */
    NEXT(code, job_plan(&b.job, s));
    code = job_trainer(&b.job, s, code);
    NEXT(code, measure(&b));
    code = job_close(&b.job, code);
    free(b.rates);
    free(b.times);
    free(b.exposed);
    return code;
}
