/* 16-bit sums between the ranks of several nodes, with more elements than ranks share at once. */
#include "comm/nodes.h"

/* A rank's part of a sum that takes several chunks of shared memory. */
typedef struct long_sum {
    pthread_t thread;
    clt_comm *comm;
    clt_dtype dtype;
    int rank, root;
    clt_status status;
    int wrong;
    double squares;
} long_sum;

static void *take_long_sum(void *arg)
{
    enum { COUNT = 100003, BEHIND = 64 };
    long_sum *s = arg;
    uint16_t *data = calloc(COUNT + BEHIND, sizeof *data);
    clt_comm_op op;
    clt_comm_result result;
    clt_comm_request *request;
    clt_comm_op_init(&op);
    clt_comm_result_init(&result);
    op.kind = s->root < 0 ? CLT_COMM_ALL_REDUCE : CLT_COMM_REDUCE;
    op.dtype = s->dtype;
    op.root = s->root < 0 ? 0 : s->root;
    op.host = data;
    op.count = COUNT;
    op.flags = CLT_COMM_MEASURE;
    for (int64_t i = 0; i < COUNT; i++)
        put(s->dtype, data, i, value(0, 0, s->rank, i));
    s->status = clt_comm_start(s->comm, 0, -1, &op, 0, NULL, &request);
    if (s->status == CLT_OK)
        s->status = clt_comm_complete(request, 0, &result, NULL);
    s->squares = result.sum_squares;
    for (int64_t i = 0; i < COUNT + BEHIND && (s->root < 0 || s->root == s->rank); i++) {
        uint16_t want[4] = {0};
        int sum = 0;
        for (int r = 0; r < 4; r++)
            sum += value(0, 0, r, i);
        put(s->dtype, want, 0, sum);
        s->squares -= i < COUNT ? (double)sum * sum : 0;
        s->wrong += data[i] != (i < COUNT ? *want : 0);
    }
    free(data);
    return NULL;
}

/* 16-bit types are f32 where ranks add them up, and 16-bit before and after. */
static void add_long(const fixture *f, owner *owners, int devices, int devices_a_rank,
                     uint32_t seed)
{
    static const clt_dtype types[] = {CLT_F16, CLT_BF16};
    long_sum sums[4];
    (void)f;
    (void)devices_a_rank;
    (void)seed;
    for (int k = 0; k < 4; k++) {
        for (int r = 0; r < devices; r++) {
            sums[r] = (long_sum){
                .comm = owners[r].comm, .dtype = types[k % 2], .rank = r, .root = k < 2 ? -1 : 3};
            assert_int_equal(pthread_create(&sums[r].thread, NULL, take_long_sum, &sums[r]), 0);
        }
        for (int r = 0; r < devices; r++)
            pthread_join(sums[r].thread, NULL);
        for (int r = 0; r < devices; r++) {
            assert_int_equal(sums[r].status, CLT_OK);
            assert_int_equal(sums[r].wrong, 0);
            if (k < 2 || r == 3)
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
