/*
 * How many of a loader's threads work, decided while running.
 *
 * Each window of batches gives three times: how long the consumer waited, how long threads were
 * busy, how long the window was. A consumer that waits for more than 2 % of the time gets one
 * thread more; if that did not shorten its wait for a batch by a tenth, the thread is taken back
 * (the processors are busy with something else, or the callback lets in one thread at a time) and
 * none is tried for a while. A consumer that does not wait loses one thread when those that stay
 * would be busy for less than 60 %; if it waits after that, it gets the thread back.
 */
#ifndef CLT_DATA_LOADER_TUNER_H
#define CLT_DATA_LOADER_TUNER_H

typedef struct clt_tuner {
    int min, max, active;
    int last;                 /* what the last window changed: +1, -1 or 0 */
    double wait_before;       /* of a batch in the window before that change */
    int hold_more, hold_less; /* windows to pass without such a change */
} clt_tuner;

/* Starts with all threads: the first batch is urgent. */
void clt_tuner_init(clt_tuner *tuner, int min, int max);

/* One window: times in any unit, always the same. Returns how many threads shall work from now on.
 */
int clt_tuner_step(clt_tuner *tuner, double wait, double busy, double wall, double batches);

#endif
