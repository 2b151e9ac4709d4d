/* The command line: one table of options for all subcommands. */
#ifndef CLTRAIN_COMMAND_OPTIONS_H
#define CLTRAIN_COMMAND_OPTIONS_H

#include <stdint.h>

/* The subcommands, as bits: an option belongs to a set of them. */
enum {
    FOR_DEVICES = 1,
    FOR_TRAIN = 2,
    FOR_EVAL = 4,
    FOR_PLAN = 8,
    FOR_BENCH = 16,
    FOR_PLOT = 32,
    FOR_TUNE = 64
};

/* What was asked for. Texts are NULL, integers -1 and numbers NaN where nothing was given, unless
 * settings_init has a default. */
typedef struct settings {
    char *model, *data, *devices, *optimizer, *schedule, *init, *precision, *normalize, *shuffle;
    char *cache_dir, *checkpoint, *checkpoint_dir, *checkpoint_every, *metrics, *profile, *output,
        *variant, *trans, *tune, *export_file;
    int64_t batch, accumulate, epochs, steps, seed, keep, blocks, warmup, stride, padding, groups,
        classes;
    double lr, momentum, weight_decay, clip_norm, budget;
    int no_guard, resume, quiet, json, explain, by_node, compare, help;
    const char **names; /* arguments that are no options, ended by NULL */
    int n_names;
    void *context; /* popt's, which owns the names */
} settings;

/* Reads argv[1] and on (argv[0] is the subcommand). Returns 0, or EXIT_USAGE after a message.
 * settings_free in either case. */
int settings_read(settings *s, unsigned command, int argc, const char **argv);
void settings_free(settings *s);

/* Prints the options of a subcommand. */
void settings_help(unsigned command);

#endif
