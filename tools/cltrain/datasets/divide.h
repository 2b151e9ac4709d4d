/* Divides training samples as --val says. */
#ifndef CLTRAIN_COMMAND_DATASETS_DIVIDE_H
#define CLTRAIN_COMMAND_DATASETS_DIVIDE_H

#include <cltrain/data.h>

#include "options/options.h"

/* Whether --val is a number, as *fraction. */
int val_is_number(const char *text, double *fraction);

/* Returns whether --val is a fraction or a field, and not other files. */
int divides_training(const settings *s);
clt_status divide_training(const settings *s, int64_t seed, clt_dataset *whole, clt_dataset **rest,
                           clt_dataset **part);

#endif
