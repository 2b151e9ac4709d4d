/* A few threads that do the pieces of a job together. */
#ifndef CLT_COMM_TEAM_H
#define CLT_COMM_TEAM_H

#include <stdbool.h>
#include <stdint.h>

#include <cltrain/status.h>

typedef struct clt_team clt_team;

typedef void (*clt_team_fn)(void *arg, int64_t piece);

/* Starts threads - 1 helpers. The caller of clt_team_run is the last thread. */
clt_status clt_team_create(int threads, clt_team **team);

/* Ends the helpers. Takes NULL. */
void clt_team_destroy(clt_team *team);

/* Calls fn(arg, piece) once for each piece in [0, pieces), on several threads in no fixed order.
 * Returns when all pieces are done. One caller at a time. */
void clt_team_run(clt_team *team, clt_team_fn fn, void *arg, int64_t pieces);

/* Do the same without helpers. Other threads, of which `guests` are expected, may join the job
 * after clt_team_open. The same thread calls clt_team_finish, which returns when all pieces are
 * done. */
void clt_team_open(clt_team *team, clt_team_fn fn, void *arg, int64_t pieces, int guests);
void clt_team_finish(clt_team *team);

/* Whether a job is open that has pieces left. Any thread may call it. */
bool clt_team_has_work(clt_team *team);

/* Works on the open job, if there is one, until all its pieces are taken. Any thread may call
 * it. */
void clt_team_join(clt_team *team);

#endif
