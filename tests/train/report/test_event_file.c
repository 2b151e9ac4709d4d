/* TensorBoard's files: names and errors. tests/cli/test_tensorboard.py reads their content. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include <cltrain/events.h>

/* Removes the files of a folder and the folder. Returns how many were files of TensorBoard. */
static int remove_folder(const char *folder)
{
    int count = 0;
    char path[512];
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        count += strncmp(entry->d_name, "events.out.tfevents.", 20) == 0;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        unlink(path);
    }
    closedir(dir);
    assert_int_equal(rmdir(folder), 0);
    return count;
}

static void files_of_one_second_differ(void **state)
{
    (void)state;
    char folder[] = "/tmp/cltrain-events-XXXXXX", inner[64];
    assert_non_null(mkdtemp(folder));
    snprintf(inner, sizeof inner, "%s/inner", folder);
    clt_event_file *first, *second;
    clt_status status = clt_event_file_create(inner, 1, &first);
    if (status == CLT_UNSUPPORTED) {
        rmdir(folder);
        skip();
    }
    assert_int_equal(status, CLT_OK);
    assert_int_equal(clt_event_file_create(inner, 1, &second), CLT_OK);
    assert_int_equal(clt_event_file_scalar(first, "loss", 1, 0), CLT_OK);
    assert_int_equal(clt_event_file_scalar(first, "", 1, 0), CLT_INVALID_ARGUMENT);
    assert_int_equal(clt_event_file_flush(first), CLT_OK);
    clt_event_file_destroy(first);
    clt_event_file_destroy(second);
    clt_event_file_destroy(NULL);
    assert_int_equal(remove_folder(inner), 2);
    assert_int_equal(rmdir(folder), 0);
}

static void folder_below_a_file(void **state)
{
    (void)state;
    clt_event_file *file = NULL;
    const clt_status status = clt_event_file_create("/dev/null/board", 1, &file);
    if (status == CLT_UNSUPPORTED)
        skip();
    assert_int_equal(status, CLT_IO);
    assert_non_null(strstr(clt_error_message(), "/dev/null/board"));
    assert_null(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_of_one_second_differ),
        cmocka_unit_test(folder_below_a_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
