/* The loader: contents of batches, for any division and any number of threads. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "data/core/dataset.h"
#include "data/loader/tuner.h"

enum { COUNT = 103, CHANNELS = 3, PLANE = 7, PIXELS = CHANNELS * PLANE, CLASSES = 10, IGNORED = 4 };

static unsigned char images[COUNT][PIXELS], labels[COUNT];

static int fill_images(void **state)
{
    (void)state;
    for (int s = 0; s < COUNT; s++) {
        for (int i = 0; i < PIXELS; i++)
            images[s][i] = (unsigned char)(s * 29 + i * 5);
        labels[s] = (unsigned char)(s * 7 % CLASSES);
    }
    return 0;
}

static clt_dataset *make_set(void)
{
    const int64_t shape[3] = {CHANNELS, 1, PLANE};
    clt_dataset *d;
    assert_int_equal(clt_dataset_create_arrays("pictures", COUNT, &d), CLT_OK);
    assert_int_equal(
        clt_dataset_add_field(d, "image", CLT_U8, 3, shape, images, CLT_DATA_BORROW, NULL), CLT_OK);
    assert_int_equal(
        clt_dataset_add_field(d, "label", CLT_U8, 0, NULL, labels, CLT_DATA_BORROW, NULL), CLT_OK);
    assert_int_equal(clt_dataset_set_classes(d, 1, CLASSES), CLT_OK);
    return d;
}

static clt_status fill(void *user, const int64_t *indices, int64_t count, void *const *fields)
{
    (void)user;
    for (int64_t i = 0; i < count; i++) {
        if (fields[0])
            memcpy((unsigned char *)fields[0] + i * PIXELS, images[indices[i]], PIXELS);
        if (fields[1])
            ((unsigned char *)fields[1])[i] = labels[indices[i]];
    }
    return CLT_OK;
}

/* Adds the fields that `fill` writes. */
static void add_filled(clt_dataset *d)
{
    const int64_t shape[3] = {CHANNELS, 1, PLANE};
    assert_int_equal(
        clt_dataset_add_field(d, "image", CLT_U8, 3, shape, NULL, CLT_DATA_BORROW, NULL), CLT_OK);
    assert_int_equal(
        clt_dataset_add_field(d, "label", CLT_U8, 0, NULL, NULL, CLT_DATA_BORROW, NULL), CLT_OK);
    assert_int_equal(clt_dataset_set_classes(d, 1, CLASSES), CLT_OK);
}

static clt_dataset *make_callback(clt_fill_fn fn, void *user, int serial)
{
    clt_dataset *d;
    assert_int_equal(clt_dataset_create_callback("called", COUNT, fn, user, serial, &d), CLT_OK);
    add_filled(d);
    return d;
}

static clt_loader_desc describe(clt_dataset *d, int64_t batch)
{
    clt_loader_desc desc;
    clt_loader_desc_init(&desc);
    desc.dataset = d;
    desc.batch = batch;
    desc.seed = 11;
    return desc;
}

/* Makes a loader with outputs 0 image f32, 1 label i32, 2 image u8. */
static clt_loader *make_loader(const clt_loader_desc *desc, const int64_t *ignore)
{
    clt_loader *l;
    assert_int_equal(clt_loader_create(desc, &l), CLT_OK);
    assert_int_equal(clt_loader_add_output(l, "image", CLT_F32, NULL), CLT_OK);
    assert_int_equal(clt_loader_add_output(l, "label", CLT_I32, NULL), CLT_OK);
    assert_int_equal(clt_loader_add_output(l, "image", CLT_U8, NULL), CLT_OK);
    assert_int_equal(clt_loader_set_labels(l, 1, ignore), CLT_OK);
    return l;
}

static clt_loader *start(const clt_loader_desc *desc, const int64_t *ignore)
{
    clt_loader *l = make_loader(desc, ignore);
    assert_int_equal(clt_loader_start(l), CLT_OK);
    return l;
}

static clt_batch next(clt_loader *l)
{
    clt_batch b = {.struct_size = sizeof b};
    if (clt_loader_next(l, &b) != CLT_OK)
        fail_msg("%s", clt_error_message());
    return b;
}

/* Checks that each sample of a batch's local parts is the sample that the order names. */
static void check_batch(clt_loader *l, const clt_batch *b, const clt_loader_desc *desc)
{
    int64_t order[COUNT], weight = 0;
    assert_int_equal(b->count, COUNT - b->offset < desc->batch ? COUNT - b->offset : desc->batch);
    assert_int_equal(
        clt_data_order(COUNT, desc->seed, b->epoch, desc->shuffle, b->offset, b->count, order),
        CLT_OK);
    int local = desc->local_parts ? desc->local_parts : desc->parts - desc->first_part;
    const int64_t *index = b->indices;
    for (int p = 0; p < local; p++) {
        int64_t from = b->offsets[desc->first_part + p], part_weight = 0;
        int64_t count = b->offsets[desc->first_part + p + 1] - from;
        assert_true(count <= clt_loader_capacity(l, p));
        const float *f32 = clt_loader_memory(l, b->slot, p, 0);
        const int32_t *i32 = clt_loader_memory(l, b->slot, p, 1);
        const unsigned char *u8 = clt_loader_memory(l, b->slot, p, 2);
        for (int64_t i = 0; i < count; i++) {
            int64_t s = order[from + i];
            assert_int_equal(*index++, s);
            assert_int_equal(i32[i], labels[s]);
            assert_memory_equal(u8 + i * PIXELS, images[s], PIXELS);
            for (int k = 0; k < PIXELS; k++)
                assert_true(f32[i * PIXELS + k] == (float)images[s][k] / 255.0f);
            part_weight += labels[s] != IGNORED;
        }
        assert_int_equal(b->part_weights[p], part_weight);
    }
    for (int64_t i = 0; i < b->count; i++)
        weight += labels[order[i]] != IGNORED;
    assert_int_equal(b->weight, weight);
}

/* Parts of one, two and five of eight shards, which are clt_split's equal parts. */
static void parts_have_their_virtual_shards(void **state)
{
    static const int64_t batches[] = {1, 7, 16, 51, 103}, bounds[] = {0, 1, 3, 8};
    const int64_t ignore = IGNORED, falling[] = {0, 3, 1, 8};
    (void)state;
    clt_dataset *d = make_set();
    for (int k = 0; k < 5; k++) {
        clt_loader_desc desc = describe(d, batches[k]);
        int64_t shards[9];
        desc.parts = 3;
        desc.bounds = bounds;
        clt_loader *l = start(&desc, &ignore);
        for (int64_t seen = 0; seen < COUNT;) {
            clt_batch b = next(l);
            assert_int_equal(clt_split(b.count, 8, NULL, 1, shards), CLT_OK);
            for (int p = 0; p <= 3; p++)
                assert_int_equal(b.offsets[p], shards[bounds[p]]);
            check_batch(l, &b, &desc);
            seen += b.count;
            assert_int_equal(clt_loader_release(l, b.slot), CLT_OK);
        }
        clt_loader_free(l);
    }
    clt_loader_desc desc = describe(d, 16);
    clt_loader *l;
    desc.parts = 3;
    desc.bounds = falling;
    assert_int_equal(clt_loader_create(&desc, &l), CLT_INVALID_ARGUMENT);
    assert_non_null(strstr(clt_error_message(), "part 1 has 3 to 1"));
    clt_dataset_free(d);
}

/* All divisions and numbers of threads deliver the same epochs. Batches include partial last ones,
 * and ones with fewer samples than parts. */
static void batches_hold_what_the_order_says(void **state)
{
    (void)state;
    static const int64_t batches[] = {1, 2, 16, 51, 100, 103, 104, 1000};
    static const int parts[] = {1, 2, 3, 5}, threads[] = {1, 4};
    const int64_t ignore = IGNORED;
    static const double weights[5] = {1, 0, 2.5, 1, 3};
    for (int called = 0; called < 2; called++) {
        clt_dataset *d = called ? make_callback(fill, NULL, 0) : make_set();
        for (size_t k = 0; k < 8 * 4 * 2; k++) {
            clt_loader_desc desc = describe(d, batches[k % 8]);
            desc.parts = parts[k / 8 % 4];
            desc.min_threads = desc.max_threads = threads[k / 32];
            desc.quantum = k % 3 ? 1 : 16;
            desc.weights = k % 2 ? weights : NULL;
            desc.slots = 2 + (int)(k % 3);
            clt_loader *l = start(&desc, &ignore);
            int64_t epoch = 0, offset = 0;
            while (epoch < 2) {
                clt_batch b = next(l);
                assert_int_equal(b.epoch, epoch);
                assert_int_equal(b.offset, offset);
                check_batch(l, &b, &desc);
                offset += b.count;
                assert_int_equal(b.last_of_epoch, offset == COUNT);
                if (offset == COUNT) {
                    offset = 0;
                    epoch++;
                }
                assert_int_equal(b.next_epoch, epoch);
                assert_int_equal(b.next_offset, offset);
                assert_int_equal(clt_loader_release(l, b.slot), CLT_OK);
            }
            clt_loader_free(l);
        }
        clt_dataset_free(d);
    }
}

static void ranks_see_their_parts_and_the_weight_of_all(void **state)
{
    (void)state;
    const int64_t ignore = IGNORED;
    clt_dataset *d = make_set(), *called = make_callback(fill, NULL, 0);
    for (int first = 0; first < 5; first++)
        for (int local = 1; local <= 5 - first; local++) {
            clt_loader_desc desc = describe(d, 20);
            desc.parts = 5;
            desc.first_part = first;
            desc.local_parts = local;
            desc.end_epoch = 1;
            clt_loader *l = start(&desc, &ignore);
            for (clt_batch b = next(l); b.slot >= 0; b = next(l)) {
                check_batch(l, &b, &desc);
                assert_int_equal(clt_loader_release(l, b.slot), CLT_OK);
            }
            clt_loader_free(l);
            /* A callback is not asked for samples of other ranks, so the loader does not know their
             * weight. It knows the weight if no label is ignored. */
            desc.dataset = called;
            l = start(&desc, &ignore);
            clt_batch b = next(l);
            assert_int_equal(b.weight < 0, local < 5);
            clt_loader_free(l);
            l = start(&desc, NULL);
            b = next(l);
            assert_int_equal(b.weight, 20);
            clt_loader_free(l);
        }
    clt_dataset_free(d);
    clt_dataset_free(called);
}

static clt_status fetch(clt_dataset *dataset, const clt_sample_key *key, int64_t index,
                        void *const *fields)
{
    (void)dataset;
    (void)key;
    return fill(NULL, &index, 1, fields);
}

/* Labels of a reader of files are in range. So a label out of range ignores none of them, and the
 * loader knows the weight of other ranks' samples without reading these. */
static void a_reader_has_the_weight_of_all_ranks(void **state)
{
    (void)state;
    const int64_t none = -100, one = IGNORED;
    clt_dataset *d;
    assert_int_equal(clt_dataset_new_fetched("read", COUNT, fetch, NULL, NULL, &d), CLT_OK);
    add_filled(d);
    clt_loader_desc desc = describe(d, 20);
    desc.parts = 2;
    desc.local_parts = 1;
    for (int i = 0; i < 2; i++) {
        clt_loader *l = start(&desc, i ? &one : &none);
        clt_batch b = next(l);
        assert_int_equal(b.weight, i ? -1 : 20);
        assert_true(i || b.part_weights[0] == 10);
        clt_loader_free(l);
    }
    clt_dataset_free(d);
}

static void a_resumed_loader_repeats_the_interrupted_one(void **state)
{
    (void)state;
    clt_dataset *d = make_set();
    clt_loader_desc desc = describe(d, 10);
    desc.end_epoch = 3;
    clt_loader *whole = start(&desc, NULL);
    for (clt_batch b = next(whole); b.slot >= 0; b = next(whole)) {
        desc.epoch = b.epoch;
        desc.offset = b.offset;
        clt_loader *resumed = start(&desc, NULL);
        clt_batch r = next(resumed);
        assert_int_equal(r.number, 0);
        assert_int_equal(r.count, b.count);
        assert_memory_equal(r.indices, b.indices, (size_t)b.count * sizeof *b.indices);
        assert_memory_equal(clt_loader_memory(resumed, r.slot, 0, 2),
                            clt_loader_memory(whole, b.slot, 0, 2), (size_t)b.count * PIXELS);
        clt_loader_free(resumed);
        assert_int_equal(clt_loader_release(whole, b.slot), CLT_OK);
    }
    clt_loader_free(whole);
    clt_dataset_free(d);
}

/* As PyTorch's drop_last: 103 samples make ten batches of 10 in each epoch, in the same order. */
static void a_partial_last_batch_may_be_left_out(void **state)
{
    (void)state;
    const int64_t ignore = IGNORED;
    clt_dataset *d = make_set();
    clt_loader_desc desc = describe(d, 10);
    desc.parts = 3;
    desc.end_epoch = 2;
    desc.drop_last = 1;
    clt_loader *l = start(&desc, &ignore);
    int64_t number = 0;
    for (clt_batch b = next(l); b.slot >= 0; b = next(l), number++) {
        const bool last = number % 10 == 9;
        assert_int_equal(b.count, 10);
        assert_int_equal(b.epoch, number / 10);
        assert_int_equal(b.offset, number % 10 * 10);
        assert_int_equal(b.last_of_epoch, last);
        assert_int_equal(b.next_epoch, last ? b.epoch + 1 : b.epoch);
        assert_int_equal(b.next_offset, last ? 0 : b.offset + 10);
        check_batch(l, &b, &desc);
        assert_int_equal(clt_loader_release(l, b.slot), CLT_OK);
    }
    assert_int_equal(number, 20);
    clt_loader_free(l);
    /* A run with the partial batch was stopped just before this batch. */
    desc.offset = 100;
    l = start(&desc, &ignore);
    clt_batch b = next(l);
    assert_int_equal(b.epoch, 1);
    assert_int_equal(b.offset, 0);
    clt_loader_free(l);
    desc.offset = 0;
    desc.batch = COUNT;
    l = start(&desc, &ignore);
    b = next(l);
    assert_int_equal(b.count, COUNT);
    assert_true(b.last_of_epoch);
    clt_loader_free(l);
    desc.batch = COUNT + 1;
    assert_int_equal(clt_loader_create(&desc, &l), CLT_INVALID_ARGUMENT);
    assert_non_null(strstr(clt_error_message(), "the batch has 104 samples, the data set 103"));
    clt_dataset_free(d);
}

static void memory_of_the_caller_is_used_and_not_overrun(void **state)
{
    (void)state;
    clt_dataset *d = make_set();
    clt_loader_desc desc = describe(d, 33);
    desc.parts = 2;
    desc.quantum = 8;
    desc.slots = 2;
    clt_loader *l = make_loader(&desc, NULL);
    unsigned char *mine[2][2];
    size_t bytes[2];
    for (int s = 0; s < 2; s++)
        for (int p = 0; p < 2; p++) {
            bytes[p] = (size_t)(clt_loader_capacity(l, p) * clt_loader_output_bytes(l, 2));
            assert_int_equal(clt_loader_output_bytes(l, 2), PIXELS);
            mine[s][p] = malloc(bytes[p] + 16);
            assert_non_null(mine[s][p]);
            memset(mine[s][p], 0xA5, bytes[p] + 16);
            assert_int_equal(clt_loader_set_memory(l, s, p, 2, mine[s][p]), CLT_OK);
        }
    assert_int_equal(clt_loader_set_memory(l, 2, 0, 0, mine[0][0]), CLT_INVALID_ARGUMENT);
    assert_int_equal(clt_loader_start(l), CLT_OK);
    for (int i = 0; i < 30; i++) {
        clt_batch b = next(l);
        for (int p = 0; p < 2; p++) {
            assert_ptr_equal(clt_loader_memory(l, b.slot, p, 2), mine[b.slot][p]);
            for (int64_t k = b.offsets[p]; k < b.offsets[p + 1]; k++)
                assert_memory_equal(mine[b.slot][p] + (k - b.offsets[p]) * PIXELS,
                                    images[b.indices[k]], PIXELS);
        }
        assert_int_equal(clt_loader_release(l, b.slot), CLT_OK);
    }
    clt_loader_free(l);
    for (int s = 0; s < 2; s++)
        for (int p = 0; p < 2; p++) {
            for (int k = 0; k < 16; k++)
                assert_int_equal(mine[s][p][bytes[p] + (size_t)k], 0xA5);
            free(mine[s][p]);
        }
    clt_dataset_free(d);
}

static void normalisation_is_the_double_reference_rounded(void **state)
{
    (void)state;
    const double mean[CHANNELS] = {0.485, 0.456, 0.406}, std[CHANNELS] = {0.229, 0.224, 0.225};
    static float real[COUNT][CHANNELS];
    static int32_t whole[COUNT];
    const int64_t shape[1] = {CHANNELS};
    for (int s = 0; s < COUNT; s++) {
        whole[s] = s * 1001 - 50000;
        for (int c = 0; c < CHANNELS; c++)
            real[s][c] = (float)(s - 50) * 0.37f + (float)c;
    }
    clt_dataset *d = make_set();
    assert_int_equal(
        clt_dataset_add_field(d, "real", CLT_F32, 1, shape, real, CLT_DATA_BORROW, NULL), CLT_OK);
    assert_int_equal(
        clt_dataset_add_field(d, "whole", CLT_I32, 0, NULL, whole, CLT_DATA_BORROW, NULL), CLT_OK);
    clt_loader_desc desc = describe(d, COUNT);
    clt_loader *l;
    assert_int_equal(clt_loader_create(&desc, &l), CLT_OK);
    assert_int_equal(clt_loader_add_output(l, "image", CLT_F32, NULL), CLT_OK);
    assert_int_equal(clt_loader_add_output(l, "real", CLT_F32, NULL), CLT_OK);
    assert_int_equal(clt_loader_add_output(l, "whole", CLT_F32, NULL), CLT_OK);
    assert_int_equal(clt_loader_add_output(l, "whole", CLT_I32, NULL), CLT_OK);
    assert_int_equal(clt_loader_normalize(l, 0, 255.0, CHANNELS, mean, std), CLT_OK);
    assert_int_equal(clt_loader_normalize(l, 1, 2.0, CHANNELS, mean, std), CLT_OK);
    assert_int_equal(clt_loader_normalize(l, 2, 1000.0, 1, mean, std), CLT_OK);
    const double bad[CHANNELS] = {1, 0, 1}, nan_mean[1] = {NAN};
    assert_int_equal(clt_loader_normalize(l, 0, 255.0, CHANNELS, mean, bad), CLT_INVALID_ARGUMENT);
    assert_int_equal(clt_loader_normalize(l, 0, 0.0, 1, NULL, NULL), CLT_INVALID_ARGUMENT);
    assert_int_equal(clt_loader_normalize(l, 0, 1.0, 1, nan_mean, NULL), CLT_INVALID_ARGUMENT);
    assert_int_equal(clt_loader_normalize(l, 0, 1.0, 2, mean, std), CLT_SHAPE);
    assert_int_equal(clt_loader_normalize(l, 3, 1.0, 1, NULL, NULL), CLT_INVALID_ARGUMENT);
    assert_int_equal(clt_loader_normalize(l, 4, 1.0, 1, NULL, NULL), CLT_INVALID_ARGUMENT);
    assert_int_equal(clt_loader_add_output(l, "whole", CLT_F16, NULL), CLT_UNSUPPORTED);
    assert_int_equal(clt_loader_start(l), CLT_OK);
    clt_batch b = next(l);
    const float *image = clt_loader_memory(l, b.slot, 0, 0);
    const float *scaled = clt_loader_memory(l, b.slot, 0, 1);
    const float *number = clt_loader_memory(l, b.slot, 0, 2);
    const int32_t *same = clt_loader_memory(l, b.slot, 0, 3);
    for (int64_t i = 0; i < COUNT; i++) {
        int64_t s = b.indices[i];
        for (int k = 0; k < PIXELS; k++) {
            int c = k / PLANE;
            double want = (images[s][k] / 255.0 - mean[c]) / std[c];
            assert_true(image[i * PIXELS + k] == (float)want);
        }
        for (int c = 0; c < CHANNELS; c++) {
            double want = ((double)real[s][c] / 2.0 - mean[c]) / std[c];
            double terms = fabs((double)real[s][c] / 2.0 / std[c]) + mean[c] / std[c];
            assert_true(fabs((double)scaled[i * CHANNELS + c] - want) <= 2.4e-7 * terms);
        }
        double want = ((double)whole[s] / 1000.0 - mean[0]) / std[0];
        assert_true(fabs((double)number[i] - want) <= 2.4e-7 * (fabs(want) + 2 * mean[0] / std[0]));
        assert_int_equal(same[i], whole[s]);
    }
    clt_loader_free(l);
    clt_dataset_free(d);
}

static void steps_allocate_nothing(void **state)
{
    (void)state;
    clt_dataset *d = make_set();
    clt_loader_desc desc = describe(d, 16);
    desc.parts = 2;
    desc.max_threads = 4;
    clt_loader *l = start(&desc, NULL);
    int64_t before = 0;
    for (int i = 0; i < 200; i++) {
        clt_batch b = next(l);
        assert_int_equal(clt_loader_release(l, b.slot), CLT_OK);
        if (i == 0)
            before = clt_alloc_count();
    }
    assert_int_equal(clt_alloc_count(), before);
    clt_loader_free(l);
    clt_dataset_free(d);
}

static void bad_descriptions_are_refused(void **state)
{
    (void)state;
    clt_dataset *d = make_set();
    clt_loader *l = NULL;
    const double negative[2] = {1, -1};
    for (int i = 0; i < 12; i++) {
        clt_loader_desc desc = describe(d, 16);
        desc.parts = 2;
        switch (i) {
        case 0:
            desc.batch = 0;
            break;
        case 1:
            desc.batch = -256;
            break;
        case 2:
            desc.offset = COUNT;
            break;
        case 3:
            desc.epoch = -1;
            break;
        case 4:
            desc.parts = 0;
            break;
        case 5:
            desc.first_part = 2;
            break;
        case 6:
            desc.local_parts = 3;
            break;
        case 7:
            desc.slots = 1;
            break;
        case 8:
            desc.max_threads = 1, desc.min_threads = 2;
            break;
        case 9:
            desc.weights = negative;
            break;
        case 10:
            desc.quantum = 0;
            break;
        default:
            desc.struct_size = 0;
            break;
        }
        assert_int_equal(clt_loader_create(&desc, &l), CLT_INVALID_ARGUMENT);
        assert_null(l);
        assert_true(strlen(clt_error_message()) > 10);
    }
    clt_loader_desc desc = describe(d, 16);
    l = make_loader(&desc, NULL);
    clt_batch b = {.struct_size = sizeof b};
    assert_int_equal(clt_loader_next(l, &b), CLT_STATE);
    assert_int_equal(clt_loader_start(l), CLT_OK);
    assert_int_equal(clt_loader_start(l), CLT_STATE);
    assert_int_equal(clt_loader_add_output(l, "label", CLT_U8, NULL), CLT_STATE);
    assert_int_equal(clt_loader_release(l, 0), CLT_STATE);
    assert_int_equal(clt_loader_release(l, 3), CLT_INVALID_ARGUMENT);
    for (int i = 0; i < 3; i++)
        b = next(l);
    assert_int_equal(clt_loader_next(l, &b), CLT_STATE);
    assert_non_null(strstr(clt_error_message(), "all 3 slots"));
    clt_loader_free(l);
    clt_dataset_free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_hold_what_the_order_says),
        cmocka_unit_test(parts_have_their_virtual_shards),
        cmocka_unit_test(ranks_see_their_parts_and_the_weight_of_all),
        cmocka_unit_test(a_reader_has_the_weight_of_all_ranks),
        cmocka_unit_test(a_resumed_loader_repeats_the_interrupted_one),
        cmocka_unit_test(a_partial_last_batch_may_be_left_out),
        cmocka_unit_test(memory_of_the_caller_is_used_and_not_overrun),
        cmocka_unit_test(normalisation_is_the_double_reference_rounded),
        cmocka_unit_test(steps_allocate_nothing),
        cmocka_unit_test(bad_descriptions_are_refused),
    };
    return cmocka_run_group_tests(tests, fill_images, NULL);
}
