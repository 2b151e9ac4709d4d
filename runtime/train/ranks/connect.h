/* Opens the table of collectives over devices of this process and, through a world, of other
 * ranks. connect.c is the only file of train that knows <cltrain/comm.h>. */
#ifndef CLT_TRAIN_RANKS_CONNECT_H
#define CLT_TRAIN_RANKS_CONNECT_H

#include "exec/collective.h"
#include <cltrain/world.h>

/* Most devices of a process: the communicator's. */
enum { CLT_MOST_DEVICES = 64 };

typedef enum clt_connect_path {
    CLT_CONNECT_AUTO, /* what training uses */
    CLT_CONNECT_STAGED,
    CLT_CONNECT_PEER
} clt_connect_path;

/* `world` NULL: one rank. `timeout`: seconds that a collective may take, 0: any time. Collective
 * over the ranks. Errors: as clt_comm_create_between. */
clt_status clt_collectives_open(clt_device *const *devices, int count, const clt_world *world,
                                double timeout, clt_connect_path path, clt_collectives *table);

/* Takes a table that is zero; makes it zero. */
void clt_collectives_close(clt_collectives *table);

#endif
