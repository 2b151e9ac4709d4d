/* Opening files that may be pipes or change, and text that a terminal must not obey. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/user_file.h"
#include "base/log.h"

static char folder[64], path[128];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/cltrain-file-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/file", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static void put(const char *text)
{
    unlink(path);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fputs(text, file) < 0, 0);
    assert_int_equal(fclose(file), 0);
}

/* Without O_NONBLOCK each of these waits for a writer until the alarm ends the program. */
static void pipes_are_refused_without_waiting(void **state)
{
    (void)state;
    int fd;
    int64_t bytes;
    char *text;
    size_t length;
    alarm(20);
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(clt_file_open(path, &fd, &bytes), CLT_IO);
    assert_non_null(strstr(clt_error_message(), "is not a regular file but a pipe"));
    assert_int_equal(clt_file_read_all(path, 100, &text, &length), CLT_IO);
    assert_int_equal(clt_text_open(path, &fd), CLT_IO);
    assert_non_null(strstr(clt_error_message(), path));
    assert_int_equal(clt_text_open(folder, &fd), CLT_IO);
    assert_non_null(strstr(clt_error_message(), "a folder"));
    assert_int_equal(clt_text_open("/dev/zero", &fd), CLT_IO);
    unlink(path);
    assert_int_equal(clt_text_open(path, &fd), CLT_NOT_FOUND);
    assert_int_equal(clt_file_open(path, &fd, &bytes), CLT_NOT_FOUND);
    alarm(0);
}

/* What a shell gives as <(command) is a pipe that the process holds. */
static void pipes_of_the_process_are_text(void **state)
{
    (void)state;
    int ends[2], fd;
    int64_t bytes;
    char name[64], got[16] = "";
    assert_int_equal(pipe(ends), 0);
    static const char *const places[] = {"/dev/fd/%d", "/proc/self/fd/%d"};
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, places[i], ends[0]);
        assert_int_equal(clt_text_open(name, &fd), CLT_OK);
        assert_int_equal(write(ends[1], "some", 4), 4);
        assert_int_equal(read(fd, got, sizeof got), 4);
        assert_memory_equal(got, "some", 4);
        close(fd);
        assert_int_equal(clt_file_open(name, &fd, &bytes), CLT_IO);
    }
    close(ends[0]);
    close(ends[1]);
}

static void a_file_that_was_shortened_is_an_error(void **state)
{
    (void)state;
    int fd;
    int64_t bytes;
    char got[8], *text;
    size_t length;
    put("0123456789");
    assert_int_equal(clt_file_open(path, &fd, &bytes), CLT_OK);
    assert_int_equal(bytes, 10);
    assert_int_equal(clt_file_read_at(fd, path, 4, got, 5), CLT_OK);
    assert_memory_equal(got, "45678", 5);
    assert_int_equal(truncate(path, 6), 0);
    assert_int_equal(clt_file_read_at(fd, path, 4, got, 5), CLT_IO);
    assert_non_null(
        strstr(clt_error_message(), "was shortened while it was read: 3 bytes at byte 6"));
    close(fd);
    assert_int_equal(clt_file_read_all(path, 6, &text, &length), CLT_OK);
    assert_string_equal(text, "012345");
    assert_int_equal(length, 6);
    clt_free(text);
    assert_int_equal(clt_file_read_all(path, 5, &text, &length), CLT_FORMAT);
    assert_non_null(strstr(clt_error_message(), "has 6 bytes; 5 are the most"));
}

static void what_a_terminal_would_obey_is_escaped(void **state)
{
    (void)state;
    static const struct {
        const char *text, *shown;
    } cases[] = {
        {"plain 'text' \\ of 100 %", "plain 'text' \\ of 100 %"},
        {"\x1b[2J\x1b]0;title\x07", "\\x1b[2J\\x1b]0;title\\x07"},
        {"a\nb\rc\td\x7f", "a\\nb\\rc\\td\\x7f"},
        {"gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80",
         "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"\xc2\x9b"
         "1m \x9b"
         "1m",
         "\\xc2\\x9b1m \\x9b1m"},
        {"\xe2\x80\xae turned", "\\xe2\\x80\\xae turned"},
        {"latin \xe4, cut \xe2\x82", "latin \\xe4, cut \\xe2\\x82"},
        {"\xc0\x80 \xed\xa0\x80 \xf4\x90\x80\x80",
         "\\xc0\\x80 \\xed\\xa0\\x80 \\xf4\\x90\\x80\\x80"},
    };
    char out[256];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(clt_printable(cases[i].text, out, sizeof out), strlen(cases[i].shown));
        assert_string_equal(out, cases[i].shown);
        clt_fail(CLT_IO, "%s", cases[i].text);
        clt_fail_prefix(CLT_IO, "%s: ", cases[i].text);
        char twice[600];
        snprintf(twice, sizeof twice, "%s: %s", cases[i].shown, cases[i].shown);
        assert_string_equal(clt_error_message(), twice);
    }
    /* A cut leaves whole characters and whole escapes. */
    assert_int_equal(clt_printable("ab\x1b", out, 6), 6);
    assert_string_equal(out, "ab");
    assert_int_equal(clt_printable("ab\xe2\x82\xac", out, 5), 5);
    assert_string_equal(out, "ab");
    assert_int_equal(clt_printable("abc", NULL, 0), 3);
}

static void keep_line(void *user, clt_log_level level, const char *line)
{
    (void)level;
    snprintf(user, 100, "%s", line);
}

static void log_lines_are_escaped(void **state)
{
    (void)state;
    char line[100] = "";
    clt_log_set(keep_line, line, CLT_LOG_WARN);
    clt_log(CLT_LOG_WARN, "device %s", "\x1b[31mred\n");
    clt_log_set(NULL, NULL, CLT_LOG_WARN);
    assert_string_equal(line, "device \\x1b[31mred\\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pipes_are_refused_without_waiting),
        cmocka_unit_test(pipes_of_the_process_are_text),
        cmocka_unit_test(a_file_that_was_shortened_is_an_error),
        cmocka_unit_test(what_a_terminal_would_obey_is_escaped),
        cmocka_unit_test(log_lines_are_escaped),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
