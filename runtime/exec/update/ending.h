/* The end of a step as one launch, where it is small, or as a part of the launch before. */
#ifndef CLT_EXEC_UPDATE_ENDING_H
#define CLT_EXEC_UPDATE_ENDING_H

#include "exec/update/update.h"

typedef struct clt_ending clt_ending;

/* A launch of more bytes takes longer than the 20 us of plan/merge.c on one core. */
enum { CLT_ENDING_BYTES = 100000 };

clt_status clt_ending_create(clt_ending **ending);

void clt_ending_destroy(clt_ending *ending);

#endif
