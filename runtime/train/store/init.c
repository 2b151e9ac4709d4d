#include "train/store/init.h"

#include <math.h>
#include <stdbool.h>

#include "base/philox.h"
#include "base/thread.h"

/* Computes two normal numbers from two uniform ones (Box and Muller, 1958). */
static void normal_pair(uint32_t a, uint32_t b, double *x, double *y)
{
    const double u = ((double)a + 1.0) / 4294967296.0, angle = 6.283185307179586 * b / 4294967296.0;
    const double radius = sqrt(-2.0 * log(u));
    *x = radius * cos(angle);
    *y = radius * sin(angle);
}

static void block_values(const clt_init *init, const uint32_t bits[4], double out[4])
{
    double z[4] = {0};
    if (init->kind == CLT_INIT_NORMAL) {
        normal_pair(bits[0], bits[1], &z[0], &z[1]);
        normal_pair(bits[2], bits[3], &z[2], &z[3]);
    }
    for (int i = 0; i < 4; i++) {
        switch (init->kind) {
        case CLT_INIT_ZERO:
            out[i] = 0;
            break;
        case CLT_INIT_CONSTANT:
            out[i] = init->a;
            break;
        case CLT_INIT_UNIFORM:
            out[i] = init->a * (2.0 * (double)clt_philox_unit(bits[i]) - 1.0);
            break;
        case CLT_INIT_NORMAL:
            out[i] = init->a + init->b * z[i];
            break;
        }
    }
}

static void store_element(clt_dtype dtype, void *data, int64_t at, double value)
{
    if (dtype == CLT_F32)
        ((float *)data)[at] = (float)value;
    else if (dtype == CLT_F64)
        ((double *)data)[at] = value;
    else if (dtype == CLT_I32)
        ((int32_t *)data)[at] = (int32_t)value;
    else if (dtype == CLT_U8)
        ((uint8_t *)data)[at] = (uint8_t)value;
    else
        ((uint16_t *)data)[at] = 0; /* 16-bit states start at zero */
}

/* Writes elements [first, first + count) of the whole tensor to data[to] and the following. Four
 * elements come from one block of random numbers. */
static void fill(const clt_slot *slot, uint64_t seed, int64_t first, int64_t count, int64_t to,
                 void *data)
{
    for (int64_t i = first, end = first + count; i < end;) {
        uint32_t bits[4];
        double values[4] = {0};
        const int64_t block = i / 4;
        clt_random4(seed, CLT_STREAM_INIT, (uint32_t)slot->stream, 0, (uint64_t)block, bits);
        block_values(&slot->init, bits, values);
        for (; i < end && i / 4 == block; i++)
            store_element(slot->type.dtype, data, to + i - first, values[i % 4]);
    }
}

/* One thread's part of a fill. */
typedef struct fill_part {
    const clt_slot *slot;
    uint64_t seed;
    int64_t first, count, to;
    void *data;
} fill_part;

static void *run_part(void *argument)
{
    const fill_part *p = argument;
    fill(p->slot, p->seed, p->first, p->count, p->to, p->data);
    return NULL;
}

/* Random numbers of a large model take seconds on one core. Elements do not depend on each other,
 * so threads fill them in parts. */
static void fill_in_parts(const clt_slot *slot, uint64_t seed, int64_t first, int64_t count,
                          int64_t to, void *data)
{
    enum { MOST = 16, LEAST_ELEMENTS = 1 << 16 };
    const int processors = clt_processors();
    const int64_t useful = count / LEAST_ELEMENTS;
    const int most = processors < MOST ? processors : MOST;
    const int n = useful < 1 ? 1 : useful < most ? (int)useful : most;
    fill_part parts[MOST];
    pthread_t threads[MOST];
    bool started[MOST] = {false};
    for (int i = 0; i < n; i++) {
        const int64_t begin = count * i / n, end = count * (i + 1) / n;
        parts[i] = (fill_part){slot, seed, first + begin, end - begin, to + begin, data};
        started[i] = i && clt_thread_start(&threads[i], run_part, &parts[i]) == 0;
    }
    for (int i = 0; i < n; i++) /* this thread has part 0, and those whose threads did not start */
        if (!started[i])
            run_part(&parts[i]);
    for (int i = 1; i < n; i++)
        if (started[i])
            pthread_join(threads[i], NULL);
}

void clt_init_fill(const clt_slot *slot, clt_coordinate at, uint64_t seed, void *data)
{
    const int64_t pieces = clt_sharding_pieces(&slot->whole, slot->sharding);
    for (int64_t i = 0; i < pieces; i++) {
        const clt_piece piece = clt_sharding_piece(&slot->whole, slot->sharding, at, i);
        fill_in_parts(slot, seed, piece.whole, piece.count, piece.part, data);
    }
}
