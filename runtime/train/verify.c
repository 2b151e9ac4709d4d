/*
 * Every some steps all devices compare checksums of their replicas: a device that computes wrongly,
 * or a program that wrote into one replica, is noticed while an earlier checkpoint is still good.
 */
#include <stdio.h>

#include "base/alloc.h"
#include "base/error.h"
#include "train/reduce.h"

clt_status clt_verify_create(clt_trainer *t, int d)
{
    clt_trainer_device *td = &t->devices[d];
    const size_t n = (size_t)t->store->layout.n_slots;
    if (t->total == 1 || !t->options.check_every)
        return CLT_OK;
    td->checksums = clt_calloc((size_t)t->total * n + 1, sizeof *td->checksums);
    if (!td->checksums)
        return CLT_OUT_OF_MEMORY;
    return clt_checksum_create(&t->store->replicas[d], &td->checksum);
}

static void name_participant(const clt_trainer *t, int participant, char *text, size_t bytes)
{
    int rank = 0;
    while (participant >= t->begins[rank + 1])
        rank++;
    const int device = participant - t->begins[rank];
    const char *label = rank == t->rank ? t->store->replicas[device].device->label : NULL;
    if (t->ranks == 1)
        snprintf(text, bytes, "%s", label);
    else
        snprintf(text, bytes, "rank %d, device %d%s%s%s", rank, device, label ? " (" : "",
                 label ? label : "", label ? ")" : "");
}

/* The participant whose checksum of a tensor is not that of most; -1: all are equal. */
static int odd_one(const clt_trainer *t, const uint64_t *sums, int n, int slot)
{
    int as_first = 0, other = -1;
    for (int p = 0; p < t->total; p++) {
        const bool same = sums[(int64_t)p * n + slot] == sums[slot];
        as_first += same;
        if (!same && other < 0)
            other = p;
    }
    return other >= 0 && 2 * as_first < t->total ? 0 : other;
}

clt_status clt_verify(clt_trainer *t, int d)
{
    clt_trainer_device *td = &t->devices[d];
    const int n = t->store->layout.n_slots;
    if (!td->checksum || (t->steps + 1) % t->options.check_every)
        return CLT_OK;
    CLT_TRY(clt_checksum_run(td->checksum, td->checksums + (int64_t)(t->first + d) * n));
    const clt_collective what = {.kind = CLT_COLLECTIVE_ALL_GATHER,
                                 .host = td->checksums,
                                 .count = 2 * (int64_t)n,
                                 .dtype = CLT_I32,
                                 .label = "checksums of the parameters"};
    CLT_TRY(clt_reduce_one(t, d, &what));
    for (int i = 0; i < n; i++) {
        const int odd = odd_one(t, td->checksums, n, i);
        char name[300];
        if (odd < 0)
            continue;
        name_participant(t, odd, name, sizeof name);
        return clt_fail(CLT_MISMATCH,
                        "%s has other bits on %s than on the other devices: something wrote into "
                        "one replica, or a device computes wrongly. Go on from a checkpoint before "
                        "this step",
                        t->store->layout.slots[i].name, name);
    }
    return CLT_OK;
}
