/* Compares the devices along the axes of a mesh. */
#include <string.h>

#include "base/error.h"
#include "train/planner/frozen.h"

/* Writes a participant's identity. With one rank all participants are its devices. */
static void identify(const clt_participants *all, const clt_store *store, int participant,
                     char *text)
{
    if (all->identities)
        memcpy(text, all->identities + (size_t)participant * CLT_SPLIT_IDENTITY,
               CLT_SPLIT_IDENTITY);
    else
        clt_split_identify(&store->replicas[participant].device, 1, text);
}

int clt_split_differs(const clt_participants *all, const clt_store *store, clt_axis axis)
{
    char first[CLT_SPLIT_IDENTITY], own[CLT_SPLIT_IDENTITY];
    for (int p = 0; p < all->total; p++) {
        identify(all, store, clt_mesh_neighbour(&all->mesh, axis, p, 0), first);
        identify(all, store, p, own);
        if (strcmp(first, own))
            return p;
    }
    return -1;
}

clt_status clt_split_check_kinds(const clt_participants *all, const clt_store *store)
{
    const int p = clt_split_differs(all, store, CLT_AXIS_TENSOR);
    char first[CLT_SPLIT_IDENTITY], own[CLT_SPLIT_IDENTITY];
    if (p < 0)
        return CLT_OK;
    const int q = clt_mesh_neighbour(&all->mesh, CLT_AXIS_TENSOR, p, 0);
    identify(all, store, q, first);
    identify(all, store, p, own);
    return clt_fail(CLT_UNSUPPORTED,
                    "devices %d and %d of axis tp differ (%s; %s): order the devices so that tp "
                    "joins devices of one kind",
                    q, p, first, own);
}
