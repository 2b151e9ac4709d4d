/* Learning-rate schedules. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include <cltrain/train.h>

double clt_schedule_rate(const clt_schedule *s, double base, int64_t step)
{
    double rate = base;
    if (s->kind == CLT_SCHEDULE_STEP && s->every > 0) {
        rate = base * pow(s->factor, (double)(step / s->every));
    } else if (s->kind == CLT_SCHEDULE_COSINE) {
        const double length = (double)(s->total - s->warmup);
        double progress = length > 0 ? (double)(step - s->warmup) / length : 1;
        progress = progress < 0 ? 0 : progress > 1 ? 1 : progress;
        rate =
            s->minimum + (base - s->minimum) * 0.5 * (1 + cos(3.14159265358979323846 * progress));
    }
    if (step < s->warmup)
        rate *= (double)(step + 1) / (double)s->warmup;
    return rate;
}

static clt_status bad(const char *text)
{
    static const char *const kinds[] = {"constant", "step", "cosine"};
    char kind[32];
    snprintf(kind, sizeof kind, "%.*s", (int)strcspn(text, ":,"), text);
    const char *near = clt_nearest(kind, kinds, 3);
    const bool misspelt = near && strcmp(near, kind) != 0;
    return clt_fail(CLT_INVALID_ARGUMENT,
                    "schedule '%s' is none of constant, step:EVERY:FACTOR, cosine[:MIN], each with "
                    ",warmup:STEPS (numbers of steps at least 1, factors and rates not negative)"
                    "%s%s%s",
                    text, misspelt ? "; did you mean " : "", misspelt ? near : "",
                    misspelt ? "?" : "");
}

clt_status clt_schedule_parse(const char *text, int64_t total, clt_schedule *schedule)
{
    clt_schedule s = {.total = total};
    char copy[128];
    long long every, warmup;
    double number;
    int used = 0;
    if (strlen(text) >= sizeof copy)
        return bad(text);
    strcpy(copy, text);
    char *comma = strchr(copy, ',');
    if (comma) {
        if (sscanf(comma, ",warmup:%lld%n", &warmup, &used) != 1 || comma[used] || warmup < 0)
            return bad(text);
        s.warmup = warmup;
        *comma = '\0';
    }
    used = 0;
    if (!strcmp(copy, "constant")) {
        s.kind = CLT_SCHEDULE_CONSTANT;
    } else if (sscanf(copy, "step:%lld:%lf%n", &every, &number, &used) == 2 && !copy[used] &&
               every > 0 && isfinite(number) && number >= 0) {
        s.kind = CLT_SCHEDULE_STEP;
        s.every = every;
        s.factor = number;
    } else if (!strcmp(copy, "cosine")) {
        s.kind = CLT_SCHEDULE_COSINE;
    } else if (sscanf(copy, "cosine:%lf%n", &number, &used) == 1 && !copy[used] &&
               isfinite(number) && number >= 0) {
        s.kind = CLT_SCHEDULE_COSINE;
        s.minimum = number;
    } else {
        return bad(text);
    }
    *schedule = s;
    return CLT_OK;
}
