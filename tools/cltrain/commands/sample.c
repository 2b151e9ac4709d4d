/* `cltrain sample`: generates text token by token. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cltrain/predict.h>
#include <cltrain/tokenizer.h>

#include "options/commands.h"
#include "options/groups.h"
#include "saved/sampling.h"
#include "job/job.h"
#include "text/message.h"
#include "saved/saved.h"
#include "text/text.h"
#include "text/utf8.h"

/* The prompt is read in chunks of CHUNK tokens. At most FEW tokens are read one by one. */
enum { CHUNK = 64, FEW = 16, TOKENS = 200 };

/* The cache has `positions` tokens of each text, from `begin` on. When the cache is full, the last
 * half of its tokens is read again. */
typedef struct sampler {
    job job;
    saved saved;
    clt_tokenizer *tokenizer;
    clt_decoder decoder; /* for one token at a time */
    clt_predictor *one, *many;
    int64_t chunk;       /* tokens that `many` reads at a time */
    int grows;           /* 1 for a cache, which gets full; 0 for a state of fixed size */
    int64_t begin, end;  /* first token in the cache, and the end of the tokens read so far */
    int64_t count, room; /* tokens of each text, and room for them */
    int32_t *texts;      /* [samples][room] */
    int32_t *tokens, *places;
    float *logits;
    int device; /* that has the logits; -1: any */
    draw draw;
    int *ended; /* for each text the count at its end token, or 0 if it goes on */
    utf8 out;
    int raw, ids;   /* how tokens are printed; by default control characters are escaped */
    int64_t listed; /* --ids: tokens printed in this line */
} sampler;

/* --- the prompt ------------------------------------------------------------------------------- */

/* Encodes the prompt. Without a prompt a text begins with the token between texts, or with a
 * newline. */
static int encode(const sampler *p, const settings *s, int32_t **ids, int64_t *count)
{
    const int64_t between = clt_tokenizer_end_of_text(p->tokenizer);
    char *file = NULL;
    size_t bytes = s->prompt ? strlen(s->prompt) : 0;
    if (s->prompt_file && !(file = read_text(s->prompt_file, &bytes)))
        return EXIT_FAILED;
    const char *text = file ? file : s->prompt ? s->prompt : "";
    if (!bytes && between >= 0) {
        *ids = malloc(sizeof **ids);
        *count = 1;
        if (*ids)
            **ids = (int32_t)between;
        free(file);
        return *ids ? 0 : failure("memory does not suffice");
    }
    const clt_status status =
        clt_tokenizer_encode(p->tokenizer, bytes ? text : "\n", bytes ? bytes : 1, ids, count);
    free(file);
    if (status != CLT_OK)
        return failure("%s: %s", s->prompt_file ? s->prompt_file : "--prompt", clt_error_message());
    return 0;
}

static int begin_texts(sampler *p, const settings *s)
{
    int32_t *ids = NULL;
    int code = encode(p, s, &ids, &p->count);
    const int64_t n = p->decoder.samples;
    p->room = p->count + (s->tokens > 0 ? s->tokens : TOKENS);
    p->texts = calloc((size_t)(n * p->room), sizeof *p->texts);
    const int64_t most = p->decoder.positions > CHUNK ? CHUNK : p->decoder.positions;
    p->chunk = most;
    p->tokens = calloc((size_t)(n * most), sizeof *p->tokens);
    p->places = calloc((size_t)most, sizeof *p->places);
    p->logits = calloc((size_t)(n * p->decoder.vocabulary), sizeof *p->logits);
    p->ended = calloc((size_t)n, sizeof *p->ended);
    p->draw.choices = calloc((size_t)p->draw.count, sizeof *p->draw.choices);
    if (!code &&
        (!p->texts || !p->tokens || !p->places || !p->logits || !p->ended || !p->draw.choices))
        code = failure("memory does not suffice");
    for (int64_t b = 0; !code && b < n; b++)
        memcpy(p->texts + b * p->room, ids, (size_t)p->count * sizeof *ids);
    free(ids);
    return code;
}

/* --- the model ------------------------------------------------------------------------------- */

/* Reads the vocabulary from the shape of the embedding. For gpt2, reads the number of positions
 * too. */
static int read_shapes(sampler *p)
{
    static const char *const words[] = {"wte.weight", "transformer.wte.weight", "embedding.weight"};
    static const char *const places[] = {"wpe.weight", "transformer.wpe.weight"};
    const clt_tensors *file = saved_tensors(&p->saved);
    p->decoder.positions = 1;
    for (int i = 0; i < clt_tensors_count(file); i++) {
        const clt_tensor *t = clt_tensors_at(file, i);
        for (size_t k = 0; t->rank == 2 && k < sizeof words / sizeof *words; k++)
            if (!strcmp(t->name, words[k]))
                p->decoder.vocabulary = t->dims[0];
        for (size_t k = 0; t->rank == 2 && k < sizeof places / sizeof *places; k++)
            if (!strcmp(t->name, places[k])) {
                p->decoder.positions = t->dims[0];
                p->grows = 1;
            }
    }
    return p->decoder.vocabulary > 0
               ? 0
               : failure("%s has no wte.weight or embedding.weight: it is no model of text",
                         p->saved.file);
}

static int open_tokenizer(sampler *p, const settings *s)
{
    enum { BYTES = 256 };
    const int64_t words = p->decoder.vocabulary;
    if (!s->tokenizer && words != BYTES)
        return usage_error("--tokenizer is missing: gpt2:DIR with vocab.json and merges.txt, or "
                           "bytes; the model has %lld tokens",
                           (long long)words);
    const clt_status status =
        clt_tokenizer_open(s->tokenizer ? s->tokenizer : "bytes", &p->tokenizer);
    if (status != CLT_OK)
        return s->tokenizer && strchr(s->tokenizer, ':') ? library_failure(status)
                                                         : name_failure(status);
    p->draw.count = clt_tokenizer_vocabulary(p->tokenizer);
    /* A model may have more words than tokens, for speed. */
    return p->draw.count <= words
               ? 0
               : failure("--tokenizer %s has %lld tokens, %s only %lld", s->tokenizer,
                         (long long)p->draw.count, p->saved.file, (long long)words);
}

static int make_store(sampler *p, const settings *s, clt_graph *graph)
{
    p->job.graph = graph;
    int code = job_store(&p->job, s);
    p->job.graph = NULL;
    NEXT(code, library_failure(saved_load(&p->saved, p->job.store)));
    return code;
}

/* Matrices in 16 bits are states of the decoder. Only parameters have adapters and parts. */
static int read_weights(sampler *p, const settings *s)
{
    TRY(read_precision(s, &p->decoder.weights));
    if (p->decoder.weights == CLT_F32)
        return 0;
    return s->parallel || s->zero == 3
               ? usage_error("--precision %s: sample keeps matrices in 16 bits on one device only: "
                             "leave out %s",
                             s->precision, s->parallel ? "--parallel" : "--zero")
               : 0;
}

static int make_predictor(sampler *p, const settings *s, int64_t length, clt_predictor **out)
{
    clt_predictor_options options;
    clt_decoder decoder = p->decoder;
    clt_graph *graph = NULL;
    clt_predictor_options_init(&options);
    options.variants = s->variant;
    decoder.length = length;
    /* A token needs hundreds of small launches. */
    if (length == 1) {
        options.merge_launches = CLT_MERGE_ON;
        TRY(read_merging(s->merge_launches, &options.merge_launches));
    }
    clt_status status = clt_graph_create(&graph);
    NEXT(status, clt_model_decoder(p->saved.model, &decoder, graph));
    int code = name_failure(status);
    settings with = *s;
    saved_settings(&p->saved, &with);
    if (!code && with.lora && decoder.weights != CLT_F32)
        code =
            usage_error("--precision %s: sample has adapters of f32 matrices only: merge them with "
                        "export --merge-lora first",
                        s->precision);
    NEXT(code, read_lora(graph, &with));
    NEXT(code, refuse_measured(s));
    NEXT(code, read_groups(graph, s));
    if (!code && !p->job.store)
        code = make_store(p, s, graph);
    NEXT(code, mesh_failure(s, clt_predictor_create(graph, p->job.store, &options, out)));
    clt_graph_destroy(graph);
    return code;
}

/* Reads `length` tokens of each text from place `from` on. Tokens behind p->count are padding. The
 * logits are those behind the last real token. */
static int read_tokens(sampler *p, clt_predictor *predictor, int64_t from, int64_t length)
{
    const int64_t n = p->decoder.samples;
    int32_t last = (int32_t)((from + length < p->count ? from + length : p->count) - from - 1);
    for (int64_t t = 0; t < length; t++) {
        p->places[t] = (int32_t)(from - p->begin + t);
        for (int64_t b = 0; b < n; b++)
            p->tokens[b * length + t] = from + t < p->count ? p->texts[b * p->room + from + t] : 0;
    }
    const clt_feed feeds[] = {{"tokens", -1, CLT_HOST(p->tokens)},
                              {"positions", -1, CLT_HOST(p->places)},
                              {"last", -1, CLT_HOST(&last)}};
    const clt_fetch fetch = {"logits", p->device, CLT_HOST(p->logits)};
    clt_step_batch batch;
    clt_step_batch_init(&batch);
    batch.count = 1;
    batch.feeds = feeds;
    batch.n_feeds = 3;
    batch.fetches = &fetch;
    batch.n_fetches = 1;
    clt_status status = clt_predictor_run(predictor, &batch, NULL);
    NEXT(status, clt_predictor_wait(predictor));
    p->end = from + last + 1;
    return library_failure(status);
}

/* Reads all tokens that have not been read yet. */
static int catch_up(sampler *p, const settings *s)
{
    int code = 0;
    if (p->grows && p->count - p->begin > p->decoder.positions) {
        const int64_t half = (p->decoder.positions + 1) / 2;
        p->begin = p->end = p->count - half;
    }
    const int chunks = p->grows && p->count - p->end > FEW && p->chunk > 1;
    if (chunks && !p->many)
        code = make_predictor(p, s, p->chunk, &p->many);
    while (!code && chunks && p->end < p->count) {
        int64_t from = p->end;
        /* The last chunk reads some tokens again, to be full. */
        if (from + p->chunk > p->count)
            from = p->count - p->chunk > p->begin ? p->count - p->chunk : p->begin;
        code = read_tokens(p, p->many, from, p->chunk);
    }
    while (!code && p->end < p->count)
        code = read_tokens(p, p->one, p->end, 1);
    return code;
}

/* --- text ------------------------------------------------------------------------------------ */

static int flushed(void)
{
    return fflush(stdout) || ferror(stdout) ? failure("cannot write standard output") : 0;
}

static int print_tokens(sampler *p, const int32_t *ids, int64_t count)
{
    char *text = NULL;
    size_t bytes;
    for (int64_t i = 0; p->ids && i < count; i++)
        printf("%s%d", p->listed++ ? " " : "", (int)ids[i]);
    if (p->ids)
        return flushed();
    TRY(library_failure(clt_tokenizer_decode(p->tokenizer, ids, count, &text, &bytes)));
    if (p->raw)
        fwrite(text, 1, bytes, stdout);
    else
        utf8_print(&p->out, text, bytes);
    free(text);
    return flushed();
}

static int print_text(sampler *p, int64_t b)
{
    const int32_t *text = p->texts + b * p->room;
    const int64_t between = clt_tokenizer_end_of_text(p->tokenizer);
    const int64_t first = text[0] == between, end = p->ended[b] ? p->ended[b] : p->count;
    if (b)
        printf(p->ids ? "\n" : "\n---\n");
    p->listed = 0;
    const int code = print_tokens(p, text + first, end - first);
    utf8_end(&p->out);
    return code;
}

static int make_text(sampler *p, const settings *s, int64_t *made)
{
    const int64_t n = p->decoder.samples, between = clt_tokenizer_end_of_text(p->tokenizer);
    const int64_t first = p->texts[0] == between;
    int code = n == 1 ? print_tokens(p, p->texts + first, p->count - first) : 0;
    int64_t going = n;
    while (!code && going && p->count < p->room) {
        code = catch_up(p, s);
        for (int64_t b = 0; !code && b < n; b++) {
            const int32_t token =
                draw_token(&p->draw, p->logits + b * p->decoder.vocabulary, b, p->count);
            if (token < 0)
                return failure("%s: the logits behind token %lld are not finite", p->saved.file,
                               (long long)p->count);
            p->texts[b * p->room + p->count] = token;
            *made += !p->ended[b];
            if (token == between && !p->ended[b]) {
                p->ended[b] = (int)p->count;
                going--;
            }
        }
        p->count++;
        if (!code && n == 1 && going)
            code = print_tokens(p, p->texts + p->count - 1, 1);
    }
    if (n == 1)
        utf8_end(&p->out);
    for (int64_t b = 0; !code && n > 1 && b < n; b++)
        code = print_text(p, b);
    if (!code && !p->raw) /* with --raw only the text is printed */
        printf("\n");
    return code;
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Generates the text. Reads the prompt before the clock starts. */
static int run(sampler *p, const settings *s)
{
    int64_t made = 0;
    int code = catch_up(p, s);
    const double begin = seconds();
    NEXT(code, make_text(p, s, &made));
    const double took = seconds() - begin;
    if (!code && !s->quiet && made)
        say("%lld tokens, %.1f a second", (long long)made, (double)made / took);
    return code;
}

static int open_device(sampler *p, const settings *s)
{
    const int code = job_devices(&p->job, s);
    if (code || p->job.n_devices == 1 || job_is_meshed(s))
        return code;
    if (s->devices && strcmp(s->devices, "gpu") && strcmp(s->devices, "all"))
        return usage_error("--devices %s: sample uses one device, not %d, without --parallel",
                           s->devices, p->job.n_devices);
    while (p->job.n_devices > 1)
        clt_device_close(p->job.devices[--p->job.n_devices]);
    return 0;
}

/* A text is one sample, and its tokens are read one by one. */
static int check_axes(const settings *s)
{
    static const char *const others[] = {"space=", "time=", "dp="};
    for (size_t i = 0; s->parallel && i < sizeof others / sizeof *others; i++)
        if (strstr(s->parallel, others[i]) && !(s->zero == 3 && i == 2))
            return usage_error("--parallel %s: a text has nothing to divide along %.*s: give tp, "
                               "pp or both",
                               s->parallel, (int)strlen(others[i]) - 1, others[i]);
    return check_mesh(s, 0);
}

static int check(sampler *p, const settings *s)
{
    if (s->prompt && s->prompt_file)
        return usage_error("--prompt or --prompt-file, not both");
    if (s->raw && s->ids)
        return usage_error("--raw or --ids, not both");
    p->raw = s->raw;
    p->ids = s->ids;
    if (s->top_p <= 0 || s->top_p > 1)
        return usage_error("--top-p %g: must be above 0 and at most 1", s->top_p);
    p->decoder.samples = s->samples > 0 ? s->samples : 1;
    p->decoder.length = 1;
    p->draw = (draw){.temperature = s->greedy               ? 0
                                    : isnan(s->temperature) ? 1
                                                            : s->temperature,
                     .top_k = s->top_k > 0 ? s->top_k : 0,
                     .top_p = isnan(s->top_p) ? 1 : s->top_p,
                     .seed = s->seed > 0 ? (uint64_t)s->seed : 0};
    p->device = s->zero == 3 ? 0 : -1; /* with zero 3 the first device has the text */
    TRY(check_axes(s));
    TRY(read_weights(p, s));
    return check_variants(s);
}

int run_sample(const settings *s)
{
    sampler p = {0};
    int code = check(&p, s);
    NEXT(code, saved_open(&p.saved, s));
    NEXT(code, read_shapes(&p));
    NEXT(code, open_tokenizer(&p, s));
    NEXT(code, begin_texts(&p, s));
    NEXT(code, open_device(&p, s));
    NEXT(code, make_predictor(&p, s, 1, &p.one));
    NEXT(code, run(&p, s));
    clt_predictor_destroy(p.one);
    clt_predictor_destroy(p.many);
    clt_tokenizer_free(p.tokenizer);
    saved_close(&p.saved);
    free(p.texts);
    free(p.tokens);
    free(p.places);
    free(p.logits);
    free(p.ended);
    free(p.draw.choices);
    return job_close(&p.job, code);
}
