/*
 * The participants that go on after some were lost.
 *
 * A mesh stays a grid. So all participants leave that are at the place of a lost one along an axis
 * with samples: dp if it has another place, else space or time. The others have all parameters, and
 * the same places along tp and pp as before.
 */
#ifndef CLT_TRAIN_SETUP_REMAINS_H
#define CLT_TRAIN_SETUP_REMAINS_H

#include "train/ranks/world.h"

typedef struct clt_remains {
    clt_axis axis; /* the axis that has fewer places */
    bool *stays;   /* by participant */
    clt_mesh mesh; /* of those that stay, who are numbered anew in their order */
    int *begins;   /* new numbers of the first participants by rank, and the end */
    bool may_idle; /* a rank may have no device left */
} clt_remains;

/* Chooses the axis and the participants. `lost` is by participant. If it can, it chooses an axis
 * that leaves all ranks a device. If `may_idle`, ranks may else have none. Fails with STATE, and a
 * message that names the mesh's axes or the rank, if no axis has another place, if a rank would
 * have no device and may not, or with offload no device that trains, or if an owner is lost. Free
 * *remains with clt_remains_free also after a failure. */
clt_status clt_remains_find(const clt_participants *all, const clt_store *store, const bool *lost,
                            bool may_idle, clt_remains *remains);

/* Returns the number of a rank's devices that stay. */
static inline int clt_remains_left(const clt_remains *remains, int rank)
{
    return remains->begins[rank + 1] - remains->begins[rank];
}

/* Gives up one more place of the axis. Returns false, and changes nothing, if it is the last or if
 * a rank would have no device and may not. */
bool clt_remains_fewer(const clt_participants *all, clt_remains *remains);

/* Returns the new number of a participant that stays. */
int clt_remains_number(const clt_remains *remains, int participant);

/* Drops the devices of this process that leave from the store, and gives the store its new mesh,
 * of the ranks that have devices. Owners (offload) stay those of their buckets. `all` has the
 * participants of before; of its arrays only the old numbers are read. */
void clt_remains_apply(const clt_remains *remains, const clt_participants *all, clt_store *store);

void clt_remains_free(clt_remains *remains);

/* Writes "tp and pp": the axes that have several places and are chosen by `with_samples`. */
const char *clt_remains_axes(const clt_mesh *mesh, bool with_samples, char text[64]);

#endif
