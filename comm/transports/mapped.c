/* Maps buffers of devices that share the host's memory, so that nothing is copied. Data in the
 * host's memory need no mapping. */
#include "comm/communicator/internal.h"

static bool accepts(const clt_comm *comm, int device, const clt_comm_part *part, char *why)
{
    const clt_comm_member *m = &comm->members[device];
    if (!m->can_map)
        return clt_declines(why, "the device does not share the host's memory, so it is copied");
    if (m->piped)
        return clt_declines(why, comm->options.path == CLT_COMM_PATH_STAGED
                                     ? "the path 'staged' was asked for; set it to auto"
                                     : "buffers are copied as for peers; set the path to auto");
    if (!part || part->maps || part->op.host || clt_comm_is_nothing(part))
        return true;
    return clt_comm_maps(comm, device, part, why);
}

const clt_transport clt_transport_mapped = {.name = "mapped",
                                            .accepts = accepts,
                                            .begin = clt_on_queue_begin,
                                            .run = clt_comm_do_whole,
                                            .end = clt_on_queue_end};
