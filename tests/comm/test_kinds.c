/* All kinds of collectives on one to five devices, and between ranks and nodes that are threads of
 * this program. Results are compared with a reference (kinds.h), and clt_comm_counts is checked
 * after each. */
#include "comm/nodes.h"
#include "comm/kinds.h"

/* How participants are placed on ranks and nodes. */
typedef struct shape {
    int nodes, node_ranks; /* ranks of each node */
    int devices[FIXTURE_MAX];
    clt_comm_path path;
    int threads;
    bool one_context;
    int rounds;
} shape;

/* The communicators of all ranks. Only this thread uses them. */
typedef struct stage {
    shape s;
    int ranks, total;
    fixture f;
    network net;
    cable cables[NODES_MOST];
    void *shared[NODES_MOST];
    clt_comm *comms[FIXTURE_MAX];
    int rank_of[FIXTURE_MAX], index[FIXTURE_MAX]; /* by participant */
    cl_mem mem[FIXTURE_MAX], out[FIXTURE_MAX];
    kind_data data[FIXTURE_MAX];
    kind_counts before[FIXTURE_MAX], after[FIXTURE_MAX]; /* by rank */
    int64_t sent[NODES_MOST];                            /* bytes sent by the bridges before */
} stage;

static void check(clt_status status)
{
    if (status != CLT_OK)
        fail_msg("%s: %s", clt_status_name(status), clt_error_message());
}

static void open_rank(stage *st, int rank, int first, const int *firsts, clt_comm_bridge *bridge)
{
    clt_comm_device devices[FIXTURE_MAX];
    clt_comm_options options;
    clt_comm_ranks of;
    const int node = rank / st->s.node_ranks;
    clt_comm_options_init(&options);
    options.path = st->s.path;
    options.threads = st->s.threads;
    clt_comm_ranks_init(&of);
    of.rank = rank;
    of.ranks = st->ranks;
    of.devices = st->s.devices;
    of.shared = st->shared[node];
    of.shared_bytes = clt_comm_shared_bytes(st->s.node_ranks);
    for (int d = 0; d < st->s.devices[rank]; d++) {
        fixture_device(&st->f, first + d, &devices[d]);
        st->rank_of[first + d] = rank;
        st->index[first + d] = d;
    }
    if (st->s.nodes > 1) {
        bridge_open(bridge, &st->cables[node], firsts);
        of.bridge = bridge;
        of.node_rank = rank % st->s.node_ranks;
        of.node_ranks = st->s.node_ranks;
    }
    check(clt_comm_create_between(devices, st->s.devices[rank], &options,
                                  st->ranks > 1 ? &of : NULL, &st->comms[rank]));
}

static void stage_open(stage *st, const shape *s)
{
    int firsts[NODES_MOST];
    clt_comm_bridge bridge;
    *st = (stage){.s = *s, .ranks = s->nodes * s->node_ranks, .net = {.nodes = s->nodes}};
    pthread_mutex_init(&st->net.lock, NULL);
    for (int r = 0; r < st->ranks; r++)
        st->total += s->devices[r];
    fixture_open(&st->f, st->total, s->one_context, false);
    for (int n = 0; n < s->nodes; n++) {
        const size_t bytes = (size_t)clt_comm_shared_bytes(s->node_ranks);
        st->cables[n] = (cable){.network = &st->net, .node = n};
        firsts[n] = n * s->node_ranks;
        if (bytes) {
            st->shared[n] = aligned_alloc(4096, bytes);
            memset(st->shared[n], 0, bytes);
        }
    }
    for (int r = 0, first = 0; r < st->ranks; first += s->devices[r++])
        open_rank(st, r, first, firsts, &bridge);
    kind_data_open(st->data, st->total);
    for (int p = 0; p < st->total; p++) {
        st->mem[p] = fixture_buffer(&st->f, p, KIND_BYTES);
        st->out[p] = fixture_buffer(&st->f, p, KIND_BYTES);
    }
}

static void stage_close(stage *st)
{
    for (int r = 0; r < st->ranks; r++)
        clt_comm_destroy(st->comms[r]);
    for (int p = 0; p < st->total; p++) {
        clReleaseMemObject(st->mem[p]);
        clReleaseMemObject(st->out[p]);
    }
    kind_data_close(st->data, st->total);
    fixture_close(&st->f);
    for (int n = 0; n < st->s.nodes; n++)
        free(st->shared[n]);
    network_close(&st->net);
}

static void transfer(const stage *st, int p, cl_mem mem, char *host, bool write)
{
    if (write)
        FIXTURE_CL(clEnqueueWriteBuffer(st->f.queues[p], mem, CL_TRUE, 0, KIND_BYTES, host, 0, NULL,
                                        NULL));
    else
        FIXTURE_CL(
            clEnqueueReadBuffer(st->f.queues[p], mem, CL_TRUE, 0, KIND_BYTES, host, 0, NULL, NULL));
}

/* Returns the bytes that a rank gave its bridge for other nodes since then. */
static double wired(const stage *st, int rank)
{
    const int node = rank / st->s.node_ranks;
    return rank % st->s.node_ranks ? 0
                                   : (double)(atomic_load(&st->cables[node].sent) - st->sent[node]);
}

/* Starts and completes the operations of all participants. Reads the counts before and after. */
static void exchange_ops(stage *st, clt_comm_op (*ops)[2], int count, clt_comm_result *results)
{
    clt_comm_request *requests[FIXTURE_MAX];
    for (int r = 0; r < st->ranks; r++)
        kind_counts_read(st->comms[r], &st->before[r]);
    for (int n = 0; n < st->s.nodes; n++)
        st->sent[n] = atomic_load(&st->cables[n].sent);
    for (int p = 0; p < st->total; p++) {
        ops[p][0].next = count > 1 ? &ops[p][1] : NULL;
        check(clt_comm_start(st->comms[st->rank_of[p]], st->index[p], -1, ops[p], 0, NULL,
                             &requests[p]));
    }
    for (int p = 0; p < st->total; p++) {
        clt_comm_result_init(&results[p]);
        check(clt_comm_complete(requests[p], st->index[p], &results[p], NULL));
    }
    for (int r = 0; r < st->ranks; r++)
        kind_counts_read(st->comms[r], &st->after[r]);
}

static void check_results(const stage *st, const kind_case *c, const clt_comm_result *results,
                          double squares, bool finite)
{
    const uint32_t all = (1u << st->total) - 1;
    for (int p = 0; p < st->total; p++) {
        assert_int_equal(results[p].votes, all);
        assert_int_equal(results[p].contributors, __builtin_popcount(all & ~c->empty));
        assert_int_equal(results[p].finite, !c->measure || finite);
        assert_memory_equal(&results[p].sum_squares, &results[0].sum_squares, sizeof(double));
        if (!c->measure)
            assert_true(results[p].sum_squares == 0);
        else if (finite && fabs(results[p].sum_squares - squares) > 1e-13 * squares)
            fail_msg("case %d: %.17g of squares, not %.17g", c->number, results[p].sum_squares,
                     squares);
    }
}

static void try_case(stage *st, const kind_case *c)
{
    clt_comm_op ops[FIXTURE_MAX][2];
    clt_comm_result results[FIXTURE_MAX];
    double squares = 0;
    bool finite = true;
    kind_inputs(c, st->data, st->total);
    for (int p = 0; p < st->total; p++) {
        kind_data *d = &st->data[p];
        kind_op(c, p, &ops[p][0]);
        memcpy(d->mem_after, d->mem, KIND_BYTES);
        memcpy(d->out_after, d->out, KIND_BYTES);
        transfer(st, p, st->mem[p], d->mem, true);
        transfer(st, p, st->out[p], d->out, true);
        ops[p][0].host = c->host ? d->mem_after : NULL;
        ops[p][0].mem = c->host ? NULL : st->mem[p];
        ops[p][0].out = c->apart ? st->out[p] : NULL;
    }
    exchange_ops(st, ops, 1, results);
    for (int p = 0; p < st->total; p++) {
        kind_data *d = &st->data[p];
        double own = 0;
        if (!c->host) {
            transfer(st, p, st->mem[p], d->mem_after, false);
            transfer(st, p, st->out[p], d->out_after, false);
        }
        kind_check(c, st->data, st->total, p, &own, &finite);
        squares += c->kind == CLT_COMM_ALL_REDUCE && p ? 0 : own;
    }
    check_results(st, c, results, squares, finite);
    for (int r = 0; r < st->ranks; r++)
        kind_check_counts(c, &st->before[r], &st->after[r], st->total, st->s.devices[r],
                          st->s.node_ranks, st->s.nodes, wired(st, r));
}

/* Sends each participant's elements to the next participant. */
static void pass_on(stage *st, clt_dtype dtype, int64_t count, int number)
{
    const kind_case c = {.number = number, .dtype = dtype, .kind = CLT_COMM_SEND, .count = count};
    const size_t bytes = (size_t)(count * clt_dtype_size(dtype));
    clt_comm_op ops[FIXTURE_MAX][2];
    clt_comm_result results[FIXTURE_MAX];
    kind_inputs(&c, st->data, st->total);
    for (int p = 0; p < st->total; p++) {
        transfer(st, p, st->mem[p], st->data[p].mem, true);
        transfer(st, p, st->out[p], st->data[p].out, true);
        kind_op(&c, p, &ops[p][0]);
        ops[p][0].mem = st->mem[p];
        ops[p][0].peer = (p + 1) % st->total;
        kind_op(&c, p, &ops[p][1]);
        ops[p][1].kind = CLT_COMM_RECEIVE;
        ops[p][1].mem = st->out[p];
        ops[p][1].offset = 3;
        ops[p][1].peer = (p + st->total - 1) % st->total;
    }
    exchange_ops(st, ops, 2, results);
    for (int p = 0; p < st->total; p++) {
        kind_data *d = &st->data[p];
        transfer(st, p, st->mem[p], d->mem_after, false);
        transfer(st, p, st->out[p], d->out_after, false);
        assert_memory_equal(d->mem_after, d->mem, KIND_BYTES);
        const size_t at = 3 * (size_t)clt_dtype_size(dtype);
        memcpy(d->out + at, st->data[(p + st->total - 1) % st->total].mem, bytes);
        assert_memory_equal(d->out_after, d->out, KIND_BYTES);
    }
}

static void check_passed(const stage *st, int rank, int64_t bytes, int number)
{
    const int devices = st->s.devices[rank];
    int stay = 0;
    for (int p = 0; p < st->total; p++)
        stay += st->rank_of[p] == rank && st->rank_of[(p + 1) % st->total] == rank;
    for (int k = CLT_COMM_SEND; k <= CLT_COMM_RECEIVE; k++) {
        const bool sends = k == CLT_COMM_SEND;
        const kind_expected each = {devices, devices * bytes, 0};
        kind_expected within = {0}, want = each;
        for (int t = 0; t < CLT_COMM_SHARED_MEMORY; t++) {
            const kind_expected g = kind_grown(&st->before[rank], &st->after[rank], k, t);
            within.calls += g.calls;
            within.payload += g.payload;
            within.sent += g.sent;
        }
        want.sent = sends ? (double)(stay * bytes) / devices : 0;
        kind_expect(number, "messages in the process", within, want);
        want = st->s.node_ranks > 1 ? each : (kind_expected){0};
        if (st->s.node_ranks > 1 && sends)
            want.sent = (double)((devices - stay) * bytes);
        kind_expect(number, "messages in shared memory",
                    kind_grown(&st->before[rank], &st->after[rank], k, CLT_COMM_SHARED_MEMORY),
                    want);
        want = st->s.nodes > 1 ? each : (kind_expected){0};
        if (sends)
            want.sent = wired(st, rank);
        kind_expect(number, "messages between nodes",
                    kind_grown(&st->before[rank], &st->after[rank], k, CLT_COMM_MPI), want);
    }
}

static void try_messages(stage *st)
{
    static const int64_t counts[] = {5, 0, 257, 1, KIND_COUNT};
    for (int i = 0; i < TYPES * 5 && st->total > 1; i++) {
        const clt_dtype dtype = (clt_dtype)(i % TYPES);
        const int64_t count = counts[i / TYPES];
        pass_on(st, dtype, count, i);
        for (int r = 0; r < st->ranks; r++)
            check_passed(st, r, count * clt_dtype_size(dtype), i);
    }
}

static void all_kinds(const shape *s)
{
    static stage st;
    kind_case c = {.number = -1, .nodes = s->nodes > 1};
    stage_open(&st, s);
    while (kind_next(&c, st.total, s->rounds))
        try_case(&st, &c);
    try_messages(&st);
    stage_close(&st);
}

static void one_to_five_devices(void **state)
{
    (void)state;
    for (int devices = 1; devices <= 5; devices++)
        all_kinds(&(shape){.nodes = 1, .node_ranks = 1, .devices = {devices}, .rounds = 2});
}

static void by_the_host(void **state)
{
    (void)state;
    all_kinds(&(shape){.nodes = 1, .node_ranks = 1, .devices = {3}, .threads = 2, .rounds = 5});
    all_kinds(&(shape){
        .nodes = 1, .node_ranks = 1, .devices = {3}, .path = CLT_COMM_PATH_STAGED, .rounds = 5});
}

static void by_peers(void **state)
{
    (void)state;
    all_kinds(&(shape){.nodes = 1,
                       .node_ranks = 1,
                       .devices = {3},
                       .path = CLT_COMM_PATH_PEER,
                       .one_context = true,
                       .rounds = 5});
}

static void two_to_four_ranks(void **state)
{
    (void)state;
    all_kinds(&(shape){.nodes = 1, .node_ranks = 2, .devices = {1, 1}, .rounds = 2});
    all_kinds(&(shape){.nodes = 1, .node_ranks = 3, .devices = {2, 1, 2}, .rounds = 5});
    all_kinds(&(shape){.nodes = 1, .node_ranks = 4, .devices = {1, 2, 1, 1}, .rounds = 2});
}

static void nodes(void **state)
{
    (void)state;
    all_kinds(&(shape){.nodes = 2, .node_ranks = 1, .devices = {1, 1}, .rounds = 2});
    all_kinds(&(shape){.nodes = 3, .node_ranks = 1, .devices = {1, 3, 1}, .rounds = 5});
    all_kinds(&(shape){.nodes = 2, .node_ranks = 2, .devices = {1, 1, 2, 1}, .rounds = 2});
}

/* Also for operations that some decline: between buffers, of the host's memory, without data. */
static void reasons_name_kind_and_device(void **state)
{
    static const clt_comm_kind kinds[] = {CLT_COMM_ALL_REDUCE, CLT_COMM_BROADCAST, CLT_COMM_SEND};
    static const clt_comm_path paths[] = {CLT_COMM_PATH_AUTO, CLT_COMM_PATH_STAGED,
                                          CLT_COMM_PATH_MAPPED, CLT_COMM_PATH_PEER};
    static stage st;
    (void)state;
    for (int i = 0; i < 4 * 3 * CLT_COMM_TRANSPORTS; i++) {
        const int t = i % CLT_COMM_TRANSPORTS, k = i / CLT_COMM_TRANSPORTS % 3;
        char begin[64];
        clt_comm_op op;
        if (t == 0 && k == 0)
            stage_open(&st, &(shape){.nodes = 1,
                                     .node_ranks = 1,
                                     .devices = {2},
                                     .path = paths[i / CLT_COMM_TRANSPORTS / 3],
                                     .one_context = true});
        clt_comm_op_init(&op);
        op.kind = kinds[k];
        op.mem = st.mem[1];
        op.out = k ? NULL : st.out[1];
        op.count = 100;
        const clt_status status = clt_comm_accepts(st.comms[0], 1, (clt_comm_transport)t, &op);
        snprintf(begin, sizeof begin, "%s of device 1 (", clt_comm_kind_name(kinds[k]));
        if (status != CLT_OK) {
            assert_int_equal(status, CLT_UNSUPPORTED);
            assert_memory_equal(clt_error_message(), begin, strlen(begin));
            assert_non_null(strstr(clt_error_message(), "): "));
            assert_null(strchr(clt_error_message(), '\n'));
        }
        if (t == CLT_COMM_TRANSPORTS - 1 && k == 2)
            stage_close(&st);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_to_five_devices),
        cmocka_unit_test(by_the_host),
        cmocka_unit_test(by_peers),
        cmocka_unit_test(two_to_four_ranks),
        cmocka_unit_test(nodes),
        cmocka_unit_test(reasons_name_kind_and_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
