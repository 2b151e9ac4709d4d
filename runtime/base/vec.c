#include "base/vec.h"

#include <limits.h>

clt_status clt_vec_reserve(void **items, int count, int *room, int extra, size_t element_bytes)
{
    if (count > INT_MAX - extra)
        return clt_fail(CLT_OUT_OF_MEMORY, "an array of more than %d elements was needed", INT_MAX);
    int needed = count + extra;
    if (needed <= *room)
        return CLT_OK;
    int larger = *room < 8 ? 8 : *room > INT_MAX / 2 ? INT_MAX : *room * 2;
    if (larger < needed)
        larger = needed;
    void *moved = clt_realloc(*items, (size_t)larger * element_bytes);
    CLT_TRY_MEMORY(moved);
    *items = moved;
    *room = larger;
    return CLT_OK;
}
