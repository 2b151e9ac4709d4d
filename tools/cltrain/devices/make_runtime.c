#include "devices/make_runtime.h"

#include "devices/disk_space.h"

clt_status make_runtime(char *cache_dir, clt_runtime **runtime)
{
    clt_runtime_options options;
    clt_runtime_options_init(&options);
    options.cache_dir = cache_dir;
    if (cache_dir)
        move_pocl_cache(cache_dir);
    const clt_status status = clt_runtime_create(&options, runtime);
    if (status == CLT_OK)
        warn_of_full_caches(*runtime);
    return status;
}
