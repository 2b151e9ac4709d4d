/* Status and messages, strings, arrays, hashes, random numbers, huge pages and threads. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/philox.h"
#include "base/str.h"
#include "base/thread.h"
#include "base/vec.h"
#include <cltrain/types.h>

static void messages_keep_the_first_detector_and_take_prefixes(void **state)
{
    (void)state;
    assert_int_equal(clt_fail(CLT_SHAPE, "3 is not %d", 4), CLT_SHAPE);
    assert_int_equal(clt_fail_prefix(CLT_SHAPE, "node %s: ", "fc1"), CLT_SHAPE);
    assert_string_equal(clt_error_message(), "node fc1: 3 is not 4");
    assert_string_equal(clt_status_name(CLT_SHAPE), "SHAPE");
}

static void philox_gives_the_published_numbers(void **state)
{
    (void)state;
    /* Known-answer vectors of the authors' library, Random123. */
    uint32_t out[4];
    const uint32_t zero[4] = {0, 0, 0, 0}, zero_key[2] = {0, 0};
    clt_philox(zero, zero_key, out);
    const uint32_t want_zero[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    assert_memory_equal(out, want_zero, sizeof out);
    const uint32_t pi[4] = {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344};
    const uint32_t pi_key[2] = {0xa4093822, 0x299f31d0};
    clt_philox(pi, pi_key, out);
    const uint32_t want_pi[4] = {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1};
    assert_memory_equal(out, want_pi, sizeof out);
}

static void nearest_suggests_only_near_names(void **state)
{
    (void)state;
    const char *const names[] = {"softmax", "mlp", "lenet"};
    assert_string_equal(clt_nearest("lnet", names, 3), "lenet");
    assert_string_equal(clt_nearest("SoftMx", names, 3), "softmax");
    assert_string_equal(clt_nearest("lneet", names, 3), "lenet");
    assert_null(clt_nearest("resnet50", names, 3));
}

static void arrays_and_strings_grow(void **state)
{
    (void)state;
    int *items = NULL, count = 0, room = 0;
    for (int i = 0; i < 1000; i++)
        assert_int_equal(CLT_PUSH(items, count, room, i), CLT_OK);
    assert_int_equal(items[999], 999);
    clt_free(items);
    clt_str s = {0};
    for (int i = 0; i < 100; i++)
        clt_str_add(&s, "%d,", i);
    assert_int_equal(s.length, strlen(clt_str_text(&s)));
    clt_str_free(&s);
    assert_int_equal(clt_dtype_size(CLT_BF16), 2);
}

static void *read_mask(void *mask)
{
    pthread_sigmask(SIG_BLOCK, NULL, mask);
    return NULL;
}

static void threads_block_signals_of_the_host_program(void **state)
{
    (void)state;
    sigset_t before, after, inside;
    pthread_t thread;
    pthread_sigmask(SIG_BLOCK, NULL, &before);
    assert_false(sigismember(&before, SIGUSR1));
    assert_int_equal(clt_thread_start(&thread, read_mask, &inside), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pthread_sigmask(SIG_BLOCK, NULL, &after);
    const int signals[] = {SIGINT, SIGTERM, SIGUSR1, SIGALRM, SIGCHLD, SIGPROF};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        assert_true(sigismember(&inside, signals[i]));
        assert_int_equal(sigismember(&after, signals[i]), sigismember(&before, signals[i]));
    }
}

/* Whether Linux was asked for huge pages at this address: the flag "hg" of its mapping. */
static bool wants_huge(const void *at)
{
    char line[512];
    unsigned long long begin, end, place = (unsigned long long)(uintptr_t)at;
    bool here = false, wants = false;
    FILE *f = fopen("/proc/self/smaps", "re");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "%llx-%llx ", &begin, &end) == 2)
            here = begin <= place && place < end;
        else if (here && !strncmp(line, "VmFlags:", 8))
            wants = strstr(line, " hg") != NULL;
    }
    fclose(f);
    return wants;
}

static void huge_pages_are_asked_for_within_the_memory_given(void **state)
{
    enum { PAGE = 4096, PAGES = 3 * 512 };
    (void)state;
    if (access("/sys/kernel/mm/transparent_hugepage/enabled", R_OK))
        skip(); /* a system without them */
    char *data = clt_alloc_pages(PAGES * PAGE);
    assert_non_null(data);
    clt_advise_huge(NULL, PAGE);
    clt_advise_huge(data + 1, PAGE); /* has no whole page */
    assert_false(wants_huge(data));
    clt_advise_huge(data + PAGE + 1, (PAGES - 2) * PAGE);
    assert_false(wants_huge(data + PAGE));
    assert_true(wants_huge(data + 2 * PAGE));
    assert_true(wants_huge(data + (PAGES - 2) * PAGE));
    assert_false(wants_huge(data + (PAGES - 1) * PAGE));
    clt_free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_keep_the_first_detector_and_take_prefixes),
        cmocka_unit_test(philox_gives_the_published_numbers),
        cmocka_unit_test(nearest_suggests_only_near_names),
        cmocka_unit_test(arrays_and_strings_grow),
        cmocka_unit_test(huge_pages_are_asked_for_within_the_memory_given),
        cmocka_unit_test(threads_block_signals_of_the_host_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
