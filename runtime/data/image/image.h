/* Images of files: decoding, and resampling as Pillow does. */
#ifndef CLT_DATA_IMAGE_IMAGE_H
#define CLT_DATA_IMAGE_IMAGE_H

#include <stdbool.h>
#include <stddef.h>

#include <cltrain/status.h>

/* Bytes that may be read behind the last colour. */
enum { CLT_IMAGE_BEHIND = 8 };

/* Bytes of red, green and blue, row by row. Start with {0}; memory is kept from image to image. */
typedef struct clt_image {
    unsigned char *rgb;
    int width, height;
    int shrunk; /* the file's are so many times as large, or up to that less 1 pixel more: 1 to 8 */
    size_t room;
    void *jpeg; /* turbojpeg's decompressor */
} clt_image;

/* Told an image's size before it is decoded, returns what may be left of it: all (1), or 1/2, 1/4
 * or 1/8 (2, 4, 8) of its width and height. */
typedef int (*clt_image_plan)(void *user, int width, int height);

/*
 * Decodes a JPEG or PNG, which its first bytes tell, whatever its name. JPEGs are decoded at what
 * `plan` (may be NULL) returns, by libjpeg's scaled transforms, as Pillow's draft does. Grey and
 * palettes become colours, an alpha channel is dropped, 16 bits become their upper 8; Adobe's CMYK
 * is multiplied out. FORMAT, with `path`, for what is neither, damaged or cut short.
 */
clt_status clt_image_decode(clt_image *image, const char *path, const unsigned char *bytes,
                            size_t count, clt_image_plan plan, void *user);
void clt_image_free(clt_image *image);

/* Fails for an image of too many pixels, or none. */
clt_status clt_image_check_size(const char *path, long width, long height);

/* Makes room for width * height colours, which are then the image's size. */
clt_status clt_image_resize_room(clt_image *image, const char *path, long width, long height);

clt_status clt_image_decode_png(clt_image *image, const char *path, const unsigned char *bytes,
                                size_t count, clt_image_plan plan, void *user);
clt_status clt_image_decode_jpeg(clt_image *image, const char *path, const unsigned char *bytes,
                                 size_t count, clt_image_plan plan, void *user);

/* Part of an image, resized. */
typedef struct clt_resample {
    int x, y, width, height;      /* the part of the image, which lies in it */
    double inset_x, inset_y;      /* of that part, what lies from here on, */
    double span_x, span_y;        /* so wide and high, is resized; 0: all of it */
    int to_width, to_height;      /* what it is resized to; of that, */
    int left, top, columns, rows; /* this window, which lies in it, is computed */
} clt_resample;

/* Memory of resampling; start with {0}. */
typedef struct clt_resample_work {
    void *memory;
    size_t room;
} clt_resample_work;

/*
 * Bilinear with antialiasing: a triangle as wide as the scale, whose weights are rounded to 22
 * bits, first along rows, rounded to 8 bits, then along columns. These are Pillow's bits
 * (Image.resize with BILINEAR, its box the part that is resized), which torchvision uses for images
 * that are not tensors. `out`: rows, each of `columns` reds, then as many greens and blues.
 */
clt_status clt_image_resample(const clt_image *image, const clt_resample *r,
                              clt_resample_work *work, unsigned char *out);
void clt_resample_work_free(clt_resample_work *work);

#endif
