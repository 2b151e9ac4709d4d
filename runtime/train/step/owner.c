#include "train/step/owner.h"

#include "base/alloc.h"

/* Large buckets have similar sizes, so round-robin shares the work. */
int clt_owner_of(int bucket, int participants)
{
    return bucket % participants;
}

clt_status clt_owners_create(const clt_buckets *layout, int participants, int **owners)
{
    *owners = clt_calloc((size_t)layout->n_buckets + 1, sizeof **owners);
    for (int b = 0; *owners && b < layout->n_buckets; b++)
        (*owners)[b] = clt_owner_of(b, participants);
    return *owners ? CLT_OK : CLT_OUT_OF_MEMORY;
}
