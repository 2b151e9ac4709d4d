/* Decodes image files, and resamples images as Pillow does. */
#ifndef CLT_DATA_IMAGE_IMAGE_H
#define CLT_DATA_IMAGE_IMAGE_H

#include <stdbool.h>
#include <stddef.h>

#include <cltrain/status.h>

/* Resampling may read this many bytes after the last colour. */
enum { CLT_IMAGE_BEHIND = 16 };

/* A decoded image: bytes of red, green and blue, row by row. Start with {0}. The memory is reused
 * from image to image. */
typedef struct clt_image {
    unsigned char *rgb;
    int width, height;
    int shrunk; /* the file's width and height are up to this many times as large: 1 to 8 */
    size_t room;
    void *jpeg; /* turbojpeg's decompressor */
} clt_image;

/* Gets an image's size before it is decoded. Returns the scale at which to decode: 1 for full width
 * and height, or 2, 4 or 8 for 1/2, 1/4 or 1/8 of them. */
typedef int (*clt_image_plan)(void *user, int width, int height);

/*
 * Decodes a JPEG or PNG file. The first bytes tell the format, whatever the file's name. JPEGs are
 * decoded at the scale that `plan` (may be NULL) returns, by libjpeg's scaled transforms, as
 * Pillow's draft does.
 *
 * - Grey values and palettes become red, green and blue.
 * - An alpha channel is dropped.
 * - Of 16 bits the upper 8 are kept.
 * - Adobe's CMYK is multiplied out.
 *
 * Fails with FORMAT, naming `path`, for other formats and for files that are damaged or cut short.
 */
clt_status clt_image_decode(clt_image *image, const char *path, const unsigned char *bytes,
                            size_t count, clt_image_plan plan, void *user);
void clt_image_free(clt_image *image);

/* Sets the image's size, and allocates room for width * height colours. */
clt_status clt_image_resize_room(clt_image *image, const char *path, long width, long height);

clt_status clt_image_decode_png(clt_image *image, const char *path, const unsigned char *bytes,
                                size_t count, clt_image_plan plan, void *user);
clt_status clt_image_decode_jpeg(clt_image *image, const char *path, const unsigned char *bytes,
                                 size_t count, clt_image_plan plan, void *user);

/* A part of an image, and the size to which it is resized. */
typedef struct clt_resample {
    int x, y, width, height;
    double inset_x, inset_y;      /* resize only what begins here within the part */
    double span_x, span_y;        /* and has this size; 0: all of the part */
    int to_width, to_height;      /* size of the result */
    int left, top, columns, rows; /* the window of the result to compute */
} clt_resample;

/* Scratch memory of resampling. Start with {0}. */
typedef struct clt_resample_work {
    void *memory;
    size_t room;
} clt_resample_work;

/*
 * Resamples bilinearly with antialiasing. The filter is a triangle as wide as the scale. Its
 * weights are rounded to 22 bits. Rows are filtered first and rounded to 8 bits, then columns. The
 * result has the same bits as Pillow's Image.resize with BILINEAR and the part as its box, which
 * torchvision uses for images that are not tensors. `out` gets rows, each with `columns` reds, then
 * as many greens and blues.
 */
clt_status clt_image_resample(const clt_image *image, const clt_resample *r,
                              clt_resample_work *work, unsigned char *out);
void clt_resample_work_free(clt_resample_work *work);

#endif
