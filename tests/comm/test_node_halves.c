/* 16-bit sums between the ranks of several nodes, with more elements than ranks share at once. */
#include "comm/nodes.h"

/* A rank's part of a sum that takes several chunks of shared memory. */
typedef struct long_sum {
    pthread_t thread;
    clt_comm *comm;
    clt_dtype dtype;
    clt_comm_kind kind;
    int rank;
    clt_status status;
    int wrong;
    double squares;
} long_sum;

enum { COUNT = 100003, BEHIND = 64, RANKS = 4, ROOT = 3 };

/* Whether this rank's element i is a sum afterwards. */
static bool is_sum(const long_sum *s, int64_t i)
{
    return s->kind == CLT_COMM_REDUCE_SCATTER
               ? i / COUNT == s->rank
               : i < COUNT && (s->kind != CLT_COMM_REDUCE || s->rank == ROOT);
}

static void check_long_sum(long_sum *s, const uint16_t *data, int64_t count)
{
    for (int64_t i = 0; i < count + BEHIND; i++) {
        uint16_t want[4] = {0};
        int sum = 0;
        for (int r = 0; r < RANKS; r++)
            sum += value(0, 0, r, i);
        s->squares -= i < count ? (double)sum * sum : 0;
        put(s->dtype, want, 0, is_sum(s, i) ? sum : value(0, 0, s->rank, i));
        s->wrong += data[i] != *want;
    }
}

static void *take_long_sum(void *arg)
{
    long_sum *s = arg;
    const int64_t count = s->kind == CLT_COMM_REDUCE_SCATTER ? COUNT * RANKS : COUNT;
    uint16_t *data = calloc((size_t)(count + BEHIND), sizeof *data);
    clt_comm_op op;
    clt_comm_result result;
    clt_comm_request *request;
    clt_comm_op_init(&op);
    clt_comm_result_init(&result);
    op.kind = s->kind;
    op.dtype = s->dtype;
    op.root = s->kind == CLT_COMM_REDUCE ? ROOT : 0;
    op.host = data;
    op.count = COUNT;
    op.flags = CLT_COMM_MEASURE;
    for (int64_t i = 0; i < count + BEHIND; i++)
        put(s->dtype, data, i, value(0, 0, s->rank, i));
    s->status = clt_comm_start(s->comm, 0, -1, &op, 0, NULL, &request);
    if (s->status == CLT_OK)
        s->status = clt_comm_complete(request, 0, &result, NULL);
    s->squares = result.sum_squares;
    check_long_sum(s, data, count);
    free(data);
    return NULL;
}

/* 16-bit types are f32 where ranks add them up, and 16-bit before and after. */
static void add_long(const fixture *f, owner *owners, int devices, int devices_a_rank,
                     uint32_t seed)
{
    static const clt_dtype types[] = {CLT_F16, CLT_BF16};
    static const clt_comm_kind kinds[] = {CLT_COMM_ALL_REDUCE, CLT_COMM_REDUCE,
                                          CLT_COMM_REDUCE_SCATTER};
    long_sum sums[RANKS];
    (void)f;
    (void)devices_a_rank;
    (void)seed;
    for (int k = 0; k < 6; k++) {
        for (int r = 0; r < devices; r++) {
            sums[r] = (long_sum){
                .comm = owners[r].comm, .dtype = types[k % 2], .kind = kinds[k / 2], .rank = r};
            assert_int_equal(pthread_create(&sums[r].thread, NULL, take_long_sum, &sums[r]), 0);
        }
        for (int r = 0; r < devices; r++)
            pthread_join(sums[r].thread, NULL);
        for (int r = 0; r < devices; r++) {
            assert_int_equal(sums[r].status, CLT_OK);
            assert_int_equal(sums[r].wrong, 0);
            assert_true(sums[r].squares == 0);
        }
    }
}

static void long_sums_in_16_bits(void **state)
{
    (void)state;
    with_nodes(2, 2, 1, 0, 0, add_long, 0);
    with_nodes(4, 1, 1, 0, 0, add_long, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(long_sums_in_16_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
