#include "options/options.h"

#include <errno.h>
#include <math.h>
#include <popt.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/message.h"

typedef enum option_kind {
    FLAG,   /* int: 1 if given */
    TEXT,   /* char * */
    LIST,   /* char *, what is given several times is joined by ; */
    EITHER, /* as LIST, by | */
    WHOLE,  /* int64_t of at least `least` */
    NUMBER  /* double, finite and at least `least` */
} option_kind;

typedef struct option_row {
    const char *name;
    char letter;
    option_kind kind;
    size_t place;
    double least;
    unsigned commands;
    const char *argument, *help;
} option_row;

#define AT(field) offsetof(settings, field)
enum {
    RUNS = FOR_TRAIN | FOR_PLAN | FOR_BENCH_TRAIN,
    USES = FOR_PREDICT | FOR_SAMPLE,
    MODELS = RUNS | FOR_EVAL | FOR_TUNE,
    SAMPLES = MODELS | FOR_INSPECT | FOR_DATA_INSPECT | FOR_PREDICT,
    TRAINS = FOR_TRAIN | FOR_PLAN,
    RANKS = FOR_TRAIN | FOR_BENCH_TRAIN | FOR_EVAL,
    KERNELS = MODELS | FOR_KERNELS | USES,
    DEVICES = KERNELS | FOR_BENCH_ALLREDUCE,
    ALL = DEVICES | FOR_DEVICES | FOR_PLOT | FOR_INSPECT | FOR_DATA
};

/* One row an option: name, letter, kind, place, least value, subcommands, argument, help. */
static const option_row rows[] = {
    {"model", 0, TEXT, AT(model), 0, MODELS | FOR_INSPECT | USES, "NAME",
     "model (`cltrain models` lists them), or a model file, NAME.json"},
    {"data", 0, TEXT, AT(data), 0, MODELS | FOR_INSPECT | FOR_PREDICT, "SPEC",
     "fashion-mnist, or KIND:PATH: idx, cifar10, cifar100, images, tokens, text, npz, hdf5 (plan, "
     "bench and inspect: also synthetic[:CxHxW[:CLASSES]], of text for gpt2)"},
    {"classes", 0, WHOLE, AT(classes), 1, SAMPLES, "N",
     "of the labels, or tokens of the vocabulary, where the data do not say (the largest + 1)"},
    {"seq-len", 0, WHOLE, AT(seq_len), 1, SAMPLES, "T",
     "tokens of a sample of text (1024; of a checkpoint: its run's)"},
    {"windows", 0, TEXT, AT(windows), 0, RUNS, "WAY",
     "training samples of text: shifted (each epoch; default), random (anywhere), fixed, or "
     "continued: each batch goes on where the one before it ended, and so do the states of lstm"},
    {"image-size", 0, WHOLE, AT(image_size), 1, SAMPLES, "N",
     "height and width of images:DIR (224; of a checkpoint: its run's)"},
    {"resize", 0, WHOLE, AT(resize), 1, SAMPLES, "N",
     "images:DIR: the shorter side before the crop (8/7 of --image-size)"},
    {"augment", 0, TEXT, AT(augment), 0, RUNS, "LIST",
     "of training images: crop[:PADDING], resized-crop[:AREA] (images:DIR), flip"},
    {"tokenizer", 0, TEXT, AT(tokenizer), 0, FOR_TOKENIZE | FOR_SAMPLE, "NAME",
     "bytes, or gpt2:DIR with vocab.json and merges.txt"},
    {"prompt", 0, TEXT, AT(prompt), 0, FOR_SAMPLE, "TEXT",
     "what the text begins with (the token between texts; of bytes: a line's end)"},
    {"prompt-file", 0, TEXT, AT(prompt_file), 0, FOR_SAMPLE, "FILE", "the same, from a file"},
    {"tokens", 0, WHOLE, AT(tokens), 1, FOR_SAMPLE, "N", "to make at most (200)"},
    {"samples", 0, WHOLE, AT(samples), 1, FOR_SAMPLE, "N",
     "texts, made side by side and printed at the end, with lines --- between them (1)"},
    {"raw", 0, FLAG, AT(raw), 0, FOR_SAMPLE, NULL,
     "print the bytes of the text as they are (else control characters are escaped: \\x1b)"},
    {"ids", 0, FLAG, AT(ids), 0, FOR_SAMPLE, NULL,
     "print numbers of tokens, one text a line, instead of text"},
    {"greedy", 0, FLAG, AT(greedy), 0, FOR_SAMPLE, NULL, "always the most probable token"},
    {"temperature", 0, NUMBER, AT(temperature), 0, FOR_SAMPLE, "X",
     "logits are divided by it (1; 0: --greedy)"},
    {"top-k", 0, WHOLE, AT(top_k), 1, FOR_SAMPLE, "K", "draw from the K most probable tokens"},
    {"top-p", 0, NUMBER, AT(top_p), 0, FOR_SAMPLE, "P",
     "draw from the fewest tokens that have probability P together (1)"},
    {"top", 0, WHOLE, AT(top), 1, FOR_PREDICT, "N", "print the N most probable classes (1)"},
    {"devices", 0, TEXT, AT(devices), 0, DEVICES, "LIST",
     "items by comma: all | gpu | cpu | PLATFORM[:INDEX] | INDEX, each with /N or @C"},
    {"batch", 0, WHOLE, AT(batch), 1, MODELS | FOR_PREDICT, "N",
     "global batch over all ranks and devices (256; predict: 64)"},
    {"oversubscribe", 0, FLAG, AT(oversubscribe), 0, RANKS | FOR_BENCH_ALLREDUCE, NULL,
     "under mpiexec: every rank uses all of --devices; else they are dealt to the node's ranks"},
    {"mpi", 0, FLAG, AT(mpi), 0, RANKS | FOR_BENCH_ALLREDUCE, NULL,
     "begin MPI also where no process manager is recognised"},
    {"comm-timeout", 0, NUMBER, AT(comm_timeout), 0, RANKS, "SECONDS",
     "that a device or rank may be late for a reduction, or stopped before (60; 0: without end)"},
    {"setup-timeout", 0, NUMBER, AT(setup_timeout), 0, RANKS | FOR_BENCH_ALLREDUCE, "SECONDS",
     "that ranks wait for one that is at work before and between steps (600; 0: without end)"},
    {"accumulate", 0, WHOLE, AT(accumulate), 1, RUNS | FOR_TUNE, "K", "micro-batches a step (1)"},
    {"epochs", 0, WHOLE, AT(epochs), 0, TRAINS, "N", "epochs in all (1)"},
    {"steps", 0, WHOLE, AT(steps), 1, RUNS, "N", "steps in all; in bench, of each timed block"},
    {"optimizer", 0, TEXT, AT(optimizer), 0, RUNS, "NAME",
     "sgd, momentum, nesterov, adam or adamw (sgd)"},
    {"lr", 0, NUMBER, AT(lr), 0, RUNS, "X", "learning rate (0.1; adam and adamw: 0.001)"},
    {"momentum", 0, NUMBER, AT(momentum), 0, RUNS, "X", "of momentum and nesterov (0.9)"},
    {"weight-decay", 0, NUMBER, AT(weight_decay), 0, RUNS, "X", "on all parameters (0)"},
    {"freeze", 0, EITHER, AT(freeze), 0, RUNS, "PATTERN",
     "parameters that are not trained: fnmatch patterns, parted by |; 1d: of one dimension"},
    {"param-group", 0, LIST, AT(param_group), 0, RUNS, "PATTERN:lr=X,decay=Y",
     "their factor on the rate, their weight decay; 1d:decay=0: none on biases and norms"},
    {"schedule", 0, TEXT, AT(schedule), 0, RUNS, "SPEC",
     "constant | step:EVERY:FACTOR | cosine[:MIN], each with ,warmup:STEPS"},
    {"clip-norm", 0, NUMBER, AT(clip_norm), 0, RUNS, "X",
     "largest norm of the whole gradient (0: no clipping)"},
    {"no-guard", 0, FLAG, AT(no_guard), 0, RUNS, NULL, "go on after a step that is not finite"},
    {"recompute", 0, FLAG, AT(recompute), 0, RUNS, NULL,
     "least memory: backward computes activations again instead of keeping them; the same bits"},
    {"memory", 0, TEXT, AT(memory), 0, RUNS, "SIZE",
     "most memory of each device, as 8GB or 512MiB: recomputes as little as it takes to fit"},
    {"seed", 0, WHOLE, AT(seed), 0, RUNS | FOR_SAMPLE, "N",
     "of initialisation, order and dropout (0; with --resume the run's); sample: of what is drawn"},
    {"shuffle", 0, TEXT, AT(shuffle), 0, FOR_TRAIN, "on|off", "a new order each epoch (on)"},
    {"drop-last", 0, FLAG, AT(drop_last), 0, FOR_TRAIN, NULL,
     "leave out an epoch's last batch where it has fewer samples than the others"},
    {"init", 0, TEXT, AT(init), 0, FOR_TRAIN, "FILE",
     "start from a .safetensors file's parameters"},
    {"precision", 0, TEXT, AT(precision), 0, MODELS, "TYPE",
     "what layers' values and gradients are kept in: f32, bf16 or f16 (f32)"},
    {"normalize", 0, TEXT, AT(normalize), 0, MODELS | FOR_PREDICT, "MEAN,STD",
     "of image bytes, after the division by 255; or a mean each channel, then a std each"},
    {"cache-dir", 0, TEXT, AT(cache_dir), 0, DEVICES | FOR_DEVICES, "DIR",
     "compiled kernels and tuning records (~/.cache/cltrain)"},
    {"checkpoint-dir", 0, TEXT, AT(checkpoint_dir), 0, FOR_TRAIN, "DIR", "save checkpoints there"},
    {"checkpoint-every", 0, TEXT, AT(checkpoint_every), 0, FOR_TRAIN, "N|epoch",
     "save every N steps or each epoch (default: at the end and when stopped)"},
    {"resume", 0, FLAG, AT(resume), 0, FOR_TRAIN, NULL,
     "go on from the newest checkpoint in --checkpoint-dir, if there is one"},
    {"resume-intact", 0, FLAG, AT(resume_intact), 0, FOR_TRAIN, NULL,
     "--resume, but from the newest intact checkpoint, where later ones are damaged"},
    {"keep", 0, WHOLE, AT(keep), 0, FOR_TRAIN, "K", "keep the last K checkpoints (3; 0: all)"},
    {"metrics", 0, TEXT, AT(metrics), 0, FOR_TRAIN, "FILE",
     "JSON lines: one object a step, one an epoch; --resume goes on with the file"},
    {"profile", 0, TEXT, AT(profile), 0, FOR_TRAIN, "FILE",
     "Chrome trace of every kernel and transfer, by node (chrome://tracing, ui.perfetto.dev)"},
    {"heartbeat", 0, TEXT, AT(heartbeat), 0, FOR_TRAIN, "DIR",
     "keep a file rank-N there that tells where rank N is, for cltrain-launch"},
    {"tune", 0, TEXT, AT(tune), 0, FOR_TRAIN | FOR_BENCH_TRAIN | FOR_KERNELS, "off|SECONDS",
     "time to spend before step 1 on measuring kernels for new shapes (10; bench gemm, conv, op: "
     "off)"},
    {"variant", 0, TEXT, AT(variant), 0, KERNELS, "OP=NAME,...",
     "kernel variants to take for operators, where they accept; see plan --explain"},
    {"check-every", 0, WHOLE, AT(check_every), 0, FOR_TRAIN, "K",
     "compare the replicas of several devices every K steps (100; 0: never)"},
    {"checkpoint", 0, TEXT, AT(checkpoint), 0, FOR_EVAL | USES, "DIR",
     "a run's folder (its newest), a step's folder, or a .safetensors file"},
    {"explain", 0, FLAG, AT(explain), 0, FOR_PLAN, NULL,
     "why each kernel variant was chosen, and the program of a step"},
    {"split", 0, TEXT, AT(split), 0, FOR_TRAIN | FOR_BENCH_TRAIN, "HOW",
     "of a batch among devices: measured (by speed), equal, or weights as 2,1 (measured)"},
    {"rebalance", 0, FLAG, AT(rebalance), 0, FOR_TRAIN | FOR_BENCH_TRAIN, NULL,
     "divide batches anew while training, where a device has become slower or faster"},
    {"replay", 0, TEXT, AT(replay), 0, FOR_TRAIN, "FILE",
     "divide batches as the run did that wrote this file of --metrics"},
    {"simulate", 0, TEXT, AT(simulate), 0, FOR_PLAN, "N,...",
     "predict a step between so many ranks, each with these devices and --batch samples"},
    {"link", 0, TEXT, AT(link), 0, FOR_PLAN, "RATE,LATENCY",
     "of the network between those ranks, as 25GB/s,5us"},
    {"blocks", 0, WHOLE, AT(blocks), 1, FOR_BENCH, "N", "timed blocks (9)"},
    {"warmup", 0, WHOLE, AT(warmup), 1, FOR_BENCH_TRAIN, "N", "steps before the first block (20)"},
    {"by-node", 0, FLAG, AT(by_node), 0, FOR_BENCH_TRAIN, NULL, "train: where a step's time goes"},
    {"predict", 0, FLAG, AT(predict), 0, FOR_BENCH_TRAIN, NULL,
     "train: what the planner predicts, beside it"},
    {"budget", 0, NUMBER, AT(budget), 0, FOR_TUNE, "SECONDS", "time to spend on each device (60)"},
    {"export", 0, TEXT, AT(export_file), 0, FOR_TUNE, "FILE",
     "write what was measured on the device, as clkernels/tuning keeps it"},
    {"trans", 0, TEXT, AT(trans), 0, FOR_BENCH_GEMM, "NN|NT|TN|TT",
     "gemm: one of them (NN, NT and TN)"},
    {"compare", 0, FLAG, AT(compare), 0, FOR_BENCH_GEMM | FOR_BENCH_ALLREDUCE, NULL,
     "by turns beside it: gemm: OpenBLAS; allreduce between ranks: MPI_Allreduce on host memory"},
    {"staged", 0, FLAG, AT(staged), 0, FOR_BENCH_ALLREDUCE, NULL,
     "allreduce: by copies through staging where buffers could be mapped"},
    {"peer", 0, FLAG, AT(peer), 0, FOR_BENCH_ALLREDUCE, NULL,
     "allreduce: by copies from device to device, past the host"},
    {"share-context", 0, FLAG, AT(share_context), 0,
     FOR_TRAIN | FOR_BENCH_TRAIN | FOR_BENCH_ALLREDUCE, NULL,
     "one OpenCL context for all devices of a platform, so that GPUs can copy from each other"},
    {"stride", 0, WHOLE, AT(stride), 1, FOR_BENCH_CONV, "N", "conv (1)"},
    {"padding", 0, WHOLE, AT(padding), 0, FOR_BENCH_CONV, "N", "conv (0)"},
    {"dilation", 0, WHOLE, AT(dilation), 1, FOR_BENCH_CONV, "N", "conv (1)"},
    {"groups", 0, WHOLE, AT(groups), 1, FOR_BENCH_CONV, "N", "conv (1)"},
    {"output", 'o', TEXT, AT(output), 0, FOR_PLOT | FOR_TOKENIZE | FOR_PREDICT, "FILE",
     "plot: the picture, a PNG file; tokenize: the tokens, a .bin file; predict: all outputs, an "
     "NPZ file"},
    {"json", 0, FLAG, AT(json), 0,
     FOR_DEVICES | FOR_BENCH | FOR_EVAL | FOR_TUNE | FOR_INSPECT | FOR_DATA_INSPECT | FOR_PREDICT,
     NULL, "print JSON"},
    {"quiet", 'q', FLAG, AT(quiet), 0, FOR_TRAIN | FOR_SAMPLE, NULL, "print nothing but failures"},
    {"help", 'h', FLAG, AT(help), 0, ALL, NULL, "this text"},
};
enum { ROWS = sizeof rows / sizeof *rows };
_Static_assert((int)ROWS < (int)COMPARED, "ranks compare a number a row, and one more");

static void *place_of(settings *s, const option_row *row)
{
    return (char *)s + row->place;
}

static int is_text(const option_row *row)
{
    return row->kind == TEXT || row->kind == LIST || row->kind == EITHER;
}

void settings_init(settings *s)
{
    *s = (settings){0};
    for (int i = 0; i < ROWS; i++) {
        if (rows[i].kind == WHOLE)
            *(int64_t *)place_of(s, &rows[i]) = -1;
        else if (rows[i].kind == NUMBER)
            *(double *)place_of(s, &rows[i]) = NAN;
    }
}

void settings_free(settings *s)
{
    for (int i = 0; i < ROWS; i++)
        if (is_text(&rows[i]))
            free(*(char **)place_of(s, &rows[i]));
    poptFreeContext(s->context);
}

static int set_whole(const option_row *row, const char *text, int64_t *out)
{
    char *end;
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    if (end == text || *end)
        return usage_error("--%s %s: not a whole number", row->name, text);
    if (errno || (double)value < row->least)
        return usage_error("--%s %s: must be a whole number of at least %g", row->name, text,
                           row->least);
    *out = value;
    return 0;
}

static int set_number(const option_row *row, const char *text, double *out)
{
    char *end;
    const double value = strtod(text, &end);
    if (end == text || *end)
        return usage_error("--%s %s: not a number", row->name, text);
    if (!isfinite(value) || value < row->least)
        return usage_error("--%s %s: must be finite and at least %g", row->name, text, row->least);
    *out = value;
    return 0;
}

/* Takes `text`, which is malloc's. */
static char *joined(const char *before, char between, char *text)
{
    char *both = malloc(strlen(before) + strlen(text) + 2);
    if (both)
        sprintf(both, "%s%c%s", before, between, text);
    free(text);
    return both;
}

/* Takes `text`, which is malloc's. */
static int set_option(settings *s, const option_row *row, char *text)
{
    void *place = place_of(s, row);
    int code = 0;
    if (is_text(row)) {
        char *before = *(char **)place;
        const int empty = !*text;
        if (before && row->kind != TEXT && !empty)
            text = joined(before, row->kind == LIST ? ';' : '|', text);
        free(before);
        *(char **)place = text;
        if (!text)
            return failure("memory does not suffice");
        return empty ? usage_error("--%s needs a value", row->name) : 0;
    }
    if (row->kind == FLAG)
        *(int *)place = 1;
    else if (row->kind == WHOLE)
        code = set_whole(row, text, place);
    else
        code = set_number(row, text, place);
    free(text);
    return code;
}

static int unknown_option(unsigned command, const char *given)
{
    const char *names[ROWS], *all[ROWS];
    int count = 0;
    for (int i = 0; i < ROWS; i++) {
        all[i] = rows[i].name;
        if (rows[i].commands & command)
            names[count++] = rows[i].name;
    }
    char word[100];
    snprintf(word, sizeof word, "%s", given + strspn(given, "-"));
    word[strcspn(word, "=")] = '\0';
    for (int i = 0; i < ROWS; i++)
        if (!strcmp(rows[i].name, word))
            return usage_error("option --%s does not belong to this subcommand; see --help", word);
    const char *near = clt_nearest(word, names, count);
    if (near)
        return usage_error("unknown option %s; did you mean --%s?", given, near);
    near = clt_nearest(word, all, ROWS);
    if (near)
        return usage_error("unknown option %s; --%s belongs to other subcommands; see --help",
                           given, near);
    return usage_error("unknown option %s; --help lists them", given);
}

static int read_options(settings *s, unsigned command, poptContext context)
{
    int value, code = 0;
    while (!code && (value = poptGetNextOpt(context)) > 0) {
        const option_row *row = &rows[value - 1];
        char *text = poptGetOptArg(context);
        /* The last one would count without a word. */
        if (s->given[value - 1] && row->kind != LIST && row->kind != EITHER && row->kind != FLAG) {
            free(text);
            return usage_error("--%s is given twice", row->name);
        }
        code = set_option(s, row, text);
        s->given[value - 1] = 1;
    }
    if (code || value == -1)
        return code;
    const char *given = poptBadOption(context, POPT_BADOPTION_NOALIAS);
    if (value == POPT_ERROR_BADOPT)
        return unknown_option(command, given);
    if (value == POPT_ERROR_NOARG)
        return usage_error("%s needs a value", given);
    return usage_error("%s: %s", given, poptStrerror(value));
}

int settings_read(settings *s, unsigned command, int argc, const char **argv)
{
    struct poptOption table[ROWS + 1] = {0};
    int count = 0;
    for (int i = 0; i < ROWS; i++)
        if (rows[i].commands & command)
            table[count++] = (struct poptOption){.longName = rows[i].name,
                                                 .shortName = rows[i].letter,
                                                 .argInfo = rows[i].kind == FLAG ? POPT_ARG_NONE
                                                                                 : POPT_ARG_STRING,
                                                 .val = i + 1};
    s->context = poptGetContext("cltrain", argc, argv, table, 0);
    if (!s->context)
        return failure("memory does not suffice");
    const int code = read_options(s, command, s->context);
    s->names = poptGetArgs(s->context);
    while (s->names && s->names[s->n_names])
        s->n_names++;
    if (code || s->help || (command & (FOR_PLOT | FOR_BENCH | FOR_DATA | FOR_PREDICT)) ||
        !s->n_names)
        return code;
    return usage_error("unexpected argument '%s'; --help lists the options", s->names[0]);
}

int settings_check(const settings *s, unsigned command, const char *name)
{
    for (int i = 0; i < ROWS; i++)
        if (s->given[i] && !(rows[i].commands & command))
            return usage_error("option --%s does not belong to %s; see --help", rows[i].name, name);
    return 0;
}

void settings_help(unsigned command)
{
    printf("\nOptions:\n");
    for (int i = 0; i < ROWS; i++) {
        char left[40];
        if (!(rows[i].commands & command))
            continue;
        const char letter[] = {'-', rows[i].letter, ',', ' ', '\0'};
        snprintf(left, sizeof left, "%s--%s %s", rows[i].letter ? letter : "", rows[i].name,
                 rows[i].argument ? rows[i].argument : "");
        printf("  %-26s %s\n", left, rows[i].help);
    }
}

/* --- what ranks compare ---------------------------------------------------------------------- */

static int one_of(const char *name, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(name, names[i]))
            return 1;
    return 0;
}

#define ONE_OF(name, names) one_of(name, names, sizeof(names) / sizeof *(names))

/* Fowler, Noll and Vo's hash FNV-1a. */
static uint64_t hash_bytes(uint64_t hash, const void *data, size_t count)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ bytes[i]) * 1099511628211u;
    return hash;
}

static uint64_t hash_value(const option_row *row, const void *place)
{
    static const char *const presence[] = {"checkpoint-dir", "replay"};
    const uint64_t basis = 14695981039346656037u;
    const char *text = is_text(row) ? *(char *const *)place : NULL;
    if (is_text(row) && (!text || ONE_OF(row->name, presence)))
        return basis + (text != NULL);
    if (text)
        return hash_bytes(basis, text, strlen(text) + 1);
    return hash_bytes(basis, place,
                      row->kind == FLAG    ? sizeof(int)
                      : row->kind == WHOLE ? sizeof(int64_t)
                                           : sizeof(double));
}

void settings_compared(const settings *s, uint64_t hashes[COMPARED])
{
    static const char *const free_ones[] = {
        "data",    "devices", "cache-dir", "heartbeat",    "metrics",       "profile", "checkpoint",
        "variant", "tune",    "export",    "comm-timeout", "setup-timeout", "quiet",   "json"};
    memset(hashes, 0, COMPARED * sizeof *hashes);
    for (int i = 0; i < ROWS; i++)
        if (!ONE_OF(rows[i].name, free_ones))
            hashes[i] = hash_value(&rows[i], (const char *)s + rows[i].place);
    for (int i = 0; i < s->n_names; i++)
        hashes[COMPARED - 1] =
            hash_bytes(hashes[COMPARED - 1] + 1, s->names[i], strlen(s->names[i]) + 1);
}

const char *settings_compared_name(int index, char text[64])
{
    if (index < ROWS)
        snprintf(text, 64, "option --%s", rows[index].name);
    else
        snprintf(text, 64, "list of arguments");
    return text;
}
