/* See handles.c. Module cltrain_core declares these functions for Fortran. */
#ifndef CLTRAIN_FORTRAN_HANDLES_H
#define CLTRAIN_FORTRAN_HANDLES_H

#include <stdint.h>

#include <cltrain/cltrain.h>

typedef void clt_f_free_fn(void *object);
typedef void clt_f_free_array_fn(void *objects, int count);

/* Makes a slot for an object, or for an array of `count` objects, that the given function frees.
 * Returns its number, which clt_f_share gives to handles. Without memory it frees the object and
 * returns 0. */
int64_t clt_f_own(void *object, int count, clt_f_free_fn *destroy,
                  clt_f_free_array_fn *destroy_array);

/* The object of `id` needs the object of `needed`. */
void clt_f_need(int64_t id, int64_t needed);

/* A list of memory that a call keeps. Memory of clt_f_room is zero, and NULL if there is none.
 * clt_f_push adds what `release` frees, clt_f_push_need an object, which lives as long as the list.
 * clt_f_hand_over empties the list: its memory lives as long as the object of `id`, which needs the
 * objects of the list. If `id` is 0, the memory is freed. */
typedef struct clt_f_kept clt_f_kept;
void *clt_f_room(clt_f_kept **list, size_t bytes);
void clt_f_push(clt_f_kept **list, void *memory, clt_f_free_fn *release);
void clt_f_push_need(clt_f_kept **list, int64_t id);
void clt_f_hand_over(clt_f_kept **list, int64_t id);

/* A number that belongs to an object: of a trainer, its losses and metrics. */
void clt_f_set_number(int64_t id, int number);
int clt_f_number(int64_t id);

/* Makes a slot for an object that a callback gets. It needs the object's own slot,
 * so copies of the handle keep the object alive. Destroying it leaves the object alone. */
int64_t clt_f_lend(void *object);

/* A world of one rank in memory of its own; NULL without memory. */
clt_world *clt_f_world_new(void);
void clt_f_world_free(clt_world *world);

/* The handle at this address stands for the object of `id` from here on, and no longer for that of
 * *old. Returns 1 without memory, and 2 if the address is NULL. */
int clt_f_share(const void *handle, int64_t id, const int64_t *old);

/* The handle at this address ends. Returns 0 if no handle was assigned there. Otherwise the caller
 * releases what the handle stands for. */
int clt_f_end(const void *handle);

/* A count more, and a count less. Numbers of objects that are gone are ignored. */
void clt_f_retain(int64_t id);
void clt_f_release(int64_t id);

/* Destroys an object, at the latest when the objects that need it are gone. Handles are stale at
 * once. */
void clt_f_close(int64_t id);

/* Returns 1 if handles of this number may be used. */
int clt_f_is_open(int64_t id);

/* Sets the message about a handle that may not be used. */
clt_status clt_f_stale(int64_t id, const char *call, const char *argument);

/* Returns the number of objects that were not freed. For tests. */
int64_t clt_f_live(void);

#endif
