/* Tuning records in the cache folder. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include <cltrain/log.h>

#include "base/alloc.h"
#include "device/cache_folder.h"
#include "device/program/source_tokens.h"

static void tuning_records_are_read_back(void **state)
{
    (void)state;
    char name[900];
    clt_device *device = open_device(folder);
    clt_tuning_record record, again;
    clt_tuning_load(device, &record);
    assert_string_equal(record.device, device->caps.name);
    assert_int_equal(own_entries(&record), 0);
    const clt_tuning_entry first = {.op = "matmul",
                                    .key = 0xfedcba9876543210,
                                    .shape_class = "m256n128k800t01",
                                    .variant = "tile",
                                    .options = "-DTM=8 -DTN=3",
                                    .seconds = 1.25e-3,
                                    .plain_seconds = 2.5e-3,
                                    .sources = {clt_source_tokens("matmul/cpu/gemm.cl"),
                                                clt_source_tokens("train/portable/update.cl")}};
    clt_tuning_entry second = {.op = "conv2d",
                               .key = 256,
                               .shape_class = "n256",
                               .variant = "direct \"x\"",
                               .seconds = 0.5,
                               .rejected = "tiled TX=8"};
    const clt_tuning_entry stale = {.op = "conv2d",
                                    .key = 512,
                                    .variant = "v",
                                    .sources = {first.sources[0], first.sources[1] ^ 1}};
    const clt_tuning_entry gone = {
        .op = "conv2d", .key = 1024, .sources = {clt_source_tokens("no.cl") + 1}};
    assert_int_equal(clt_tuning_put(&record, &first), CLT_OK);
    assert_int_equal(clt_tuning_put(&record, &second), CLT_OK);
    second.seconds = 0.25;
    assert_int_equal(clt_tuning_put(&record, &second), CLT_OK);
    assert_int_equal(clt_tuning_put(&record, &stale), CLT_OK);
    assert_int_equal(clt_tuning_put(&record, &gone), CLT_OK);
    assert_int_equal(own_entries(&record), 4);
    assert_int_equal(clt_tuning_save(device, &record), CLT_OK);
    clt_tuning_free(&record);
    clt_tuning_load(device, &again);
    assert_int_equal(own_entries(&again), 2); /* entries of other kernels are left out */
    const clt_tuning_entry *found = clt_tuning_find(&again, "matmul", first.key, "another text");
    assert_non_null(found);
    assert_string_equal(found->variant, "tile");
    assert_string_equal(found->options, "-DTM=8 -DTN=3");
    assert_string_equal(clt_tuning_find(&again, "conv2d", 256, "")->rejected, "tiled TX=8");
    assert_true(found->seconds == 1.25e-3 && found->plain_seconds == 2.5e-3);
    assert_memory_equal(found->sources, first.sources, sizeof found->sources);
    assert_true(found->sources[0] && found->sources[1] && !found->sources[2]);
    assert_string_equal(found->shape_class, first.shape_class);
    assert_string_equal(again.platform, device->caps.platform);
    assert_int_equal(again.compute_units, device->caps.compute_units);
    assert_true(clt_tuning_find(&again, "conv2d", 256, "")->seconds == 0.25);
    assert_null(clt_tuning_find(&again, "conv2d", 128, "n256"));
    clt_tuning_free(&again);

    assert_int_equal(list_files("tuning", name), 1);
    const long size = file_size(name);
    for (long cut = size - 3; cut >= 0; cut -= size / 5) {
        assert_int_equal(truncate(name, cut), 0);
        clt_tuning_load(device, &again);
        assert_int_equal(own_entries(&again), 0);
        assert_string_equal(again.driver, device->caps.driver);
        clt_tuning_free(&again);
    }
    close_device();
}

static void count_lines(void *user, clt_log_level level, const char *line)
{
    (void)level;
    int *lines = user;
    lines[0] += strstr(line, "damaged or stale: not used") != NULL;
    lines[1] += strstr(line, "are of other kernels") != NULL;
}

static void a_record_of_another_driver_is_told_once(void **state)
{
    (void)state;
    char name[900], *json = NULL;
    int lines[2] = {0, 0};
    clt_device *device = open_device(folder);
    clt_tuning_record record = {.device = "d", .driver = "another"}, loaded;
    const clt_tuning_entry entry = {.op = "conv2d", .key = 1, .variant = "v", .seconds = 1};
    assert_int_equal(clt_tuning_put(&record, &entry), CLT_OK);
    assert_int_equal(clt_tuning_to_json(&record, &json), CLT_OK);
    assert_int_equal(list_files("tuning", name), 1);
    FILE *file = fopen(name, "w");
    assert_true(file && fputs(json, file) >= 0 && fclose(file) == 0);
    clt_log_set(count_lines, lines, CLT_LOG_INFO);
    clt_tuning_load(device, &loaded);
    clt_log_set(NULL, NULL, CLT_LOG_WARN);
    assert_int_equal(lines[0], 1);
    assert_int_equal(lines[1], 0);
    clt_tuning_free(&loaded);
    clt_tuning_free(&record);
    clt_free(json);
    close_device();
}

enum { TUNERS = 4, SHAPES = 16 };

typedef struct tuner {
    clt_device *device;
    int number;
    clt_status status;
} tuner;

/* Acts as a process that read the record before, and then measures its own shapes. */
static void *tune_own_shapes(void *user)
{
    tuner *t = user;
    clt_tuning_record record;
    clt_tuning_load(t->device, &record);
    for (int i = 0; i < SHAPES && t->status == CLT_OK; i++) {
        const clt_tuning_entry e = {.op = "matmul",
                                    .key = (uint64_t)(1 + SHAPES * t->number + i),
                                    .variant = "tile",
                                    .seconds = 1};
        t->status = clt_tuning_put(&record, &e);
        if (t->status == CLT_OK)
            t->status = clt_tuning_save(t->device, &record);
    }
    clt_tuning_free(&record);
    return NULL;
}

static void tuners_keep_what_others_wrote(void **state)
{
    (void)state;
    char name[900];
    if (list_files("tuning", name))
        remove_part("tuning");
    clt_device *device = open_device(folder);
    tuner tuners[TUNERS];
    pthread_t threads[TUNERS];
    for (int i = 0; i < TUNERS; i++) {
        tuners[i] = (tuner){device, i, CLT_OK};
        assert_int_equal(pthread_create(&threads[i], NULL, tune_own_shapes, &tuners[i]), 0);
    }
    for (int i = 0; i < TUNERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(tuners[i].status, CLT_OK);
    }
    clt_tuning_record record;
    clt_tuning_load(device, &record);
    assert_int_equal(own_entries(&record), TUNERS * SHAPES);
    clt_tuning_free(&record);
    assert_int_equal(list_files("tuning", NULL), 1);
    remove_part("tuning");
    close_device();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tuning_records_are_read_back),
        cmocka_unit_test(a_record_of_another_driver_is_told_once),
        cmocka_unit_test(tuners_keep_what_others_wrote),
    };
    return cmocka_run_group_tests_name("device.tuning_file", tests, set_up, tear_down);
}
