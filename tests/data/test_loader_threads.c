/* The loader's threads: failures, shutdown at any time, and the number of active threads. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "data/files.h"
#include "data/formats/open_dataset.h"
#include "data/loader/tuner.h"

enum { COUNT = 1000 };

typedef struct source {
    _Atomic int inside, most, calls;
    int64_t bad; /* the sample that fails; -1 for none */
    int64_t wrong_label;
    long nanoseconds; /* duration of a call */
} source;

static void sleep_ns(long nanoseconds)
{
    const struct timespec t = {0, nanoseconds};
    if (nanoseconds)
        nanosleep(&t, NULL);
}

static clt_status fill(void *user, const int64_t *indices, int64_t count, void *const *fields)
{
    source *s = user;
    int inside = atomic_fetch_add(&s->inside, 1) + 1;
    int most = atomic_load(&s->most);
    while (inside > most && !atomic_compare_exchange_weak(&s->most, &most, inside))
        ;
    atomic_fetch_add(&s->calls, 1);
    sleep_ns(s->nanoseconds);
    clt_status status = CLT_OK;
    for (int64_t i = 0; i < count; i++) {
        if (indices[i] == s->bad)
            status = CLT_IO;
        ((int32_t *)fields[0])[i] = indices[i] == s->wrong_label ? 77 : (int32_t)indices[i] % 10;
    }
    atomic_fetch_sub(&s->inside, 1);
    return status;
}

static clt_dataset *make_set(source *s, int serial)
{
    clt_dataset *d;
    assert_int_equal(clt_dataset_create_callback("called", COUNT, fill, s, serial, &d), CLT_OK);
    assert_int_equal(
        clt_dataset_add_field(d, "label", CLT_I32, 0, NULL, NULL, CLT_DATA_BORROW, NULL), CLT_OK);
    assert_int_equal(clt_dataset_set_classes(d, 0, 10), CLT_OK);
    return d;
}

static clt_loader *start(clt_dataset *d, int64_t batch, int threads, int shuffle)
{
    clt_loader_desc desc;
    clt_loader_desc_init(&desc);
    desc.dataset = d;
    desc.batch = batch;
    desc.shuffle = shuffle;
    desc.max_threads = threads;
    desc.parts = 2;
    clt_loader *l;
    assert_int_equal(clt_loader_create(&desc, &l), CLT_OK);
    assert_int_equal(clt_loader_add_output(l, clt_dataset_field_count(d) > 1 ? "image" : "label",
                                           clt_dataset_field_count(d) > 1 ? CLT_U8 : CLT_I32, NULL),
                     CLT_OK);
    assert_int_equal(clt_loader_start(l), CLT_OK);
    return l;
}

static void serial_callbacks_run_alone(void **state)
{
    (void)state;
    source s = {.bad = -1, .wrong_label = -1, .nanoseconds = 20000};
    clt_dataset *d = make_set(&s, 1);
    clt_loader *l = start(d, 8, 4, 1);
    clt_batch b = {.struct_size = sizeof b};
    for (int i = 0; i < 100; i++) {
        assert_int_equal(clt_loader_next(l, &b), CLT_OK);
        assert_int_equal(clt_loader_release(l, b.slot), CLT_OK);
    }
    clt_loader_free(l);
    assert_int_equal(atomic_load(&s.most), 1);
    assert_true(atomic_load(&s.calls) >= 100);
    clt_dataset_free(d);
}

/* Batches before a failure arrive, then the failure, which every later call repeats. */
static void failures_come_in_order(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        source s = {.bad = kind ? -1 : 555, .wrong_label = kind ? 555 : -1};
        clt_dataset *d = make_set(&s, 0);
        for (int threads = 1; threads <= 4; threads += 3) {
            clt_loader *l = start(d, 50, threads, 0);
            clt_batch b = {.struct_size = sizeof b};
            for (int i = 0; i < 11; i++) {
                assert_int_equal(clt_loader_next(l, &b), CLT_OK);
                assert_int_equal(b.offset, 50 * i);
                assert_int_equal(clt_loader_release(l, b.slot), CLT_OK);
            }
            for (int i = 0; i < 2; i++) {
                assert_int_equal(clt_loader_next(l, &b), kind ? CLT_FORMAT : CLT_IO);
                assert_non_null(strstr(clt_error_message(), "called"));
                if (kind)
                    assert_non_null(strstr(clt_error_message(), "label 77 of sample 555"));
            }
            clt_loader_free(l);
        }
        clt_dataset_free(d);
    }
}

static void a_decode_that_fails_is_reported_by_next(void **state)
{
    (void)state;
    char spec[80];
    snprintf(spec, sizeof spec, "idx:%s", folder);
    remove_files();
    write_pair("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte", 300);
    size_t count;
    unsigned char *bytes = slurp("train-images-idx3-ubyte.gz", &count);
    clt_dataset_options options;
    clt_dataset_options_init(&options);
    options.background = 1;
    for (int damaged = 0; damaged < 2; damaged++) {
        spill("train-images-idx3-ubyte.gz", bytes, count - (size_t)damaged);
        clt_dataset *d;
        assert_int_equal(clt_dataset_open(spec, &options, &d), CLT_OK);
        clt_loader *l = start(d, 64, 3, 1);
        clt_batch b = {.struct_size = sizeof b};
        for (int i = 0; i < 3; i++) {
            assert_int_equal(clt_loader_next(l, &b), damaged ? CLT_FORMAT : CLT_OK);
            if (damaged)
                assert_non_null(strstr(clt_error_message(), "truncated"));
        }
        clt_loader_free(l);
        clt_dataset_free(d);
    }
    free(bytes);
}

/* The loader is freed in every phase, with slots that are in use, ready or being filled. */
static void a_loader_can_be_freed_at_any_time(void **state)
{
    (void)state;
    for (int round = 0; round < 300; round++) {
        source s = {
            .bad = -1, .wrong_label = -1, .nanoseconds = round % 3 ? 1000 * (round % 50) : 0};
        clt_dataset *d = make_set(&s, round % 5 == 0);
        clt_loader *l = start(d, 1 + round % 130, 1 + round % 4, 1);
        clt_batch b = {.struct_size = sizeof b};
        for (int i = 0; i < round % 7; i++) {
            assert_int_equal(clt_loader_next(l, &b), CLT_OK);
            if (i >= 2)
                assert_int_equal(clt_loader_release(l, (b.slot + 1) % 3), CLT_OK);
        }
        sleep_ns(round % 11 ? 0 : 200000);
        clt_loader_free(l);
        clt_dataset_free(d);
    }
    /* Also before it is started. */
    source s = {.bad = -1, .wrong_label = -1};
    clt_dataset *d = make_set(&s, 0);
    clt_loader_desc desc;
    clt_loader_desc_init(&desc);
    desc.dataset = d;
    desc.batch = 4;
    clt_loader *l;
    assert_int_equal(clt_loader_create(&desc, &l), CLT_OK);
    clt_loader_free(l);
    clt_loader_free(NULL);
    clt_dataset_free(d);
}

static void *stop_soon(void *loader)
{
    sleep_ns(2000000);
    clt_loader_stop(loader);
    return NULL;
}

static void stop_wakes_the_one_who_waits(void **state)
{
    (void)state;
    source s = {.bad = -1, .wrong_label = -1, .nanoseconds = 300000};
    clt_dataset *d = make_set(&s, 0);
    clt_loader *l = start(d, 16, 2, 1);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, stop_soon, l), 0);
    clt_status status;
    clt_batch b = {.struct_size = sizeof b};
    while ((status = clt_loader_next(l, &b)) == CLT_OK)
        assert_int_equal(clt_loader_release(l, b.slot), CLT_OK);
    assert_int_equal(status, CLT_ABORTED);
    assert_int_equal(pthread_join(thread, NULL), 0);
    clt_loader_free(l);
    clt_dataset_free(d);
}

static void *release_later(void *argument)
{
    void **pair = argument;
    sleep_ns(50000);
    assert_int_equal(clt_loader_release(pair[0], (int)(intptr_t)pair[1]), CLT_OK);
    return NULL;
}

static void slots_are_released_by_other_threads(void **state)
{
    (void)state;
    source s = {.bad = -1, .wrong_label = -1};
    clt_dataset *d = make_set(&s, 0);
    clt_loader *l = start(d, 32, 3, 1);
    pthread_t thread[2];
    void *pair[2][2];
    for (int i = 0; i < 200; i++) {
        clt_batch b = {.struct_size = sizeof b};
        assert_int_equal(clt_loader_next(l, &b), CLT_OK);
        if (i >= 2)
            pthread_join(thread[i % 2], NULL);
        pair[i % 2][0] = l;
        pair[i % 2][1] = (void *)(intptr_t)b.slot;
        assert_int_equal(pthread_create(&thread[i % 2], NULL, release_later, pair[i % 2]), 0);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    clt_loader_free(l);
    clt_dataset_free(d);
}

/* Simulates a machine: assembling a batch takes `work`, a step of the consumer takes `step`, and at
 * most `useful` threads help. */
static int settle(clt_tuner *t, double work, double step, int useful, int windows)
{
    for (int i = 0; i < windows; i++) {
        int threads = t->active < useful ? t->active : useful;
        double load = work / threads, wall = load > step ? load : step;
        clt_tuner_step(t, wall - step, work, wall, 1);
    }
    return t->active;
}

static void as_many_threads_work_as_are_needed(void **state)
{
    (void)state;
    clt_tuner t;
    clt_tuner_init(&t, 1, 8);
    assert_int_equal(t.active, 8);
    assert_int_equal(settle(&t, 0.1, 1.0, 8, 50), 1); /* one thread is enough for light work */
    int threads = settle(&t, 3.5, 1.0, 8, 200);       /* four threads are enough for heavy work */
    assert_in_range((uintmax_t)threads, 4, 7);
    clt_tuner_init(&t, 2, 6);
    assert_int_equal(settle(&t, 0.01, 1.0, 8, 50), 2); /* never below the minimum */
    assert_int_equal(settle(&t, 50.0, 1.0, 8, 50), 6); /* never above the maximum */
    /* Only one thread can work at a time, so further threads do not help and are stopped again. */
    clt_tuner_init(&t, 1, 8);
    t.active = 1;
    int more = 0;
    for (int i = 0; i < 100; i++)
        more += settle(&t, 2.0, 1.0, 1, 1) > 1;
    assert_true(more < 15);
}

/* More than one thread must become active if the callback takes long and sleeps. */
static void threads_are_added_while_running(void **state)
{
    (void)state;
    source s = {.bad = -1, .wrong_label = -1, .nanoseconds = 2000000};
    clt_dataset *d = make_set(&s, 0);
    clt_loader *l = start(d, 4, 4, 1);
    clt_batch b = {.struct_size = sizeof b};
    for (int i = 0; i < 60; i++) {
        assert_int_equal(clt_loader_next(l, &b), CLT_OK);
        assert_int_equal(clt_loader_release(l, b.slot), CLT_OK);
    }
    clt_loader_stats stats = {.struct_size = sizeof stats};
    assert_int_equal(clt_loader_get_stats(l, &stats), CLT_OK);
    assert_int_equal(stats.batches, 60);
    assert_true(stats.threads > 1 && atomic_load(&s.most) > 1);
    assert_true(stats.wait_seconds > 0 && stats.busy_seconds > 0);
    clt_loader_free(l);
    clt_dataset_free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(serial_callbacks_run_alone),
        cmocka_unit_test(failures_come_in_order),
        cmocka_unit_test(a_decode_that_fails_is_reported_by_next),
        cmocka_unit_test(a_loader_can_be_freed_at_any_time),
        cmocka_unit_test(stop_wakes_the_one_who_waits),
        cmocka_unit_test(slots_are_released_by_other_threads),
        cmocka_unit_test(as_many_threads_work_as_are_needed),
        cmocka_unit_test(threads_are_added_while_running),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
