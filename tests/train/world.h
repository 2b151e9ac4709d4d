/* Ranks that are threads of the test: a world without MPI, for tests that do not need processes. */
#ifndef TESTS_TRAIN_WORLD_H
#define TESTS_TRAIN_WORLD_H

#include "train/lab.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <cltrain/comm.h>
#include <cltrain/world.h>

enum { RANKS_MOST = 4, GATHER_MOST = 1 << 16, CONNECTS_MOST = 64 };

typedef struct meeting {
    int ranks;
    pthread_barrier_t barrier;
    char told[RANKS_MOST][GATHER_MOST];
    int colors[RANKS_MOST];
    int devices[RANKS_MOST][RANKS_MOST]; /* of the first rank of a color: devices of its ranks */
    void *shared[RANKS_MOST];            /* of the first rank of a color: their memory */
    void *kept[RANKS_MOST][CONNECTS_MOST];
    int connects[RANKS_MOST];
} meeting;

typedef struct rank {
    meeting *meeting;
    int number;
    clt_world world;
    pthread_t thread;
    void (*run)(struct rank *self);
    void *argument;
    /* Only the test's thread may assert, so a rank stores its first failure. */
    char failed[600];
    char message[600]; /* the library's message, if a test expects a failure */
    clt_status status;
    double numbers[8]; /* results */
} rank;

static inline clt_status rank_gather(void *user, const void *mine, int64_t bytes, void *all)
{
    const rank *self = user;
    meeting *m = self->meeting;
    if (bytes > GATHER_MOST)
        return clt_error_set(CLT_INTERNAL, "more than the test's ranks can tell each other");
    memcpy(m->told[self->number], mine, (size_t)bytes);
    pthread_barrier_wait(&m->barrier);
    for (int r = 0; r < m->ranks; r++)
        memcpy((char *)all + r * bytes, m->told[r], (size_t)bytes);
    pthread_barrier_wait(&m->barrier);
    return CLT_OK;
}

static inline clt_status rank_connect(void *user, int color, const clt_comm_device *devices,
                                      int count, const clt_comm_options *options, clt_comm **comm)
{
    rank *self = user;
    meeting *m = self->meeting;
    clt_comm_ranks ranks;
    clt_status status = CLT_OK;
    int first = -1;
    clt_comm_ranks_init(&ranks);
    m->colors[self->number] = color;
    pthread_barrier_wait(&m->barrier);
    ranks.ranks = 0;
    ranks.number = self->number;
    for (int r = 0; r < m->ranks; r++) {
        if (m->colors[r] != color)
            continue;
        first = first < 0 ? r : first;
        if (r == self->number)
            ranks.rank = ranks.ranks;
        ranks.ranks++;
    }
    m->devices[first][ranks.rank] = count;
    ranks.shared_bytes = clt_comm_shared_bytes(ranks.ranks);
    if (self->number == first && ranks.shared_bytes) {
        const size_t bytes = ((size_t)ranks.shared_bytes + 4095) / 4096 * 4096;
        m->shared[first] = memset(aligned_alloc(4096, bytes), 0, bytes);
        if (m->connects[first] == CONNECTS_MOST)
            abort();
        m->kept[first][m->connects[first]++] = m->shared[first];
    }
    pthread_barrier_wait(&m->barrier);
    ranks.devices = m->devices[first];
    ranks.shared = ranks.shared_bytes ? m->shared[first] : NULL;
    *comm = NULL;
    if (color >= 0)
        status = clt_comm_create_between(devices, count, options, &ranks, comm);
    pthread_barrier_wait(&m->barrier);
    return status;
}

static inline void *rank_main(void *argument)
{
    rank *self = argument;
    self->run(self);
    return NULL;
}

/* Stores the first failure. Returns `condition`. */
static inline bool holds(rank *self, bool condition, const char *what)
{
    if (!condition && !*self->failed)
        snprintf(self->failed, sizeof self->failed, "rank %d: %s: %.400s", self->number, what,
                 clt_error_message());
    return condition;
}
#define HOLDS(self, condition) holds(self, condition, #condition)

/* Opens devices, takes ownership of the graph, and makes store and trainer. What is there after a
 * failure is closed by lab_close. */
static inline clt_status lab_of_rank(lab *l, const char *devices, clt_graph *graph,
                                     const clt_trainer_options *options)
{
    l->graph = graph;
    clt_status status = clt_devices_open(runtime, devices, NULL, &l->devices, &l->n);
    if (status == CLT_OK)
        status = clt_store_create(graph, l->devices, l->n, 7, &l->store);
    return status == CLT_OK ? clt_trainer_create(graph, l->store, options, &l->trainer) : status;
}

/* Runs `run` as `count` ranks, each with its element of `arguments` (`size` bytes each; may be
 * NULL). Fails the test if a rank failed. */
static inline void run_ranks(rank *ranks, int count, void (*run)(rank *self), void *arguments,
                             size_t size)
{
    meeting m = {.ranks = count};
    pthread_barrier_init(&m.barrier, NULL, (unsigned)count);
    for (int r = 0; r < count; r++) {
        ranks[r] = (rank){.meeting = &m, .number = r, .run = run};
        ranks[r].argument = arguments ? (char *)arguments + (size_t)r * size : NULL;
        clt_world_init(&ranks[r].world);
        ranks[r].world.rank = ranks[r].world.node_rank = r;
        ranks[r].world.ranks = ranks[r].world.node_ranks = count;
        ranks[r].world.gather = rank_gather;
        ranks[r].world.connect = rank_connect;
        ranks[r].world.user = &ranks[r];
    }
    for (int r = 0; r < count; r++)
        pthread_create(&ranks[r].thread, NULL, rank_main, &ranks[r]);
    for (int r = 0; r < count; r++)
        pthread_join(ranks[r].thread, NULL);
    for (int r = 0; r < RANKS_MOST; r++)
        for (int i = 0; i < CONNECTS_MOST; i++)
            free(m.kept[r][i]);
    pthread_barrier_destroy(&m.barrier);
    for (int r = 0; r < count; r++)
        if (*ranks[r].failed)
            fail_msg("%s", ranks[r].failed);
}

#endif
