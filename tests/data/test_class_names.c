/* images:DIR with a description: labels follow from the names of folders, whatever folders there
 * are.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <sys/stat.h>

#include <cltrain/data.h>

#include "data/expect.h"

static char folder[] = "/tmp/clt-classes-XXXXXX", spec[64];

static int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(spec, sizeof spec, "images:%s", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

/* Makes a class with empty files. Labels are known without decoding them. */
static void make_class(const char *name, int files)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(mkdir(path, 0700), 0);
    for (int i = 0; i < files; i++) {
        snprintf(path, sizeof path, "%s/%s/%d.jpg", folder, name, i);
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fclose(f);
    }
}

static void expect_labels(clt_dataset *d, const int32_t *expected, int64_t count)
{
    clt_loader_desc desc;
    clt_loader *loader;
    clt_batch b = {.struct_size = sizeof b};
    clt_loader_desc_init(&desc);
    desc.dataset = d;
    desc.batch = count;
    desc.end_epoch = 1;
    assert_int_equal(clt_dataset_count(d), count);
    assert_int_equal(clt_loader_create(&desc, &loader), CLT_OK);
    assert_int_equal(clt_loader_add_output(loader, "label", CLT_I32, NULL), CLT_OK);
    assert_int_equal(clt_loader_start(loader), CLT_OK);
    assert_int_equal(clt_loader_next(loader, &b), CLT_OK);
    assert_int_equal(b.count, count);
    const int32_t *labels = clt_loader_memory(loader, b.slot, 0, 0);
    for (int64_t i = 0; i < count; i++)
        assert_int_equal(labels[i], expected[b.indices[i]]);
    clt_loader_free(loader);
}

static void test_labels(void **state)
{
    (void)state;
    clt_dataset *d = NULL;
    clt_dataset_options o;
    clt_dataset_options_init(&o);
    make_class("ant", 2);
    make_class("bee", 0);
    make_class("cat", 1);
    EXPECT_FAILURE(clt_dataset_open(spec, &o, &d), CLT_FORMAT, "bee", "class is empty");
    o.split = "all";
    o.description = "{\"classes\":[\"cat\",\"dog\",\"bee\",\"ant\"]}";
    assert_int_equal(clt_dataset_open(spec, &o, &d), CLT_OK);
    assert_int_equal(clt_dataset_classes(d, 1), 4);
    assert_string_equal(clt_dataset_class_name(d, 1, 3), "ant");
    assert_string_equal(clt_dataset_description(d), o.description);
    assert_non_null(strstr(clt_dataset_sample_file(d, 0), "/cat/"));
    assert_non_null(strstr(clt_dataset_sample_file(d, 2), "/ant/"));
    const int32_t expected[] = {0, 3, 3};
    expect_labels(d, expected, 3);
    clt_dataset_free(d);
}

static void test_messages(void **state)
{
    (void)state;
    clt_dataset *d = NULL;
    clt_dataset_options o;
    clt_dataset_options_init(&o);
    o.split = "all";
    o.description = "{\"classes\":[\"ant\",\"bee\",\"Cat\"]}";
    EXPECT_FAILURE(clt_dataset_open(spec, &o, &d), CLT_FORMAT,
                   "/cat: is not a class of the training images, which are ant, bee, Cat",
                   "did you mean 'Cat'?", "rename the folder");
    static const char *const wrong[] = {"",
                                        "[]",
                                        "{\"columns\":[]}",
                                        "{\"classes\":[]}",
                                        "{\"classes\":[1]}",
                                        "{\"classes\":[\"\"]}"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        o.description = wrong[i];
        EXPECT_FAILURE(clt_dataset_open(spec, &o, &d), CLT_FORMAT,
                       "the description of the classes is not one");
    }
    EXPECT_FAILURE(clt_dataset_open("idx:/tmp", &o, &d), CLT_INVALID_ARGUMENT, "idx:/tmp");
    o.split = "train";
    EXPECT_FAILURE(clt_dataset_open("idx:/tmp", &o, &d), CLT_INVALID_ARGUMENT,
                   "only csv:PATH and images:DIR take a description");
}

/* JSON has no bytes of other encodings. The folder is found all the same. */
static void test_other_encoding(void **state)
{
    (void)state;
    clt_dataset *d = NULL;
    clt_dataset_options o;
    clt_dataset_options_init(&o);
    make_class("caf\xe9", 1);
    o.split = "all";
    o.description = "{\"classes\":[\"ant\",\"caf\\\\xe9\",\"bee\",\"cat\"]}";
    assert_int_equal(clt_dataset_open(spec, &o, &d), CLT_OK);
    const int32_t expected[] = {0, 0, 1, 3};
    expect_labels(d, expected, 4);
    clt_dataset_free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_labels),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_other_encoding),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
