#include "device/program/compile_watch.h"

static clt_compile_fn callback;
static void *callback_user;

void clt_compile_set(clt_compile_fn fn, void *user)
{
    callback = fn;
    callback_user = user;
}

bool clt_compile_is_watched(void)
{
    return callback != NULL;
}

void clt_compile_report(const clt_device *device, bool kernels, int done, int total)
{
    if (callback)
        callback(callback_user, device->label, kernels, done, total);
}

bool clt_compile_is_late(const clt_device *device)
{
    return callback && (device->quirks & CLT_QUIRK_LATE_COMPILE);
}
