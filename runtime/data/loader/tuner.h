/*
 * Decides at run time how many of a loader's threads work.
 *
 * Each window of batches gives three times: how long the consumer waited, how long threads were
 * busy, and how long the window was.
 *
 * - If the consumer waits for more than 2 % of the time, one thread is added.
 * - If the added thread did not shorten the wait for a batch by a tenth, it is taken back, and none
 *   is added for a while. The processors may be busy with something else, or the callback is
 *   serial.
 * - If the consumer does not wait, and the other threads would be busy for less than 60 % of the
 *   time, one thread is removed.
 * - If the consumer waits after that, the thread comes back.
 */
#ifndef CLT_DATA_LOADER_TUNER_H
#define CLT_DATA_LOADER_TUNER_H

typedef struct clt_tuner {
    int min, max, active;
    int last;                 /* change of `active` by the last window: +1, -1 or 0 */
    double wait_before;       /* wait for a batch in the window before that change */
    int hold_more, hold_less; /* windows left in which no thread is added, or removed */
} clt_tuner;

/* Starts with all threads, because the first batch is urgent. */
void clt_tuner_init(clt_tuner *tuner, int min, int max);

/* Evaluates one window and returns how many threads shall work from now on. All times have the same
 * unit, which may be any. */
int clt_tuner_step(clt_tuner *tuner, double wait, double busy, double wall, double batches);

#endif
