/*
 * Saves in which each system call in turn fails, or is the last one before the process is killed.
 * The program's definitions of these calls replace those of the C library.
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <cmocka.h>

#include "checkpoint/run.h"
#include "checkpoint/scratch.h"

static int calls_left;   /* calls until the fault; 0 for no fault */
static int fault_error;  /* errno of the failing call; 0: the process is killed before the call */
static bool no_exchange; /* simulates file systems that cannot exchange two names */
static const char *faulty_call;
static char trace[256]; /* first letters of the calls whose order matters for a power cut */

static bool fault(const char *name)
{
    size_t used = strlen(trace);
    if (used + 1 < sizeof trace && (name[0] == 'm' || name[0] == 'f' || name[0] == 'r'))
        trace[used] = name[0];
    if (!calls_left || --calls_left)
        return false;
    faulty_call = name;
    if (!fault_error)
        kill(getpid(), SIGKILL);
    errno = fault_error;
    return true;
}

ssize_t write(int fd, const void *data, size_t bytes)
{
    return fault("write") ? -1 : (ssize_t)syscall(SYS_write, fd, data, bytes);
}

/* Syncs nothing, since no power cut comes. This makes the test fast. */
int fsync(int fd)
{
    return fault("fsync") || fd < 0 ? -1 : 0;
}

int close(int fd)
{
    /* Linux closes the file even if it reports a failure. */
    bool failed = fault("close");
    int error = errno, result = (int)syscall(SYS_close, fd);
    errno = failed ? error : errno;
    return failed ? -1 : result;
}

int mkdirat(int fd, const char *name, mode_t mode)
{
    return fault("mkdirat") ? -1 : (int)syscall(SYS_mkdirat, fd, name, mode);
}

int unlinkat(int fd, const char *name, int flags)
{
    return fault("unlinkat") ? -1 : (int)syscall(SYS_unlinkat, fd, name, flags);
}

int renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags)
{
    if (fault("renameat2"))
        return -1;
    if (no_exchange && flags) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_renameat2, from_fd, from, to_fd, to, flags);
}

int renameat(int from_fd, const char *from, int to_fd, const char *to)
{
    return fault("renameat") ? -1 : (int)syscall(SYS_renameat2, from_fd, from, to_fd, to, 0);
}

/* Checks every element of the newest checkpoint. Returns its step and seed. */
static int64_t newest(const char *dir, int64_t *seed)
{
    clt_checkpoint *c;
    if (clt_checkpoint_open(dir, &c) != CLT_OK)
        fail_msg("%s", clt_error_message());
    int64_t step = clt_checkpoint_run(c)->step;
    *seed = clt_checkpoint_run(c)->seed;
    run_check(c, step);
    clt_checkpoint_close(c);
    return step;
}

static clt_status save(const char *dir, int64_t step, int64_t seed)
{
    clt_checkpoint_desc desc;
    run_describe(&desc, step);
    desc.run.seed = seed;
    desc.keep = 1;
    return clt_checkpoint_save(dir, &desc);
}

/* Starts with step 1, seed 1 in the folder. Then saves `step`, seed 2, with a fault at call number
 * `at`. Returns false if the save has fewer calls. */
static bool suffer(const char *dir, int64_t step, int at, int error, int *refused)
{
    int64_t seed;
    bool hit;
    clt_status status = CLT_IO;
    scratch_remove_tree(dir);
    assert_int_equal(save(dir, 1, 1), CLT_OK);
    fault_error = error;
    if (error) {
        calls_left = at;
        status = save(dir, step, 2);
        hit = calls_left == 0;
        calls_left = 0;
    } else {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            calls_left = at;
            status = save(dir, step, 2);
            calls_left = 0;
            _exit(status == CLT_OK ? 0 : 1);
        }
        int how;
        assert_int_equal(waitpid(child, &how, 0), child);
        hit = WIFSIGNALED(how);
        assert_true(hit || WEXITSTATUS(how) == 0);
        if (!hit)
            status = CLT_OK;
    }
    int64_t found = newest(dir, &seed);
    if (status == CLT_OK) {
        /* A failure to delete old folders is no failure of the save. */
        assert_int_equal(found, step);
        assert_int_equal(seed, 2);
    } else {
        assert_int_equal(found, seed == 2 ? step : 1);
        (*refused)++;
        if (error) {
            assert_message_has(strerror(error));
            assert_message_has("was not saved");
            /* The new checkpoint may be there only if it may not have reached the disk. */
            assert_true(seed == 1 || strcmp(faulty_call, "fsync") == 0);
        }
    }
    /* The next save works and leaves nothing else behind. */
    assert_int_equal(save(dir, 3, 3), CLT_OK);
    assert_string_equal(run_list(dir), "step-00000003 ");
    assert_int_equal(newest(dir, &seed), 3);
    return hit;
}

static void every_call_in_turn(int error)
{
    char dir[512];
    snprintf(dir, sizeof dir, "%s/faults", scratch);
    for (int mode = 0; mode < 4; mode++) {
        int64_t step = mode % 2 ? 1 : 2; /* replaces a checkpoint, or adds one */
        no_exchange = mode >= 2;
        int at = 1, refused = 0;
        while (suffer(dir, step, at, error, &refused))
            at++;
        /* The calls for headers, data, spaces, syncs, closes and names. */
        print_message("%s, step %d%s: %d calls, %d of them lost the save\n",
                      error ? strerror(error) : "killed", (int)step,
                      no_exchange ? ", no exchange" : "", at - 1, refused);
        assert_in_range(at, 20, 200);
        assert_in_range(refused, 15, at);
    }
    no_exchange = false;
}

static void calls_that_fail_lose_nothing(void **state)
{
    (void)state;
    every_call_in_turn(ENOSPC);
    every_call_in_turn(EIO);
}

static void a_kill_at_any_call_loses_nothing(void **state)
{
    (void)state;
    every_call_in_turn(0);
}

/* A test cannot cut the power, but it can check the order of the calls. */
static void all_is_synced_before_the_rename_and_the_rename_before_deleting(void **state)
{
    (void)state;
    char dir[512];
    snprintf(dir, sizeof dir, "%s/order", scratch);
    assert_int_equal(save(dir, 1, 1), CLT_OK);
    memset(trace, 0, sizeof trace);
    assert_int_equal(save(dir, 2, 1), CLT_OK);
    /* The folder is made, three files and the folder are synced, and the folder is renamed. Its
     * parent is synced, and the old folder is renamed away. */
    assert_string_equal(trace, "mffffrfr");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_that_fail_lose_nothing),
        cmocka_unit_test(a_kill_at_any_call_loses_nothing),
        cmocka_unit_test(all_is_synced_before_the_rename_and_the_rename_before_deleting),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
