/* Parts of data sets for validation: which samples they have, and what loaders deliver of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "data/core/digest.h"
#include <cltrain/data.h>

enum { COUNT = 101, SIDE = 6, BYTES = SIDE * SIDE };

static unsigned char images[COUNT][BYTES], marks[COUNT];
static int32_t numbers[COUNT];

static int fill_samples(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT; i++) {
        numbers[i] = i;
        marks[i] = i % 5 == 2;
        for (int k = 0; k < BYTES; k++)
            images[i][k] = (unsigned char)(i * 7 + k * 3 + 1);
    }
    return 0;
}

static void ok(clt_status status)
{
    if (status != CLT_OK)
        fail_msg("%s: %s", clt_status_name(status), clt_error_message());
}

static clt_dataset *arrays(void)
{
    const int64_t shape[] = {1, SIDE, SIDE};
    int image;
    clt_dataset *d;
    ok(clt_dataset_create_arrays("numbered", COUNT, &d));
    ok(clt_dataset_add_field(d, "image", CLT_U8, 3, shape, images, CLT_DATA_BORROW, &image));
    ok(clt_dataset_set_image(d, image));
    ok(clt_dataset_add_field(d, "number", CLT_I32, 0, NULL, numbers, CLT_DATA_BORROW, NULL));
    ok(clt_dataset_add_field(d, "mark", CLT_U8, 0, NULL, marks, CLT_DATA_BORROW, NULL));
    return d;
}

static clt_status fill(void *user, const int64_t *indices, int64_t count, void *const *fields)
{
    (void)user;
    for (int64_t i = 0; i < count; i++) {
        if (fields[0])
            memcpy((unsigned char *)fields[0] + i * BYTES, images[indices[i]], BYTES);
        if (fields[1])
            ((int32_t *)fields[1])[i] = numbers[indices[i]];
    }
    return CLT_OK;
}

static clt_dataset *called(void)
{
    const int64_t shape[] = {1, SIDE, SIDE};
    clt_dataset *d;
    ok(clt_dataset_create_callback("called", COUNT, fill, NULL, 1, &d));
    ok(clt_dataset_add_field(d, "image", CLT_U8, 3, shape, NULL, CLT_DATA_BORROW, NULL));
    ok(clt_dataset_add_field(d, "number", CLT_I32, 0, NULL, NULL, CLT_DATA_BORROW, NULL));
    return d;
}

/* Reads an epoch, and counts how often each sample came. *changed: samples whose image is not that
 * of the array. */
static void read_all(clt_dataset *d, int shuffle, int *came, int *changed)
{
    clt_loader_desc desc;
    clt_loader *loader;
    clt_batch batch = {.struct_size = sizeof batch};
    int image, number;
    int64_t last = -1;
    clt_loader_desc_init(&desc);
    desc.dataset = d;
    desc.batch = 9;
    desc.shuffle = shuffle;
    desc.end_epoch = 1;
    ok(clt_loader_create(&desc, &loader));
    ok(clt_loader_add_output(loader, "image", CLT_U8, &image));
    ok(clt_loader_add_output(loader, "number", CLT_I32, &number));
    ok(clt_loader_start(loader));
    memset(came, 0, COUNT * sizeof *came);
    *changed = 0;
    for (;;) {
        ok(clt_loader_next(loader, &batch));
        if (batch.slot < 0)
            break;
        const unsigned char *pixels = clt_loader_memory(loader, batch.slot, 0, image);
        const int32_t *got = clt_loader_memory(loader, batch.slot, 0, number);
        for (int64_t i = 0; i < batch.count; i++) {
            assert_int_equal(batch.indices[i], got[i]);
            if (!shuffle)
                assert_true(got[i] > last);
            last = got[i];
            came[got[i]]++;
            *changed += memcmp(pixels + i * BYTES, images[got[i]], BYTES) != 0;
        }
        ok(clt_loader_release(loader, batch.slot));
    }
    clt_loader_free(loader);
}

static void fractions(void **state)
{
    (void)state;
    clt_dataset *(*const makes[])(void) = {arrays, called};
    static const double shares[] = {0.1, 0.25, 0.9, 0.001};
    static const int sizes[] = {10, 25, 91, 1};
    for (int m = 0; m < 2; m++)
        for (int k = 0; k < 4; k++) {
            clt_dataset *whole = makes[m](), *rest, *part, *rest2, *part2;
            int a[COUNT], b[COUNT], c[COUNT], changed;
            ok(clt_dataset_split(whole, shares[k], 5, &rest, &part));
            assert_int_equal(clt_dataset_count(part), sizes[k]);
            assert_int_equal(clt_dataset_count(rest), COUNT - sizes[k]);
            read_all(part, 0, a, &changed);
            assert_int_equal(changed, 0);
            read_all(rest, 1, b, &changed);
            for (int i = 0; i < COUNT; i++)
                assert_int_equal(a[i] + b[i], 1);
            /* the same again; another seed gives others */
            ok(clt_dataset_split(whole, shares[k], 5, &rest2, &part2));
            read_all(part2, 1, c, &changed);
            assert_memory_equal(a, c, sizeof a);
            for (int64_t i = 0; i < sizes[k]; i++)
                assert_int_equal(clt_dataset_number(part, i), clt_dataset_number(part2, i));
            clt_dataset_free(rest2);
            clt_dataset_free(part2);
            ok(clt_dataset_split(whole, shares[k], 6, &rest2, &part2));
            read_all(part2, 1, c, &changed);
            assert_memory_not_equal(a, c, sizeof a);
            clt_dataset_free(rest);
            clt_dataset_free(part);
            clt_dataset_free(rest2);
            clt_dataset_free(part2);
            clt_dataset_free(whole);
        }
}

static void only_training_is_augmented(void **state)
{
    (void)state;
    clt_dataset *whole = arrays(), *rest, *part;
    clt_augment augment;
    int came[COUNT], changed;
    ok(clt_dataset_split(whole, 0.3, 1, &rest, &part));
    clt_augment_init(&augment);
    augment.crop = augment.flip = 1;
    ok(clt_dataset_augment(rest, "image", &augment));
    read_all(rest, 1, came, &changed);
    assert_true(changed > 50);
    read_all(part, 1, came, &changed);
    assert_int_equal(changed, 0);
    clt_dataset_free(rest);
    clt_dataset_free(part);
    clt_dataset_free(whole);
}

static void marked_samples(void **state)
{
    (void)state;
    clt_dataset *whole = arrays(), *rest, *part;
    int came[COUNT], changed;
    uint64_t a, b, c;
    ok(clt_dataset_split_by(whole, "mark", &rest, &part));
    read_all(part, 0, came, &changed);
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(came[i], marks[i]);
    ok(clt_dataset_digest(whole, &a));
    ok(clt_dataset_digest(rest, &b));
    ok(clt_dataset_digest(part, &c));
    assert_true(a != b && b != c && a != c);
    const void *data;
    assert_int_equal(clt_dataset_field_data(part, 0, &data), CLT_UNSUPPORTED);
    clt_dataset_free(rest);
    clt_dataset_free(part);
    clt_dataset_free(whole);
}

static void refused(void **state)
{
    (void)state;
    clt_dataset *whole = arrays(), *rest = NULL, *part = NULL;
    static const double bad[] = {0, 1, -0.1, 2, 0.9999, 1e300};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(clt_dataset_split(whole, bad[i], 1, &rest, &part), CLT_INVALID_ARGUMENT);
    assert_int_equal(clt_dataset_split_by(whole, "marc", &rest, &part), CLT_NOT_FOUND);
    assert_non_null(strstr(clt_error_message(), "mark"));
    assert_int_equal(clt_dataset_split_by(whole, "image", &rest, &part), CLT_UNSUPPORTED);
    ok(clt_dataset_split(whole, 0.5, 1, &rest, &part));
    clt_dataset *a, *b;
    assert_int_equal(clt_dataset_split(part, 0.5, 1, &a, &b), CLT_INVALID_ARGUMENT);
    clt_dataset_free(rest);
    clt_dataset_free(part);
    clt_dataset_free(whole);
    whole = called();
    assert_int_equal(clt_dataset_split_by(whole, "number", &rest, &part), CLT_UNSUPPORTED);
    clt_dataset_free(whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fractions),
        cmocka_unit_test(only_training_is_augmented),
        cmocka_unit_test(marked_samples),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, fill_samples, NULL);
}
