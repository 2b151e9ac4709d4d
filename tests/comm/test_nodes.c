/* Random collectives between the ranks of several nodes: ranks are threads of this program, nodes
 * groups of them, and a bridge of barriers stands for a network (tests/mpi has MPI's). */
#include "comm/random.h"

#include <stdatomic.h>
#include <unistd.h>

enum { NODES_MOST = 4 };

/* What the first ranks of the nodes have in common. */
typedef struct network {
    int nodes;
    pthread_barrier_t barrier;
    const void *given[NODES_MOST];
} network;

typedef struct cable {
    network *network;
    int node;
} cable;

/* Each shows its memory to all, takes what it wants, and waits until all have. */
static void show(cable *c, const void *mine)
{
    c->network->given[c->node] = mine;
    pthread_barrier_wait(&c->network->barrier);
}

static clt_status done(cable *c)
{
    pthread_barrier_wait(&c->network->barrier);
    return CLT_OK;
}

static clt_status gather(void *user, const void *mine, int64_t bytes, void *all,
                         int (*cancelled)(void *arg), void *arg)
{
    cable *c = user;
    show(c, mine);
    for (int n = 0; n < c->network->nodes; n++)
        memcpy((char *)all + n * bytes, c->network->given[n], (size_t)bytes);
    (void)cancelled(arg);
    return done(c);
}

static clt_status exchange(void *user, const void *blocks, int64_t bytes, void *received,
                           int (*cancelled)(void *arg), void *arg)
{
    cable *c = user;
    show(c, blocks);
    for (int n = 0; n < c->network->nodes; n++)
        memcpy((char *)received + n * bytes, (const char *)c->network->given[n] + c->node * bytes,
               (size_t)bytes);
    (void)cancelled(arg);
    return done(c);
}

static clt_status broadcast(void *user, int root, void *data, int64_t bytes,
                            int (*cancelled)(void *arg), void *arg)
{
    cable *c = user;
    show(c, data);
    if (c->node != root)
        memcpy(data, c->network->given[root], (size_t)bytes);
    (void)cancelled(arg);
    return done(c);
}

/* Gives its time to a communicator that only its own thread may work for. */
typedef struct owner {
    pthread_t thread;
    clt_comm_device devices[FIXTURE_MAX];
    clt_comm_ranks ranks;
    clt_comm_options options;
    clt_comm *comm;
    atomic_bool made, end;
} owner;

static void *own(void *arg)
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
    return NULL;
}

/* Makes the communicators, calls `work` with them, and ends them. */
static void with_nodes(int nodes, int ranks_a_node, int devices_a_rank, int main_thread,
                       void (*work)(const fixture *f, owner *owners, int devices,
                                    int devices_a_rank, uint32_t seed),
                       uint32_t seed)
{
    const int ranks = nodes * ranks_a_node, devices = ranks * devices_a_rank;
    static owner owners[FIXTURE_MAX];
    int counts[FIXTURE_MAX];
    cable cables[NODES_MOST];
    clt_comm_bridge bridges[NODES_MOST];
    void *shared[NODES_MOST] = {NULL};
    network net = {.nodes = nodes};
    fixture f;
    pthread_barrier_init(&net.barrier, NULL, (unsigned)nodes);
    fixture_open(&f, devices, false, false);
    for (int n = 0; n < nodes; n++) {
        const size_t bytes = (size_t)clt_comm_shared_bytes(ranks_a_node);
        cables[n] = (cable){&net, n};
        clt_comm_bridge_init(&bridges[n]);
        bridges[n].node = n;
        bridges[n].nodes = nodes;
        bridges[n].main_thread = main_thread;
        bridges[n].gather = gather;
        bridges[n].exchange = exchange;
        bridges[n].broadcast = broadcast;
        bridges[n].user = &cables[n];
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
        clt_comm_ranks_init(&o->ranks);
        o->ranks.rank = r;
        o->ranks.ranks = ranks;
        o->ranks.devices = counts;
        o->ranks.node_rank = r % ranks_a_node;
        o->ranks.node_ranks = ranks_a_node;
        o->ranks.shared = shared[r / ranks_a_node];
        o->ranks.shared_bytes = clt_comm_shared_bytes(ranks_a_node);
        o->ranks.bridge = &bridges[r / ranks_a_node];
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
    pthread_barrier_destroy(&net.barrier);
}

static void exchange_all(const fixture *f, owner *owners, int devices, int devices_a_rank,
                         uint32_t seed)
{
    static driver drivers[FIXTURE_MAX];
    pthread_t ids[FIXTURE_MAX];
    for (int d = 0; d < devices; d++) {
        driver_open(&drivers[d], f, d, 0, devices, seed);
        drivers[d].comm = owners[d / devices_a_rank].comm;
        drivers[d].first = d / devices_a_rank * devices_a_rank;
        assert_int_equal(pthread_create(&ids[d], NULL, drive, &drivers[d]), 0);
    }
    for (int d = 0; d < devices; d++)
        pthread_join(ids[d], NULL);
    for (int d = 0; d < devices; d++) {
        assert_string_equal(drivers[d].message, "");
        assert_int_equal(drivers[d].errors, 0);
    }
    for (int d = 0; d < devices; d++)
        driver_close(&drivers[d]);
}

static void run(int nodes, int ranks_a_node, int devices_a_rank, int main_thread, uint32_t seed)
{
    with_nodes(nodes, ranks_a_node, devices_a_rank, main_thread, exchange_all, seed);
}

/* Rank 3 is the second one of its node, whose other rank is told of its end. */
static void abort_one(const fixture *f, owner *owners, int devices, int devices_a_rank,
                      uint32_t seed)
{
    float data[4] = {0};
    clt_comm_op op;
    clt_comm_request *request;
    (void)f;
    (void)devices;
    (void)devices_a_rank;
    (void)seed;
    clt_comm_abort(owners[3].comm, CLT_INTERNAL, "spoiled");
    clt_comm_op_init(&op);
    op.host = data;
    op.count = 4;
    op.label = "a word";
    assert_int_equal(clt_comm_start(owners[2].comm, 0, -1, &op, 0, NULL, &request), CLT_OK);
    assert_int_equal(clt_comm_complete(request, 0, NULL, NULL), CLT_ABORTED);
    assert_non_null(strstr(clt_error_message(), "rank 3: spoiled"));
    for (int r = 0; r < 2; r++) /* the other node learns it from its deadline */
        clt_comm_abort(owners[r].comm, CLT_ABORTED, "the test ends");
}

static void two_nodes(void **state)
{
    (void)state;
    run(2, 1, 1, 0, 21);
}

static void two_nodes_of_two_ranks(void **state)
{
    (void)state;
    run(2, 2, 1, 0, 22);
}

static void two_nodes_of_two_devices_on_one_thread(void **state)
{
    (void)state;
    run(2, 1, 2, 1, 23);
}

static void three_nodes(void **state)
{
    (void)state;
    run(3, 1, 1, 1, 24);
}

static void ranks_are_called_by_their_numbers_among_all(void **state)
{
    (void)state;
    with_nodes(2, 2, 1, 0, abort_one, 0);
}

static void impossible_nodes_are_refused(void **state)
{
    fixture f;
    clt_comm_device device;
    clt_comm_ranks ranks;
    clt_comm_bridge bridge;
    clt_comm *comm;
    const int counts[] = {1, 1};
    (void)state;
    fixture_open(&f, 1, false, false);
    fixture_device(&f, 0, &device);
    clt_comm_ranks_init(&ranks);
    ranks.ranks = 2;
    ranks.devices = counts;
    ranks.node_ranks = 1;
    ranks.bridge = &bridge;
    clt_comm_bridge_init(&bridge);
    bridge.nodes = 2; /* and no functions */
    assert_int_equal(clt_comm_create_between(&device, 1, NULL, &ranks, &comm),
                     CLT_INVALID_ARGUMENT);
    bridge.gather = gather;
    bridge.exchange = exchange;
    bridge.broadcast = broadcast;
    bridge.node = 2;
    assert_int_equal(clt_comm_create_between(&device, 1, NULL, &ranks, &comm),
                     CLT_INVALID_ARGUMENT);
    bridge.node = 0;
    bridge.nodes = 1000;
    assert_int_equal(clt_comm_create_between(&device, 1, NULL, &ranks, &comm), CLT_UNSUPPORTED);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_nodes),
        cmocka_unit_test(two_nodes_of_two_ranks),
        cmocka_unit_test(two_nodes_of_two_devices_on_one_thread),
        cmocka_unit_test(three_nodes),
        cmocka_unit_test(ranks_are_called_by_their_numbers_among_all),
        cmocka_unit_test(impossible_nodes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
