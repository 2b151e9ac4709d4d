/* Reports enqueued commands to a watcher, which makes profiles from them. */
#include "device/core/device.h"

cl_event *clt_watch_event(const clt_device *device, cl_event *event)
{
    *event = NULL;
    return device->watcher ? event : NULL;
}

void clt_watch(const clt_device *device, const clt_command *command, cl_event event)
{
    if (!device->watcher || !event)
        return;
    clt_object_created(CLT_OBJECT_EVENT);
    device->watcher(device->watcher_user, command, event);
}
