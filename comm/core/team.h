/* A few threads that do the pieces of one job together. */
#ifndef CLT_COMM_TEAM_H
#define CLT_COMM_TEAM_H

#include <stdbool.h>
#include <stdint.h>

#include <cltrain/status.h>

typedef struct clt_team clt_team;

typedef void (*clt_team_fn)(void *arg, int64_t piece);

/* Starts threads - 1 helpers; the caller of clt_team_run is the last one. */
clt_status clt_team_create(int threads, clt_team **team);

/* Ends the helpers; takes NULL. */
void clt_team_destroy(clt_team *team);

/* Calls fn(arg, piece) once for each piece in [0, pieces), on several threads in no fixed order,
 * and returns when all are done. One caller at a time. */
void clt_team_run(clt_team *team, clt_team_fn fn, void *arg, int64_t pieces);

/* The same without helpers: threads that happen to be there, of which `guests` are expected, may
 * join it from clt_team_open on; clt_team_finish is called by the same thread and returns when all
 * pieces are done. */
void clt_team_open(clt_team *team, clt_team_fn fn, void *arg, int64_t pieces, int guests);
void clt_team_finish(clt_team *team);

/* Whether something is open, with pieces that nobody has taken. Any thread. */
bool clt_team_has_work(clt_team *team);

/* Works on what is open, if there is something, until all its pieces are taken. Any thread. */
void clt_team_join(clt_team *team);

#endif
