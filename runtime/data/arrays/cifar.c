/*
 * Reads CIFAR-10 and CIFAR-100 in their binary version (Krizhevsky, "Learning multiple layers of
 * features from tiny images", 2009). A record has one label byte (CIFAR-100: the coarse and the
 * fine label) and 3072 bytes of an image: planes of red, green and blue of 32 x 32.
 */
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/str.h"
#include "data/core/kinds.h"
#include "data/files/reader.h"

enum { IMAGE_BYTES = 3 * 32 * 32, MOST_LABELS = 2, MOST_FILES = 5, BLOCK = 256 };

typedef struct cifar_kind {
    const char *folder;   /* folder in the archive; the path may name it or its parent */
    const char *names;    /* file with the classes' names, one a line; may be missing */
    const char *train[6]; /* ended by NULL */
    const char *test[2];
    int labels; /* bytes of a record before the image */
    int64_t classes[MOST_LABELS];
    const char *fields[MOST_LABELS]; /* the last one is "label" */
} cifar_kind;

static const cifar_kind cifar10 = {
    .folder = "cifar-10-batches-bin",
    .names = "batches.meta.txt",
    .train = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
              "data_batch_5.bin"},
    .test = {"test_batch.bin"},
    .labels = 1,
    .classes = {10},
    .fields = {"label"},
};

static const cifar_kind cifar100 = {
    .folder = "cifar-100-binary",
    .names = "fine_label_names.txt",
    .train = {"train.bin"},
    .test = {"test.bin"},
    .labels = 2,
    .classes = {20, 100},
    .fields = {"coarse_label", "label"},
};

typedef struct cifar_data {
    unsigned char *images, *labels[MOST_LABELS];
} cifar_data;

/* Computes the number of records of a file from its size. */
static clt_status count_records(const clt_reader *reader, int bytes, int64_t *count)
{
    const int64_t size = clt_reader_most_bytes(reader);
    if (size < bytes || size % bytes)
        return clt_fail(CLT_FORMAT,
                        "%s: %lld bytes are not a number of records of %d bytes (%d of labels, "
                        "3072 of the image): truncated, or another file",
                        clt_reader_path(reader), (long long)size, bytes, bytes - IMAGE_BYTES);
    *count = size / bytes;
    return CLT_OK;
}

static clt_status read_file(const cifar_kind *kind, clt_reader *reader, int64_t count,
                            int64_t first, const cifar_data *to)
{
    const int bytes = kind->labels + IMAGE_BYTES;
    unsigned char *block = clt_alloc((size_t)bytes * BLOCK);
    clt_status status = block ? CLT_OK : CLT_OUT_OF_MEMORY;
    for (int64_t at = 0; status == CLT_OK && at < count; at += BLOCK) {
        const int64_t n = count - at < BLOCK ? count - at : BLOCK;
        status = clt_reader_read(reader, block, n * bytes, "the records", NULL);
        for (int64_t i = 0; status == CLT_OK && i < n; i++) {
            const unsigned char *record = block + i * bytes;
            const int64_t sample = first + at + i;
            for (int l = 0; l < kind->labels && status == CLT_OK; l++) {
                to->labels[l][sample] = record[l];
                if (record[l] >= kind->classes[l])
                    status =
                        clt_fail(CLT_FORMAT, "%s: record %lld: %s %d is out of range: 0 to %lld",
                                 clt_reader_path(reader), (long long)(at + i), kind->fields[l],
                                 record[l], (long long)kind->classes[l] - 1);
            }
            memcpy(to->images + sample * IMAGE_BYTES, record + kind->labels, IMAGE_BYTES);
        }
    }
    clt_free(block);
    return status == CLT_OK ? clt_reader_end(reader) : status;
}

static clt_status make_fields(const cifar_kind *kind, clt_dataset *d, cifar_data *data)
{
    static const int64_t shape[] = {3, 32, 32};
    CLT_TRY(clt_dataset_add_owned(d, "image", CLT_U8, 3, shape, (void **)&data->images));
    CLT_TRY(clt_dataset_set_image(d, 0));
    for (int l = kind->labels - 1; l >= 0; l--) { /* "label" first */
        CLT_TRY(
            clt_dataset_add_owned(d, kind->fields[l], CLT_U8, 0, NULL, (void **)&data->labels[l]));
        CLT_TRY(clt_dataset_set_classes(d, d->field_count - 1, kind->classes[l]));
    }
    return CLT_OK;
}

static clt_status load(const cifar_kind *kind, const char *name, clt_reader **files, int n_files,
                       clt_dataset **out)
{
    int64_t counts[MOST_FILES], total = 0, first = 0;
    cifar_data data;
    clt_dataset *d;
    for (int i = 0; i < n_files; i++) {
        CLT_TRY(count_records(files[i], kind->labels + IMAGE_BYTES, &counts[i]));
        total += counts[i];
    }
    CLT_TRY(clt_dataset_new(CLT_DATA_HOST, name, total, &d));
    clt_status status = make_fields(kind, d, &data);
    for (int i = 0; status == CLT_OK && i < n_files; i++) {
        status = read_file(kind, files[i], counts[i], first, &data);
        first += counts[i];
    }
    if (status != CLT_OK)
        clt_dataset_free(d);
    else
        *out = d;
    return status;
}

/* Finds the folder of the files: the archive's folder in DIR, or DIR itself. */
static clt_status find_folder(const cifar_kind *kind, const char *path, const char *first,
                              clt_str *folder)
{
    struct stat info;
    clt_str file = {0};
    clt_str_add(folder, "%s/%s", path, kind->folder);
    clt_str_add(&file, "%s/%s", clt_str_text(folder), first);
    const bool there = stat(clt_str_text(&file), &info) == 0;
    clt_str_free(&file);
    if (!there) {
        clt_str_clear(folder);
        clt_str_add(folder, "%s", path);
    }
    return folder->failed ? CLT_OUT_OF_MEMORY : CLT_OK;
}

static clt_status open_cifar(const cifar_kind *kind, const clt_data_request *r, clt_dataset **out)
{
    const char *const *names = r->test ? kind->test : kind->train;
    clt_reader *files[MOST_FILES] = {NULL};
    clt_str folder = {0}, path = {0};
    int n_files = 0;
    const int64_t classes = r->options->classes;
    if (classes && classes != kind->classes[kind->labels - 1])
        return clt_fail(CLT_INVALID_ARGUMENT, "data '%s': %lld classes, but the format has %lld",
                        r->spec, (long long)classes, (long long)kind->classes[kind->labels - 1]);
    clt_status status = find_folder(kind, r->path, names[0], &folder);
    for (; status == CLT_OK && n_files < MOST_FILES && names[n_files]; n_files++) {
        clt_str_clear(&path);
        clt_str_add(&path, "%s/%s", clt_str_text(&folder), names[n_files]);
        status =
            path.failed ? CLT_OUT_OF_MEMORY : clt_reader_open(clt_str_text(&path), &files[n_files]);
    }
    if (status == CLT_NOT_FOUND)
        clt_fail(status,
                 "%s: not found; the binary version has it: "
                 "https://www.cs.toronto.edu/~kriz/cifar.html",
                 clt_str_text(&path));
    clt_dataset *d = NULL;
    CLT_NEXT(status, load(kind, r->name, files, n_files, &d));
    if (status == CLT_OK) {
        clt_str_clear(&path);
        clt_str_add(&path, "%s/%s", clt_str_text(&folder), kind->names);
        status = clt_dataset_read_class_names(d, 1, clt_str_text(&path));
    }
    for (int i = 0; i < n_files; i++)
        clt_reader_close(files[i]);
    clt_str_free(&folder);
    clt_str_free(&path);
    if (status == CLT_OK)
        *out = d;
    else
        clt_dataset_free(d);
    return status;
}

clt_status clt_open_cifar10(const clt_data_request *r, clt_dataset **out)
{
    return open_cifar(&cifar10, r, out);
}

clt_status clt_open_cifar100(const clt_data_request *r, clt_dataset **out)
{
    return open_cifar(&cifar100, r, out);
}
