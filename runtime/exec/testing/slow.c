#include "exec/testing/slow.h"

#ifdef CLT_TESTING
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"

const char *clt_exec_testing_slow;
static _Thread_local int binding_rank;

void clt_slow_rank(int rank)
{
    binding_rank = rank;
}

static bool contains(const char *label, const char *text, size_t length)
{
    const size_t whole = strlen(label);
    for (size_t i = 0; i + length <= whole; i++)
        if (!strncmp(label + i, text, length))
            return true;
    return false;
}

/* Skips an item's prefix "rankN:". Returns NULL if the item is for another rank. */
static const char *skip_rank(const char *item)
{
    char *end;
    if (strncmp(item, "rank", 4))
        return item;
    const long rank = strtol(item + 4, &end, 10);
    if (*end != ':')
        return item;
    return rank == binding_rank ? end + 1 : NULL;
}

/* Finds the factor for the device in the list; "" if there is none. */
static const char *find_item(const char *list, const char *label)
{
    while (list && *list) {
        const size_t length = strcspn(list, "=");
        const char *text = skip_rank(list);
        if (list[length] && text && contains(label, text, length - (size_t)(text - list)))
            return list + length + 1;
        list += strcspn(list, ",");
        list += *list == ',';
    }
    return "";
}

clt_status clt_slow_init(clt_slow *slow, const clt_device *device)
{
    const char *list = clt_exec_testing_slow ? clt_exec_testing_slow : getenv("CLT_TESTING_SLOW");
    const char *item = find_item(list, device->label);
    if (!*item)
        return CLT_OK;
    char *end;
    const double factor = strtod(item, &end);
    const long from = *end == '@' ? strtol(end + 1, &end, 10) : 0;
    if (!(factor >= 1) || from < 0 || (*end && *end != ','))
        return clt_fail(CLT_INVALID_ARGUMENT, "'%s' is no slowness of %s: FACTOR[@STEP]", item,
                        device->label);
    *slow = (clt_slow){.factor = factor, .from = (uint32_t)from};
    return CLT_OK;
}

clt_status clt_slow_begin(clt_slow *slow, clt_device *device, uint32_t step)
{
    if (slow->factor == 0 || step < slow->from)
        return CLT_OK;
    CLT_TRY(clt_device_finish(device));
    slow->began = clt_clock();
    return CLT_OK;
}

clt_status clt_slow_end(const clt_slow *slow, clt_device *device, uint32_t step)
{
    if (slow->factor == 0 || step < slow->from)
        return CLT_OK;
    CLT_TRY(clt_device_finish(device));
    const double rest = (slow->factor - 1) * (clt_clock() - slow->began);
    struct timespec pause = {(time_t)rest, (long)(1e9 * (rest - (double)(time_t)rest))};
    while (nanosleep(&pause, &pause) && errno == EINTR)
        continue;
    return CLT_OK;
}
#endif
