/* The options of asynchronous training: what is wrong is refused, and named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include <cltrain/async.h>

static void assert_refused(clt_status status, clt_status wanted, const char *text)
{
    assert_int_equal(status, wanted);
    assert_non_null(strstr(clt_error_message(), text));
}

static void test_wrong_options_are_named(void **state)
{
    clt_async_options o;
    clt_trainer_options t;
    (void)state;
    clt_async_options_init(&o);
    clt_trainer_options_init(&t);
    assert_int_equal(clt_async_check(&o, &t), CLT_OK);
    o.staleness = -1;
    assert_refused(clt_async_check(&o, &t), CLT_INVALID_ARGUMENT, "staleness of -1");
    clt_async_options_init(&o);
    o.holders = 0;
    assert_refused(clt_async_check(&o, &t), CLT_INVALID_ARGUMENT, "0 holders");
    o.holders = CLT_ASYNC_MOST_HOLDERS + 1;
    assert_refused(clt_async_check(&o, &t), CLT_INVALID_ARGUMENT, "65 holders");
    clt_async_options_init(&o);
    o.silence = 0;
    assert_refused(clt_async_check(&o, &t), CLT_INVALID_ARGUMENT, "silence 0");
    clt_async_options_init(&o);
    o.struct_size = 4;
    assert_int_equal(clt_async_check(&o, &t), CLT_INVALID_ARGUMENT);
}

static void test_other_ways_to_divide_are_refused(void **state)
{
    clt_async_options o;
    clt_trainer_options t;
    const clt_world world = {.ranks = 2};
    (void)state;
    clt_async_options_init(&o);
    clt_trainer_options_init(&t);
    t.zero = 1;
    assert_refused(clt_async_check(&o, &t), CLT_UNSUPPORTED, "leave out zero");
    clt_trainer_options_init(&t);
    t.rebalance = 1;
    assert_refused(clt_async_check(&o, &t), CLT_UNSUPPORTED, "leave out rebalance");
    clt_trainer_options_init(&t);
    t.virtual_shards = 4;
    assert_refused(clt_async_check(&o, &t), CLT_UNSUPPORTED, "leave out virtual_shards");
    clt_trainer_options_init(&t);
    t.optimizer = CLT_MUON;
    assert_refused(clt_async_check(&o, &t), CLT_UNSUPPORTED, "muon needs whole matrices");
    clt_trainer_options_init(&t);
    t.world = &world;
    assert_refused(clt_async_check(&o, &t), CLT_UNSUPPORTED, "without mpiexec");
}

static void test_holders_need_addresses(void **state)
{
    clt_async_options o;
    clt_trainer_options t;
    (void)state;
    clt_async_options_init(&o);
    clt_trainer_options_init(&t);
    assert_refused(clt_async_hold(NULL, NULL, &t, NULL, NULL, NULL, NULL, &o), CLT_INVALID_ARGUMENT,
                   "needs an address to listen at");
    o.listen = "127.0.0.1:0";
    o.number = 1;
    assert_refused(clt_async_hold(NULL, NULL, &t, NULL, NULL, NULL, NULL, &o), CLT_INVALID_ARGUMENT,
                   "1 holders have the numbers 0 to 0");
    o.holders = 2;
    assert_refused(clt_async_hold(NULL, NULL, &t, NULL, NULL, NULL, NULL, &o), CLT_INVALID_ARGUMENT,
                   "holder 1 needs the address of holder 0");
    o.number = 0;
    assert_refused(clt_async_hold(NULL, NULL, &t, NULL, NULL, NULL, NULL, &o), CLT_INVALID_ARGUMENT,
                   "needs a trainer of the whole model");
    o.join = "127.0.0.1:1";
    assert_refused(clt_async_hold(NULL, NULL, &t, NULL, NULL, NULL, NULL, &o), CLT_INVALID_ARGUMENT,
                   "holder 0 joins nobody");
}

static void test_a_worker_updates_nothing(void **state)
{
    clt_trainer_options t;
    (void)state;
    clt_trainer_options_init(&t);
    t.optimizer = CLT_ADAMW;
    t.clip_norm = 3;
    t.weight_decay = 0.1;
    t.guard = 0;
    clt_async_worker_options(&t);
    assert_int_equal(t.optimizer, CLT_SGD);
    assert_true(t.lr == 0 && t.clip_norm == 0 && t.weight_decay == 0);
    assert_int_equal(t.guard, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrong_options_are_named),
        cmocka_unit_test(test_other_ways_to_divide_are_refused),
        cmocka_unit_test(test_holders_need_addresses),
        cmocka_unit_test(test_a_worker_updates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
