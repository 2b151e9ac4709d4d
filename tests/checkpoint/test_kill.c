/* A process that is killed with SIGKILL while it saves must leave its last finished checkpoint
 * intact. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <time.h>
#include <cmocka.h>

#include "base/philox.h"
#include "checkpoint/run.h"
#include "checkpoint/scratch.h"

/* In the child: saves step after step, and reports each step. Never returns. */
static void save_until_killed(const char *dir, int64_t first, int tell)
{
    for (int64_t step = first;; step++) {
        clt_checkpoint_desc desc;
        /* Each step is saved twice, so that replacements are interrupted too. */
        for (int again = 0; again < 2; again++) {
            run_describe(&desc, step);
            desc.keep = 2;
            if (clt_checkpoint_save(dir, &desc) != CLT_OK)
                _exit(1);
        }
        if (write(tell, &step, sizeof step) != sizeof step)
            _exit(2);
    }
}

/* Lets a child save for some microseconds, then kills it. Returns the last step that it
 * reported. */
static int64_t save_and_kill(const char *dir, int64_t first, int64_t microseconds)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(ends[0]);
        save_until_killed(dir, first, ends[1]);
    }
    close(ends[1]);
    struct timespec pause = {microseconds / 1000000, microseconds % 1000000 * 1000};
    nanosleep(&pause, NULL);
    assert_int_equal(kill(child, SIGKILL), 0);
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
    int64_t told, last = first - 1;
    while (read(ends[0], &told, sizeof told) == sizeof told)
        last = told;
    close(ends[0]);
    return last;
}

static void finished_checkpoints_survive(void **state)
{
    (void)state;
    enum { KILLS = 300 };
    char dir[512];
    snprintf(dir, sizeof dir, "%s/kill", scratch);
    /* The time before a kill is at most a few saves' time, however fast the disk is. */
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i < 8; i++)
        run_save(dir, 0, 2);
    clock_gettime(CLOCK_MONOTONIC, &end);
    int64_t longest = (end.tv_sec - begin.tv_sec) * 1000000 + (end.tv_nsec - begin.tv_nsec) / 1000;
    longest = longest < 2000 ? 2000 : longest > 40000 ? 40000 : longest;
    const uint32_t key[2] = {7, 7};
    int64_t last = 0;
    int leftovers = 0, whole = 0;
    for (uint32_t i = 0; i < KILLS; i++) {
        uint32_t r[4];
        clt_philox((const uint32_t[]){i, 0, 0, 0}, key, r);
        int64_t told = save_and_kill(dir, last + 1, r[0] % longest);
        clt_checkpoint *c;
        clt_status status = clt_checkpoint_open(dir, &c);
        if (status != CLT_OK)
            fail_msg("kill %u: %s", i, clt_error_message());
        int64_t step = clt_checkpoint_run(c)->step;
        /* The child may be killed between the rename and the report, so one step more may be
         * there. */
        assert_in_range(step - told, 0, 1);
        run_check(c, step);
        clt_checkpoint_close(c);
        leftovers += strstr(run_list(dir), ".tmp-") != NULL;
        whole += step > last;
        last = step;
    }
    run_save(dir, last + 1, 1);
    char want[64];
    snprintf(want, sizeof want, "step-%08lld ", (long long)last + 1);
    assert_string_equal(run_list(dir), want);
    print_message("%d kills: %d in the middle of a save, %d after at least one whole\n", KILLS,
                  leftovers, whole);
    assert_in_range(leftovers, 1, KILLS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(finished_checkpoints_survive)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
