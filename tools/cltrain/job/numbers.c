/* Reads options that are numbers with units, or lists of numbers. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "job/job.h"
#include "text/message.h"

/* Reads MEAN,STD, or a mean for each channel and then a STD for each channel. */
int read_normalize(job *j, const settings *s)
{
    double numbers[2 * MOST_CHANNELS];
    int n = 0, ok = 1;
    for (char *end, *at = s->normalize; at && ok; at = *end ? end + 1 : NULL, n++) {
        ok = n < 2 * MOST_CHANNELS;
        numbers[ok ? n : 0] = strtod(at, &end);
        ok = ok && end != at && isfinite(numbers[n]) && (!*end || (*end == ',' && end[1]));
    }
    for (int i = n / 2; ok && i < n; i++)
        ok = numbers[i] != 0;
    if (!ok || n % 2)
        return usage_error("--normalize %s: must be MEAN,STD, two finite numbers, STD not 0; or as "
                           "many means and then STDs as there are channels",
                           s->normalize);
    j->channels = n / 2;
    memcpy(j->mean, numbers, (size_t)j->channels * sizeof *numbers);
    memcpy(j->std, numbers + j->channels, (size_t)j->channels * sizeof *numbers);
    return 0;
}

int read_tune(const char *text, double default_value, double *seconds)
{
    char *end = NULL;
    *seconds = text ? 0 : default_value;
    if (!text || !strcmp(text, "off"))
        return 0;
    *seconds = strtod(text, &end);
    if (end == text || *end || !(*seconds >= 0) || !isfinite(*seconds))
        return usage_error("--tune %s: must be off or seconds", text);
    return 0;
}

int read_memory(const char *text, int64_t *bytes)
{
    static const struct {
        const char *name;
        double bytes;
    } units[] = {
        {"", 1},      {"B", 1},      {"KB", 1e3},      {"MB", 1e6},      {"GB", 1e9},
        {"TB", 1e12}, {"KiB", 1024}, {"MiB", 1048576}, {"GiB", 1 << 30}, {"TiB", 1099511627776.0}};
    enum { UNITS = sizeof units / sizeof *units };
    char *end = NULL;
    int unit = 0;
    if (!text)
        return 0;
    const double number = strtod(text, &end);
    while (unit < UNITS && strcmp(end, units[unit].name))
        unit++;
    const double all = unit < UNITS ? number * units[unit].bytes : 0;
    if (end == text || !(all >= 1) || all > 9e18)
        return usage_error("--memory %s: must be a size, as 8GB or 512MiB", text);
    *bytes = (int64_t)all;
    return 0;
}
