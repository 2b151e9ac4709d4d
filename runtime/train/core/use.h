/* What a call uses while callbacks of the program run. */
#ifndef CLT_TRAIN_CORE_USE_H
#define CLT_TRAIN_CORE_USE_H

#include <cltrain/data.h>
#include <cltrain/train.h>

typedef struct clt_use {
    clt_trainer *trainer;
    clt_dataset *sets[3]; /* NULL: none */
} clt_use;

/* Between these two, a callback that destroys the trainer or frees a data set only marks it.
 * clt_use_end then frees it. Returns `status`, and keeps the message of this thread. */
void clt_use_begin(const clt_use *use);
clt_status clt_use_end(const clt_use *use, clt_status status);

#endif
