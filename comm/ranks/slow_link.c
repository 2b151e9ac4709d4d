#include "comm/ranks/slow_link.h"

#ifdef CLT_TESTING
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"

const char *clt_slow_link_testing;

typedef struct unit {
    const char *name;
    double factor;
} unit;

/* Reads a number and its unit, up to `end`. Returns NAN if there is none. */
static double number(const char **text, const unit *units, int count, char end)
{
    char *rest;
    const double value = strtod(*text, &rest);
    for (int i = 0; i < count && rest > *text && value > 0 && isfinite(value); i++) {
        const size_t length = strlen(units[i].name);
        if (!strncmp(rest, units[i].name, length) && rest[length] == end) {
            *text = rest + length + (end != 0);
            return value * units[i].factor;
        }
    }
    return NAN;
}

clt_status clt_slow_link_init(clt_slow_link *link)
{
    static const unit speeds[] = {
        {"Gbit/s", 1.25e8}, {"Mbit/s", 1.25e5}, {"GB/s", 1e9}, {"MB/s", 1e6}};
    static const unit times[] = {{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}};
    const char *text = clt_slow_link_testing ? clt_slow_link_testing : getenv("CLT_TESTING_LINK");
    *link = (clt_slow_link){0};
    if (!text || !*text)
        return CLT_OK;
    const char *at = text;
    const double bandwidth = number(&at, speeds, 4, ',');
    const double latency = isnan(bandwidth) ? NAN : number(&at, times, 3, 0);
    if (isnan(latency))
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "'%s' is no speed of a link: give bandwidth and latency, such as "
                        "1Gbit/s,50us",
                        text);
    *link = (clt_slow_link){latency, bandwidth};
    return CLT_OK;
}

double clt_slow_link_due(const clt_slow_link *link, int64_t bytes)
{
    return link->bandwidth > 0 ? clt_clock() + link->latency + (double)bytes / link->bandwidth : 0;
}
#else
typedef int clt_slow_link_is_empty;
#endif
