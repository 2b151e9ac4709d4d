/* Draws with weights: their frequencies, and that divisions, starts and threads do not change what
 * a position draws. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <cltrain/data.h>

enum { COUNT = 50, EPOCHS = 400, BATCH = 16 };

static int32_t numbers[COUNT];

static clt_dataset *make_set(const double *weights)
{
    clt_dataset *d;
    for (int i = 0; i < COUNT; i++)
        numbers[i] = i;
    assert_int_equal(clt_dataset_create_arrays("numbers", COUNT, &d), CLT_OK);
    assert_int_equal(
        clt_dataset_add_field(d, "number", CLT_I32, 0, NULL, numbers, CLT_DATA_BORROW, NULL),
        CLT_OK);
    assert_int_equal(clt_dataset_set_sample_weights(d, weights), CLT_OK);
    return d;
}

/* Reads the samples of epochs [epoch, end) from a position on, of the parts [first, first + local)
 * of `parts`, into out[epoch][position]. */
static void read_parts(clt_dataset *d, int64_t epoch, int64_t offset, int64_t end, int parts,
                       int first, int local, int32_t *out)
{
    clt_loader_desc desc;
    clt_loader *loader;
    clt_batch batch = {.struct_size = sizeof batch};
    clt_loader_desc_init(&desc);
    desc.dataset = d;
    desc.batch = BATCH;
    desc.seed = 5;
    desc.epoch = epoch;
    desc.offset = offset;
    desc.end_epoch = end;
    desc.parts = parts;
    desc.first_part = first;
    desc.local_parts = local;
    assert_int_equal(clt_loader_create(&desc, &loader), CLT_OK);
    assert_int_equal(clt_loader_add_output(loader, "number", CLT_I32, NULL), CLT_OK);
    assert_int_equal(clt_loader_start(loader), CLT_OK);
    for (;;) {
        assert_int_equal(clt_loader_next(loader, &batch), CLT_OK);
        if (batch.slot < 0)
            break;
        for (int p = 0; p < local; p++)
            memcpy(out + batch.epoch * COUNT + batch.offset + batch.offsets[first + p],
                   clt_loader_memory(loader, batch.slot, p, 0),
                   (size_t)(batch.offsets[first + p + 1] - batch.offsets[first + p]) * sizeof *out);
        assert_int_equal(clt_loader_release(loader, batch.slot), CLT_OK);
    }
    clt_loader_free(loader);
}

/* Weights 0, 1, .. 6, 0, 1, .. */
static void fill(double weights[COUNT])
{
    for (int i = 0; i < COUNT; i++)
        weights[i] = i % 7;
}

/* Pearson's chi-squared test. With 42 degrees of freedom 0.999 of all values are below 76.1. */
static void test_frequencies(void **state)
{
    (void)state;
    double weights[COUNT], sum = 0, chi = 0;
    static int32_t drawn[EPOCHS * COUNT];
    int counts[COUNT] = {0}, freedom = -1, first_halves = 0;
    fill(weights);
    clt_dataset *d = make_set(weights);
    read_parts(d, 0, 0, EPOCHS, 1, 0, 1, drawn);
    for (int i = 0; i < EPOCHS * COUNT; i++) {
        counts[drawn[i]]++;
        first_halves += i % 2 == 0 && drawn[i] == drawn[i + 1]; /* a draw does not repeat another */
    }
    for (int i = 0; i < COUNT; i++)
        sum += weights[i];
    for (int i = 0; i < COUNT; i++) {
        const double expected = weights[i] / sum * EPOCHS * COUNT;
        if (weights[i] > 0) {
            chi += (counts[i] - expected) * (counts[i] - expected) / expected;
            freedom++;
        } else {
            assert_int_equal(counts[i], 0);
        }
    }
    assert_int_equal(freedom, 41);
    assert_true(chi > 15 && chi < 76.1);
    /* Equal neighbours have a chance of the sum of squares, 0.0303: about 303 of 10,000 pairs. */
    assert_in_range(first_halves, 220, 390);
    clt_dataset_free(d);
}

static void test_divisions(void **state)
{
    (void)state;
    enum { FEW = 3 };
    double weights[COUNT];
    int32_t whole[FEW * COUNT], other[FEW * COUNT];
    fill(weights);
    clt_dataset *d = make_set(weights);
    read_parts(d, 0, 0, FEW, 1, 0, 1, whole);
    read_parts(d, 0, 0, FEW, 3, 0, 3, other); /* three devices */
    assert_memory_equal(whole, other, sizeof whole);
    memset(other, 0, sizeof other);
    read_parts(d, 0, 0, FEW, 3, 0, 1, other); /* two ranks */
    read_parts(d, 0, 0, FEW, 3, 1, 2, other);
    assert_memory_equal(whole, other, sizeof whole);
    memset(other, 0, sizeof other);
    read_parts(d, 1, 2 * BATCH, FEW, 1, 0, 1, other); /* a resumed run */
    assert_memory_equal(whole + COUNT + 2 * BATCH, other + COUNT + 2 * BATCH,
                        sizeof whole - (COUNT + 2 * BATCH) * sizeof *whole);
    assert_memory_not_equal(whole, whole + COUNT, COUNT * sizeof *whole);
    clt_dataset_free(d);
}

static void test_errors(void **state)
{
    (void)state;
    double weights[COUNT] = {0};
    clt_dataset *d = make_set(NULL);
    assert_int_equal(clt_dataset_set_sample_weights(d, weights), CLT_INVALID_ARGUMENT);
    weights[7] = -1;
    assert_int_equal(clt_dataset_set_sample_weights(d, weights), CLT_INVALID_ARGUMENT);
    weights[7] = NAN;
    assert_int_equal(clt_dataset_set_sample_weights(d, weights), CLT_INVALID_ARGUMENT);
    weights[7] = 1;
    assert_int_equal(clt_dataset_set_sample_weights(d, weights), CLT_OK);
    int32_t drawn[COUNT];
    read_parts(d, 0, 0, 1, 1, 0, 1, drawn);
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(drawn[i], 7);
    clt_dataset_free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frequencies),
        cmocka_unit_test(test_divisions),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
