/* The end of a step as one launch, where it is small. */
#ifndef CLT_EXEC_UPDATE_ENDING_H
#define CLT_EXEC_UPDATE_ENDING_H

#include "exec/update/update_internal.h"

clt_status clt_ending_create(clt_ending **ending);

void clt_ending_destroy(clt_ending *ending);

#endif
