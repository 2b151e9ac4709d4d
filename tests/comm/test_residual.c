/*
 * Error feedback of sums in 16 bits: between the devices of a rank, the ranks of a node, and nodes.
 * All roundings and residuals are computed again here, by arithmetic of this file.
 */
#include "comm/nodes.h"
#include "support/rounding.h"

enum { COUNT = 70001, STEPS = 4, LEVELS = 3 };

/* What a participant gives in a step. */
static float given(clt_dtype dtype, int step, int participant, int64_t i)
{
    uint32_t x = (uint32_t)i * 2654435761u + (uint32_t)(step * 97 + participant * 31 + 7);
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    return nearest(dtype, ldexpf((float)(int32_t)x, -31 - (int)(x % 5)));
}

typedef struct shape {
    int nodes, ranks, devices; /* ranks of a node, devices of a rank */
    clt_dtype dtype;
    clt_comm_kind kind;
    float scale;
    int empty; /* a participant without data in each second step; -1: none */
} shape;

static shape now; /* of the test that runs */

/* The residuals of the whole job, by this file's arithmetic. */
static float of_rank[FIXTURE_MAX][COUNT], of_node[NODES_MOST][COUNT], of_sum[COUNT];
static float result[COUNT];

/* Rounds `v` = fl(sum + scale x residual), and updates the residual. */
static float send(float sum, float *residual)
{
    const float v = sum + now.scale * *residual, s = nearest(now.dtype, v);
    *residual = (v - s) / now.scale;
    return s;
}

static bool is_empty(int step, int participant)
{
    return participant == now.empty && step % 2;
}

static void expect_step(int step, int64_t i)
{
    float total = 0;
    for (int n = 0; n < now.nodes; n++) {
        float node = 0;
        for (int r = n * now.ranks; r < (n + 1) * now.ranks; r++) {
            float sum = 0;
            bool any = false;
            for (int d = r * now.devices; d < (r + 1) * now.devices; d++)
                if (!is_empty(step, d)) {
                    sum += given(now.dtype, step, d, i);
                    any = true;
                }
            if (any && now.ranks > 1 && now.devices > 1)
                sum = send(sum, &of_rank[r][i]);
            node += sum;
        }
        if (now.nodes > 1 && now.ranks * now.devices > 1)
            node = send(node, &of_node[n][i]);
        total += node;
    }
    result[i] = send(total, &of_sum[i]);
}

typedef struct part {
    pthread_t thread;
    clt_comm *comm;
    clt_comm_residual *residual;
    int participant, device, step, total;
    clt_status status;
    clt_comm_result result;
    uint16_t *data;
} part;

static void *reduce(void *arg)
{
    part *p = arg;
    const int64_t count = now.kind == CLT_COMM_REDUCE_SCATTER ? COUNT / p->total : COUNT;
    clt_comm_op op;
    clt_comm_request *request;
    clt_comm_op_init(&op);
    clt_comm_result_init(&p->result);
    op.kind = now.kind;
    op.dtype = now.dtype;
    op.host = p->data;
    op.count = count;
    op.residual = p->residual;
    op.residual_scale = now.scale;
    op.flags = CLT_COMM_MEASURE | (is_empty(p->step, p->participant) ? CLT_COMM_EMPTY : 0);
    for (int64_t i = 0; i < COUNT; i++)
        p->data[i] = bits_of(now.dtype, given(now.dtype, p->step, p->participant, i));
    p->status = clt_comm_start(p->comm, p->device, -1, &op, 0, NULL, &request);
    if (p->status == CLT_OK)
        p->status = clt_comm_complete(request, p->device, &p->result, NULL);
    return NULL;
}

/* `counts`: the new residuals count. */
static void do_step(part *parts, int devices, int step, bool counts)
{
    for (int d = 0; d < devices; d++) {
        parts[d].step = step;
        assert_int_equal(pthread_create(&parts[d].thread, NULL, reduce, &parts[d]), 0);
    }
    for (int d = 0; d < devices; d++) {
        pthread_join(parts[d].thread, NULL);
        assert_int_equal(parts[d].status, CLT_OK);
        assert_int_equal(parts[d].result.finite, 1);
        assert_true(parts[d].result.sum_squares == parts[0].result.sum_squares);
        if (counts && !parts[d].device)
            clt_comm_residual_accept(parts[d].residual);
    }
}

/* Reduce-scatters of COUNT / total elements leave the last elements alone. */
static int64_t covered(int devices)
{
    return now.kind == CLT_COMM_REDUCE_SCATTER ? COUNT / devices * devices : COUNT;
}

static void check_results(const part *parts, int devices)
{
    const int64_t all = covered(devices), block = all / devices;
    double squares = 0;
    for (int d = 0; d < devices; d++)
        for (int64_t i = 0; i < all; i++)
            if (now.kind == CLT_COMM_ALL_REDUCE || i / block == d)
                assert_int_equal(parts[d].data[i], bits_of(now.dtype, result[i]));
    for (int64_t i = 0; i < all; i++)
        squares += (double)result[i] * result[i];
    assert_true(fabs(parts[0].result.sum_squares - squares) < 1e-12 * squares);
}

/* The owner of a slice is one node, so the slices of all first ranks add up to the whole. */
static void check_residuals(part *parts, int devices)
{
    static float data[COUNT + 64], sum[COUNT + 64];
    const int64_t all = covered(devices);
    memset(sum, 0, sizeof sum);
    for (int r = 0; r < now.nodes * now.ranks; r++) {
        clt_comm_residual *own = parts[r * now.devices].residual;
        clt_comm_residual_get(own, CLT_COMM_ROUNDS_RANK, data);
        assert_memory_equal(data, of_rank[r], (size_t)all * sizeof *data);
        clt_comm_residual_get(own, CLT_COMM_ROUNDS_NODE, data);
        if (r % now.ranks == 0)
            assert_memory_equal(data, of_node[r / now.ranks], (size_t)all * sizeof *data);
        else
            assert_int_equal(clt_comm_residual_has(own, CLT_COMM_ROUNDS_NODE), 0);
        const int has = clt_comm_residual_has(own, CLT_COMM_ROUNDS_SUM);
        assert_int_equal(has, r % now.ranks == 0 ? 1 : now.nodes > 1 ? 0 : 2);
        clt_comm_residual_get(own, CLT_COMM_ROUNDS_SUM, data);
        for (int64_t i = 0; i < all && has == 1; i++)
            sum[i] += data[i];
        if (has == 2)
            assert_memory_equal(data, of_sum, (size_t)all * sizeof *data);
    }
    assert_memory_equal(sum, of_sum, (size_t)all * sizeof *sum);
}

static void open_parts(part *parts, owner *owners, int devices)
{
    for (int d = 0; d < devices; d++) {
        part *p = &parts[d];
        *p = (part){.comm = owners[d / now.devices].comm,
                    .participant = d,
                    .device = d % now.devices,
                    .total = devices,
                    .data = malloc(COUNT * sizeof(uint16_t))};
        if (p->device)
            p->residual = parts[d - 1].residual;
        else
            assert_int_equal(clt_comm_residual_create(p->comm, covered(devices), &p->residual),
                             CLT_OK);
    }
    memset(of_rank, 0, sizeof of_rank);
    memset(of_node, 0, sizeof of_node);
    memset(of_sum, 0, sizeof of_sum);
}

static void close_parts(part *parts, int devices)
{
    for (int d = 0; d < devices; d++) {
        free(parts[d].data);
        if (!parts[d].device)
            clt_comm_residual_destroy(parts[d].residual);
    }
}

/* Steps of which one does not count: it is done again, as after a step that is not finite. */
static void feed_back(const fixture *f, owner *owners, int devices, int devices_a_rank,
                      uint32_t seed)
{
    part parts[FIXTURE_MAX];
    (void)f, (void)devices_a_rank, (void)seed;
    open_parts(parts, owners, devices);
    for (int step = 0; step < STEPS; step++) {
        if (step == 2)
            do_step(parts, devices, 9, false);
        for (int64_t i = 0; i < covered(devices); i++)
            expect_step(step, i);
        do_step(parts, devices, step, true);
        check_results(parts, devices);
    }
    check_residuals(parts, devices);
    /* A sum that does not count changes no residual. What is set is added to the next sum. */
    do_step(parts, devices, 9, false);
    check_residuals(parts, devices);
    for (int r = 0; r < now.nodes * now.ranks; r++)
        for (int k = 0; k < LEVELS; k++)
            if (clt_comm_residual_has(parts[r * now.devices].residual, (clt_comm_rounding)k)) {
                static float data[COUNT];
                clt_comm_residual *own = parts[r * now.devices].residual;
                clt_comm_residual_get(own, (clt_comm_rounding)k, data);
                assert_int_equal(clt_comm_residual_set(own, (clt_comm_rounding)k, data), CLT_OK);
            }
    for (int64_t i = 0; i < covered(devices); i++)
        expect_step(STEPS, i);
    do_step(parts, devices, STEPS, true);
    check_results(parts, devices);
    check_residuals(parts, devices);
    close_parts(parts, devices);
}

static void run(int nodes, int ranks, int devices)
{
    for (int k = 0; k < 8; k++) {
        now = (shape){nodes,
                      ranks,
                      devices,
                      k % 2 ? CLT_F16 : CLT_BF16,
                      k / 2 % 2 ? CLT_COMM_REDUCE_SCATTER : CLT_COMM_ALL_REDUCE,
                      k == 5 ? 1024 : 1,
                      k / 4 ? nodes * ranks * devices - 1 : -1};
        with_nodes(nodes, ranks, devices, 0, 0, feed_back, 0);
    }
}

static void devices_of_a_rank(void **state)
{
    (void)state;
    run(1, 1, 3);
}

static void ranks_of_a_node(void **state)
{
    (void)state;
    run(1, 2, 1);
    run(1, 2, 2);
}

static void nodes(void **state)
{
    (void)state;
    run(2, 1, 1);
    run(3, 1, 2);
    run(2, 2, 1);
    run(2, 2, 2);
}

/* --- bytes ------------------------------------------------------------------------------------ */

static double sent_by(clt_comm *comm, clt_comm_kind kind, clt_comm_transport transport)
{
    clt_comm_count count;
    clt_comm_count_init(&count);
    assert_int_equal(clt_comm_counts(comm, kind, transport, &count), CLT_OK);
    return count.sent;
}

typedef struct plain {
    pthread_t thread;
    clt_comm *comm;
    int device;
    int64_t count;
    clt_comm_residual *residual;
    clt_dtype dtype;
    void *data;
} plain;

static void *reduce_plain(void *arg)
{
    const plain *p = arg;
    clt_comm_op op;
    clt_comm_request *request;
    clt_comm_op_init(&op);
    op.kind = now.kind;
    op.dtype = p->dtype;
    op.host = p->data;
    op.count = p->count;
    op.residual = p->residual;
    if (clt_comm_start(p->comm, p->device, -1, &op, 0, NULL, &request) == CLT_OK)
        clt_comm_complete(request, p->device, NULL, NULL);
    return NULL;
}

/* Adds a sum of each device, and returns what the first rank's transport sent for it. */
static void count_sum(owner *owners, int devices, int64_t count, clt_dtype dtype, bool feeds,
                      double sent[CLT_COMM_TRANSPORTS])
{
    plain parts[FIXTURE_MAX];
    clt_comm_residual *residual = NULL;
    for (int t = 0; t < CLT_COMM_TRANSPORTS; t++)
        sent[t] = -sent_by(owners[0].comm, now.kind, (clt_comm_transport)t);
    for (int d = 0; d < devices; d++) {
        parts[d] = (plain){.comm = owners[d / now.devices].comm,
                           .device = d % now.devices,
                           .count = count,
                           .dtype = dtype,
                           .data = calloc(8 * 8192, sizeof(float))};
        if (feeds && !parts[d].device)
            assert_int_equal(clt_comm_residual_create(
                                 parts[d].comm,
                                 now.kind == CLT_COMM_REDUCE_SCATTER ? count * devices : count,
                                 &residual),
                             CLT_OK);
        parts[d].residual = residual;
    }
    for (int d = 0; d < devices; d++)
        assert_int_equal(pthread_create(&parts[d].thread, NULL, reduce_plain, &parts[d]), 0);
    for (int d = 0; d < devices; d++)
        pthread_join(parts[d].thread, NULL);
    for (int d = 0; d < devices; d++) {
        assert_int_equal(clt_comm_status(parts[d].comm), CLT_OK);
        free(parts[d].data);
        if (!parts[d].device)
            clt_comm_residual_destroy(parts[d].residual);
    }
    for (int t = 0; t < CLT_COMM_TRANSPORTS; t++)
        sent[t] += sent_by(owners[0].comm, now.kind, (clt_comm_transport)t);
}

/* Over MPI the words by which nodes agree are counted too: those of an empty sum. */
static void compare_bytes(const fixture *f, owner *owners, int devices, int devices_a_rank,
                          uint32_t seed)
{
    double words[CLT_COMM_TRANSPORTS], full[CLT_COMM_TRANSPORTS], half[CLT_COMM_TRANSPORTS];
    double any = 0;
    (void)f, (void)devices_a_rank, (void)seed;
    count_sum(owners, devices, 0, CLT_F32, false, words);
    count_sum(owners, devices, 8192, CLT_F32, false, full);
    count_sum(owners, devices, 8192, CLT_BF16, true, half);
    for (int t = 0; t < CLT_COMM_TRANSPORTS; t++) {
        assert_true(2 * (half[t] - words[t]) == full[t] - words[t]);
        any += full[t] - words[t];
    }
    assert_true(any > 0);
}

static void sent_bytes_are_half(void **state)
{
    static const int shapes[][3] = {{1, 1, 2}, {1, 1, 4}, {1, 2, 1}, {1, 2, 2},
                                    {2, 1, 1}, {2, 2, 1}, {4, 1, 1}};
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int k = 0; k < 2; k++) {
            now = (shape){shapes[i][0],
                          shapes[i][1],
                          shapes[i][2],
                          CLT_BF16,
                          k ? CLT_COMM_REDUCE_SCATTER : CLT_COMM_ALL_REDUCE,
                          1,
                          -1};
            with_nodes(now.nodes, now.ranks, now.devices, 0, 0, compare_bytes, 0);
        }
}

/* --- errors ----------------------------------------------------------------------------------- */

static void refuse(clt_comm *comm, const clt_comm_op *op, clt_status status, const char *text)
{
    clt_comm_request *request;
    assert_int_equal(clt_comm_start(comm, 0, -1, op, 0, NULL, &request), status);
    if (!strstr(clt_error_message(), text))
        fail_msg("\"%s\" lacks \"%s\"", clt_error_message(), text);
}

static void impossible_residuals_are_refused(void **state)
{
    fixture f;
    clt_comm *comm;
    clt_comm_residual *residual;
    clt_comm_op op;
    float zeros[8] = {0};
    (void)state;
    fixture_open(&f, 1, false, false);
    assert_int_equal(fixture_comm(&f, NULL, &comm), CLT_OK);
    assert_int_equal(clt_comm_residual_create(comm, -1, &residual), CLT_INVALID_ARGUMENT);
    assert_int_equal(clt_comm_residual_create(comm, 8, &residual), CLT_OK);
    clt_comm_op_init(&op);
    op.host = zeros;
    op.count = 8;
    op.residual = residual;
    refuse(comm, &op, CLT_INVALID_ARGUMENT, "only sums of f16 and bf16");
    op.dtype = CLT_BF16;
    op.reduction = CLT_COMM_MAX;
    refuse(comm, &op, CLT_INVALID_ARGUMENT, "only sums of f16 and bf16");
    op.reduction = CLT_COMM_SUM;
    op.count = 7;
    refuse(comm, &op, CLT_INVALID_ARGUMENT, "the residual is of 8 elements, the sum has 7");
    op.count = 8;
    op.residual_scale = 3;
    refuse(comm, &op, CLT_INVALID_ARGUMENT, "scale 3 is not a power of two");
    op.residual_scale = 1;
    op.leaves = 1;
    refuse(comm, &op, CLT_UNSUPPORTED, "a tree rounds at each node");
    op.leaves = 0;
    op.kind = CLT_COMM_ALL_GATHER;
    refuse(comm, &op, CLT_INVALID_ARGUMENT, "rounds nothing");
    assert_int_equal(clt_comm_residual_set(residual, CLT_COMM_ROUNDS_NODE, zeros), CLT_UNSUPPORTED);
    clt_comm_residual_destroy(residual);
    clt_comm_destroy(comm);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_of_a_rank),
        cmocka_unit_test(ranks_of_a_node),
        cmocka_unit_test(nodes),
        cmocka_unit_test(sent_bytes_are_half),
        cmocka_unit_test(impossible_residuals_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
