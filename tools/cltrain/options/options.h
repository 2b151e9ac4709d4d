/* The command line: one table of options for all subcommands. */
#ifndef CLTRAIN_COMMAND_OPTIONS_OPTIONS_H
#define CLTRAIN_COMMAND_OPTIONS_OPTIONS_H

#include <stdint.h>

/* The subcommands, and the subjects of bench, as bits: an option belongs to a set of them. */
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
    FOR_DATA_INSPECT = 1 << 16,
    FOR_TOKENIZE = 1 << 17,
    FOR_DATA = FOR_DATA_INSPECT | FOR_TOKENIZE,
    FOR_KERNELS = FOR_BENCH_GEMM | FOR_BENCH_CONV | FOR_BENCH_OP | FOR_BENCH_SCALING,
    FOR_BENCH = FOR_BENCH_TRAIN | FOR_KERNELS | FOR_BENCH_ALLREDUCE
};

/* Rows of the table of options, and one number more, have room in this. */
enum { COMPARED = 128 };

/* What was asked for. Texts are NULL, integers -1 and numbers NaN where nothing was given, unless
 * settings_init has a default. */
typedef struct settings {
    char *model, *data, *devices, *optimizer, *schedule, *init, *precision, *normalize, *shuffle;
    char *cache_dir, *checkpoint, *checkpoint_dir, *checkpoint_every, *metrics, *profile, *output,
        *variant, *trans, *tune, *export_file, *split, *replay, *simulate, *link, *heartbeat,
        *tokenizer, *augment, *windows, *freeze, *memory, *prompt, *prompt_file,
        *param_group; /* of several, all of them, parted by | and by ; */
    int64_t batch, accumulate, epochs, steps, seed, keep, blocks, warmup, stride, padding, dilation,
        groups, classes, check_every, seq_len, image_size, resize, top, tokens, samples, top_k;
    double lr, momentum, weight_decay, clip_norm, budget, comm_timeout, setup_timeout, temperature,
        top_p;
    int no_guard, drop_last, raw, ids, resume, quiet, json, explain, by_node, compare, predict,
        rebalance, staged, peer, share_context, recompute, help, mpi, oversubscribe, resume_intact,
        greedy;
    const char **names; /* arguments that are no options, ended by NULL */
    int n_names;
    void *context;                 /* popt's, which owns the names */
    unsigned char given[COMPARED]; /* by row of the table of options */
} settings;

/* Nothing was given. settings_free at the end. */
void settings_init(settings *s);

/* Reads argv[1] and on (argv[0] is the subcommand). Returns 0, or EXIT_USAGE after a message. */
int settings_read(settings *s, unsigned command, int argc, const char **argv);
void settings_free(settings *s);

/* For a command that first learns from its arguments which of its options apply: all that were
 * given must belong to `command`, called `name` in the message. */
int settings_check(const settings *s, unsigned command, const char *name);

/* For ranks, which are to have the same: a number for each option, in a fixed order, and last for
 * the arguments that are no options. 0 where ranks may differ: where their files and devices are,
 * and what they print. Of files that a rank writes or reads once, only whether they are given. */
void settings_compared(const settings *s, uint64_t hashes[COMPARED]);

/* "option --NAME", or "list of arguments": what hashes[index] is of. */
const char *settings_compared_name(int index, char text[64]);

/* An option as help, man pages and completion show it. */
typedef struct option_text {
    const char *name, *argument, *help; /* argument: NULL for a flag */
    char letter;                        /* 0: none */
} option_text;

/* Finds the next option of these subcommands, from the row *row on, and moves *row behind it.
 * Returns 0 if there is none. */
int settings_next(unsigned commands, int *row, option_text *out);

/* Prints the options of a subcommand. */
void settings_help(unsigned command);

#endif
