/*
 * The ranks that still have devices, as a world of their own, and the idle ranks, which have lost
 * their last device and wait.
 *
 * Idle ranks take part in every exchange, because functions of a world are collective over all its
 * ranks. So each exchange begins with a notice of each rank, which says what the rank does.
 */
#ifndef CLT_TRAIN_STORE_REST_H
#define CLT_TRAIN_STORE_REST_H

#include <stdbool.h>

#include <cltrain/world.h>

typedef struct clt_rest {
    clt_world world; /* of the ranks that have devices; on an idle rank only `user` is valid */
    clt_world root;  /* of all ranks */
    int *numbers;    /* in the root, by rank of the world */
    bool over;
    clt_status status; /* once over: of all later exchanges, with its message */
    char message[512];
} clt_rest;

/* Makes the world of some ranks of `world`, which may be such a world itself. has[rank] tells
 * whether a rank of `world` still has devices. No communication. The root must stay open. */
clt_status clt_rest_create(const clt_world *world, const bool *has, clt_rest **rest);

void clt_rest_free(clt_rest *rest);

/* Fails with STATE if the run is over in which ranks became idle. NULL: OK. */
clt_status clt_rest_check(const clt_rest *rest);

/* Returns the number that messages give to a rank of a world: of a rest its number in the root. */
int clt_rest_number(const clt_world *world, int rank);

/* --- ranks that have devices ---------------------------------------------------------------- */

/* Tells the idle ranks that training goes on, with the `bytes` bytes of the first rank. Collective
 * over the ranks that have devices. *done is false if another of these ranks was already in another
 * exchange, because it failed; then nothing was told. *stop becomes true if an idle rank wants the
 * run to stop. */
clt_status clt_rest_tell(clt_rest *rest, int64_t steps, const void *data, int64_t bytes, bool *done,
                         bool *stop);

/* Tells all ranks that the run has ended, with the status and message of this rank. Later exchanges
 * of the world fail. */
void clt_rest_end(clt_rest *rest, clt_status status, int64_t steps, const void *data,
                  int64_t bytes);

/* --- idle ranks ------------------------------------------------------------------------------ */

/* What an idle rank was told. */
typedef struct clt_rest_news {
    int64_t steps;
    void *data; /* free with clt_free */
    int64_t bytes;
    bool over;
    clt_status status; /* if over, of the run */
    char message[512];
} clt_rest_news;

/* Takes part in exchanges of the other ranks until one of them tells something. */
clt_status clt_rest_wait(clt_rest *rest, bool stop, clt_rest_news *news);

#endif
