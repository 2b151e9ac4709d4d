#include "train/step/averages.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "train/step/programs.h"

clt_status clt_average_parse(const char *text, clt_average *average)
{
    clt_average a = {.kind = CLT_AVERAGE_EMA, .every = 1};
    long long from = 0, every = 1;
    int used = 0;
    if (sscanf(text, "ema:%lf%n", &a.decay, &used) == 1 && !text[used] && a.decay >= 0 &&
        a.decay < 1) {
        *average = a;
        return CLT_OK;
    }
    used = 0;
    const int read = sscanf(text, "swa:%lld%n:%lld%n", &from, &used, &every, &used);
    if (read < 1 || text[used] || from < 1 || every < 1)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "average '%s' is neither ema:DECAY (at least 0 and below 1) nor "
                        "swa:FROM[:EVERY] (numbers of steps of at least 1)",
                        text);
    *average = (clt_average){.kind = CLT_AVERAGE_EQUAL, .from = from, .every = every};
    return CLT_OK;
}

void clt_averages_text(const clt_average *a, char text[96])
{
    if (a->kind == CLT_AVERAGE_EMA)
        snprintf(text, 96, "ema:%.17g", a->decay);
    else
        snprintf(text, 96, "swa:%lld:%lld", (long long)a->from, (long long)a->every);
}

clt_status clt_averages_away(const clt_trainer *t, const char *what)
{
    return t->averages_used ? clt_fail(CLT_STATE,
                                       "%s: the averages are in the place of the parameters; call "
                                       "clt_trainer_use_average with 0 first",
                                       what)
                            : CLT_OK;
}

static clt_status check(const clt_trainer *t)
{
    CLT_TRY(clt_store_check_devices(t->store));
    return t->options.average.kind
               ? CLT_OK
               : clt_fail(CLT_STATE, "the trainer keeps no averages (clt_trainer_options.average)");
}

/* Goes on after a failed device: the others must not stay behind. */
static clt_status exchange(clt_trainer *t)
{
    clt_status first = CLT_OK;
    for (int d = 0; d < t->all.own; d++) {
        clt_status status = clt_averager_exchange(t->devices[d].averager);
        status = clt_lost_note(t, d, status);
        first = first == CLT_OK ? status : first;
    }
    t->averages_used = !t->averages_used;
    return first;
}

clt_status clt_trainer_averaged(clt_trainer *t, int64_t *steps)
{
    CLT_TRY(check(t));
    return clt_averager_count(t->devices[0].averager, steps);
}

clt_status clt_trainer_use_average(clt_trainer *t, int on)
{
    int64_t steps;
    CLT_TRY(check(t));
    if (t->averages_used == (on != 0))
        return CLT_OK;
    if (on) {
        CLT_TRY(clt_trainer_averaged(t, &steps));
        if (!steps)
            return clt_fail(CLT_STATE, "no step is in the averages yet");
    }
    return exchange(t);
}

clt_status clt_averages_set(clt_trainer *t, int64_t steps)
{
    for (int d = 0; t->options.average.kind && d < t->all.own; d++)
        CLT_TRY(clt_averager_set_count(t->devices[d].averager, steps));
    return CLT_OK;
}

clt_status clt_averages_tell(clt_trainer *t, int root)
{
    int64_t steps = 0;
    if (!t->options.average.kind)
        return CLT_OK;
    CLT_TRY(clt_averager_count(t->devices[0].averager, &steps));
    CLT_TRY(clt_world_tell(&t->all, root, &steps, sizeof steps));
    return clt_averages_set(t, steps);
}

/* The program copies parameters, so averages take their place for it. */
clt_status clt_averages_copy(clt_trainer *t, int participant)
{
    if (!t->options.average.kind)
        return CLT_OK;
    CLT_TRY(exchange(t));
    CLT_TRY(clt_programs_copy(t, participant));
    return exchange(t);
}
