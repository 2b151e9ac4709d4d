/* The subcommands. Each takes the options and returns the exit code. */
#ifndef CLTRAIN_COMMAND_OPTIONS_COMMANDS_H
#define CLTRAIN_COMMAND_OPTIONS_COMMANDS_H

#include "options/options.h"

/* A subject, which the first argument of bench or data names. */
typedef struct subject_text {
    const char *name, *arguments; /* arguments that are not options */
    unsigned bit;
} subject_text;

typedef struct command_row {
    const char *name;
    unsigned bit;
    int (*run)(const settings *s);
    int (*subject)(int index, subject_text *out); /* may be NULL; returns 0 behind the last one */
    const char *usage, *help; /* the first line of help says what the command does */
} command_row;

extern const command_row command_rows[];
extern const int command_count;

int run_devices(const settings *s);
int run_train(const settings *s);
void hold_notice(void); /* holds signals for run_train; call this before any thread begins */
int run_eval(const settings *s);
int run_plan(const settings *s);
int run_inspect(const settings *s);
int run_bench(const settings *s);
int run_predict(const settings *s);
int run_sample(const settings *s);
int run_export(const settings *s);
int run_data(const settings *s);
int bench_subject(int index, subject_text *out);
int data_subject(int index, subject_text *out);
int run_plot(const settings *s);
int run_tune(const settings *s);

#endif
