/*
 * Reads folders of images, one folder for each class, as torchvision's ImageFolder does. The
 * loaders' threads decode images on request. Images are cut as by torchvision's transforms: Resize
 * and CenterCrop, RandomCrop or RandomResizedCrop, RandomHorizontalFlip.
 */
#include <math.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "base/user_file.h"
#include "base/hash.h"
#include "base/str.h"
#include "base/vec.h"
#include "data/image/augment.h"
#include "data/image/image.h"
#include "data/core/kinds.h"
#include "data/folders/class_names.h"
#include "data/folders/image_folders.h"

enum { DEFAULT_SIZE = 224, COLOURS = 3, TRIES = 10, MOST_LENGTH = 1 << 30 };

/* Scratch memory of a thread that reads an image. */
typedef struct workspace {
    struct workspace *next;
    clt_image image;
    clt_resample_work work;
    unsigned char *file, *window;
    size_t file_room;
} workspace;

typedef struct images {
    clt_image_files files;
    int size, resize;
    pthread_mutex_t lock;
    workspace *workspaces; /* scratch memory that no thread uses now */
} images;

static void workspace_free(workspace *d)
{
    clt_image_free(&d->image);
    clt_resample_work_free(&d->work);
    CLT_FREE(d->file, d->window, d);
}

static void images_free(void *payload)
{
    images *m = payload;
    clt_image_files_free(&m->files);
    while (m->workspaces) {
        workspace *d = m->workspaces;
        m->workspaces = d->next;
        workspace_free(d);
    }
    pthread_mutex_destroy(&m->lock);
    clt_free(m);
}

/* --- one image -------------------------------------------------------------------------------- */

static workspace *take_workspace(images *m)
{
    pthread_mutex_lock(&m->lock);
    workspace *d = m->workspaces;
    if (d)
        m->workspaces = d->next;
    pthread_mutex_unlock(&m->lock);
    if (d)
        return d;
    d = CLT_NEW(workspace);
    if (d && !(d->window = clt_alloc((size_t)m->size * (size_t)m->size * COLOURS))) {
        clt_free(d);
        d = NULL;
    }
    return d;
}

static void return_workspace(images *m, workspace *d)
{
    pthread_mutex_lock(&m->lock);
    d->next = m->workspaces;
    m->workspaces = d;
    pthread_mutex_unlock(&m->lock);
}

static clt_status make_room(workspace *d, const char *path, size_t bytes)
{
    if (bytes <= d->file_room)
        return CLT_OK;
    clt_free(d->file);
    d->file_room = 0;
    d->file = clt_alloc(bytes);
    if (!d->file)
        return clt_fail_prefix(CLT_OUT_OF_MEMORY, "%s: ", path);
    d->file_room = bytes;
    return CLT_OK;
}

static clt_status load(workspace *d, const char *path, clt_image_plan plan, void *user)
{
    int fd;
    int64_t bytes;
    const clt_status opened = clt_file_open(path, &fd, &bytes);
    if (opened != CLT_OK) /* the folder listed the file: report a sample that cannot be read */
        return opened == CLT_NOT_FOUND ? CLT_IO : opened;
    clt_status status = make_room(d, path, (size_t)bytes);
    CLT_NEXT(status, clt_file_read_at(fd, path, 0, d->file, bytes));
    close(fd);
    return status == CLT_OK ? clt_image_decode(&d->image, path, d->file, (size_t)bytes, plan, user)
                            : status;
}

/* Halves n and rounds to the nearest even number, as Python does. */
static int half(int n)
{
    return n / 2 + (n % 2 && n / 2 % 2);
}

/* Resizes the whole image by its shorter side, and finds the window's corner in the result. The
 * window may lie outside. If the longer side would be too long, r->to_width stays 0. */
static void place_crop(const images *m, const clt_augment *a, const clt_sample_key *key,
                       int64_t index, clt_resample *r, int *left, int *top)
{
    const int shorter = r->width < r->height ? r->width : r->height;
    const int64_t width = (int64_t)r->width * m->resize / shorter;
    const int64_t height = (int64_t)r->height * m->resize / shorter;
    if (width > MOST_LENGTH || height > MOST_LENGTH)
        return;
    r->to_width = (int)width;
    r->to_height = (int)height;
    if (!a || !a->crop) {
        *left = half(r->to_width - m->size);
        *top = half(r->to_height - m->size);
        return;
    }
    const int64_t around = 2 * a->padding - m->size + 1;
    const uint32_t down = clt_augment_bits(key, index, CLT_DRAW_PLACE, 0);
    const uint32_t right = clt_augment_bits(key, index, CLT_DRAW_PLACE, 1);
    *top = (int)(clt_augment_below(down, r->to_height + around) - a->padding);
    *left = (int)(clt_augment_below(right, r->to_width + around) - a->padding);
}

static double unit(uint32_t bits)
{
    return bits * (1.0 / 4294967296.0);
}

/* Finds a part of random area and aspect ratio. If none fits, takes the largest part in the middle
 * whose ratio is in range. */
static void place_resized(const clt_augment *a, const clt_sample_key *key, int64_t index,
                          clt_resample *r)
{
    const int width = r->width, height = r->height;
    const double area = (double)width * height, most = log(4.0 / 3);
    for (int i = 0; i < TRIES; i++) {
        const int draw = CLT_DRAW_RESIZED + i;
        const double share = unit(clt_augment_bits(key, index, draw, 0));
        const double ratio = exp((2 * unit(clt_augment_bits(key, index, draw, 1)) - 1) * most);
        const double target = area * (a->least_area + (1 - a->least_area) * share);
        const double w = rint(sqrt(target * ratio)), h = rint(sqrt(target / ratio));
        if (w < 1 || h < 1 || w > width || h > height)
            continue;
        r->width = (int)w;
        r->height = (int)h;
        r->y =
            (int)clt_augment_below(clt_augment_bits(key, index, draw, 2), height - r->height + 1);
        r->x = (int)clt_augment_below(clt_augment_bits(key, index, draw, 3), width - r->width + 1);
        return;
    }
    if (4.0 * width < 3.0 * height)
        r->height = (int)rint(width * 4.0 / 3);
    else if (3.0 * width > 4.0 * height)
        r->width = (int)rint(height * 4.0 / 3);
    r->x = (width - r->width) / 2;
    r->y = (height - r->height) / 2;
}

/* Writes the rows of the window to the planes of the sample. The sample's corner lies at (left,
 * top) of the resized image. */
static void write_planes(const unsigned char *window, const clt_resample *r, int size, int left,
                         int top, bool flips, unsigned char *out)
{
    const size_t plane = (size_t)size * (size_t)size, columns = (size_t)r->columns;
    const int column = flips ? size - (r->left - left) - r->columns : r->left - left;
    if (r->columns < size || r->rows < size)
        memset(out, 0, COLOURS * plane);
    for (int y = 0; y < r->rows; y++)
        for (int c = 0; c < COLOURS; c++) {
            const unsigned char *from = window + ((size_t)y * COLOURS + (size_t)c) * columns;
            unsigned char *to = out + (size_t)c * plane +
                                (size_t)(y + r->top - top) * (size_t)size + (size_t)column;
            if (!flips)
                memcpy(to, from, columns);
            for (size_t x = 0; flips && x < columns; x++)
                to[x] = from[columns - 1 - x];
        }
}

/* Finds the part of a window of `size` at `begin` that lies in [0, limit). */
static void clip(int begin, int size, int limit, int *first, int *count)
{
    const int end = begin + size < limit ? begin + size : limit;
    *first = begin > 0 ? begin : 0;
    *count = end > *first ? end - *first : 0;
}

/* How a sample is cut from an image. */
typedef struct placing {
    const images *images;
    const clt_augment *augment; /* NULL: no random changes */
    const clt_sample_key *key;
    int64_t index;
    clt_resample r;
    int left, top; /* the sample's corner in the image that `r` resizes */
} placing;

/* Plans how to cut and resize an image. JPEGs that become much smaller are decoded at 1/2, 1/4 or
 * 1/8 of their size, but at least at twice the final size, as Pillow's thumbnail does. */
static int place(void *user, int width, int height)
{
    enum { GAP = 2, MOST = 8 };
    placing *p = user;
    const clt_augment *a = p->augment;
    clt_resample *r = &p->r;
    *r = (clt_resample){.width = width, .height = height};
    p->left = p->top = 0;
    if (a && a->resized_crop) {
        place_resized(a, p->key, p->index, r);
        r->to_width = r->to_height = p->images->size;
    } else {
        place_crop(p->images, a, p->key, p->index, r, &p->left, &p->top);
    }
    int shrink = MOST;
    while (shrink > 1 && (r->width < (int64_t)GAP * shrink * r->to_width ||
                          r->height < (int64_t)GAP * shrink * r->to_height))
        shrink /= 2;
    return shrink;
}

/* Converts the part [*begin, *begin + *count) to pixels of the image as decoded, which is `shrunk`
 * times smaller and has `limit` pixels. The part's ends may lie within pixels. *inset and *span
 * tell resampling the exact ends; otherwise the image would be stretched. */
static void shrink_part(int *begin, int *count, double *inset, double *span, int shrunk, int limit)
{
    const int first = *begin / shrunk, end = (*begin + *count + shrunk - 1) / shrunk;
    *inset = (double)*begin / shrunk - first;
    *span = (double)*count / shrunk;
    *begin = first;
    *count = (end < limit ? end : limit) - first;
}

static clt_status write_sample(workspace *d, placing *p, const char *path, unsigned char *out)
{
    const clt_augment *a = p->augment;
    const int size = p->images->size, shrunk = d->image.shrunk;
    clt_resample *r = &p->r;
    if (!r->to_width)
        return clt_fail(CLT_FORMAT, "%s: an image of %d x %d is too narrow to be resized to %d",
                        path, r->width, r->height, p->images->resize);
    shrink_part(&r->x, &r->width, &r->inset_x, &r->span_x, shrunk, d->image.width);
    shrink_part(&r->y, &r->height, &r->inset_y, &r->span_y, shrunk, d->image.height);
    clip(p->left, size, r->to_width, &r->left, &r->columns);
    clip(p->top, size, r->to_height, &r->top, &r->rows);
    if (r->columns && r->rows)
        CLT_TRY(clt_image_resample(&d->image, r, &d->work, d->window));
    else
        r->columns = r->rows = 0;
    write_planes(d->window, r, size, p->left, p->top, a && clt_augment_flips(a, p->key, p->index),
                 out);
    return CLT_OK;
}

/* --- an image by itself ----------------------------------------------------------------------- */

CLT_STRUCT_INIT(clt_image_form, .channels = COLOURS)

static clt_status check_form(const char *path, const clt_image_form *f)
{
    enum { MOST = 1 << 14 };
    CLT_TRY(CLT_CHECK_STRUCT(f, clt_image_form));
    const bool fits = f->height >= 1 && f->width >= 1 && f->height <= MOST && f->width <= MOST &&
                      (f->channels == 1 || f->channels == COLOURS);
    if (!fits || f->resize < 0 || f->resize > MOST || (f->resize && f->height != f->width) ||
        (f->resize && f->resize < f->height))
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "%s: images of %lld channels, %lld x %lld%s are not possible", path,
                        (long long)f->channels, (long long)f->height, (long long)f->width,
                        f->resize ? " of a resized one" : "");
    return CLT_OK;
}

/* Resizes the whole image. */
static clt_status write_whole(workspace *d, const clt_image_form *f, unsigned char *out)
{
    const int width = (int)f->width, height = (int)f->height;
    const clt_resample r = {.width = d->image.width,
                            .height = d->image.height,
                            .to_width = width,
                            .to_height = height,
                            .columns = width,
                            .rows = height};
    const size_t plane = (size_t)width * (size_t)height;
    CLT_TRY(clt_image_resample(&d->image, &r, &d->work, d->window));
    for (int y = 0; y < height; y++)
        for (int c = 0; c < COLOURS; c++)
            memcpy(out + (size_t)c * plane + (size_t)y * (size_t)width,
                   d->window + ((size_t)y * COLOURS + (size_t)c) * (size_t)width, (size_t)width);
    return CLT_OK;
}

/* Plans to decode the image at full size. */
static int place_whole(void *user, int width, int height)
{
    (void)user;
    (void)width;
    (void)height;
    return 1;
}

static clt_status write_form(workspace *d, const char *path, const clt_image_form *f,
                             unsigned char *planes)
{
    const images m = {.size = (int)f->height, .resize = (int)f->resize};
    placing p = {.images = &m};
    CLT_TRY(load(d, path, f->resize ? place : place_whole, &p));
    return f->resize ? write_sample(d, &p, path, planes) : write_whole(d, f, planes);
}

clt_status clt_image_read(const char *path, const clt_image_form *f, unsigned char *out)
{
    enum { RED = 19595, GREEN = 38470, BLUE = 7471, HALF = 1 << 15 }; /* ITU-R BT.601, 16 bits */
    workspace d = {0};
    CLT_TRY(check_form(path, f));
    const size_t plane = (size_t)f->height * (size_t)f->width;
    unsigned char *planes = f->channels == 1 ? clt_alloc(COLOURS * plane) : out;
    d.window = clt_alloc(COLOURS * plane);
    clt_status status = planes && d.window ? write_form(&d, path, f, planes) : CLT_OUT_OF_MEMORY;
    for (size_t i = 0; status == CLT_OK && planes != out && i < plane; i++)
        out[i] = (unsigned char)((RED * (unsigned)planes[i] + GREEN * (unsigned)planes[plane + i] +
                                  BLUE * (unsigned)planes[2 * plane + i] + HALF) >>
                                 16);
    if (planes != out)
        clt_free(planes);
    clt_image_free(&d.image);
    clt_resample_work_free(&d.work);
    CLT_FREE(d.file, d.window);
    return status;
}

static clt_status fetch(clt_dataset *dataset, const clt_sample_key *key, int64_t index,
                        void *const *fields)
{
    images *m = dataset->payload;
    const clt_image_file *file = &m->files.list[index];
    const clt_data_field *f = &dataset->fields[0];
    if (fields[1])
        memcpy(fields[1], &file->label, sizeof file->label);
    if (!fields[0])
        return CLT_OK;
    workspace *d = take_workspace(m);
    CLT_TRY_MEMORY(d);
    placing p = {
        .images = m, .augment = f->augmented ? &f->augment : NULL, .key = key, .index = index};
    clt_status status = load(d, file->path, place, &p);
    CLT_NEXT(status, write_sample(d, &p, file->path, fields[0]));
    return_workspace(m, d);
    return status;
}

/* --- opening ---------------------------------------------------------------------------------- */

static const char *sample_file(const clt_dataset *dataset, int64_t index)
{
    const images *m = dataset->payload;
    return m->files.list[index].path;
}

/* Makes the data set. Takes ownership of `m`. */
static clt_status make(images *m, const clt_data_request *r, const clt_listing *classes,
                       clt_dataset **out)
{
    const int64_t shape[] = {COLOURS, m->size, m->size};
    clt_dataset *d;
    const clt_status made =
        clt_dataset_new_fetched(r->name, m->files.count, fetch, m, images_free, &d);
    if (made != CLT_OK) {
        images_free(m);
        return made;
    }
    d->augments = true;
    d->sample_file = sample_file;
    clt_status status =
        clt_dataset_add_field(d, "image", CLT_U8, 3, shape, NULL, CLT_DATA_BORROW, NULL);
    CLT_NEXT(status, clt_dataset_set_image(d, 0));
    CLT_NEXT(status,
             clt_dataset_add_field(d, "label", CLT_I32, 0, NULL, NULL, CLT_DATA_BORROW, NULL));
    CLT_NEXT(status, clt_dataset_set_classes(d, 1, classes->count));
    CLT_NEXT(status, clt_dataset_name_classes(d, 1, (const char *const *)classes->names));
    CLT_NEXT(status, clt_class_names_write(classes, &d->description));
    /* Hash file names and labels, but no paths: folders may move. */
    for (int i = 0; i < m->files.count; i++) {
        const clt_image_file *f = &m->files.list[i];
        d->content =
            clt_hash(&f->label, sizeof f->label, clt_hash_text(strrchr(f->path, '/'), d->content));
    }
    if (status == CLT_OK)
        *out = d;
    else
        clt_dataset_free(d);
    return status;
}

clt_status clt_open_images(const clt_data_request *r, clt_dataset **out)
{
    images *m = CLT_NEW(images);
    clt_listing classes = {0};
    CLT_TRY_MEMORY(m);
    pthread_mutex_init(&m->lock, NULL);
    m->size = r->options->image_size ? (int)r->options->image_size : DEFAULT_SIZE;
    m->resize = r->options->resize ? (int)r->options->resize : m->size * 8 / 7;
    clt_status status = clt_image_files_find(r, &m->files, &classes);
    if (status == CLT_OK && r->options->classes && r->options->classes != classes.count)
        status = clt_fail(CLT_INVALID_ARGUMENT, "%s: %d folders of classes, but %lld classes",
                          r->path, classes.count, (long long)r->options->classes);
    if (status == CLT_OK)
        status = make(m, r, &classes, out);
    else
        images_free(m);
    clt_listing_free(&classes);
    return status;
}
