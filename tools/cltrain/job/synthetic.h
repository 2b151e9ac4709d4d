/* Random samples for plans, benchmarks and listings of models, which need shapes more than data. */
#ifndef CLTRAIN_COMMAND_JOB_SYNTHETIC_H
#define CLTRAIN_COMMAND_JOB_SYNTHETIC_H

#include <cltrain/data.h>

/* Whether a SPEC is "synthetic" or begins with "synthetic:". */
int is_synthetic(const char *spec);

/* synthetic[:CxHxW[:CLASSES]]: images of random bytes with labels; NULL and what is left out: those
 * of Fashion-MNIST, of `classes`. Errors: INVALID_ARGUMENT, OUT_OF_MEMORY. */
clt_status open_synthetic(const char *spec, int64_t classes, clt_dataset **out);

/* Random tokens below `vocabulary`, "tokens" and "targets" [length]. Errors: OUT_OF_MEMORY. */
clt_status open_synthetic_text(int64_t length, int64_t vocabulary, clt_dataset **out);

#endif
