/* The command `cltrain`: finds the subcommand, reads its options and runs it. */
#include <stdio.h>
#include <string.h>

#include <cltrain/models.h>

#include "options/commands.h"
#include "options/manual.h"
#include "devices/allot_devices.h"
#include "text/message.h"
#include "ranks/ranks.h"
#include "datasets/helper.h"

const command_row command_rows[] = {
    {"devices", FOR_DEVICES, run_devices, NULL, "[--json]",
     "list OpenCL devices: platform, memory, remarks, and why some are not used"},
    {"train", FOR_TRAIN, run_train, NULL, "--model NAME|FILE.json --data SPEC [options]",
     "train a model\n"
     "Prints the loss and speed while it runs, and the test loss and accuracy after each epoch.\n"
     "The planner chooses devices and divides batches, unless --devices and --split say so.\n"
     "SIGINT, SIGTERM and SIGHUP save a checkpoint and end the run; --resume continues it."},
    {"eval", FOR_EVAL, run_eval, NULL, "[--model NAME] --data SPEC --checkpoint DIR [options]",
     "compute loss, accuracy and other metrics of a checkpoint on the test samples\n"
     "The checkpoint tells the model, the sizes of images, the length of text, the number of\n"
     "classes and the normalisation. Options replace what it tells."},
    {"predict", FOR_PREDICT, run_predict, NULL,
     "[--model NAME] --checkpoint DIR FILE... | npz:IN.npz -o OUT | --data SPEC -o OUT",
     "classify image files with a checkpoint, or compute all outputs for arrays\n"
     "OUT.csv and OUT.json get file names, labels, classes and probabilities, OUT.npz all "
     "outputs.\n"
     "The checkpoint tells the model, sizes, normalisation and names of classes. A file that\n"
     "cannot be read is named, the other files are classified, and the exit code is 1."},
    {"sample", FOR_SAMPLE, run_sample, NULL,
     "[--model NAME] --checkpoint DIR [--prompt TEXT] [options]",
     "generate text with a checkpoint of gpt2 or lstm"},
    {"export", FOR_EXPORT, run_export, NULL,
     "[--model NAME] --checkpoint DIR [--merge-lora | --adapter] -o PATH",
     "write the parameters of a checkpoint for other programs\n"
     "Writes a .safetensors file; with --merge-lora one of the model whose adapters are added to\n"
     "its weights; with --adapter a folder with the adapters alone, as peft reads it."},
    {"plan", FOR_PLAN, run_plan, NULL, "--model NAME [options of train] [--explain]",
     "print kernels, memory, schedule and predicted time of a training run"},
    {"inspect", FOR_INSPECT, run_inspect, NULL, "--model NAME|FILE.json [--data SPEC]",
     "print the layers of a model: output shapes, parameters, operations"},
    {"bench", FOR_BENCH, run_bench, bench_subject,
     "train --model NAME | gemm M N K | conv NxCxHxW OxKHxKW | op [NAME|OP:ATTRIBUTES...] | "
     "scaling [CLASS...] | "
     "allreduce [SIZE...] | meshes MESH... | load --data SPEC",
     "time training steps, kernels, all-reduces and the reading of data\n"
     "Times stand beside limits of the machine, which are measured in the same run."},
    {"tune", FOR_TUNE, run_tune, NULL, "[--model NAME] [--data SPEC] [--budget SECONDS]",
     "measure kernels for the shapes of a model and remember the fastest\n"
     "Without --model: the shapes of all models for images."},
    {"data", FOR_DATA, run_data, data_subject,
     "inspect SPEC [options] | tokenize --tokenizer NAME -o FILE.bin FILE...",
     "inspect a data set, or turn text into a file of tokens"},
    {"plot", FOR_PLOT, run_plot, NULL, "FILE.jsonl... -o FILE.png",
     "draw loss and accuracy from files of --metrics, with gnuplot"},
};
enum { ROWS = sizeof command_rows / sizeof *command_rows };
const int command_count = ROWS;

static int list_models(void)
{
    for (int i = 0; i < clt_model_count(); i++)
        printf("%-10s %s\n", clt_model_name(i), clt_model_text(i));
    return EXIT_DONE;
}

static const command_row *find(const char *name)
{
    for (int i = 0; i < ROWS; i++)
        if (!strcmp(command_rows[i].name, name))
            return &command_rows[i];
    return NULL;
}

static int unknown(const char *name)
{
    static const char *const others[] = {"models", "help"};
    const char *names[ROWS + 2];
    for (int i = 0; i < ROWS; i++)
        names[i] = command_rows[i].name;
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
        printf("Usage: cltrain models\nlist the models by name, with their arguments\n");
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
        printf("  %-9s %.*s\n", command_rows[i].name, (int)strcspn(command_rows[i].help, "\n"),
               command_rows[i].help);
    printf("  %-9s %s\n", "models", "list the models by name");
    printf("  %-9s %s\n", "help", "print this text, or the options of a command");
    printf("\nExit codes: 0 done, 1 failed while running, 2 wrong command line, 130 or 143 stopped "
           "by a "
           "signal after saving\n");
    return EXIT_DONE;
}

/* Writes the command as ranks compare it, such as "bench train" or "train --help". Returns whether
 * several ranks may start it. */
static int name_command(const command_row *row, const char *name, const settings *s, char text[64])
{
    static const char *const alone[] = {"gemm", "conv", "op", "scaling", "load"};
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

/* Returns whether the command takes no options and has no row in the table. */
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
    if (manual_asked(argc, argv))
        return manual_print(argc, argv);
    settings_init(&s);
    start_log();
    share_out_threads();
    hold_usage(ranks_expected());
    int code = 0;
    if (row)
        code = settings_read(&s, row->bit, argc - 1, (const char **)argv + 1);
    else if (!*name)
        code = usage_error("which command? `cltrain help` lists them");
    else if (!is_plain(name))
        code = unknown(name);
    if (row && row->bit == FOR_TRAIN) /* before MPI starts threads */
        hold_notice();
    const int several = name_command(row, name, &s, command);
    code = ranks_meet(command, &s, several, code);
    NEXT(code, run(row, &s, name, argc, argv));
    code = ranks_leave(code);
    if (*held_usage()) /* of a mistake that was found before the ranks met */
        say("%s", held_usage());
    settings_free(&s);
    /* Printed text may not have arrived, for example because of a full disk or a closed pipe. */
    if (fflush(stdout) != 0 && !code)
        code = failure("cannot write standard output");
    return code;
}
