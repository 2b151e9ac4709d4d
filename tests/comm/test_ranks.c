/* Messages about ranks that do not come. The ranks are in this process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "comm/fixture.h"
#include "comm/ranks/node_ranks.h"

enum { RANKS = 4, COUNT = 1000 };

typedef struct ranks {
    fixture f;
    clt_comm *comms[RANKS];
    cl_mem mem[RANKS];
    void *shared;
} ranks;

static void ranks_open(ranks *r, int timeout_ms)
{
    static const int devices[RANKS] = {1, 1, 1, 1};
    const size_t bytes = (size_t)clt_comm_shared_bytes(RANKS);
    clt_comm_options options;
    clt_comm_options_init(&options);
    options.timeout_ms = timeout_ms;
    fixture_open(&r->f, RANKS, false, false);
    r->shared = aligned_alloc(4096, bytes);
    assert_non_null(r->shared);
    memset(r->shared, 0, bytes);
    for (int i = 0; i < RANKS; i++) {
        clt_comm_device device;
        clt_comm_ranks of;
        clt_comm_ranks_init(&of);
        of.rank = i;
        of.ranks = RANKS;
        of.devices = devices;
        of.shared = r->shared;
        of.shared_bytes = (int64_t)bytes;
        fixture_device(&r->f, i, &device);
        r->mem[i] = fixture_buffer(&r->f, i, COUNT * sizeof(float));
        assert_int_equal(clt_comm_create_between(&device, 1, &options, &of, &r->comms[i]), CLT_OK);
    }
}

static void ranks_close(ranks *r)
{
    for (int i = 0; i < RANKS; i++) {
        clt_comm_destroy(r->comms[i]);
        clReleaseMemObject(r->mem[i]);
    }
    free(r->shared);
    fixture_close(&r->f);
}

static clt_comm_request *start(const ranks *r, int rank)
{
    clt_comm_request *request;
    clt_comm_op op;
    clt_comm_op_init(&op);
    op.mem = r->mem[rank];
    op.count = COUNT;
    op.label = "bucket 3 (fc1.weight)";
    assert_int_equal(clt_comm_start(r->comms[rank], 0, -1, &op, 0, NULL, &request), CLT_OK);
    return request;
}

/* The ranks that came name all missing ranks. One of them aborts the others with the same
 * message. */
static void a_deadline_names_all_that_are_missing(void **state)
{
    ranks r;
    int timeouts = 0;
    (void)state;
    ranks_open(&r, 300);
    clt_comm_request *requests[] = {start(&r, 0), start(&r, 2)};
    for (int i = 0; i < 2; i++) {
        const clt_status status = clt_comm_complete(requests[i], 0, NULL, NULL);
        const char *message = clt_error_message();
        assert_true(status == CLT_TIMEOUT || status == CLT_ABORTED);
        assert_non_null(strstr(message, "comm: collective 0 (bucket 3 (fc1.weight)): rank "));
        assert_non_null(strstr(message, ") waited 0.3 s for ranks 1, 3: stopped, or much slower?"));
        timeouts += clt_comm_status(r.comms[2 * i]) == CLT_TIMEOUT;
    }
    assert_true(timeouts > 0);
    ranks_close(&r);
}

/* A rank whose own deadline passed says so, also if its reducer noticed before it waits. */
static void a_deadline_is_a_timeout_whoever_notices(void **state)
{
    const struct timespec pause = {0, 1000000};
    ranks r;
    (void)state;
    ranks_open(&r, 100);
    clt_comm_request *request = start(&r, 0);
    while (clt_comm_status(r.comms[0]) == CLT_OK)
        nanosleep(&pause, NULL);
    assert_int_equal(clt_comm_complete(request, 0, NULL, NULL), CLT_TIMEOUT);
    assert_non_null(strstr(clt_error_message(), ") waited 0.1 s for ranks 1, 2, 3: stopped"));
    ranks_close(&r);
}

/* A message about a rank's end is forwarded, and names the collective and the rank only once. */
static void a_forwarded_message_repeats_nothing(void **state)
{
    static const char *const texts[][2] = {
        {"comm: collective 5 (bucket 3): rank 2 (pocl) waited 60 s for rank 1: stopped?",
         "comm: collective 5 (bucket 3): rank 2 (pocl) waited 60 s for rank 1: stopped?"},
        {"comm: collective 5 (bucket 3): rank 1: it destroyed its communicator",
         "comm: collective 5 (bucket 3): rank 2: rank 1: it destroyed its communicator"},
        {"comm: collective 4 (word): rank 2 waited 60 s for rank 1: stopped?",
         "comm: collective 5 (bucket 3): rank 2: collective 4 (word): rank 2 waited 60 s for rank "
         "1: stopped?"},
        {"out of memory", "comm: collective 5 (bucket 3): rank 2: out of memory"}};
    const clt_ranks_job job = {.sequence = 5, .label = "bucket 3"};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        clt_ranks_notice notice = {.rank = 2};
        snprintf(notice.text, sizeof notice.text, "%s", texts[i][0]);
        assert_int_equal(clt_ranks_ended(&job, &notice), CLT_ABORTED);
        assert_string_equal(clt_error_message(), texts[i][1]);
    }
}

/* A rank that ends aborts the others, even without a deadline. */
static void the_end_of_a_rank_is_told(void **state)
{
    ranks r;
    (void)state;
    ranks_open(&r, 0);
    clt_comm_request *requests[] = {start(&r, 0), start(&r, 1), start(&r, 2)};
    clt_comm_destroy(r.comms[3]);
    r.comms[3] = NULL;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(clt_comm_complete(requests[i], 0, NULL, NULL), CLT_ABORTED);
        assert_non_null(strstr(clt_error_message(), "rank 3: it destroyed its communicator"));
    }
    ranks_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_deadline_names_all_that_are_missing),
        cmocka_unit_test(a_deadline_is_a_timeout_whoever_notices),
        cmocka_unit_test(a_forwarded_message_repeats_nothing),
        cmocka_unit_test(the_end_of_a_rank_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
