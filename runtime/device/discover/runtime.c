#include "device/discover/discover.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/str.h"

CLT_STRUCT_INIT(clt_runtime_options, )

CLT_STRUCT_INIT(clt_device_info, .index = -1, .duplicate_of = -1)

CLT_STRUCT_INIT(clt_device_options, )

/* Chooses the cache folder. *out is NULL if there is none. */
static clt_status choose_cache_dir(const char *asked, char **out)
{
    *out = NULL;
    if (asked && !*asked)
        return CLT_OK;
    clt_str path = {0};
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (asked)
        clt_str_add(&path, "%s", asked);
    else if (xdg && *xdg == '/')
        clt_str_add(&path, "%s/cltrain", xdg);
    else if (home && *home == '/')
        clt_str_add(&path, "%s/.cache/cltrain", home);
    if (path.failed) {
        clt_str_free(&path);
        return CLT_OUT_OF_MEMORY;
    }
    *out = path.text;
    return CLT_OK;
}

clt_status clt_runtime_create(const clt_runtime_options *options, clt_runtime **out)
{
    if (options)
        CLT_TRY(CLT_CHECK_STRUCT(options, clt_runtime_options));
    clt_runtime *runtime = CLT_NEW(clt_runtime);
    CLT_TRY_MEMORY(runtime);
    clt_status status = choose_cache_dir(options ? options->cache_dir : NULL, &runtime->cache_dir);
    if (status == CLT_OK) {
        pthread_mutex_lock(&clt_discovery_lock);
        status = clt_discover(runtime);
        pthread_mutex_unlock(&clt_discovery_lock);
    }
    if (status != CLT_OK) {
        clt_runtime_destroy(runtime);
        return status;
    }
    *out = runtime;
    return CLT_OK;
}

void clt_runtime_destroy(clt_runtime *runtime)
{
    if (!runtime)
        return;
    CLT_FREE(runtime->rows, runtime->cache_dir, runtime);
}

int clt_runtime_device_count(const clt_runtime *runtime)
{
    return runtime->count;
}

const char *clt_runtime_remark(const clt_runtime *runtime)
{
    return runtime->remark;
}

clt_status clt_runtime_device_info(const clt_runtime *runtime, int index, clt_device_info *info)
{
    CLT_TRY(CLT_CHECK_STRUCT(info, clt_device_info));
    if (index < 0 || index >= runtime->count)
        return clt_fail(CLT_INVALID_ARGUMENT, "device row %d does not exist; there are %d", index,
                        runtime->count);
    *info = runtime->rows[index].info;
    return CLT_OK;
}
