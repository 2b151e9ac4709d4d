/* The command `cltrain`: finds the subcommand, reads its options, runs it. */
#include <stdio.h>
#include <string.h>

#include <cltrain/models.h>

#include "commands.h"
#include "message.h"
#include "ranks.h"

typedef struct command_row {
    const char *name;
    unsigned bit;
    int (*run)(const settings *s);
    const char *usage, *help;
} command_row;

static const command_row rows[] = {
    {"devices", FOR_DEVICES, run_devices, "[--json]",
     "what was found: platforms, devices, memory, remarks, why skipped"},
    {"train", FOR_TRAIN, run_train, "--model NAME --data SPEC [options]", "train a model"},
    {"eval", FOR_EVAL, run_eval, "--model NAME --data SPEC --checkpoint DIR [options]",
     "loss and accuracy of a checkpoint on the test samples"},
    {"plan", FOR_PLAN, run_plan, "--model NAME [options of train] [--explain]",
     "kernels, memory and schedule of a training, without running it"},
    {"bench", FOR_BENCH, run_bench,
     "train --model NAME | gemm M N K | conv NxCxHxW OxKHxKW | op [NAME...] | scaling [CLASS...] | "
     "allreduce [SIZE...]",
     "time training steps, or kernels and all-reduces as fractions of what the machine can do"},
    {"tune", FOR_TUNE, run_tune, "[--model NAME] [--data SPEC] [--budget SECONDS]",
     "measure kernels for a model's shapes (default: all models') and keep the best"},
    {"plot", FOR_PLOT, run_plot, "FILE.jsonl... -o FILE.png",
     "loss and accuracy curves of files of --metrics"},
};
enum { ROWS = sizeof rows / sizeof *rows };

static int list_models(void)
{
    for (int i = 0; i < clt_model_count(); i++)
        printf("%-10s %s\n", clt_model_name(i), clt_model_text(i));
    return EXIT_DONE;
}

static const command_row *find(const char *name)
{
    for (int i = 0; i < ROWS; i++)
        if (!strcmp(rows[i].name, name))
            return &rows[i];
    return NULL;
}

static int unknown(const char *name)
{
    static const char *const others[] = {"models", "help"};
    const char *names[ROWS + 2];
    for (int i = 0; i < ROWS; i++)
        names[i] = rows[i].name;
    memcpy(names + ROWS, others, sizeof others);
    const char *near = clt_nearest(name, names, ROWS + 2);
    if (near)
        return usage_error("unknown command '%s'; did you mean %s?", name, near);
    return usage_error("unknown command '%s'; `cltrain help` lists them", name);
}

static int help(const char *name)
{
    const command_row *row = name ? find(name) : NULL;
    if (name && !row)
        return unknown(name);
    if (row) {
        printf("Usage: cltrain %s %s\n%s\n", row->name, row->usage, row->help);
        settings_help(row->bit);
        return EXIT_DONE;
    }
    printf("Usage: cltrain COMMAND [options]; `cltrain COMMAND --help` lists them\n\n");
    for (int i = 0; i < ROWS; i++)
        printf("  %-9s %s\n", rows[i].name, rows[i].help);
    printf("  %-9s %s\n", "models", "the models by name");
    printf("  %-9s %s\n", "help", "this text, or that of a command");
    printf("\nExit: 0, 1 (failed while running), 2 (usage), 130 or 143 (stopped by a signal after "
           "saving)\n");
    return EXIT_DONE;
}

/* Whether the subcommand begins MPI, so that its ranks print a mistake in their options once. */
static int with_ranks(const command_row *row, int argc, char **argv)
{
    return (row->bit & (FOR_TRAIN | FOR_EVAL)) ||
           ((row->bit & FOR_BENCH) && argc > 2 && !strcmp(argv[2], "train"));
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : NULL;
    if (!name)
        return usage_error("which command? `cltrain help` lists them");
    if (!strcmp(name, "--version")) {
        printf("cltrain %s\n", CLT_COMMAND_VERSION);
        return EXIT_DONE;
    }
    if (!strcmp(name, "help") || !strcmp(name, "--help") || !strcmp(name, "-h"))
        return help(argc > 2 ? argv[2] : NULL);
    if (!strcmp(name, "models"))
        return argc > 2 ? usage_error("models takes no arguments") : list_models();
    const command_row *row = find(name);
    if (!row)
        return unknown(name);
    start_log();
    settings s;
    const int ranks = with_ranks(row, argc, argv) && ranks_expected();
    hold_usage(ranks);
    int code = settings_read(&s, row->bit, argc - 1, (const char **)argv + 1);
    if (!code)
        code = s.help ? help(name) : row->run(&s);
    else if (ranks)
        code = ranks_refuse(code);
    if (*held_usage()) /* of a mistake that was found before the ranks met */
        say("%s", held_usage());
    settings_free(&s);
    /* What was printed may not have arrived: a full disk, a closed pipe. */
    if (fflush(stdout) != 0 && !code)
        code = failure("cannot write standard output");
    return code;
}
