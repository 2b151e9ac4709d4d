/* Ranks of several nodes. Ranks are threads of this program, nodes are groups of them, and a bridge
 * between threads replaces the network. tests/mpi uses MPI's bridge. */
#ifndef TESTS_COMM_NODES_H
#define TESTS_COMM_NODES_H

#include "comm/random.h"

#include <stdatomic.h>
#include <unistd.h>

enum { NODES_MOST = 4, EXPECTED_MOST = 256 };

/* A message that was sent and not yet received. */
typedef struct parcel {
    struct parcel *next;
    int64_t bytes;
    char data[];
} parcel;

/* The network between the first ranks of the nodes: messages from each to each, for data and for
 * notices. */
typedef struct network {
    int nodes;
    pthread_mutex_t lock;
    parcel *parcels[NODES_MOST][NODES_MOST], *notices[NODES_MOST][NODES_MOST];
} network;

typedef struct cable {
    network *network;
    int node;
    _Atomic uint64_t missing;
    _Atomic int64_t sent;                     /* bytes of data for other nodes */
    clt_comm_message expected[EXPECTED_MOST]; /* of the exchange under way; `data` NULL: it came */
    int count;
} cable;

static inline void post(cable *c, bool notice, int to, const void *data, int64_t bytes)
{
    parcel *p = malloc(sizeof *p + (size_t)bytes);
    *p = (parcel){NULL, bytes};
    memcpy(p->data, data, (size_t)bytes);
    if (!notice && to != c->node)
        atomic_fetch_add(&c->sent, bytes);
    pthread_mutex_lock(&c->network->lock);
    parcel **at = notice ? &c->network->notices[c->node][to] : &c->network->parcels[c->node][to];
    while (*at)
        at = &(*at)->next;
    *at = p;
    pthread_mutex_unlock(&c->network->lock);
}

static inline bool fetch(cable *c, bool notice, int from, void *data, int64_t bytes)
{
    pthread_mutex_lock(&c->network->lock);
    parcel **at =
        notice ? &c->network->notices[from][c->node] : &c->network->parcels[from][c->node];
    parcel *p = *at;
    if (p)
        *at = p->next;
    pthread_mutex_unlock(&c->network->lock);
    if (!p)
        return false;
    assert_int_equal(p->bytes, bytes);
    memcpy(data, p->data, (size_t)bytes);
    free(p);
    return true;
}

/* Expects `bytes` from a node. */
static inline void expect(cable *c, int from, void *to, int64_t bytes)
{
    assert_true(c->count < EXPECTED_MOST);
    c->expected[c->count++] = (clt_comm_message){.node = from, .data = to, .bytes = bytes};
}

static inline clt_status test(void *user, int *done)
{
    cable *c = user;
    uint64_t missing = 0;
    for (int i = 0; i < c->count; i++) {
        clt_comm_message *m = &c->expected[i];
        /* Messages of a node come in order. */
        if (missing >> m->node & 1)
            continue;
        if (m->data && fetch(c, false, m->node, m->data, m->bytes))
            m->data = NULL;
        else if (m->data)
            missing |= (uint64_t)1 << m->node;
    }
    atomic_store(&c->missing, missing);
    *done = !missing;
    return CLT_OK;
}

static inline void cancel(void *user)
{
    ((cable *)user)->count = 0;
}

static inline clt_status gather(void *user, const void *mine, int64_t bytes, void *all)
{
    cable *c = user;
    c->count = 0;
    for (int n = 0; n < c->network->nodes; n++) {
        post(c, false, n, mine, bytes);
        expect(c, n, (char *)all + n * bytes, bytes);
    }
    return CLT_OK;
}

static inline clt_status exchange(void *user, const void *blocks, int64_t bytes, void *received)
{
    cable *c = user;
    c->count = 0;
    for (int n = 0; n < c->network->nodes; n++) {
        post(c, false, n, (const char *)blocks + n * bytes, bytes);
        expect(c, n, (char *)received + n * bytes, bytes);
    }
    return CLT_OK;
}

static inline clt_status broadcast(void *user, int root, void *data, int64_t bytes)
{
    cable *c = user;
    c->count = 0;
    for (int n = 0; n < c->network->nodes && c->node == root; n++)
        if (n != root)
            post(c, false, n, data, bytes);
    if (c->node != root)
        expect(c, root, data, bytes);
    return CLT_OK;
}

static inline clt_status carry(void *user, const clt_comm_message *messages, int count)
{
    cable *c = user;
    c->count = 0;
    for (int i = 0; i < count; i++)
        if (messages[i].send)
            post(c, false, messages[i].node, messages[i].data, messages[i].bytes);
        else
            expect(c, messages[i].node, messages[i].data, messages[i].bytes);
    return CLT_OK;
}

static inline uint64_t missing(void *user)
{
    return atomic_load(&((cable *)user)->missing);
}

static inline int busy(void *user)
{
    (void)user;
    return 0;
}

static inline void tell(void *user, const void *notice, int64_t bytes)
{
    cable *c = user;
    for (int n = 0; n < c->network->nodes; n++)
        if (n != c->node)
            post(c, true, n, notice, bytes);
}

static inline int hear(void *user, void *notice, int64_t bytes)
{
    cable *c = user;
    for (int n = 0; n < c->network->nodes; n++)
        if (fetch(c, true, n, notice, bytes))
            return 1;
    return 0;
}

static inline void bridge_open(clt_comm_bridge *b, cable *c, const int *first_ranks)
{
    clt_comm_bridge_init(b);
    b->node = c->node;
    b->nodes = c->network->nodes;
    b->gather = gather;
    b->exchange = exchange;
    b->broadcast = broadcast;
    b->transfer = carry;
    b->test = test;
    b->cancel = cancel;
    b->missing = missing;
    b->busy = busy;
    b->tell = tell;
    b->hear = hear;
    b->first_ranks = first_ranks;
    b->user = c;
}

static inline void network_close(network *net)
{
    for (int i = 0; i < NODES_MOST * NODES_MOST; i++)
        for (int notice = 0; notice < 2; notice++) {
            parcel *p = (notice ? net->notices : net->parcels)[i / NODES_MOST][i % NODES_MOST];
            while (p) {
                parcel *next = p->next;
                free(p);
                p = next;
            }
        }
    pthread_mutex_destroy(&net->lock);
}

/* A thread that works for a communicator which only this thread may use. */
typedef struct owner {
    pthread_t thread;
    clt_comm_device devices[FIXTURE_MAX];
    clt_comm_ranks ranks;
    clt_comm_options options;
    clt_comm *comm;
    atomic_bool made, end, gone;
} owner;

static inline void *own(void *arg)
{
    owner *o = arg;
    const int count = o->ranks.devices[o->ranks.rank];
    if (clt_comm_create_between(o->devices, count, &o->options, &o->ranks, &o->comm) != CLT_OK)
        o->comm = NULL;
    atomic_store(&o->made, true);
    while (o->comm && !atomic_load(&o->end)) {
        clt_comm_progress(o->comm);
        usleep(20);
    }
    clt_comm_destroy(o->comm);
    atomic_store(&o->gone, true);
    return NULL;
}

/* Makes the communicators, calls `work` with them, and destroys them. One node has no bridge. */
static inline void with_nodes(int nodes, int ranks_a_node, int devices_a_rank, int main_thread,
                              int timeout_ms,
                              void (*work)(const fixture *f, owner *owners, int devices,
                                           int devices_a_rank, uint32_t seed),
                              uint32_t seed)
{
    const int ranks = nodes * ranks_a_node, devices = ranks * devices_a_rank;
    static owner owners[FIXTURE_MAX];
    int counts[FIXTURE_MAX], firsts[NODES_MOST];
    cable cables[NODES_MOST];
    clt_comm_bridge bridges[NODES_MOST];
    void *shared[NODES_MOST] = {NULL};
    network net = {.nodes = nodes};
    fixture f;
    pthread_mutex_init(&net.lock, NULL);
    fixture_open(&f, devices, false, false);
    for (int n = 0; n < nodes; n++) {
        const size_t bytes = (size_t)clt_comm_shared_bytes(ranks_a_node);
        cables[n] = (cable){.network = &net, .node = n};
        firsts[n] = n * ranks_a_node;
        bridge_open(&bridges[n], &cables[n], firsts);
        bridges[n].main_thread = main_thread;
        if (bytes) {
            shared[n] = aligned_alloc(4096, bytes);
            memset(shared[n], 0, bytes);
        }
    }
    for (int r = 0; r < ranks; r++) {
        owner *o = &owners[r];
        *o = (owner){.comm = NULL};
        counts[r] = devices_a_rank;
        clt_comm_options_init(&o->options);
        o->options.max_in_flight = SLOTS;
        o->options.timeout_ms = timeout_ms;
        clt_comm_ranks_init(&o->ranks);
        o->ranks.rank = r;
        o->ranks.ranks = ranks;
        o->ranks.devices = counts;
        o->ranks.node_rank = r % ranks_a_node;
        o->ranks.node_ranks = ranks_a_node;
        o->ranks.shared = shared[r / ranks_a_node];
        o->ranks.shared_bytes = clt_comm_shared_bytes(ranks_a_node);
        o->ranks.bridge = nodes > 1 ? &bridges[r / ranks_a_node] : NULL;
        for (int d = 0; d < devices_a_rank; d++)
            fixture_device(&f, r * devices_a_rank + d, &o->devices[d]);
    }
    for (int r = 0; r < ranks; r++)
        assert_int_equal(pthread_create(&owners[r].thread, NULL, own, &owners[r]), 0);
    for (int r = 0; r < ranks; r++) {
        while (!atomic_load(&owners[r].made))
            usleep(100);
        assert_non_null(owners[r].comm);
        assert_int_equal(clt_comm_needs_progress(owners[r].comm),
                         main_thread && r % ranks_a_node == 0);
    }
    work(&f, owners, devices, devices_a_rank, seed);
    for (int r = 0; r < ranks; r++)
        atomic_store(&owners[r].end, true);
    for (int r = 0; r < ranks; r++)
        pthread_join(owners[r].thread, NULL);
    for (int n = 0; n < nodes; n++)
        free(shared[n]);
    fixture_close(&f);
    network_close(&net);
}

#endif
