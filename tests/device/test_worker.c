/* The worker thread's mailbox. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <pthread.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/error.h"
#include "device/core/worker.h"

typedef struct counter {
    clt_worker *worker;
    int64_t sum;
    int last, disorder;
} counter;

typedef struct post {
    counter *counter;
    int number;
} post;

static clt_status count_in_order(void *argument)
{
    const post *p = argument;
    p->counter->disorder += p->number != p->counter->last + 1;
    p->counter->last = p->number;
    p->counter->sum += p->number;
    return CLT_OK;
}

static void calls_run_in_order_on_the_worker(void **state)
{
    (void)state;
    enum { POSTS = 20000 };
    static post posts[POSTS];
    counter c = {.last = 0};
    assert_int_equal(clt_worker_create("a name longer than fifteen", &c.worker), CLT_OK);
    assert_false(clt_worker_is_current(c.worker));
    int64_t before = clt_alloc_count();
    for (int i = 0; i < POSTS; i++) {
        posts[i] = (post){&c, i + 1};
        clt_worker_post(c.worker, count_in_order, &posts[i]);
    }
    assert_int_equal(clt_worker_wait(c.worker), CLT_OK);
    assert_int_equal(clt_alloc_count(), before);
    assert_int_equal(c.disorder, 0);
    assert_int_equal(c.sum, (int64_t)POSTS * (POSTS + 1) / 2);
    assert_int_equal(clt_worker_wait(c.worker), CLT_OK);
    clt_worker_destroy(c.worker);
    clt_worker_destroy(NULL);
}

static clt_status fail_with_number(void *argument)
{
    return clt_fail(CLT_SHAPE, "number %d", *(int *)argument);
}

static clt_status check_thread(void *argument)
{
    return clt_worker_is_current(argument) ? CLT_OK : clt_fail(CLT_INTERNAL, "another thread");
}

static void the_first_failure_reaches_the_waiter(void **state)
{
    (void)state;
    clt_worker *worker = NULL;
    assert_int_equal(clt_worker_create("worker", &worker), CLT_OK);
    assert_int_equal(clt_worker_run(worker, check_thread, worker), CLT_OK);
    int first = 1, second = 2;
    clt_fail(CLT_IO, "something else");
    clt_worker_post(worker, fail_with_number, &first);
    clt_worker_post(worker, fail_with_number, &second);
    clt_worker_post(worker, check_thread, worker);
    assert_int_equal(clt_worker_wait(worker), CLT_SHAPE);
    assert_string_equal(clt_error_message(), "number 1");
    assert_int_equal(clt_worker_wait(worker), CLT_OK);
    assert_int_equal(clt_worker_run(worker, fail_with_number, &second), CLT_SHAPE);
    assert_string_equal(clt_error_message(), "number 2");
    clt_worker_destroy(worker);
}

static void destroying_runs_what_was_posted(void **state)
{
    (void)state;
    enum { POSTS = CLT_WORKER_ROOM };
    post posts[POSTS];
    for (int round = 0; round < 200; round++) {
        counter c = {.last = 0};
        assert_int_equal(clt_worker_create("worker", &c.worker), CLT_OK);
        for (int i = 0; i < POSTS; i++) {
            posts[i] = (post){&c, i + 1};
            clt_worker_post(c.worker, count_in_order, &posts[i]);
        }
        clt_worker_destroy(c.worker);
        assert_int_equal(c.last, POSTS);
    }
}

static clt_status add_one(void *argument)
{
    ++*(int64_t *)argument; /* only the worker's thread calls this */
    return CLT_OK;
}

typedef struct poster {
    clt_worker *worker;
    int64_t *sum;
} poster;

enum { POSTERS = 4, EACH = 5000 };

static void *post_many(void *argument)
{
    const poster *p = argument;
    for (int i = 0; i < EACH; i++) {
        if (i % 64 == 0)
            (void)clt_worker_run(p->worker, add_one, p->sum);
        else
            clt_worker_post(p->worker, add_one, p->sum);
    }
    return NULL;
}

static void several_threads_may_post(void **state)
{
    (void)state;
    int64_t sum = 0;
    poster p = {.sum = &sum};
    pthread_t threads[POSTERS];
    assert_int_equal(clt_worker_create("worker", &p.worker), CLT_OK);
    for (int i = 0; i < POSTERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, post_many, &p), 0);
    for (int i = 0; i < POSTERS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(clt_worker_wait(p.worker), CLT_OK);
    assert_int_equal(sum, POSTERS * EACH);
    clt_worker_destroy(p.worker);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_run_in_order_on_the_worker),
        cmocka_unit_test(the_first_failure_reaches_the_waiter),
        cmocka_unit_test(destroying_runs_what_was_posted),
        cmocka_unit_test(several_threads_may_post),
    };
    return cmocka_run_group_tests_name("device.worker", tests, NULL, NULL);
}
