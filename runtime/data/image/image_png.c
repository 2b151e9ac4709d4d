#include <setjmp.h>
#include <string.h>

#include "base/error.h"
#include "data/image/image.h"

#ifdef CLT_HAVE_PNG

#include <png.h>

typedef struct png_source {
    const unsigned char *bytes;
    size_t left;
    char message[160];
} png_source;

static void read_bytes(png_structp png, png_bytep to, size_t count)
{
    png_source *s = png_get_io_ptr(png);
    if (count > s->left)
        png_error(png, "cut short");
    memcpy(to, s->bytes, count);
    s->bytes += count;
    s->left -= count;
}

static void on_error(png_structp png, png_const_charp text)
{
    png_source *s = png_get_error_ptr(png);
    strncpy(s->message, text, sizeof s->message - 1);
    longjmp(png_jmpbuf(png), 1);
}

static void on_warning(png_structp png, png_const_charp text)
{
    (void)png, (void)text;
}

/* Makes libpng convert every pixel format to 8 bits of red, green and blue. */
static void ask_for_rgb(png_structp png, png_infop info)
{
    png_set_expand(png);
    png_set_strip_16(png);
    png_set_strip_alpha(png);
    png_set_gray_to_rgb(png);
    png_set_interlace_handling(png);
    png_read_update_info(png, info);
}

/* libpng reports errors by longjmp to here. No local variable is read after that, so none can have
 * a stale value. */
static clt_status decode(png_structp png, png_infop info, clt_image *image, const char *path)
{
    if (setjmp(png_jmpbuf(png)))
        return CLT_FORMAT;
    png_read_info(png, info);
    ask_for_rgb(png, info);
    CLT_TRY(clt_image_resize_room(image, path, (long)png_get_image_width(png, info),
                                  (long)png_get_image_height(png, info)));
    const int passes = png_get_interlace_type(png, info) == PNG_INTERLACE_NONE ? 1 : 7;
    if (png_get_rowbytes(png, info) != (size_t)image->width * 3)
        png_error(png, "not 3 bytes a pixel");
    for (int pass = 0; pass < passes; pass++)
        for (int y = 0; y < image->height; y++)
            png_read_row(png, image->rgb + (size_t)y * (size_t)image->width * 3, NULL);
    png_read_end(png, NULL);
    return CLT_OK;
}

clt_status clt_image_decode_png(clt_image *image, const char *path, const unsigned char *bytes,
                                size_t count, clt_image_plan plan, void *user)
{
    png_source source = {.bytes = bytes, .left = count};
    clt_error_restore("");
    png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &source, on_error, on_warning);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    clt_status status = CLT_OUT_OF_MEMORY;
    if (info) {
        png_set_read_fn(png, &source, read_bytes);
        status = decode(png, info, image, path);
    }
    png_destroy_read_struct(&png, &info, NULL);
    image->shrunk = 1;
    if (status == CLT_OK && plan)
        plan(user, image->width, image->height);
    if (status != CLT_OK && !*clt_error_message())
        return clt_fail(status, "%s: damaged PNG: %s", path, source.message);
    return status;
}

#else

clt_status clt_image_decode_png(clt_image *image, const char *path, const unsigned char *bytes,
                                size_t count, clt_image_plan plan, void *user)
{
    (void)image, (void)bytes, (void)count, (void)plan, (void)user;
    return clt_fail(CLT_UNSUPPORTED, "%s: this build has no libpng (Debian: libpng-dev)", path);
}

#endif
