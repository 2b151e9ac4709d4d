#include "exec/testing/lose.h"

#ifdef CLT_TESTING
#include <stdlib.h>
#include <string.h>

const char *clt_exec_testing_lose;

clt_status clt_lose(const clt_device *device, uint32_t step, int node)
{
    const char *text = clt_exec_testing_lose ? clt_exec_testing_lose : getenv("CLT_TESTING_LOSE");
    const char *equals = text ? strchr(text, '=') : NULL;
    char part[64];
    const size_t length = equals ? (size_t)(equals - text) : 0;
    if (!length || length >= sizeof part)
        return CLT_OK;
    char *end;
    const unsigned long from = strtoul(equals + 1, &end, 10);
    if (step < from || (step == from && *end == ':' && node < strtol(end + 1, NULL, 10)))
        return CLT_OK;
    memcpy(part, text, length);
    part[length] = '\0';
    return strstr(device->label, part)
               ? clt_cl_fail(CL_DEVICE_NOT_AVAILABLE, "clEnqueueNDRangeKernel", device)
               : CLT_OK;
}
#endif
