#include "data/image/augment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/philox.h"

/* The usual padding for CIFAR. Image files have none by default: they are cropped from their
 * resized size. */
enum { ARRAY_PADDING = 4 };

CLT_STRUCT_INIT(clt_augment, .padding = -1, .least_area = 0.08)

static clt_status bad(const char *text)
{
    return clt_fail(
        CLT_INVALID_ARGUMENT,
        "augment '%s': must be a list, separated by commas, of crop, crop:PADDING, flip, "
        "resized-crop, resized-crop:AREA (least share of the area, above 0, at most 1)",
        text);
}

clt_status clt_augment_parse(const char *text, clt_augment *out)
{
    clt_augment a;
    clt_augment_init(&a);
    if (!text || !out)
        return clt_fail(CLT_INVALID_ARGUMENT, "augmentation needs its text and a place");
    for (const char *at = text;; at++) {
        char word[40], *end = NULL;
        const size_t length = strcspn(at, ",");
        if (!length || length >= sizeof word)
            return bad(text);
        memcpy(word, at, length);
        word[length] = '\0';
        char *value = strchr(word, ':');
        if (value)
            *value++ = '\0';
        if (!strcmp(word, "crop") && !a.crop) {
            a.crop = 1;
            a.padding = value ? strtol(value, &end, 10) : -1;
            if (value && (a.padding < 0 || a.padding > 4096))
                return bad(text);
        } else if (!strcmp(word, "resized-crop") && !a.resized_crop) {
            a.resized_crop = 1;
            a.least_area = value ? strtod(value, &end) : a.least_area;
            if (!(a.least_area > 0 && a.least_area <= 1))
                return bad(text);
        } else if (!strcmp(word, "flip") && !a.flip && !value) {
            a.flip = 1;
        } else {
            return bad(text);
        }
        if (value && (end == value || *end))
            return bad(text);
        at += length;
        if (!*at)
            break;
    }
    if (a.crop && a.resized_crop)
        return clt_fail(CLT_INVALID_ARGUMENT, "augment '%s': crop or resized-crop, not both", text);
    *out = a;
    return CLT_OK;
}

clt_status clt_dataset_augment(clt_dataset *dataset, const char *field, const clt_augment *augment)
{
    int number;
    if (!augment)
        return clt_fail(CLT_INVALID_ARGUMENT, "the augmentation is NULL");
    CLT_TRY(CLT_CHECK_STRUCT(augment, clt_augment));
    CLT_TRY(clt_dataset_find_field(dataset, field, &number));
    clt_data_field *f = &dataset->fields[number];
    if (dataset->kind == CLT_DATA_DEVICE)
        return clt_fail(CLT_UNSUPPORTED,
                        "data set '%s', field '%s': samples in device memory are not augmented",
                        dataset->name, field);
    CLT_TRY(clt_dataset_need_fixed(dataset, "random changes of samples"));
    if (atomic_load(&dataset->sealed))
        return clt_fail(CLT_STATE, "data set '%s': a loader reads it already", dataset->name);
    if (f->rank < 2)
        return clt_fail(
            CLT_UNSUPPORTED,
            "data set '%s', field '%s': rank %d has no height and width to crop or flip",
            dataset->name, field, f->rank);
    if (augment->resized_crop && !dataset->augments)
        return clt_fail(CLT_UNSUPPORTED,
                        "data set '%s', field '%s': resized-crop is for folders of images",
                        dataset->name, field);
    if (augment->padding < -1 || augment->padding > 4096 ||
        !(augment->least_area > 0 && augment->least_area <= 1))
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "data set '%s', field '%s': padding %lld must be -1 to 4096, and least "
                        "area %g above 0 and at most 1",
                        dataset->name, field, (long long)augment->padding, augment->least_area);
    f->augment = *augment;
    if (augment->padding < 0)
        f->augment.padding = dataset->augments ? 0 : ARRAY_PADDING;
    f->augmented = augment->crop || augment->flip || augment->resized_crop;
    return CLT_OK;
}

uint32_t clt_augment_bits(const clt_sample_key *key, int64_t index, int draw, int which)
{
    uint32_t bits[4];
    clt_random4(clt_random_seed(key->seed, key->epoch), CLT_STREAM_AUGMENT, (uint32_t)draw,
                (uint32_t)key->epoch, (uint64_t)index, bits);
    return bits[which];
}

bool clt_augment_flips(const clt_augment *a, const clt_sample_key *key, int64_t index)
{
    return a->flip && clt_augment_bits(key, index, CLT_DRAW_PLACE, 2) >> 31;
}

static void flip_row(char *row, int64_t n, size_t bytes)
{
    char swap[8];
    for (int64_t i = 0; i < n / 2; i++) {
        char *a = row + (size_t)i * bytes, *b = row + (size_t)(n - 1 - i) * bytes;
        memcpy(swap, a, bytes);
        memcpy(a, b, bytes);
        memcpy(b, swap, bytes);
    }
}

void clt_augment_planes(const clt_data_field *f, const clt_sample_key *key, int64_t index,
                        const void *from, void *to)
{
    const clt_augment *a = &f->augment;
    const int64_t height = f->shape[f->rank - 2], width = f->shape[f->rank - 1];
    const size_t bytes = (size_t)clt_dtype_size(f->dtype);
    const bool flips = clt_augment_flips(a, key, index);
    int64_t down = 0, right = 0; /* the window's offset from the sample's corner */
    if (a->crop) {
        const int64_t places = 2 * a->padding + 1;
        down = clt_augment_below(clt_augment_bits(key, index, CLT_DRAW_PLACE, 0), places);
        right = clt_augment_below(clt_augment_bits(key, index, CLT_DRAW_PLACE, 1), places);
        down -= a->padding;
        right -= a->padding;
    }
    /* Columns of the window that the sample covers. */
    int64_t begin = right < 0 ? -right : 0, end = right > 0 ? width - right : width;
    begin = begin > width ? width : begin;
    end = end < begin ? begin : end;
    for (int64_t row = 0; row < f->elements / width; row++) {
        const int64_t y = row % height + down;
        char *out = (char *)to + (size_t)(row * width) * bytes;
        if (y < 0 || y >= height) {
            memset(out, 0, (size_t)width * bytes);
            continue;
        }
        const char *in =
            (const char *)from + (size_t)((row - row % height + y) * width + begin + right) * bytes;
        memset(out, 0, (size_t)begin * bytes);
        memcpy(out + (size_t)begin * bytes, in, (size_t)(end - begin) * bytes);
        memset(out + (size_t)end * bytes, 0, (size_t)(width - end) * bytes);
        if (flips)
            flip_row(out, width, bytes);
    }
}

const char *clt_augment_text(const clt_augment *a, char text[CLT_AUGMENT_TEXT])
{
    int used = 0;
    *text = '\0';
    if (a->crop)
        used = snprintf(text, CLT_AUGMENT_TEXT, "crop of padding %lld", (long long)a->padding);
    if (a->resized_crop)
        used = snprintf(text, CLT_AUGMENT_TEXT, "resized crop of %.9g of the area", a->least_area);
    if (a->flip)
        snprintf(text + used, CLT_AUGMENT_TEXT - (size_t)used, "%sflip", used ? ", " : "");
    return text;
}
