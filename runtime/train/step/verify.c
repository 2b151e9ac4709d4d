/*
 * Before the first step, and then every some steps, all devices of all ranks compare checksums of
 * their replicas: ranks whose stores were made differently would train each a model of its own; a
 * device that computes wrongly, or a program that wrote into one replica, is noticed while an
 * earlier checkpoint is still good.
 */
#include <stdio.h>

#include "base/alloc.h"
#include "base/error.h"
#include "train/step/programs.h"
#include "train/step/verify.h"

clt_status clt_verify_create(clt_trainer *t, int d)
{
    clt_trainer_device *td = &t->devices[d];
    const size_t n = (size_t)t->store->layout.n_slots;
    if (t->all.total == 1)
        return CLT_OK;
    td->checksums = clt_calloc((size_t)t->all.total * n + 1, sizeof *td->checksums);
    if (!td->checksums)
        return CLT_OUT_OF_MEMORY;
    return clt_checksum_create(&t->store->replicas[d], &td->checksum);
}

static void name_participant(const clt_trainer *t, int participant, char *text, size_t bytes)
{
    int rank = 0;
    while (participant >= t->all.begins[rank + 1])
        rank++;
    const int device = participant - t->all.begins[rank];
    const char *label = rank == t->all.rank ? t->store->replicas[device].device->label : NULL;
    if (t->all.ranks == 1)
        snprintf(text, bytes, "%s", label);
    else
        snprintf(text, bytes, "rank %d, device %d%s%s%s", rank, device, label ? " (" : "",
                 label ? label : "", label ? ")" : "");
}

/* The participant whose checksum of a tensor is not that of most; -1: all are equal. */
static int odd_one(const clt_trainer *t, const uint64_t *sums, int n, int slot)
{
    int as_first = 0, other = -1;
    for (int p = 0; p < t->all.total; p++) {
        const bool same = sums[(int64_t)p * n + slot] == sums[slot];
        as_first += same;
        if (!same && other < 0)
            other = p;
    }
    return other >= 0 && 2 * as_first < t->all.total ? 0 : other;
}

clt_status clt_verify_sum(clt_trainer *t, int d)
{
    clt_trainer_device *td = &t->devices[d];
    const int n = t->store->layout.n_slots;
    return clt_checksum_run(td->checksum, td->checksums + (int64_t)(t->all.first + d) * n);
}

clt_collective clt_verify_gather(const clt_trainer *t, int d)
{
    return (clt_collective){.kind = CLT_COLLECTIVE_ALL_GATHER,
                            .host = t->devices[d].checksums,
                            .count = 2 * (int64_t)t->store->layout.n_slots,
                            .dtype = CLT_I32,
                            .label = "checksums of the parameters"};
}

clt_status clt_verify_compare(const clt_trainer *t, int d)
{
    const clt_trainer_device *td = &t->devices[d];
    const int n = t->store->layout.n_slots;
    for (int i = 0; i < n; i++) {
        const int odd = odd_one(t, td->checksums, n, i);
        char name[300];
        if (odd < 0)
            continue;
        name_participant(t, odd, name, sizeof name);
        return clt_fail(
            CLT_MISMATCH, "%s has other bits on %s than on the other devices%s",
            t->store->layout.slots[i].name, name,
            t->verified
                ? ": something wrote into one replica, or a device computes wrongly. Go on from a "
                  "checkpoint before this step"
                : " before the first step: make all stores with the same seed, load the same "
                  "file, or call clt_trainer_broadcast");
    }
    return CLT_OK;
}

clt_status clt_verify_step(clt_trainer *t, const char *what)
{
    if (t->all.total == 1 || !t->options.check_every || (t->steps + 1) % t->options.check_every)
        return CLT_OK;
    return clt_programs_run(t, CLT_PROGRAM_VERIFY, what, true);
}

/* Every rank finds the same mismatch by itself, so nobody waits for one that failed. */
clt_status clt_verify_start(clt_trainer *t)
{
    if (t->all.total > 1 && !t->verified)
        CLT_TRY(clt_programs_run(t, CLT_PROGRAM_VERIFY, NULL, false));
    t->verified = true;
    return CLT_OK;
}
