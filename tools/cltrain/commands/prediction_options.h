#ifndef CLTRAIN_COMMAND_COMMANDS_PREDICTION_OPTIONS_H
#define CLTRAIN_COMMAND_COMMANDS_PREDICTION_OPTIONS_H

#include "options/options.h"

/* Whether one file of arrays is to be predicted, not images or --data. */
int prediction_is_array(const settings *s);

/* Checks options against each other. Returns an exit code. */
int prediction_check(const settings *s);

#endif
