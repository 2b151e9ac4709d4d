#include "data/loader/tuner.h"

#include <stdbool.h>

static const double WAIT_SHARE = 0.02, BUSY_SHARE = 0.6, NO_HELP = 0.9;
enum { HOLD_WINDOWS = 16 };

void clt_tuner_init(clt_tuner *tuner, int min, int max)
{
    *tuner = (clt_tuner){.min = min, .max = max, .active = max};
}

int clt_tuner_step(clt_tuner *tuner, double wait, double busy, double wall, double batches)
{
    clt_tuner *t = tuner;
    if (!(wall > 0) || !(batches > 0))
        return t->active;
    bool waits = wait > WAIT_SHARE * wall;
    double before = t->wait_before;
    int last = t->last;
    wait /= batches;
    t->last = 0;
    t->wait_before = wait;
    t->hold_more -= t->hold_more > 0;
    t->hold_less -= t->hold_less > 0;
    if (last > 0 && waits && wait > NO_HELP * before) {
        t->active--;
        t->hold_more = HOLD_WINDOWS;
    } else if (last < 0 && waits && wait * NO_HELP > before) {
        t->active++;
        t->hold_less = HOLD_WINDOWS;
    } else if (waits && t->active < t->max && !t->hold_more) {
        t->active++;
        t->last = 1;
    } else if (!waits && t->active > t->min && !t->hold_less &&
               busy < BUSY_SHARE * wall * (t->active - 1)) {
        t->active--;
        t->last = -1;
    }
    return t->active;
}
