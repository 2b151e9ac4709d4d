/* Random samples for plans, benchmarks and listings of models. These need the shapes of data, not
 * the data. */
#ifndef CLTRAIN_COMMAND_DATASETS_SYNTHETIC_H
#define CLTRAIN_COMMAND_DATASETS_SYNTHETIC_H

#include <cltrain/data.h>

/* Returns whether a SPEC is "synthetic" or begins with "synthetic:". */
int is_synthetic(const char *spec);

/* Makes images of random bytes with random labels, as synthetic[:CxHxW[:CLASSES]] says. The default
 * is Fashion-MNIST's shape, also for `spec` NULL, and `classes` classes. Errors: INVALID_ARGUMENT,
 * OUT_OF_MEMORY. */
clt_status open_synthetic(const char *spec, int64_t classes, clt_dataset **out);

/* Makes fields "tokens" and "targets" [length] of random tokens below `vocabulary`. Errors:
 * OUT_OF_MEMORY. */
clt_status open_synthetic_text(int64_t length, int64_t vocabulary, clt_dataset **out);

#endif
