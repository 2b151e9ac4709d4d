/*
 * clt_comm_counts over MPI, run by mpiexec: `counts DEVICES LEVEL`, as collectives.c. After every
 * collective the counts must have grown by the bytes that MPI got (wired.h), and the results must
 * be right.
 */
#include "mpi/wired.h"

#include "comm/fixture.h"
#include "comm/kinds.h"

#include <cltrain/mpi.h>

/* --- this rank's devices ---------------------------------------------------------------------- */

typedef struct stage {
    clt_comm *comm;
    fixture f;
    int rank, ranks, devices, total, first, node_ranks, nodes;
    cl_mem mem[FIXTURE_MAX], out[FIXTURE_MAX];
    kind_data data[KIND_MOST];
    kind_counts before, after;
} stage;

static stage st;

static void check(clt_status status)
{
    if (status != CLT_OK)
        fail_msg("%s: %s", clt_status_name(status), clt_error_message());
}

static void transfer(int d, cl_mem mem, char *host, bool write)
{
    if (write)
        FIXTURE_CL(
            clEnqueueWriteBuffer(st.f.queues[d], mem, CL_TRUE, 0, KIND_BYTES, host, 0, NULL, NULL));
    else
        FIXTURE_CL(
            clEnqueueReadBuffer(st.f.queues[d], mem, CL_TRUE, 0, KIND_BYTES, host, 0, NULL, NULL));
}

static void bring(const kind_case *c, int d, clt_comm_op *op)
{
    kind_data *x = &st.data[st.first + d];
    kind_op(c, st.first + d, op);
    memcpy(x->mem_after, x->mem, KIND_BYTES);
    memcpy(x->out_after, x->out, KIND_BYTES);
    transfer(d, st.mem[d], x->mem, true);
    transfer(d, st.out[d], x->out, true);
    op->host = c->host ? x->mem_after : NULL;
    op->mem = c->host ? NULL : st.mem[d];
    op->out = c->apart ? st.out[d] : NULL;
}

/* Runs a collective on all devices of this rank. Returns the bytes that were given to MPI. */
static double exchange(const clt_comm_op *ops, clt_comm_result *result)
{
    clt_comm_request *requests[FIXTURE_MAX];
    kind_counts_read(st.comm, &st.before);
    const long long sent = wired;
    watching = 1;
    for (int d = 0; d < st.devices; d++)
        check(clt_comm_start(st.comm, d, -1, &ops[2 * d], 0, NULL, &requests[d]));
    clt_comm_result_init(result);
    for (int d = 0; d < st.devices; d++)
        check(clt_comm_complete(requests[d], d, result, NULL));
    watching = 0;
    kind_counts_read(st.comm, &st.after);
    assert_int_equal(uncounted, 0);
    return (double)(wired - sent);
}

static void check_measured(const kind_case *c, const clt_comm_result *result, double own,
                           bool finite)
{
    double squares;
    int all = 0, here = finite;
    PMPI_Allreduce(&own, &squares, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    PMPI_Allreduce(&here, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    assert_int_equal(result->votes, (1 << st.total) - 1);
    assert_int_equal(result->finite, !c->measure || all);
    if (c->measure && all)
        assert_true(fabs(result->sum_squares - squares) <= 1e-13 * squares);
}

/* Checks the bytes of all nodes together against the header's formula. Messages by which nodes
 * agree, and padding to equal blocks, may be added. */
static void check_formula(const kind_case *c, double sent)
{
    /* The result of a reduce goes to all nodes. */
    const int passes = c->kind == CLT_COMM_REDUCE ? 2 : 1;
    const double want = kind_formula(c, st.total, st.nodes).sent * st.nodes * passes;
    /* A mean of a 16-bit type travels as f32. */
    const bool widened = c->reduction == CLT_COMM_MEAN && clt_dtype_size(c->dtype) == 2;
    const double words = 1000.0 * st.nodes * st.total;
    double all;
    PMPI_Allreduce(&sent, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    if (kind_reduces(c->kind) && widened)
        return;
    if (all < want || all > want + words)
        fail_msg("case %d, %s: the nodes sent %.0f bytes; expected are %.0f, and %.0f more at most",
                 c->number, clt_comm_kind_name(c->kind), all, want, words);
}

static void try_case(const kind_case *c)
{
    clt_comm_op ops[2 * FIXTURE_MAX];
    clt_comm_result result;
    double squares = 0;
    bool finite = true;
    kind_inputs(c, st.data, st.total);
    for (int d = 0; d < st.devices; d++)
        bring(c, d, &ops[2 * d]);
    const double sent = exchange(ops, &result);
    for (int d = 0; d < st.devices; d++) {
        kind_data *x = &st.data[st.first + d];
        double own = 0;
        if (!c->host) {
            transfer(d, st.mem[d], x->mem_after, false);
            transfer(d, st.out[d], x->out_after, false);
        }
        kind_check(c, st.data, st.total, st.first + d, &own, &finite);
        squares += c->kind == CLT_COMM_ALL_REDUCE && st.first + d ? 0 : own;
    }
    check_measured(c, &result, squares, finite);
    kind_check_counts(c, &st.before, &st.after, st.total, st.devices, st.node_ranks, st.nodes,
                      sent);
    check_formula(c, sent);
}

static void every_kind(void **state)
{
    kind_case c = {.number = -1, .nodes = st.nodes > 1};
    (void)state;
    while (kind_next(&c, st.total, 2))
        try_case(&c);
}

/* Sends each participant's elements to the next participant. */
static void messages(void **state)
{
    const kind_case c = {.kind = CLT_COMM_SEND, .dtype = CLT_F32, .count = 1000};
    clt_comm_op ops[2 * FIXTURE_MAX];
    clt_comm_result result;
    (void)state;
    kind_inputs(&c, st.data, st.total);
    for (int d = 0; d < st.devices; d++) {
        const int own = st.first + d;
        bring(&c, d, &ops[2 * d]);
        ops[2 * d].next = &ops[2 * d + 1];
        ops[2 * d].peer = (own + 1) % st.total;
        kind_op(&c, own, &ops[2 * d + 1]);
        ops[2 * d + 1].kind = CLT_COMM_RECEIVE;
        ops[2 * d + 1].mem = st.out[d];
        ops[2 * d + 1].peer = (own + st.total - 1) % st.total;
    }
    const double sent = exchange(ops, &result);
    for (int d = 0; d < st.devices; d++) {
        kind_data *x = &st.data[st.first + d];
        transfer(d, st.out[d], x->out_after, false);
        assert_memory_equal(x->out_after, st.data[(st.first + d + st.total - 1) % st.total].mem,
                            4000);
    }
    const kind_expected one = {st.devices, st.devices * 4000, sent};
    const kind_expected want = st.nodes > 1 ? one : (kind_expected){0};
    kind_expect(0, "sends over MPI", kind_grown(&st.before, &st.after, CLT_COMM_SEND, CLT_COMM_MPI),
                want);
    /* A node sends to one other node only, besides the words by which nodes agree. */
    const bool sends = st.nodes > 1 && st.rank % st.node_ranks == 0;
    assert_true(sends ? sent >= 4000 && sent <= 4000 + 1000.0 * st.nodes * st.total : sent == 0);
}

/* Ranks meet at the end. Their messages count as a barrier. */
static void the_end(void **state)
{
    const long long sent = wired;
    (void)state;
    kind_counts_read(st.comm, &st.before);
    watching = 1;
    check(clt_comm_finalize(st.comm));
    watching = 0;
    kind_counts_read(st.comm, &st.after);
    assert_true(kind_grown(&st.before, &st.after, CLT_COMM_BARRIER, CLT_COMM_MPI).sent ==
                (double)(wired - sent));
    assert_int_equal(uncounted, 0);
}

static int set_up(void **state)
{
    clt_comm_device of[FIXTURE_MAX];
    clt_comm_options options;
    const char *text = getenv("CLT_TESTING_NODE_RANKS");
    (void)state;
    st.total = st.ranks * st.devices;
    st.first = st.rank * st.devices;
    st.node_ranks = text ? atoi(text) : st.ranks;
    st.nodes = st.ranks / st.node_ranks;
    clt_comm_options_init(&options);
    options.timeout_ms = 60000;
    fixture_open(&st.f, st.devices, false, false);
    for (int d = 0; d < st.devices; d++) {
        fixture_device(&st.f, d, &of[d]);
        st.mem[d] = fixture_buffer(&st.f, d, KIND_BYTES);
        st.out[d] = fixture_buffer(&st.f, d, KIND_BYTES);
    }
    kind_data_open(st.data, st.total);
    check(clt_comm_create_mpi(MPI_COMM_WORLD, of, st.devices, &options, &st.comm));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    clt_comm_destroy(st.comm);
    for (int d = 0; d < st.devices; d++) {
        clReleaseMemObject(st.mem[d]);
        clReleaseMemObject(st.out[d]);
    }
    kind_data_close(st.data, st.total);
    fixture_close(&st.f);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_kind), cmocka_unit_test(messages),
                                       cmocka_unit_test(the_end)};
    int provided;
    if (argc != 3)
        return 2;
    st.devices = atoi(argv[1]);
    const int level = strcmp(argv[2], "multiple") ? MPI_THREAD_SINGLE : MPI_THREAD_MULTIPLE;
    MPI_Init_thread(&argc, &argv, level, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &st.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &st.ranks);
    if (provided < level || cmocka_run_group_tests(tests, set_up, tear_down))
        MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Finalize();
    return 0;
}
