/* Opens the table of collectives over the devices of this process and, through a world, of other
 * ranks. Only connect.c of train uses <cltrain/comm.h>. */
#ifndef CLT_TRAIN_RANKS_CONNECT_H
#define CLT_TRAIN_RANKS_CONNECT_H

#include "exec/collective.h"
#include <cltrain/world.h>

/* Most devices of a process, a limit of the communicator. */
enum { CLT_MOST_DEVICES = 64 };

typedef enum clt_connect_path {
    CLT_CONNECT_AUTO, /* the path that training uses */
    CLT_CONNECT_STAGED,
    CLT_CONNECT_PEER
} clt_connect_path;

/* Opens the collectives over `count` devices of each rank; `world` is NULL for one rank. A
 * collective may take `timeout` seconds, or any time if that is 0. Collective over the ranks.
 * Errors: as clt_comm_create_between. */
clt_status clt_collectives_open(clt_device *const *devices, int count, const clt_world *world,
                                double timeout, clt_connect_path path, clt_collectives *table);

/* Closes the collectives and sets the table to zero. A table that is already zero may be passed. */
void clt_collectives_close(clt_collectives *table);

#endif
