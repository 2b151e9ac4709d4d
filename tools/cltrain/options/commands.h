/* The subcommands: each takes what was asked for and returns the exit code. */
#ifndef CLTRAIN_COMMAND_OPTIONS_COMMANDS_H
#define CLTRAIN_COMMAND_OPTIONS_COMMANDS_H

#include "options/options.h"

int run_devices(const settings *s);
int run_train(const settings *s);
void hold_notice(void); /* before any thread begins: keeps signals for run_train */
int run_eval(const settings *s);
int run_plan(const settings *s);
int run_inspect(const settings *s);
int run_bench(const settings *s);
int run_predict(const settings *s);
int run_sample(const settings *s);
int run_data(const settings *s);
int run_plot(const settings *s);
int run_tune(const settings *s);

#endif
