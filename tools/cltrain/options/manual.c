/* `cltrain --print-man`: man pages, in the macros of man(7). */
#include "options/manual.h"

#include <stdio.h>
#include <string.h>

#include "options/commands.h"
#include "text/message.h"

typedef struct example {
    const char *command, *line, *text;
} example;

static const example examples[] = {
    {"devices", "cltrain devices", "List the devices, and say why some are not used."},
    {"train", "cltrain train --model lenet --data fashion-mnist --epochs 3 --lr 0.2",
     "Train LeNet for three epochs on the devices that the planner chooses."},
    {"train",
     "cltrain train --model lenet --data fashion-mnist --devices pocl/2 --metrics run.jsonl "
     "--checkpoint-dir run",
     "Train on two halves of a CPU. Write the loss of each step, and save checkpoints."},
    {"train",
     "cltrain train --model lenet --data fashion-mnist --epochs 9 --checkpoint-dir run --resume",
     "Continue that run until epoch 9."},
    {"eval", "cltrain eval --data fashion-mnist --checkpoint run",
     "Print the test loss and accuracy of the newest checkpoint."},
    {"predict", "cltrain predict --checkpoint run --top 3 photo.png scan.jpg",
     "Print the three most probable classes of two images."},
    {"sample", "cltrain sample --checkpoint gpt --prompt \"In the beginning\" --top-k 40",
     "Continue a text with a trained language model."},
    {"export", "cltrain export --checkpoint run --merge-lora -o merged.safetensors",
     "Write the weights of a model with the adapters of --lora added."},
    {"plan", "cltrain plan --model resnet18 --data fashion-mnist --batch 128 --explain",
     "Print the memory, kernels and predicted time of a training run."},
    {"inspect", "cltrain inspect --model net.json --data fashion-mnist",
     "Print the layers of a model that a file describes."},
    {"bench", "cltrain bench train --model lenet --data synthetic --by-node",
     "Time the steps of a model, and each kernel in a step."},
    {"bench", "cltrain bench gemm 1024 1024 1024 --compare",
     "Time a matrix product beside OpenBLAS."},
    {"tune", "cltrain tune --model lenet --budget 30",
     "Measure kernels for the shapes of LeNet for at most 30 seconds."},
    {"data", "cltrain data inspect fashion-mnist",
     "Read a data set, and print its fields, classes and the mean of each channel."},
    {"data", "cltrain data tokenize --tokenizer bytes -o train.bin book.txt",
     "Turn a text into a file of tokens."},
    {"plot", "cltrain plot run.jsonl -o run.png", "Draw the loss and accuracy of a run."},
};

/* Writes text as troff needs it. A dot or quote that begins a line would be a request. A plain
 * hyphen could not be copied from the page. */
static void put_text(const char *text)
{
    int first = 1;
    for (; *text; text++) {
        if (first && (*text == '.' || *text == '\''))
            fputs("\\&", stdout);
        first = *text == '\n';
        if (*text == '\\')
            fputs("\\e", stdout);
        else if (*text == '-')
            fputs("\\-", stdout);
        else if (*text == '\'')
            fputs("\\(aq", stdout);
        else
            fputc(*text, stdout);
    }
}

/* Writes `before` and a line of text: a paragraph, or the text behind a tag. */
static void put_lines(const char *before, const char *text)
{
    fputs(before, stdout);
    put_text(text);
    fputc('\n', stdout);
}

/* Writes an option such as "-o, --output FILE", with literal text in bold and placeholders in
 * italics. */
static void put_option(const option_text *o)
{
    fputs(".TP\n", stdout);
    if (o->letter)
        printf("\\fB\\-%c\\fR, ", o->letter);
    fputs("\\fB\\-\\-", stdout);
    put_text(o->name);
    fputs("\\fR", stdout);
    if (o->argument) {
        fputs(" \\fI", stdout);
        put_text(o->argument);
        fputs("\\fR", stdout);
    }
    fputc('\n', stdout);
    put_lines("", o->help);
}

static void put_options(unsigned commands)
{
    option_text o;
    for (int row = 0; settings_next(commands, &row, &o);)
        put_option(&o);
}

/* Writes one line for the whole command, or a line for each subject of bench and data. */
static void put_synopsis(const command_row *row)
{
    subject_text subject;
    fputs(".SH SYNOPSIS\n", stdout);
    if (!row->subject) {
        printf(".B cltrain %s\n", row->name);
        put_lines("", row->usage);
        return;
    }
    for (int i = 0; row->subject(i, &subject); i++) {
        printf("%s.B cltrain %s %s\n", i ? ".br\n" : "", row->name, subject.name);
        put_text(subject.arguments);
        fputs(" [options]\n", stdout);
    }
}

static void put_examples(const char *command)
{
    int any = 0;
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        if (command && strcmp(examples[i].command, command))
            continue;
        if (!any++)
            fputs(".SH EXAMPLES\n", stdout);
        fputs(".TP\n\\fB", stdout);
        put_text(examples[i].line);
        fputs("\\fR\n", stdout);
        put_lines("", examples[i].text);
    }
}

static void put_head(const char *name, const char *text)
{
    const int length = (int)strcspn(text, "\n");
    printf(".\\\" Written by cltrain --print-man.\n.TH %s 1 \"\" \"cltrain %s\" \"cltrain\"\n"
           ".SH NAME\n%s \\- ",
           name, CLT_COMMAND_VERSION, name);
    for (int i = 0; i < length; i++)
        fputc(text[i], stdout);
    fputc('\n', stdout);
}

static void put_end(void)
{
    fputs(".SH EXIT STATUS\n.TP\n.B 0\nThe work is done.\n.TP\n.B 1\nIt failed while running.\n"
          ".TP\n.B 2\nThe command line is wrong. Nothing was done.\n.TP\n.BR 130 \", \" 143\n"
          "A signal ended a training run, which saved before it ended.\n",
          stdout);
}

static void print_command(const command_row *row)
{
    char name[64];
    snprintf(name, sizeof name, "cltrain-%s", row->name);
    put_head(name, row->help);
    put_synopsis(row);
    const char *more = strchr(row->help, '\n');
    if (more) {
        fputs(".SH DESCRIPTION\n", stdout);
        put_lines("", more + 1);
    }
    fputs(".SH OPTIONS\n", stdout);
    subject_text subject;
    if (!row->subject)
        put_options(row->bit);
    else
        for (int i = 0; row->subject(i, &subject); i++) {
            printf(".SS %s\n", subject.name);
            put_options(subject.bit);
        }
    put_examples(row->name);
    put_end();
    fputs(".SH SEE ALSO\n.BR cltrain (1)\n", stdout);
}

static void print_overview(void)
{
    put_head("cltrain", "train neural networks on any OpenCL device");
    fputs(".SH SYNOPSIS\n.B cltrain\n.I COMMAND\n[options]\n.SH DESCRIPTION\n"
          "cltrain trains neural networks on every device that has an OpenCL driver.\n"
          "It splits each batch over the devices, and over several processes under mpiexec.\n"
          ".SH COMMANDS\n",
          stdout);
    for (int i = 0; i < command_count; i++) {
        printf(".TP\n.BR cltrain\\-%s (1)\n", command_rows[i].name);
        char line[200];
        snprintf(line, sizeof line, "%.*s", (int)strcspn(command_rows[i].help, "\n"),
                 command_rows[i].help);
        put_lines("", line);
    }
    fputs(".TP\n.B cltrain models\nlist the models and their arguments\n.TP\n"
          ".B cltrain help \\fR[\\fICOMMAND\\fR]\nprint the options of a command\n",
          stdout);
    put_examples(NULL);
    put_end();
    fputs(".SH FILES\n.TP\n.I ~/.cache/cltrain\ncompiled kernels, and records of measured "
          "kernels\n",
          stdout);
}

int manual_asked(int argc, char **argv)
{
    return argc > 1 && (!strcmp(argv[1], PRINT_MAN) || !strcmp(argv[1], PRINT_COMPLETION));
}

int manual_print(int argc, char **argv)
{
    int code = EXIT_DONE;
    if (!strcmp(argv[1], PRINT_COMPLETION))
        code = completion_print();
    else if (argc == 2)
        print_overview();
    else {
        const command_row *row = NULL;
        for (int i = 0; i < command_count; i++)
            if (!strcmp(command_rows[i].name, argv[2]))
                row = &command_rows[i];
        if (!row)
            return usage_error("%s %s: no such command", PRINT_MAN, argv[2]);
        print_command(row);
    }
    return fflush(stdout) != 0 ? failure("cannot write standard output") : code;
}
