/* Parses the description of the network of a simulated training. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include <cltrain/planner.h>

typedef struct unit {
    const char *name;
    double value;
} unit;

static const unit rates[] = {{"GB/s", 1e9},      {"MB/s", 1e6},      {"KB/s", 1e3},
                             {"B/s", 1},         {"Gbit/s", 1.25e8}, {"Mbit/s", 1.25e5},
                             {"Kbit/s", 1.25e2}, {"bit/s", 0.125},   {NULL, 0}};
static const unit times[] = {{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}, {NULL, 0}};

/* Reads a number and a unit, then `end`. Returns NULL if the text has another form. */
static const char *read_number(const char *text, const unit *units, char end, double *value)
{
    char *at;
    const double number = strtod(text, &at);
    const size_t length = strcspn(at, ",");
    for (const unit *u = units; u->name && at != text; u++)
        if (strlen(u->name) == length && !strncmp(u->name, at, length) && at[length] == end) {
            *value = number * u->value;
            return at + length;
        }
    return NULL;
}

clt_status clt_link_parse(const char *text, clt_link *link)
{
    clt_link read = {0};
    const char *at = read_number(text, rates, ',', &read.bytes_per_second);
    if (at)
        at = read_number(at + 1, times, '\0', &read.latency);
    if (!at || !isfinite(read.bytes_per_second) || !(read.bytes_per_second > 0) ||
        !isfinite(read.latency) || !(read.latency >= 0) || read.latency > 3600)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "the link '%s' is not RATE,LATENCY (an hour at most), as in 25GB/s,5us or "
                        "200Gbit/s,2us",
                        text);
    *link = read;
    return CLT_OK;
}
