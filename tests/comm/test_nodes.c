/* Random collectives between the ranks of several nodes: ranks are threads of this program, nodes
 * groups of them, and a bridge of threads stands for a network (tests/mpi has MPI's). */
#include "comm/random.h"

#include <stdatomic.h>
#include <unistd.h>

enum { NODES_MOST = 4 };

/* A message under way. */
typedef struct parcel {
    struct parcel *next;
    int64_t bytes;
    char data[];
} parcel;

/* What the first ranks of the nodes have in common: messages from each to each, data and notices.
 */
typedef struct network {
    int nodes;
    pthread_mutex_t lock;
    parcel *parcels[NODES_MOST][NODES_MOST], *notices[NODES_MOST][NODES_MOST];
} network;

typedef struct cable {
    network *network;
    int node;
    _Atomic uint64_t missing;
} cable;

static void post(cable *c, bool notice, int to, const void *data, int64_t bytes)
{
    parcel *p = malloc(sizeof *p + (size_t)bytes);
    *p = (parcel){NULL, bytes};
    memcpy(p->data, data, (size_t)bytes);
    pthread_mutex_lock(&c->network->lock);
    parcel **at = notice ? &c->network->notices[c->node][to] : &c->network->parcels[c->node][to];
    while (*at)
        at = &(*at)->next;
    *at = p;
    pthread_mutex_unlock(&c->network->lock);
}

static bool fetch(cable *c, bool notice, int from, void *data, int64_t bytes)
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

/* Bytes of each node that is to send. */
static clt_status receive(cable *c, uint64_t senders, char *received, int64_t bytes,
                          int (*cancelled)(void *arg), void *arg)
{
    for (;;) {
        for (int n = 0; n < c->network->nodes; n++)
            if (senders >> n & 1 && fetch(c, false, n, received + n * bytes, bytes))
                senders &= ~((uint64_t)1 << n);
        atomic_store(&c->missing, senders);
        if (!senders)
            return CLT_OK;
        const int status = cancelled(arg);
        if (status != CLT_OK)
            return (clt_status)status;
        usleep(20);
    }
}

static clt_status gather(void *user, const void *mine, int64_t bytes, void *all,
                         int (*cancelled)(void *arg), void *arg)
{
    cable *c = user;
    for (int n = 0; n < c->network->nodes; n++)
        post(c, false, n, mine, bytes);
    return receive(c, ((uint64_t)1 << c->network->nodes) - 1, all, bytes, cancelled, arg);
}

static clt_status exchange(void *user, const void *blocks, int64_t bytes, void *received,
                           int (*cancelled)(void *arg), void *arg)
{
    cable *c = user;
    for (int n = 0; n < c->network->nodes; n++)
        post(c, false, n, (const char *)blocks + n * bytes, bytes);
    return receive(c, ((uint64_t)1 << c->network->nodes) - 1, received, bytes, cancelled, arg);
}

static clt_status broadcast(void *user, int root, void *data, int64_t bytes,
                            int (*cancelled)(void *arg), void *arg)
{
    cable *c = user;
    for (int n = 0; n < c->network->nodes && c->node == root; n++)
        if (n != root)
            post(c, false, n, data, bytes);
    return receive(c, c->node == root ? 0 : (uint64_t)1 << root, (char *)data - root * bytes, bytes,
                   cancelled, arg);
}

static uint64_t missing(void *user)
{
    return atomic_load(&((cable *)user)->missing);
}

static int busy(void *user)
{
    (void)user;
    return 0;
}

static void tell(void *user, const void *notice, int64_t bytes)
{
    cable *c = user;
    for (int n = 0; n < c->network->nodes; n++)
        if (n != c->node)
            post(c, true, n, notice, bytes);
}

static int hear(void *user, void *notice, int64_t bytes)
{
    cable *c = user;
    for (int n = 0; n < c->network->nodes; n++)
        if (fetch(c, true, n, notice, bytes))
            return 1;
    return 0;
}

static void bridge_open(clt_comm_bridge *b, cable *c, const int *first_ranks)
{
    clt_comm_bridge_init(b);
    b->node = c->node;
    b->nodes = c->network->nodes;
    b->gather = gather;
    b->exchange = exchange;
    b->broadcast = broadcast;
    b->missing = missing;
    b->busy = busy;
    b->tell = tell;
    b->hear = hear;
    b->first_ranks = first_ranks;
    b->user = c;
}

static void network_close(network *net)
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

/* Gives its time to a communicator that only its own thread may work for. */
typedef struct owner {
    pthread_t thread;
    clt_comm_device devices[FIXTURE_MAX];
    clt_comm_ranks ranks;
    clt_comm_options options;
    clt_comm *comm;
    atomic_bool made, end, gone;
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
    atomic_store(&o->gone, true);
    return NULL;
}

/* Makes the communicators, calls `work` with them, and ends them. */
static void with_nodes(int nodes, int ranks_a_node, int devices_a_rank, int main_thread,
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
    network_close(&net);
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
    with_nodes(nodes, ranks_a_node, devices_a_rank, main_thread, 0, exchange_all, seed);
}

/* What a rank does for one collective. */
typedef struct step {
    pthread_t thread;
    clt_comm *comm;
    clt_comm_kind kind;
    useconds_t late;
    clt_status status;
    char message[512];
} step;

static void *take_step(void *arg)
{
    step *s = arg;
    float data[4] = {0};
    clt_comm_op op;
    clt_comm_request *request;
    usleep(s->late);
    clt_comm_op_init(&op);
    op.kind = s->kind;
    op.host = s->kind == CLT_COMM_BARRIER ? NULL : data;
    op.count = s->kind == CLT_COMM_BARRIER ? 0 : 4;
    op.peer = s->kind == CLT_COMM_SEND && clt_comm_participant(s->comm, 0) == 0;
    op.label = "a word";
    s->status = clt_comm_start(s->comm, 0, -1, &op, 0, NULL, &request);
    if (s->status == CLT_OK)
        s->status = clt_comm_complete(request, 0, NULL, NULL);
    snprintf(s->message, sizeof s->message, "%s", s->status == CLT_OK ? "" : clt_error_message());
    return NULL;
}

/* A step of each rank whose bit is set, at once, but for rank `odd`, which brings another kind. */
static void take_steps(step *steps, owner *owners, int ranks, unsigned who, int odd,
                       clt_comm_kind kind)
{
    for (int r = 0; r < ranks; r++)
        steps[r] = (step){.comm = owners[r].comm, .kind = r == odd ? kind : CLT_COMM_ALL_REDUCE};
    for (int r = 0; r < ranks; r++)
        if (who >> r & 1)
            assert_int_equal(pthread_create(&steps[r].thread, NULL, take_step, &steps[r]), 0);
    for (int r = 0; r < ranks; r++)
        if (who >> r & 1)
            pthread_join(steps[r].thread, NULL);
}

static void expect_message(const char *message, const char *part)
{
    if (!strstr(message, part))
        fail_msg("\"%s\" lacks \"%s\"", message, part);
}

/* Rank 3 is the second one of its node: its end is told to its first rank, and by that one to the
 * other node, whose ranks wait without a deadline. */
static void abort_one(const fixture *f, owner *owners, int devices, int devices_a_rank,
                      uint32_t seed)
{
    step steps[4];
    (void)f;
    (void)devices;
    (void)devices_a_rank;
    (void)seed;
    clt_comm_abort(owners[3].comm, CLT_INTERNAL, "spoiled");
    take_steps(steps, owners, 4, 7, -1, CLT_COMM_ALL_REDUCE);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(steps[r].status, CLT_ABORTED);
        expect_message(steps[r].message, "rank 3: spoiled");
        assert_null(strstr(steps[r].message, "rank 2"));
        assert_int_equal(clt_comm_status(owners[r].comm), CLT_INTERNAL);
    }
}

/* Rank 0 leads its node; the others are in a collective, some not yet. */
static void destroy_one(const fixture *f, owner *owners, int devices, int devices_a_rank,
                        uint32_t seed)
{
    step steps[4];
    (void)f;
    (void)devices;
    (void)devices_a_rank;
    (void)seed;
    atomic_store(&owners[0].end, true);
    while (!atomic_load(&owners[0].gone))
        usleep(100);
    take_steps(steps, owners, 4, 14, -1, CLT_COMM_ALL_REDUCE);
    for (int r = 1; r < 4; r++) {
        assert_int_equal(steps[r].status, CLT_ABORTED);
        expect_message(steps[r].message, "rank 0: it destroyed its communicator");
    }
}

/* All ranks that came say who did not; `seed` is the rank. The deadline is long enough for its
 * grace, a fourth, to cover how unequally the ranks' threads begin on a busy machine. */
static void miss_one(const fixture *f, owner *owners, int devices, int devices_a_rank,
                     uint32_t seed)
{
    step steps[4];
    char name[64];
    (void)f;
    (void)devices_a_rank;
    snprintf(name, sizeof name, " waited 3.2 s for rank %d: stopped, or much slower?", (int)seed);
    take_steps(steps, owners, devices, 15U & ~(1U << seed), -1, CLT_COMM_ALL_REDUCE);
    for (int r = 0; r < devices; r++)
        if (r != (int)seed) {
            assert_true(steps[r].status == CLT_TIMEOUT || steps[r].status == CLT_ABORTED);
            expect_message(steps[r].message, name);
            assert_int_equal(clt_comm_status(owners[r].comm), CLT_TIMEOUT);
        }
}

/* Rank 1 brings what its communicator takes for another kind of request; `seed` is the kind. */
static void differ(const fixture *f, owner *owners, int devices, int devices_a_rank, uint32_t seed)
{
    step steps[4];
    (void)f;
    (void)devices_a_rank;
    take_steps(steps, owners, devices, (1U << devices) - 1, 1, (clt_comm_kind)seed);
    for (int r = 0; r < devices; r++) {
        assert_true(steps[r].status == CLT_MISMATCH || steps[r].status == CLT_ABORTED);
        expect_message(steps[r].message, "brings a word, rank ");
        expect_message(steps[r].message, "something else");
        assert_int_equal(clt_comm_status(owners[r].comm), CLT_MISMATCH);
    }
}

/* Ranks end as soon as they have the last result, without finalizing: nobody is disturbed. */
static void end_at_once(const fixture *f, owner *owners, int devices, int devices_a_rank,
                        uint32_t seed)
{
    step steps[4];
    (void)f;
    (void)devices_a_rank;
    (void)seed;
    for (int r = 0; r < devices; r++) {
        steps[r] = (step){.comm = owners[r].comm, .late = (useconds_t)r * 3000};
        assert_int_equal(pthread_create(&steps[r].thread, NULL, take_step, &steps[r]), 0);
    }
    for (int r = 0; r < devices; r++) {
        pthread_join(steps[r].thread, NULL);
        atomic_store(&owners[r].end, true);
        assert_string_equal(steps[r].message, "");
    }
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
    with_nodes(2, 2, 1, 0, 0, abort_one, 0);
    with_nodes(2, 2, 1, 1, 0, abort_one, 0);
}

static void the_end_of_a_first_rank_is_told(void **state)
{
    (void)state;
    with_nodes(2, 2, 1, 0, 0, destroy_one, 0);
    with_nodes(2, 2, 1, 1, 0, destroy_one, 0);
    with_nodes(4, 1, 1, 0, 0, destroy_one, 0);
}

static void a_deadline_names_the_missing_rank_on_all_nodes(void **state)
{
    (void)state;
    for (uint32_t missing_rank = 0; missing_rank < 4; missing_rank++) {
        with_nodes(2, 2, 1, 0, 3200, miss_one, missing_rank);
        with_nodes(2, 2, 1, 1, 3200, miss_one, missing_rank);
    }
    with_nodes(4, 1, 1, 0, 3200, miss_one, 2);
}

static void other_kinds_are_a_mismatch(void **state)
{
    (void)state;
    for (int main_thread = 0; main_thread < 2; main_thread++) {
        with_nodes(2, 1, 1, main_thread, 0, differ, CLT_COMM_SEND);
        with_nodes(2, 1, 1, main_thread, 0, differ, CLT_COMM_BARRIER);
        with_nodes(4, 1, 1, main_thread, 0, differ, CLT_COMM_BARRIER);
        with_nodes(2, 2, 1, main_thread, 0, differ, CLT_COMM_BARRIER);
    }
}

static void an_orderly_end_disturbs_nobody(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        with_nodes(2, 2, 1, i % 2, 0, end_at_once, 0);
        with_nodes(3, 1, 1, i % 2, 0, end_at_once, 0);
    }
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
    network net = {.nodes = 2};
    cable c = {.network = &net};
    bridge_open(&bridge, &c, counts);
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
        cmocka_unit_test(the_end_of_a_first_rank_is_told),
        cmocka_unit_test(a_deadline_names_the_missing_rank_on_all_nodes),
        cmocka_unit_test(other_kinds_are_a_mismatch),
        cmocka_unit_test(an_orderly_end_disturbs_nobody),
        cmocka_unit_test(impossible_nodes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
