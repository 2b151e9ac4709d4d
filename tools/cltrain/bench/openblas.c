#include "bench/openblas.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/message.h"

#ifndef CLT_OPENBLAS

int openblas_open(openblas *o)
{
    *o = (openblas){.handle = NULL};
    return failure("--compare: OpenBLAS was not found when this command was built (Debian: "
                   "libopenblas-dev)");
}

#else

/* Looks up a function. dlsym returns a data pointer, and ISO C cannot convert this to a function
 * pointer. */
static int find(const openblas *o, const char *name, void *function)
{
    void *symbol = dlsym(o->handle, name);
    if (!symbol)
        return failure("--compare: %s has no function %s", CLT_OPENBLAS, name);
    memcpy(function, &symbol, sizeof symbol);
    return 0;
}

/* Selects the best f32 kernels that the processor can run. */
static void set_core_type(void)
{
#if defined(__x86_64__)
    const char *core = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl")
                           ? "SkylakeX"
                       : __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? "Haswell"
                                                                                         : NULL;
    if (core)
        setenv("OPENBLAS_CORETYPE", core, 0);
#endif
}

int openblas_open(openblas *o)
{
    char *(*core)(void) = NULL, *(*config)(void) = NULL;
    set_core_type();
    *o = (openblas){.handle = dlopen(CLT_OPENBLAS, RTLD_NOW | RTLD_LOCAL)};
    if (!o->handle)
        return failure("--compare: %s", dlerror());
    int code = find(o, "cblas_sgemm", &o->sgemm);
    NEXT(code, find(o, "openblas_set_num_threads", &o->set_threads));
    NEXT(code, find(o, "openblas_get_corename", &core));
    NEXT(code, find(o, "openblas_get_config", &config));
    if (code)
        return code;
    /* The text is such as "OpenBLAS 0.3.21 NO_LAPACKE ...". */
    const char *text = config();
    const char *end = strchr(text, ' ');
    end = end ? strchr(end + 1, ' ') : NULL;
    snprintf(o->name, sizeof o->name, "%.*s for %s", end ? (int)(end - text) : (int)strlen(text),
             text, core());
    return 0;
}

#endif

void openblas_close(openblas *o)
{
    if (o->handle)
        dlclose(o->handle);
    o->handle = NULL;
}

void openblas_multiply(const openblas *o, const int64_t size[3], const char *trans, const float *a,
                       const float *b, float *c)
{
    enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };
    const int m = (int)size[0], n = (int)size[1], k = (int)size[2];
    const int trans_a = trans[0] == 'T', trans_b = trans[1] == 'T';
    o->sgemm(ROW_MAJOR, trans_a ? TRANS : NO_TRANS, trans_b ? TRANS : NO_TRANS, m, n, k, 1, a,
             trans_a ? m : k, b, trans_b ? k : n, 0, c, n);
}
