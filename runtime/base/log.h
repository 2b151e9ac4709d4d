#ifndef CLT_BASE_LOG_H
#define CLT_BASE_LOG_H

#include <cltrain/log.h>

/* Passes one formatted line to the host program's callback, if it wants messages of this level. */
void clt_log(clt_log_level level, const char *format, ...) CLT_PRINTF(2, 3);

#endif
