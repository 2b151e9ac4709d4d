#include "data/arrays/idx.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/str.h"
#include "data/core/dataset.h"
#include "data/files/reader.h"

enum { IMAGE_RANK = 3, LABEL_RANK = 1 };

/* The job that reads the images. The header was read before. */
typedef struct image_job {
    clt_data_job job;
    clt_reader *reader;
    void *to;
    int64_t bytes;
} image_job;

static clt_status run_images(clt_data_job *job)
{
    image_job *j = (image_job *)job;
    CLT_TRY(clt_reader_read(j->reader, j->to, j->bytes, "the images", &job->stop));
    return clt_reader_end(j->reader);
}

static void destroy_images(clt_data_job *job)
{
    clt_reader_close(((image_job *)job)->reader);
    clt_free(job);
}

/* Opens `name` in `folder`, or else `name` with .gz. */
static clt_status open_either(const char *folder, const char *name, const char *missing,
                              clt_reader **out)
{
    static const char *const endings[] = {"", ".gz"};
    clt_status status = CLT_NOT_FOUND;
    for (int i = 0; i < 2 && status == CLT_NOT_FOUND; i++) {
        clt_str path = {0};
        clt_str_add(&path, "%s/%s%s", folder, name, endings[i]);
        status = path.failed ? CLT_OUT_OF_MEMORY : clt_reader_open(clt_str_text(&path), out);
        clt_str_free(&path);
    }
    if (status == CLT_NOT_FOUND)
        return clt_fail(status, "%s/%s: not found, neither plain nor with .gz%s", folder, name,
                        missing);
    return status;
}

/* Reads and checks a header. dims[0] gets the number of samples, *bytes the bytes after the
 * header. */
static clt_status read_header(clt_reader *reader, int rank, int64_t dims[], int64_t *bytes)
{
    const char *path = clt_reader_path(reader);
    unsigned char head[4 + 4 * IMAGE_RANK];
    CLT_TRY(clt_reader_read(reader, head, 4, "the magic number", NULL));
    if (head[0] != 0 || head[1] != 0 || head[2] != 8 || head[3] != rank)
        return clt_fail(CLT_FORMAT,
                        "%s: wrong magic number %02x%02x%02x%02x: unsigned bytes in %d dimensions "
                        "are 0000080%d",
                        path, head[0], head[1], head[2], head[3], rank, rank);
    CLT_TRY(clt_reader_read(reader, head + 4, 4 * rank, "the header", NULL));
    int64_t product = 1;
    bool fits = true;
    clt_str shape = {0};
    for (int i = 0; i < rank; i++) {
        const unsigned char *p = head + 4 + 4 * i;
        dims[i] = (int64_t)p[0] << 24 | (int64_t)p[1] << 16 | (int64_t)p[2] << 8 | p[3];
        fits = fits && dims[i] > 0 && !__builtin_mul_overflow(product, dims[i], &product);
        clt_str_add(&shape, "%s%lld", i ? " x " : "", (long long)dims[i]);
    }
    /* Check before allocating, so that a damaged header cannot exhaust memory. */
    int64_t most = clt_reader_most_bytes(reader) - 4 - 4 * rank;
    clt_status status = CLT_OK;
    if (!fits || product > most)
        status = clt_fail(CLT_FORMAT,
                          "%s: truncated, or a damaged header: it announces %s bytes, but the file "
                          "can hold at most %lld (and at least 1)",
                          path, clt_str_text(&shape), (long long)(most > 0 ? most : 0));
    clt_str_free(&shape);
    if (status == CLT_OK)
        *bytes = product;
    return status;
}

static clt_status check_labels(const clt_reader *reader, const unsigned char *labels, int64_t count,
                               int64_t *classes)
{
    int64_t largest = 0, at = 0;
    bool seen[256] = {false};
    for (int64_t i = 0; i < count; i++) {
        seen[labels[i]] = true;
        if (labels[i] > largest) {
            largest = labels[i];
            at = i;
        }
    }
    if (*classes && largest >= *classes)
        return clt_fail(CLT_FORMAT, "%s: label %lld of sample %lld is out of range: 0 to %lld",
                        clt_reader_path(reader), (long long)largest, (long long)at,
                        (long long)*classes - 1);
    /* The file does not say how many classes there are, so a gap looks like a wrong label. */
    for (int64_t c = 0; c < largest && !*classes; c++)
        if (!seen[c])
            return clt_fail(CLT_FORMAT,
                            "%s: label %lld of sample %lld looks out of range, since no sample has "
                            "label %lld; if it is right, give the number of classes",
                            clt_reader_path(reader), (long long)largest, (long long)at,
                            (long long)c);
    if (!*classes)
        *classes = largest + 1;
    return CLT_OK;
}

static clt_status load_labels(clt_dataset *d, clt_reader *reader, int64_t classes)
{
    void *labels;
    CLT_TRY(clt_dataset_add_owned(d, "label", CLT_U8, 0, NULL, &labels));
    CLT_TRY(clt_reader_read(reader, labels, d->count, "the labels", NULL));
    CLT_TRY(clt_reader_end(reader));
    CLT_TRY(check_labels(reader, labels, d->count, &classes));
    return clt_dataset_set_classes(d, 1, classes);
}

/* Reads both files, the images on a thread of their own. Takes ownership of the images' reader. */
static clt_status load_pair(clt_dataset *d, clt_reader *images, const int64_t dims[], int64_t bytes,
                            clt_reader *labels, int64_t classes)
{
    const int64_t shape[3] = {1, dims[1], dims[2]};
    image_job *job = CLT_NEW(image_job);
    if (!job) {
        clt_reader_close(images);
        return CLT_OUT_OF_MEMORY;
    }
    job->job.run = run_images;
    job->job.destroy = destroy_images;
    job->reader = images;
    job->bytes = bytes;
    clt_status status = clt_dataset_add_owned(d, "image", CLT_U8, 3, shape, &job->to);
    CLT_NEXT(status, clt_dataset_set_image(d, 0));
    if (status != CLT_OK) {
        destroy_images(&job->job);
        return status;
    }
    CLT_TRY(clt_dataset_run_job(d, &job->job, true));
    return load_labels(d, labels, classes);
}

clt_status clt_idx_open(const char *name, const char *folder, const char *split, int64_t classes,
                        bool background, const char *missing, clt_dataset **out)
{
    bool train = !strcmp(split, "train");
    clt_reader *images = NULL, *labels = NULL;
    clt_dataset *d = NULL;
    int64_t dims[IMAGE_RANK] = {0}, count[LABEL_RANK] = {0}, bytes = 0, label_bytes = 0;
    clt_status status;
    CLT_TRY_GOTO(status,
                 open_either(folder, train ? "train-images-idx3-ubyte" : "t10k-images-idx3-ubyte",
                             missing, &images),
                 done);
    CLT_TRY_GOTO(status,
                 open_either(folder, train ? "train-labels-idx1-ubyte" : "t10k-labels-idx1-ubyte",
                             missing, &labels),
                 done);
    CLT_TRY_GOTO(status, read_header(images, IMAGE_RANK, dims, &bytes), done);
    CLT_TRY_GOTO(status, read_header(labels, LABEL_RANK, count, &label_bytes), done);
    if (dims[0] != count[0]) {
        status = clt_fail(CLT_FORMAT, "%s holds %lld images, but %s holds %lld labels",
                          clt_reader_path(images), (long long)dims[0], clt_reader_path(labels),
                          (long long)count[0]);
        goto done;
    }
    CLT_TRY_GOTO(status, clt_dataset_new(CLT_DATA_HOST, name, dims[0], &d), done);
    clt_reader *given = images;
    images = NULL;
    CLT_TRY_GOTO(status, load_pair(d, given, dims, bytes, labels, classes), done);
    if (!background)
        CLT_TRY_GOTO(status, clt_dataset_wait(d), done);
    *out = d;
    d = NULL;
done:
    clt_dataset_free(d);
    clt_reader_close(images);
    clt_reader_close(labels);
    return status;
}
