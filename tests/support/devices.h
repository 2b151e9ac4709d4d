/* The devices that a test runs on, in the notation of --devices. The build's test list and
 * tools/gpu-check.sh run the same program on other devices too. */
#ifndef CLT_TESTS_SUPPORT_DEVICES_H
#define CLT_TESTS_SUPPORT_DEVICES_H

#include <stdbool.h>
#include <stdlib.h>

/* Returns CLT_TEST_DEVICES if it is set, else `usual`. */
static inline const char *clt_test_devices(const char *usual)
{
    const char *list = getenv("CLT_TEST_DEVICES");
    return list && *list ? list : usual;
}

/* Returns true on Oclgrind's simulated device. Tests then use small shapes, and plans with the
 * option `separate`. */
static inline bool clt_test_oclgrind(void)
{
    return getenv("CLT_TEST_OCLGRIND") != NULL;
}

#endif
