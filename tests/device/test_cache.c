/* Programs in the cache folder: damaged files, read-only folders, processes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include <cltrain/log.h>
#include <cltrain/unstable.h>

#include "base/alloc.h"
#include "device/cache_folder.h"
#include "device/program/cache_file.h"
#include "device/program/program_cache.h"

static const char *self;

static const char text[] = "kernel void twice(global int *x) { x[get_global_id(0)] *= FACTOR; }\n";
static const char options[] = "-DFACTOR=2";

/* Runs the kernel on 0, 1, 2, ... Returns false if any number is wrong. */
static bool kernel_works(clt_device *device)
{
    enum { COUNT = 64 };
    int values[COUNT];
    const size_t global = COUNT;
    cl_kernel kernel = NULL;
    cl_mem buffer = NULL;
    bool ok =
        clt_device_kernel_from_text(device, "twice", text, options, "twice", &kernel) == CLT_OK &&
        clt_device_buffer_create(device, sizeof values, CL_MEM_READ_WRITE, "b", &buffer) == CLT_OK;
    for (int i = 0; i < COUNT; i++)
        values[i] = i;
    ok = ok && clEnqueueWriteBuffer(device->queue, buffer, CL_TRUE, 0, sizeof values, values, 0,
                                    NULL, NULL) == CL_SUCCESS;
    ok = ok && clSetKernelArg(kernel, 0, sizeof buffer, &buffer) == CL_SUCCESS;
    ok = ok && clEnqueueNDRangeKernel(device->queue, kernel, 1, NULL, &global, NULL, 0, NULL,
                                      NULL) == CL_SUCCESS;
    ok = ok && clEnqueueReadBuffer(device->queue, buffer, CL_TRUE, 0, sizeof values, values, 0,
                                   NULL, NULL) == CL_SUCCESS;
    for (int i = 0; i < COUNT && ok; i++)
        ok = values[i] == 2 * i;
    clt_release_kernel(kernel);
    clt_release_buffer(buffer);
    return ok;
}

static bool can_load(clt_device *device)
{
    /* Builds the same key as clt_device_kernel_from_text. */
    char source[sizeof text + 64], all[64];
    snprintf(source, sizeof source, "#line 1 \"twice\"\n%s", text);
    snprintf(all, sizeof all, "%s%s %s", CLT_COMMON_OPTIONS,
             device->quirks & CLT_QUIRK_BUILTINS ? " " CLT_BUILTINS_OPTION : "", options);
    const clt_cache_key key = clt_cache_key_make(device, all, source);
    cl_program program = NULL;
    if (!clt_program_cache_load(device, &key, all, &program))
        return false;
    clReleaseProgram(program);
    clt_object_released(CLT_OBJECT_PROGRAM);
    return true;
}

static void a_program_is_read_back(void **state)
{
    (void)state;
    char name[900];
    for (int round = 0; round < 2; round++) {
        clt_device *device = open_device(folder);
        assert_non_null(device);
        assert_int_equal(can_load(device), round == 1);
        assert_true(kernel_works(device));
        assert_int_equal(list_files("programs", name), 1);
        assert_true(can_load(device));
        close_device();
    }
}

static int warnings;
static char warning[1024];

static void count_warning(void *user, clt_log_level level, const char *line)
{
    (void)user;
    if (level == CLT_LOG_WARN && strstr(line, "cache folder")) {
        warnings++;
        snprintf(warning, sizeof warning, "%s", line);
    }
}

/* Anyone who can write to the folder could make this process run their code. Such a folder is not
 * used: kernels are compiled, and the log has one warning. */
static void a_folder_that_others_may_write_is_not_trusted(void **state)
{
    (void)state;
    char name[900], programs[300];
    snprintf(programs, sizeof programs, "%s/programs", folder);
    clt_device *device = open_device(folder);
    assert_non_null(device);
    assert_true(kernel_works(device));
    assert_true(can_load(device));
    assert_int_equal(list_files("programs", name), 1);
    clt_log_set(count_warning, NULL, CLT_LOG_WARN);
    const struct {
        const char *path;
        mode_t open, private;
        int warns;
    } cases[] = {{programs, 0770, 0700, 1}, {folder, 0707, 0700, 1}, {name, 0602, 0600, 0}};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(chmod(cases[i].path, cases[i].open), 0);
        assert_int_equal(clt_cache_check(folder, "programs"), cases[i].warns ? CLT_IO : CLT_OK);
        if (cases[i].warns) {
            assert_non_null(strstr(clt_error_message(), cases[i].path));
            assert_false(can_load(device));
            assert_int_equal(list_files("programs", NULL), 1); /* the file is not removed either */
            assert_true(kernel_works(device));
        } else {
            char *data;
            size_t bytes;
            assert_false(
                clt_cache_read_private(folder, "programs", strrchr(name, '/') + 1, &data, &bytes));
        }
        assert_true(chmod(cases[i].path, cases[i].private) == 0 && can_load(device));
    }
    assert_int_equal(warnings, 1);
    assert_non_null(strstr(warning, "others may write to it"));
    /* A link is trusted as much as the folder that it leads to. */
    char aside[320];
    snprintf(aside, sizeof aside, "%s.aside", programs);
    assert_true(rename(programs, aside) == 0 && symlink(aside, programs) == 0);
    assert_true(can_load(device));
    assert_int_equal(chmod(aside, 0777), 0);
    assert_false(can_load(device));
    assert_true(chmod(aside, 0700) == 0 && unlink(programs) == 0 && rename(aside, programs) == 0);
    clt_log_set(NULL, NULL, CLT_LOG_WARN);
    close_device();
}

static void flip_byte(const char *name, long at)
{
    FILE *f = fopen(name, "r+b");
    assert_non_null(f);
    fseek(f, at, SEEK_SET);
    int c = fgetc(f);
    fseek(f, at, SEEK_SET);
    fputc(c ^ 0x10, f);
    fclose(f);
}

static void damaged_programs_are_compiled_again(void **state)
{
    (void)state;
    char name[900];
    assert_int_equal(list_files("programs", name), 1);
    const long size = file_size(name);
    const long cuts[] = {0, 1, 39, 40, 41, size / 2, size - 1};
    const long flips[] = {0, 8, 24, 32, 40, size / 2, size - 1};
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        for (int flip = 0; flip < 2; flip++) {
            if (flip)
                flip_byte(name, flips[i]);
            else
                assert_int_equal(truncate(name, cuts[i]), 0);
            clt_device *device = open_device(folder);
            assert_non_null(device);
            assert_false(can_load(device));
            assert_true(kernel_works(device));
            assert_true(can_load(device));
            close_device();
        }
    }
    assert_int_equal(list_files("programs", NULL), 1);
    /* A folder in place of the file. */
    assert_int_equal(remove(name), 0);
    assert_int_equal(mkdir(name, 0700), 0);
    clt_device *device = open_device(folder);
    assert_true(kernel_works(device));
    assert_false(can_load(device));
    close_device();
    assert_int_equal(list_files("programs", NULL), 1);
    assert_int_equal(remove(name), 0);
}

static void an_impossible_folder_is_a_miss(void **state)
{
    (void)state;
    char below_a_file[600];
    snprintf(below_a_file, sizeof below_a_file, "%s/file", folder);
    FILE *f = fopen(below_a_file, "w");
    assert_non_null(f);
    fclose(f);
    const char *folders[] = {below_a_file, "/proc/cltrain-none", ""};
    for (int i = 0; i < 3; i++) {
        clt_device *device = open_device(folders[i]);
        assert_non_null(device);
        assert_true(kernel_works(device));
        assert_false(can_load(device));
        clt_tuning_record record;
        clt_tuning_load(device, &record);
        assert_int_equal(own_entries(&record), 0);
        assert_int_equal(clt_tuning_save(device, &record), i < 2 ? CLT_IO : CLT_OK);
        clt_tuning_free(&record);
        close_device();
    }
    assert_int_equal(remove(below_a_file), 0);
}

static void processes_share_the_folder(void **state)
{
    (void)state;
    enum { PROCESSES = 4 };
    char name[900];
    if (list_files("programs", name))
        remove_part("programs");
    pid_t children[PROCESSES];
    for (int i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0) {
            execl(self, self, "child", folder, (char *)NULL);
            _exit(127);
        }
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status = -1;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    assert_int_equal(list_files("programs", name), 1);
    clt_device *device = open_device(folder);
    assert_true(can_load(device));
    close_device();
}

static int run_child(const char *cache_dir)
{
    for (int i = 0; i < 5; i++) {
        clt_device *device = open_device(cache_dir);
        if (!device || !kernel_works(device))
            return 1;
        close_device();
    }
    return 0;
}

static void late_compilers_write_when_closed(void **state)
{
    (void)state;
    remove_part("programs");
    for (int round = 0; round < 2; round++) {
        clt_device *device = open_device(folder);
        device->quirks |= CLT_QUIRK_LATE_COMPILE;
        assert_int_equal(can_load(device), round == 1);
        assert_true(kernel_works(device));
        assert_int_equal(list_files("programs", NULL), round);
        clt_program_table_store(device, 0);
        assert_int_equal(list_files("programs", NULL), round);
        clt_program_table_store(device, 10);
        assert_int_equal(list_files("programs", NULL), 1);
        close_device();
    }
}

/* Writing programs on closing may take a fiftieth of the run, and at most 3 seconds. */
static void closing_takes_a_small_share(void **state)
{
    (void)state;
    assert_true(clt_program_store_seconds(0) == 0);
    assert_true(clt_program_store_seconds(5) == 0.1);
    assert_true(clt_program_store_seconds(1e6) == 3);
    clt_device *device = open_device(folder);
    assert_true(clt_program_table_seconds(device->programs) >= 0);
    close_device();
}

static void old_files_are_removed_first(void **state)
{
    (void)state;
    char content[1000] = {0};
    for (int i = 0; i < 10; i++) {
        char name[16];
        snprintf(name, sizeof name, "f%d", 9 - i);
        assert_true(clt_cache_write(folder, "trim", name, content, 500, content, 500));
        usleep(20000); /* longer than a tick of the file system's clock */
    }
    clt_cache_trim(folder, "trim", 10000);
    assert_int_equal(list_files("trim", NULL), 10);
    clt_cache_trim(folder, "trim", 3999);
    assert_int_equal(list_files("trim", NULL), 3);
    for (int i = 0; i < 10; i++) {
        char name[8], *data = NULL;
        size_t bytes = 0;
        snprintf(name, sizeof name, "f%d", i);
        assert_int_equal(clt_cache_read(folder, "trim", name, &data, &bytes), i < 3);
        if (i < 3)
            assert_int_equal(bytes, 1000);
        clt_free(data);
        data = NULL;
    }
    remove_part("trim");
    clt_cache_trim(folder, "none", 0);
}

/* A limit for file sizes simulates a full disk. */
static void a_full_disk_leaves_nothing_behind(void **state)
{
    (void)state;
    static const char content[5000];
    const struct rlimit limit = {4000, RLIM_INFINITY};
    struct rlimit before;
    assert_true(clt_cache_write(folder, "full", "old", content, 100, content, 100));
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    const bool written = clt_cache_write(folder, "full", "old", content, 100, content, 5000);
    const int error = errno;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    assert_false(written);
    assert_int_equal(error, EFBIG);
    assert_int_equal(list_files("full", NULL), 1);
    char *data = NULL;
    size_t bytes = 0;
    assert_true(clt_cache_read(folder, "full", "old", &data, &bytes));
    assert_int_equal(bytes, 200);
    clt_free(data);
    remove_part("full");
}

int main(int argc, char **argv)
{
    self = argv[0];
    if (argc == 3 && !strcmp(argv[1], "child"))
        return run_child(argv[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_program_is_read_back),
        cmocka_unit_test(a_folder_that_others_may_write_is_not_trusted),
        cmocka_unit_test(damaged_programs_are_compiled_again),
        cmocka_unit_test(an_impossible_folder_is_a_miss),
        cmocka_unit_test(processes_share_the_folder),
        cmocka_unit_test(late_compilers_write_when_closed),
        cmocka_unit_test(closing_takes_a_small_share),
        cmocka_unit_test(old_files_are_removed_first),
        cmocka_unit_test(a_full_disk_leaves_nothing_behind),
    };
    return cmocka_run_group_tests_name("device.cache", tests, set_up, tear_down);
}
