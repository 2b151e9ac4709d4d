/* The command line: one table of options for all subcommands. */
#ifndef CLTRAIN_COMMAND_OPTIONS_OPTIONS_H
#define CLTRAIN_COMMAND_OPTIONS_OPTIONS_H

#include <stdint.h>

/* The subcommands and the subjects of bench, as bits. Each option belongs to a set of them. */
enum {
    FOR_DEVICES = 1,
    FOR_TRAIN = 2,
    FOR_EVAL = 4,
    FOR_PLAN = 8,
    FOR_PLOT = 16,
    FOR_TUNE = 32,
    FOR_BENCH_TRAIN = 64,
    FOR_BENCH_GEMM = 128,
    FOR_BENCH_CONV = 256,
    FOR_BENCH_OP = 512,
    FOR_BENCH_SCALING = 1024,
    FOR_BENCH_ALLREDUCE = 2048,
    FOR_INSPECT = 4096,
    FOR_PREDICT = 8192,
    FOR_SAMPLE = 16384,
    FOR_BENCH_MESHES = 1 << 15,
    FOR_DATA_INSPECT = 1 << 16,
    FOR_TOKENIZE = 1 << 17,
    FOR_EXPORT = 1 << 18,
    FOR_BENCH_LOAD = 1 << 19,
    FOR_DATA = FOR_DATA_INSPECT | FOR_TOKENIZE,
    FOR_KERNELS = FOR_BENCH_GEMM | FOR_BENCH_CONV | FOR_BENCH_OP | FOR_BENCH_SCALING,
    FOR_BENCH_STEPS = FOR_BENCH_TRAIN | FOR_BENCH_MESHES,
    FOR_BENCH = FOR_BENCH_STEPS | FOR_KERNELS | FOR_BENCH_ALLREDUCE | FOR_BENCH_LOAD
};

/* An upper bound of the number of options plus one. */
enum { COMPARED = 256 };

/* The values of all options. Options that were not set have NULL, -1 or NaN. */
typedef struct settings {
    char *model, *data, *devices, *optimizer, *schedule, *init, *precision, *wire, *normalize,
        *shuffle;
    char *cache_dir, *checkpoint, *checkpoint_dir, *checkpoint_every, *metrics, *profile, *output,
        *variant, *merge_launches, *trans, *tune, *export_file, *parallel, *offload, *split,
        *replay, *simulate, *link, *inter, *heartbeat, *global_batch, *tokenizer, *augment,
        *windows, *freeze, *memory, *prompt, *prompt_file, *param_group, *sync_every, *outer,
        *stages, *init_skip, *betas, *muon_scale, *muon_adamw,
        *lora; /* several values are joined by ; (freeze, init_skip, stages: by |) */
    char *tensorboard;
    char *listen, *reach, *join, *events;
    char *val, *val_every, *keep_best, *monitor, *average;
    int64_t async, servers, holder, worker;
    int64_t batch, accumulate, virtual_shards, in_flight, zero, epochs, steps, seed, keep, blocks,
        warmup, stride, padding, dilation, groups, classes, check_every, seq_len, image_size,
        resize, top, tokens, samples, top_k, per_node, patience, compile_processes;
    double lr, momentum, eps, alpha, lr_decay, initial_accumulator, adamw_lr, weight_decay,
        clip_norm, budget, comm_timeout, setup_timeout, temperature, top_p, min_delta;
    int no_guard, centered, drop_last, raw, ids, resume, quiet, json, explain, by_node, compare,
        predict, rebalance, staged, peer, share_context, recompute, help, mpi, oversubscribe,
        resume_intact, greedy, averaged, first_step;
    double lora_dropout;
    int merge_lora, adapter;
    int report, confusion;
    char *class_weights, *sample_weights;
    const char **names; /* arguments that are not options, ended by NULL */
    int n_names;
    void *context;                 /* popt's context, which owns the names */
    unsigned char given[COMPARED]; /* by row of the table of options */
} settings;

/* Sets all options to "not set". Call settings_free at the end. */
void settings_init(settings *s);

/* Reads argv[1] and the following arguments. argv[0] is the subcommand. Returns 0, or EXIT_USAGE
 * after a message. */
int settings_read(settings *s, unsigned command, int argc, const char **argv);
void settings_free(settings *s);

/* Checks that all options that were set belong to `command`, which messages call `name`. For a
 * command whose arguments decide which options apply. Returns 0, or EXIT_USAGE after a message. */
int settings_check(const settings *s, unsigned command, const char *name);

/* Computes a hash for each option, in a fixed order, and a last one for the other arguments. Ranks
 * compare these. The hash is 0 for options that may differ between ranks, such as paths, devices
 * and output. Paths that only one rank uses are reduced to whether they were set. */
void settings_compared(const settings *s, uint64_t hashes[COMPARED]);

/* Writes what hashes[index] belongs to: "option --NAME" or "list of arguments". */
const char *settings_compared_name(int index, char text[64]);

/* An option as help, man pages and completion show it. */
typedef enum option_files {
    NO_FILES,
    FILES_TOO,         /* a file name if no word fits */
    FILES_BEHIND_COLON /* a path follows a word that ends in ':' */
} option_files;

typedef const char *option_word(int index);

typedef struct option_text {
    const char *name, *argument, *help; /* argument is NULL for a flag */
    char letter;                        /* 0 if there is none */
    /* Values that are not paths or plain numbers, or beginnings of values. Behind ':' stands what
     * the user chooses. `words` are separated by blanks; `word` gives one a call, then NULL. Both
     * may be NULL. */
    const char *words;
    option_word *word;
    option_files files;
} option_text;

/* Finds the next option of these subcommands from row *row on, and moves *row behind it. Returns 0
 * if there is none. out->help holds until the next call. */
int settings_next(unsigned commands, int *row, option_text *out);

/* Prints the options of a subcommand. */
void settings_help(unsigned command);

#endif
