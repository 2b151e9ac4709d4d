/* The lock of a checkpoint folder has one holder, whom messages name, until that process ends in
 * any way. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <cmocka.h>

#include "checkpoint/scratch.h"
#include <cltrain/checkpoint.h>
#include <cltrain/log.h>

/* What the file system of the test does. The program's definitions of these calls replace those of
 * the C library. */
static bool no_locks;      /* flock is not there */
static bool other_numbers; /* a file has another number by its name than by its descriptor */
static bool short_writes;  /* pwrite writes one byte less, without an errno */

int flock(int fd, int operation)
{
    if (!no_locks)
        return (int)syscall(SYS_flock, fd, operation);
    errno = ENOSYS;
    return -1;
}

int fstatat(int fd, const char *restrict name, struct stat *restrict info, int flags)
{
    const int result = (int)syscall(SYS_newfstatat, fd, name, info, flags);
    info->st_ino += other_numbers;
    return result;
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t at)
{
    return syscall(SYS_pwrite64, fd, data, bytes - short_writes, at);
}

static int warnings;
static char warning[512];

static void count_warning(void *user, clt_log_level level, const char *line)
{
    (void)user;
    warnings += level == CLT_LOG_WARN;
    snprintf(warning, sizeof warning, "%s", line);
}

static void expect_busy(const char *dir, long pid)
{
    clt_folder_lock *lock = NULL;
    char host[256] = "", who[300];
    gethostname(host, sizeof host - 1);
    snprintf(who, sizeof who, "process %ld on %s since ", pid, host);
    assert_int_equal(clt_folder_lock_take(dir, &lock), CLT_BUSY);
    assert_null(lock);
    if (!strstr(clt_error_message(), dir) || !strstr(clt_error_message(), who))
        fail_msg("\"%s\" does not name %s and \"%s\"", clt_error_message(), dir, who);
}

static void one_holder(void **state)
{
    (void)state;
    const char *dir = in_scratch("one/run");
    clt_folder_lock *first, *second;
    assert_int_equal(clt_folder_lock_take(dir, &first), CLT_OK);
    expect_busy(dir, (long)getpid());
    clt_folder_lock_release(first);
    assert_int_equal(access(in_scratch("one/run/.lock"), F_OK), -1);
    assert_int_equal(clt_folder_lock_take(dir, &second), CLT_OK);
    clt_folder_lock_release(second);
    clt_folder_lock_release(NULL);
}

/* Starts a child that holds the lock until it is killed. */
static pid_t start_holder(const char *dir)
{
    int ready[2];
    char byte = 0;
    assert_int_equal(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) {
        clt_folder_lock *lock;
        if (clt_folder_lock_take(dir, &lock) == CLT_OK && write(ready[1], &byte, 1) == 1)
            for (;;)
                pause();
        _exit(1);
    }
    assert_true(child > 0);
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return child;
}

static void a_killed_holder_leaves_no_lock(void **state)
{
    (void)state;
    const char *dir = in_scratch("killed");
    const pid_t child = start_holder(dir);
    expect_busy(dir, (long)child);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(access(in_scratch("killed/.lock"), F_OK), 0); /* the lock's file remains */
    clt_folder_lock *lock;
    assert_int_equal(clt_folder_lock_take(dir, &lock), CLT_OK);
    expect_busy(dir, (long)getpid());
    clt_folder_lock_release(lock);
}

/* A removed file frees the name of the lock. The old holder must not remove the new holder's
 * file. */
static void a_removed_file(void **state)
{
    (void)state;
    const char *dir = in_scratch("removed");
    clt_folder_lock *old, *new;
    assert_int_equal(clt_folder_lock_take(dir, &old), CLT_OK);
    assert_int_equal(unlink(in_scratch("removed/.lock")), 0);
    assert_int_equal(clt_folder_lock_take(dir, &new), CLT_OK);
    clt_folder_lock_release(old);
    expect_busy(dir, (long)getpid());
    clt_folder_lock_release(new);
}

static void what_is_no_file(void **state)
{
    (void)state;
    const char *dir = in_scratch("odd");
    clt_folder_lock *lock;
    assert_int_equal(mkdir(dir, 0777), 0);
    assert_int_equal(mkfifo(in_scratch("odd/.lock"), 0666), 0);
    assert_int_equal(clt_folder_lock_take(dir, &lock), CLT_IO);
    assert_non_null(strstr(clt_error_message(), "/.lock is not a regular file"));
    assert_int_equal(unlink(in_scratch("odd/.lock")), 0);
    assert_int_equal(symlink("elsewhere", in_scratch("odd/.lock")), 0);
    assert_int_equal(clt_folder_lock_take(dir, &lock), CLT_IO);
    assert_int_equal(access(in_scratch("odd/elsewhere"), F_OK), -1);
}

/* Messages print the text of the file. Characters that a terminal would obey must be escaped. */
static void text_of_others(void **state)
{
    (void)state;
    const char *dir = in_scratch("text");
    clt_folder_lock *lock, *none;
    assert_int_equal(clt_folder_lock_take(dir, &lock), CLT_OK);
    FILE *file = fopen(in_scratch("text/.lock"), "w");
    assert_non_null(file);
    fputs("\033[2Jsomebody\nelse", file);
    fclose(file);
    assert_int_equal(clt_folder_lock_take(dir, &none), CLT_BUSY);
    assert_non_null(strstr(clt_error_message(), "?[2Jsomebody holds"));
    clt_folder_lock_release(lock);
}

static void a_file_system_without_locks(void **state)
{
    (void)state;
    const char *dir = in_scratch("none");
    clt_folder_lock *lock;
    warnings = 0;
    clt_log_set(count_warning, NULL, CLT_LOG_WARN);
    no_locks = other_numbers = true;
    assert_int_equal(clt_folder_lock_take(dir, &lock), CLT_OK);
    assert_int_equal(warnings, 1);
    assert_non_null(strstr(warning, "has no locks"));
    clt_folder_lock_release(lock);
    /* Locks are there, but the numbers of files tell nothing. */
    no_locks = false;
    assert_int_equal(clt_folder_lock_take(dir, &lock), CLT_IO);
    assert_non_null(strstr(clt_error_message(), "cannot lock"));
    other_numbers = false;
    clt_log_set(NULL, NULL, CLT_LOG_WARN);
}

static void a_write_that_is_cut_short(void **state)
{
    (void)state;
    clt_folder_lock *lock;
    warnings = 0;
    clt_log_set(count_warning, NULL, CLT_LOG_WARN);
    short_writes = true;
    errno = EINTR;
    assert_int_equal(clt_folder_lock_take(in_scratch("short"), &lock), CLT_OK);
    short_writes = false;
    clt_log_set(NULL, NULL, CLT_LOG_WARN);
    assert_int_equal(warnings, 1);
    assert_non_null(strstr(warning, strerror(ENOSPC)));
    clt_folder_lock_release(lock);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_holder),
        cmocka_unit_test(a_killed_holder_leaves_no_lock),
        cmocka_unit_test(a_removed_file),
        cmocka_unit_test(what_is_no_file),
        cmocka_unit_test(text_of_others),
        cmocka_unit_test(a_file_system_without_locks),
        cmocka_unit_test(a_write_that_is_cut_short),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
