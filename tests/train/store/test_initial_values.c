/* Initial values of tensors that threads fill in parts: the bits of one thread. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/thread.h"
#include "train/store/init.h"

/* Fills a tensor with one processor or all of those that the process may use. */
static void *fill_on(const clt_slot *slot, bool one)
{
    cpu_set_t all, first;
    void *data = malloc((size_t)slot->bytes);
    assert_non_null(data);
    memset(data, 0xff, (size_t)slot->bytes);
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&first);
    for (size_t i = 0; i < CPU_SETSIZE && !CPU_COUNT(&first); i++)
        if (CPU_ISSET(i, &all))
            CPU_SET(i, &first);
    if (one) {
        assert_int_equal(sched_setaffinity(0, sizeof first, &first), 0);
        assert_int_equal(clt_processors(), 1);
    }
    clt_init_fill(slot, (clt_coordinate){0, 1}, 11, data);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    return data;
}

static void threads_fill_the_bits_of_one(void **state)
{
    (void)state;
    const clt_init inits[] = {{.kind = CLT_INIT_NORMAL, .a = 0.5, .b = 2},
                              {.kind = CLT_INIT_UNIFORM, .a = 3},
                              {.kind = CLT_INIT_CONSTANT, .a = 7}};
    const int64_t sizes[] = {1, 131071, 131073, 300007}; /* no multiples of parts or of four */
    for (int i = 0; i < 3; i++)
        for (int s = 0; s < 4; s++) {
            const clt_type type = {.dtype = CLT_F32, .rank = 1, .dims = {sizes[s]}};
            const clt_slot slot = {
                .type = type, .whole = type, .init = inits[i], .stream = 5, .bytes = 4 * sizes[s]};
            void *one = fill_on(&slot, true), *many = fill_on(&slot, false);
            assert_memory_equal(one, many, (size_t)slot.bytes);
            free(one);
            free(many);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(threads_fill_the_bits_of_one)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
