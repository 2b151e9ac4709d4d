/* The testing hook that makes the link between nodes slow. It needs CLT_TESTING. */
#include "comm/nodes.h"

#include "comm/ranks/slow_link.h"
#include "base/clock.h"

#ifdef CLT_TESTING
enum { COUNT = 750000 };

typedef struct part {
    pthread_t thread;
    clt_comm *comm;
    float *data;
    clt_status status;
} part;

static void *reduce(void *arg)
{
    part *p = arg;
    clt_comm_op op;
    clt_comm_request *request;
    clt_comm_op_init(&op);
    op.host = p->data;
    op.count = COUNT;
    p->status = clt_comm_start(p->comm, 0, -1, &op, 0, NULL, &request);
    if (p->status == CLT_OK)
        p->status = clt_comm_complete(request, 0, NULL, NULL);
    return NULL;
}

/* Two nodes send half of three megabytes each to the other, and half of the sum. */
static void all_reduce(const fixture *f, owner *owners, int devices, int devices_a_rank,
                       uint32_t seed)
{
    part parts[2];
    (void)f, (void)devices_a_rank, (void)seed;
    const double began = clt_clock();
    for (int d = 0; d < devices; d++) {
        parts[d] = (part){.comm = owners[d].comm, .data = malloc(COUNT * sizeof(float))};
        for (int i = 0; i < COUNT; i++)
            parts[d].data[i] = (float)(i % 1000 + d);
        assert_int_equal(pthread_create(&parts[d].thread, NULL, reduce, &parts[d]), 0);
    }
    for (int d = 0; d < devices; d++) {
        pthread_join(parts[d].thread, NULL);
        assert_int_equal(parts[d].status, CLT_OK);
    }
    /* At 100 MB/s, 3 MB take 30 ms. Each exchange takes 3 ms more: that of the heads, and two in
     * each of the two rounds of 2 MiB. */
    assert_true(clt_clock() - began >= 0.030 + 5 * 0.003);
    for (int d = 0; d < devices; d++) {
        for (int i = 0; i < COUNT; i++)
            assert_true(parts[d].data[i] == (float)(2 * (i % 1000) + 1));
        free(parts[d].data);
    }
}

static void exchanges_take_as_long_as_the_link_says(void **state)
{
    (void)state;
    clt_slow_link_testing = "100MB/s,3ms";
    with_nodes(2, 1, 1, 0, 0, all_reduce, 0);
    with_nodes(2, 1, 1, 1, 0, all_reduce, 0);
    clt_slow_link_testing = NULL;
}

static void the_text_is_read(void **state)
{
    clt_slow_link link;
    (void)state;
    clt_slow_link_testing = "1Gbit/s,50us";
    assert_int_equal(clt_slow_link_init(&link), CLT_OK);
    assert_true(link.bandwidth == 1.25e8 && link.latency == 50 * 1e-6);
    const double due = clt_slow_link_due(&link, 125000000), now = clt_clock();
    assert_true(due > now + 0.9 && due < now + 1.1);
    static const char *const wrong[] = {"1Gbit/s",    "1Gbit/s,",   "1,50us",      "0Gbit/s,50us",
                                        "-1GB/s,1us", "1GB/s,1us,", "nanGB/s,1us", "fast"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        clt_slow_link_testing = wrong[i];
        assert_int_equal(clt_slow_link_init(&link), CLT_INVALID_ARGUMENT);
        assert_non_null(strstr(clt_error_message(), wrong[i]));
        assert_true(link.bandwidth == 0);
    }
    clt_slow_link_testing = NULL;
}
#endif

int main(void)
{
#ifdef CLT_TESTING
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exchanges_take_as_long_as_the_link_says),
        cmocka_unit_test(the_text_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
#else
    return 0;
#endif
}
