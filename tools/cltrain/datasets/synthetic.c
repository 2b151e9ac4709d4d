#include "datasets/synthetic.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/message.h"

enum { MOST_COUNT = 8192, MOST_BYTES = 1 << 26, MOST_SIDE = 1 << 16 };

int is_synthetic(const char *spec)
{
    static const char name[] = "synthetic";
    const size_t length = sizeof name - 1;
    return !strncmp(spec, name, length) && (!spec[length] || spec[length] == ':');
}

static int read_spec(const char *spec, int64_t shape[3], int64_t *classes)
{
    const char *colon = spec ? strchr(spec, ':') : NULL;
    long long c, h, w, k = *classes;
    int end = 0;
    if (!colon)
        return 1;
    int read = sscanf(colon, ":%lldx%lldx%lld%n:%lld%n", &c, &h, &w, &end, &k, &end);
    if (read < 3 || colon[end] || c < 1 || h < 1 || w < 1 || k < 1 || c > MOST_SIDE ||
        h > MOST_SIDE || w > MOST_SIDE || c * h * w > MOST_BYTES || k > MOST_BYTES)
        return 0;
    shape[0] = c;
    shape[1] = h;
    shape[2] = w;
    *classes = k;
    return 1;
}

clt_status open_synthetic(const char *spec, int64_t classes, clt_dataset **out)
{
    int64_t shape[3] = {1, 28, 28};
    if (!read_spec(spec, shape, &classes)) {
        char text[256];
        snprintf(text, sizeof text,
                 "--data %.100s: must be synthetic, or synthetic:CxHxW[:CLASSES], as "
                 "synthetic:3x224x224:1000",
                 spec);
        return clt_error_set(CLT_INVALID_ARGUMENT, text);
    }
    const int64_t image = shape[0] * shape[1] * shape[2];
    const int64_t count = MOST_BYTES / image < MOST_COUNT ? MOST_BYTES / image : MOST_COUNT;
    unsigned char *images = malloc((size_t)(count * image));
    int32_t *labels = malloc((size_t)count * sizeof *labels);
    clt_dataset *d = NULL;
    int label = 0;
    uint64_t x = 1; /* a linear congruential generator with Knuth's MMIX constants */
    for (int64_t i = 0; images && i < count * image; i++)
        images[i] = (unsigned char)((x = x * 6364136223846793005u + 1442695040888963407u) >> 56);
    for (int64_t i = 0; labels && i < count; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        labels[i] = (int32_t)((x >> 33) % (uint64_t)classes);
    }
    clt_status status = images && labels
                            ? clt_dataset_create_arrays("synthetic", count, &d)
                            : clt_error_set(CLT_OUT_OF_MEMORY, "memory does not suffice");
    NEXT(status, clt_dataset_add_field(d, "image", CLT_U8, 3, shape, images, CLT_DATA_COPY, NULL));
    NEXT(status, clt_dataset_set_image(d, 0));
    NEXT(status,
         clt_dataset_add_field(d, "label", CLT_I32, 0, NULL, labels, CLT_DATA_COPY, &label));
    NEXT(status, clt_dataset_set_classes(d, label, classes));
    free(images);
    free(labels);
    if (status == CLT_OK)
        *out = d;
    else
        clt_dataset_free(d);
    return status;
}

clt_status open_synthetic_text(int64_t length, int64_t vocabulary, clt_dataset **out)
{
    const int64_t tokens = MOST_BYTES / (int64_t)sizeof(int32_t) / 4;
    const int64_t count = tokens / length < 1 ? 1 : tokens / length;
    int32_t *data = length <= tokens ? malloc((size_t)(count * length + 1) * sizeof *data) : NULL;
    clt_dataset *d = NULL;
    uint64_t x = 1;
    for (int64_t i = 0; data && i <= count * length; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        data[i] = (int32_t)((x >> 33) % (uint64_t)vocabulary);
    }
    clt_status status = data ? clt_dataset_create_arrays("synthetic", count, &d)
                             : clt_error_set(CLT_OUT_OF_MEMORY, "memory does not suffice");
    static const char *const names[] = {"tokens", "targets"};
    for (int i = 0; status == CLT_OK && i < 2; i++) {
        int field = 0;
        status = clt_dataset_add_field(d, names[i], CLT_I32, 1, &length, data + i, CLT_DATA_COPY,
                                       &field);
        NEXT(status, clt_dataset_set_classes(d, field, vocabulary));
    }
    free(data);
    if (status == CLT_OK)
        *out = d;
    else
        clt_dataset_free(d);
    return status;
}
