/* `cltrain bench load`: reads training samples as fast as the loader can, as batches for training,
 * and throws them away. */
#include <stdio.h>
#include <stdlib.h>

#include "bench/bench.h"
#include "job/job.h"
#include "text/message.h"

/* A block lasts this many seconds, or one batch if that takes longer. The first block is not
 * timed: it fills the caches of files. */
static const double BLOCK_SECONDS = 0.5;
enum { BATCH = 64, BLOCKS = 9 };

typedef struct load {
    const settings *settings;
    job job;
    clt_loader *loader;
    int blocks;
    int64_t bytes; /* of a sample as it is loaded */
    double *rates; /* samples a second of each block */
    clt_loader_stats stats;
} load;

/* Adds a field as training does by default: labels as i32, other bytes as f32. */
static clt_status add_output(load *l, const clt_model_field *f, int image)
{
    const clt_dtype dtype = f->dtype != CLT_U8 ? f->dtype : f->classes ? CLT_I32 : CLT_F32;
    const job *j = &l->job;
    int output;
    clt_status status = clt_loader_add_output(l->loader, f->name, dtype, &output);
    if (status == CLT_OK && image && j->channels && dtype == CLT_F32)
        status = clt_loader_normalize(l->loader, output, f->dtype == CLT_U8 ? 255 : 1, j->channels,
                                      j->mean, j->std);
    if (status == CLT_OK)
        l->bytes += clt_loader_output_bytes(l->loader, output);
    return status;
}

static clt_status start(load *l)
{
    job *j = &l->job;
    const settings *s = l->settings;
    clt_loader_desc desc;
    clt_loader_desc_init(&desc);
    desc.dataset = j->train;
    desc.batch = j->options.batch;
    desc.seed = s->seed > 0 ? s->seed : 0;
    clt_status status = clt_loader_create(&desc, &l->loader);
    for (int i = 0; status == CLT_OK && i < j->input.n_fields; i++)
        status = add_output(l, &j->fields[i], clt_dataset_is_image(j->train, i));
    NEXT(status, clt_loader_start(l->loader));
    return status;
}

/* Reads batches for BLOCK_SECONDS, and sets the samples a second. */
static clt_status read_block(load *l, double *rate)
{
    clt_batch batch;
    clt_batch_init(&batch);
    const double began = bench_clock();
    double now = began;
    int64_t samples = 0;
    clt_status status = CLT_OK;
    while (status == CLT_OK && now < began + BLOCK_SECONDS) {
        status = clt_loader_next(l->loader, &batch);
        NEXT(status, clt_loader_release(l->loader, batch.slot));
        samples += batch.count;
        now = bench_clock();
    }
    *rate = (double)samples / (now - began);
    return status;
}

static clt_status measure(load *l)
{
    double unused;
    clt_status status = start(l);
    NEXT(status, read_block(l, &unused));
    for (int i = 0; status == CLT_OK && i < l->blocks; i++)
        status = read_block(l, &l->rates[i]);
    clt_loader_stats_init(&l->stats);
    NEXT(status, clt_loader_get_stats(l->loader, &l->stats));
    return status;
}

static int print_load(const load *l)
{
    const job *j = &l->job;
    const double rate = bench_median(l->rates, l->blocks);
    if (l->settings->json)
        return print_object(json_pack("{s:o, s:I, s:I, s:I, s:i, s:i, s:o}", "data",
                                      json_text(clt_dataset_name(j->train)), "samples",
                                      (json_int_t)clt_dataset_count(j->train), "batch",
                                      (json_int_t)j->options.batch, "sample_bytes",
                                      (json_int_t)l->bytes, "threads", l->stats.threads, "blocks",
                                      l->blocks, "samples_per_s",
                                      bench_spread(l->rates, l->blocks)),
                            JSON_INDENT(2) | JSON_REAL_PRECISION(6));
    show("%s: %lld samples, batches of %lld; %d blocks of %g s\n", clt_dataset_name(j->train),
         (long long)clt_dataset_count(j->train), (long long)j->options.batch, l->blocks,
         BLOCK_SECONDS);
    show("samples/s  %.0f  (%.0f to %.0f)\n", rate, l->rates[0], l->rates[l->blocks - 1]);
    show("written    %.1f MB/s, %lld bytes a sample\n", 1e-6 * rate * (double)l->bytes,
         (long long)l->bytes);
    show("threads    %d\n", l->stats.threads);
    return EXIT_DONE;
}

int bench_load(const settings *s)
{
    load l = {.settings = s, .blocks = s->blocks > 0 ? (int)s->blocks : BLOCKS};
    clt_trainer_options_init(&l.job.options);
    l.job.options.batch = s->batch > 0 ? s->batch : BATCH;
    int code = read_normalize(&l.job, s);
    NEXT(code, job_data(&l.job, s, DATA_TRAIN));
    l.rates = calloc((size_t)l.blocks, sizeof *l.rates);
    if (!code && !l.rates)
        code = failure("memory does not suffice");
    NEXT(code, library_failure(measure(&l)));
    NEXT(code, print_load(&l));
    clt_loader_free(l.loader);
    free(l.rates);
    return job_close(&l.job, code);
}
