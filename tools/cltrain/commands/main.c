/* The command `cltrain`: finds the subcommand, reads its options, runs it. */
#include <stdio.h>
#include <string.h>

#include <cltrain/models.h>

#include "options/commands.h"
#include "devices/allot_devices.h"
#include "text/message.h"
#include "ranks/ranks.h"
#include "job/helper.h"

typedef struct command_row {
    const char *name;
    unsigned bit;
    int (*run)(const settings *s);
    const char *usage, *help;
} command_row;

static const command_row rows[] = {
    {"devices", FOR_DEVICES, run_devices, "[--json]",
     "what was found: platforms, devices, memory, remarks, why skipped"},
    {"train", FOR_TRAIN, run_train, "--model NAME|FILE.json --data SPEC [options]",
     "train a model"},
    {"eval", FOR_EVAL, run_eval, "[--model NAME] --data SPEC --checkpoint DIR [options]",
     "loss and accuracy of a checkpoint on the test samples\n"
     "The model, sizes of images, lengths of text, numbers of classes and normalisation are those\n"
     "of the checkpoint's run, unless given."},
    {"predict", FOR_PREDICT, run_predict,
     "[--model NAME] --checkpoint DIR FILE... | npz:IN.npz -o OUT.npz | --data SPEC -o OUT.npz",
     "classes of image files by a checkpoint, with probabilities; or all outputs for arrays\n"
     "A file that cannot be used is named, the others are done, and the exit code is 1. What the\n"
     "checkpoint's run was trained on (sizes, normalisation, names of classes) need not be said."},
    {"sample", FOR_SAMPLE, run_sample, "[--model NAME] --checkpoint DIR [--prompt TEXT] [options]",
     "text that a checkpoint of gpt2 or lstm makes"},
    {"plan", FOR_PLAN, run_plan, "--model NAME [options of train] [--explain]",
     "kernels, memory and schedule of a training, without running it"},
    {"inspect", FOR_INSPECT, run_inspect, "--model NAME|FILE.json [--data SPEC]",
     "the layers of a model: output shapes, parameters, operations"},
    {"bench", FOR_BENCH, run_bench,
     "train --model NAME | gemm M N K | conv NxCxHxW OxKHxKW | op [NAME...] | scaling [CLASS...] | "
     "allreduce [SIZE...]",
     "time training steps, or kernels and all-reduces as fractions of what the machine can do"},
    {"tune", FOR_TUNE, run_tune, "[--model NAME] [--data SPEC] [--budget SECONDS]",
     "measure kernels for a model's shapes (default: those of images) and keep the best"},
    {"data", FOR_DATA, run_data,
     "inspect SPEC [options] | tokenize --tokenizer NAME -o FILE.bin FILE...",
     "what a data set holds, reading all of it; text to a file of tokens"},
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
    if (name && !strcmp(name, "models")) {
        printf("Usage: cltrain models\nthe models by name, with their arguments\n");
        return EXIT_DONE;
    }
    if (name && !row && strcmp(name, "help") != 0)
        return unknown(name);
    if (row) {
        printf("Usage: cltrain %s %s\n%s\n", row->name, row->usage, row->help);
        settings_help(row->bit);
        return EXIT_DONE;
    }
    printf("Usage: cltrain COMMAND [options]; `cltrain COMMAND --help` lists them\n\n");
    for (int i = 0; i < ROWS; i++)
        printf("  %-9s %.*s\n", rows[i].name, (int)strcspn(rows[i].help, "\n"), rows[i].help);
    printf("  %-9s %s\n", "models", "the models by name");
    printf("  %-9s %s\n", "help", "this text, or that of a command");
    printf("\nExit: 0, 1 (failed while running), 2 (usage), 130 or 143 (stopped by a signal after "
           "saving)\n");
    return EXIT_DONE;
}

/* As ranks compare it: "bench train", "train --help". Returns whether several may begin it. */
static int name_command(const command_row *row, const char *name, const settings *s, char text[64])
{
    static const char *const alone[] = {"gemm", "conv", "op", "scaling"};
    const int bench = row && row->bit == FOR_BENCH;
    const char *subject = bench && s->n_names ? s->names[0] : "";
    int several = !row || s->help || bench || (row->bit & (FOR_TRAIN | FOR_EVAL));
    for (size_t i = 0; i < sizeof alone / sizeof *alone; i++)
        several = several && (s->help || strcmp(subject, alone[i]));
    snprintf(text, 64, "%.20s%s%.20s%s", name, *subject ? " " : "", subject,
             s->help ? " --help" : "");
    return several;
}

static int run_plain(const char *name, int argc, char **argv)
{
    if (!strcmp(name, "--version")) {
        printf("cltrain %s\n", CLT_COMMAND_VERSION);
        return EXIT_DONE;
    }
    if (!strcmp(name, "models") && argc == 3 &&
        (!strcmp(argv[2], "--help") || !strcmp(argv[2], "-h")))
        return help(name);
    if (!strcmp(name, "models"))
        return argc > 2 ? usage_error("models takes no arguments") : list_models();
    return help(argc > 2 ? argv[2] : NULL);
}

/* Whether the command has no options, and no row. */
static int is_plain(const char *name)
{
    static const char *const names[] = {"--version", "models", "help", "--help", "-h"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i]))
            return 1;
    return 0;
}

static int run(const command_row *row, const settings *s, const char *name, int argc, char **argv)
{
    if (row && !s->help)
        return row->run(s);
    if (ranks_follow())
        return EXIT_DONE;
    return row ? help(name) : run_plain(name, argc, argv);
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    const command_row *row = find(name);
    char command[64];
    settings s;
    if (!strcmp(name, TRY_DATA))
        return try_data(argc, argv);
    settings_init(&s);
    start_log();
    deal_threads();
    hold_usage(ranks_expected());
    int code = 0;
    if (row)
        code = settings_read(&s, row->bit, argc - 1, (const char **)argv + 1);
    else if (!*name)
        code = usage_error("which command? `cltrain help` lists them");
    else if (!is_plain(name))
        code = unknown(name);
    if (row && row->bit == FOR_TRAIN) /* before MPI's threads */
        hold_notice();
    const int several = name_command(row, name, &s, command);
    code = ranks_meet(command, &s, several, code);
    if (!code)
        code = run(row, &s, name, argc, argv);
    code = ranks_leave(code);
    if (*held_usage()) /* of a mistake that was found before the ranks met */
        say("%s", held_usage());
    settings_free(&s);
    /* What was printed may not have arrived: a full disk, a closed pipe. */
    if (fflush(stdout) != 0 && !code)
        code = failure("cannot write standard output");
    return code;
}
