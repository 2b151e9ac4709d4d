/* Helpers for tests of plans, which need no device. Include this after cmocka's header. */
#ifndef CLT_TESTS_SUPPORT_PLANS_H
#define CLT_TESTS_SUPPORT_PLANS_H

#include "base/caps.h"
#include "base/error.h"

#define OK(expression)                                                                             \
    do {                                                                                           \
        if ((expression) != CLT_OK)                                                                \
            fail_msg("%s: %s", #expression, clt_error_message());                                  \
    } while (0)

static const clt_caps cpu = {.name = "cpu",
                             .vendor = "GenuineIntel",
                             .kind = CLT_KIND_CPU,
                             .compute_units = 4,
                             .vector_width = 16,
                             .memory_bytes = (int64_t)16 << 30,
                             .max_alloc_bytes = (int64_t)4 << 30,
                             .align_bytes = 128,
                             .local_bytes = 65536,
                             .max_work_group = 4096,
                             .fp64 = true};

#endif
