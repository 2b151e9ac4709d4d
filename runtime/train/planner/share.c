/* Gathers on all ranks the measurements that ranks made on their own devices. */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "train/planner/measure_devices.h"
#include "train/ranks/world.h"

clt_status clt_probe_allocate(clt_probe_result *r, int count)
{
    const size_t n = (size_t)count;
    for (int i = 0; i < CLT_SPEED_POINTS; i++)
        r->seconds[i] = clt_calloc(n * CLT_PROBE_ROUNDS, sizeof(double));
    r->solo_seconds = clt_calloc(n, sizeof *r->solo_seconds);
    r->update = clt_calloc(n, sizeof *r->update);
    r->status_time = clt_calloc(n, sizeof *r->status_time);
    r->devices = clt_calloc(n, sizeof *r->devices);
    r->count = count;
    return r->seconds[0] && r->seconds[1] && r->solo_seconds && r->update && r->status_time &&
                   r->devices
               ? CLT_OK
               : CLT_OUT_OF_MEMORY;
}

void clt_probe_free(clt_probe_result *r)
{
    for (int i = 0; i < CLT_SPEED_POINTS; i++)
        clt_free(r->seconds[i]);
    CLT_FREE(r->solo_seconds, r->update, r->status_time, r->devices, r->gradients.list);
    *r = (clt_probe_result){0};
}

/* The measurements of one device. */
typedef struct row {
    double seconds[CLT_SPEED_POINTS][CLT_PROBE_ROUNDS];
    double solo, update, status_time;
    clt_probe_device device;
} row;

static void read_row(const clt_probe_result *r, int d, row *one)
{
    const size_t rounds = sizeof one->seconds[0];
    for (int i = 0; i < CLT_SPEED_POINTS; i++)
        memcpy(one->seconds[i], r->seconds[i] + d * CLT_PROBE_ROUNDS, rounds);
    one->solo = r->solo_seconds[d];
    one->update = r->update[d];
    one->status_time = r->status_time[d];
    one->device = r->devices[d];
}

static void write_row(clt_probe_result *r, int d, const row *one)
{
    const size_t rounds = sizeof one->seconds[0];
    for (int i = 0; i < CLT_SPEED_POINTS; i++)
        memcpy(r->seconds[i] + d * CLT_PROBE_ROUNDS, one->seconds[i], rounds);
    r->solo_seconds[d] = one->solo;
    r->update[d] = one->update;
    r->status_time[d] = one->status_time;
    r->devices[d] = one->device;
}

/* Gathers the k-th device of every rank that has one. */
static clt_status share_row(const clt_world *world, const clt_probe_result *mine, int k,
                            const int *begins, clt_probe_result *all)
{
    row own = {.solo = 0};
    void *rows;
    if (k < mine->count)
        read_row(mine, k, &own);
    CLT_TRY(clt_ranks_gather(world, &own, sizeof own, &rows));
    for (int r = 0; r < world->ranks; r++)
        if (begins[r] + k < begins[r + 1])
            write_row(all, begins[r] + k, (const row *)rows + r);
    clt_free(rows);
    return CLT_OK;
}

static clt_status share_rows(const clt_world *world, const clt_probe_result *mine,
                             const int *begins, clt_probe_result *all)
{
    int most = 0;
    for (int r = 0; r < world->ranks; r++)
        most = begins[r + 1] - begins[r] > most ? begins[r + 1] - begins[r] : most;
    for (int k = 0; k < most; k++)
        CLT_TRY(share_row(world, mine, k, begins, all));
    return CLT_OK;
}

/* Sets begins[r] to the first device of rank r. */
static clt_status find_begins(const clt_world *world, int count, int *begins)
{
    const int32_t own = count;
    void *counts;
    CLT_TRY(clt_ranks_gather(world, &own, sizeof own, &counts));
    for (int r = 0; r < world->ranks; r++)
        begins[r + 1] = begins[r] + ((const int32_t *)counts)[r];
    clt_free(counts);
    return CLT_OK;
}

/* Copies the arrays by device. */
static void take(clt_probe_result *to, const clt_probe_result *from)
{
    to->count = from->count;
    memcpy(to->seconds, from->seconds, sizeof to->seconds);
    to->solo_seconds = from->solo_seconds;
    to->update = from->update;
    to->status_time = from->status_time;
    to->devices = from->devices;
}

static clt_status share_devices(const clt_world *world, clt_probe_result *r)
{
    clt_probe_result all = {0};
    int *begins = clt_calloc((size_t)world->ranks + 1, sizeof *begins);
    clt_status status = clt_ranks_agree(world, begins ? CLT_OK : CLT_OUT_OF_MEMORY, NULL);
    CLT_NEXT(status, find_begins(world, r->count, begins));
    CLT_NEXT(status, clt_ranks_agree(world, clt_probe_allocate(&all, begins[world->ranks]), NULL));
    CLT_NEXT(status, share_rows(world, r, begins, &all));
    clt_free(begins);
    if (status == CLT_OK) {
        const clt_probe_result own = *r;
        take(r, &all);
        take(&all, &own);
    }
    clt_probe_free(&all);
    return status;
}

/* Copies rank 0's gradients to all ranks. All ranks have the same number of gradients. */
static clt_status share_gradients(const clt_world *world, clt_probe_result *r)
{
    const size_t bytes = (size_t)r->gradients.count * sizeof *r->gradients.list;
    void *all;
    CLT_TRY(clt_ranks_gather(world, r->gradients.list, bytes, &all));
    memcpy(r->gradients.list, all, bytes);
    clt_free(all);
    CLT_TRY(clt_ranks_gather(world, &r->gradients.max_bytes, sizeof r->gradients.max_bytes, &all));
    r->gradients.max_bytes = *(const int64_t *)all;
    clt_free(all);
    return CLT_OK;
}

clt_status clt_probe_share(const clt_world *world, clt_probe_result *r)
{
    if (!world || world->ranks == 1)
        return CLT_OK;
    CLT_TRY(share_devices(world, r));
    return share_gradients(world, r);
}
