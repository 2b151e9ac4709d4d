#include "data/image/image.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

#ifdef CLT_HAVE_TURBOJPEG
#include <turbojpeg.h>
#endif

/* A larger image is damaged, or was made to exhaust memory. */
static const long MOST_PIXELS = 1L << 28;

/* Fails with FORMAT if the image has no pixels or too many. */
static clt_status image_check_size(const char *path, long width, long height)
{
    if (width < 1 || height < 1 || width > MOST_PIXELS / height)
        return clt_fail(CLT_FORMAT, "%s: an image of %ld x %ld: more than 2^28 pixels, or none",
                        path, width, height);
    return CLT_OK;
}

clt_status clt_image_resize_room(clt_image *image, const char *path, long width, long height)
{
    CLT_TRY(image_check_size(path, width, height));
    /* Four bytes a pixel: decoding CMYK needs the fourth. Resampling reads a few bytes after the
     * last pixel. */
    const size_t bytes = (size_t)(width * height) * 4 + CLT_IMAGE_BEHIND;
    if (bytes > image->room) {
        clt_free(image->rgb);
        image->room = 0;
        image->rgb = clt_alloc(bytes);
        if (!image->rgb)
            return clt_fail_prefix(CLT_OUT_OF_MEMORY, "%s: ", path);
        image->room = bytes;
    }
    image->width = (int)width;
    image->height = (int)height;
    return CLT_OK;
}

static clt_status decode(clt_image *image, const char *path, const unsigned char *bytes,
                         size_t count, clt_image_plan plan, void *user)
{
    static const unsigned char png[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    if (!count)
        return clt_fail(CLT_FORMAT, "%s: is empty", path);
    if (count >= sizeof png && !memcmp(bytes, png, sizeof png))
        return clt_image_decode_png(image, path, bytes, count, plan, user);
    if (count >= 3 && bytes[0] == 0xFF && bytes[1] == 0xD8 && bytes[2] == 0xFF)
        return clt_image_decode_jpeg(image, path, bytes, count, plan, user);
    return clt_fail(CLT_FORMAT, "%s: is neither a JPEG nor a PNG: it begins with %02x %02x %02x",
                    path, bytes[0], count > 1 ? bytes[1] : 0, count > 2 ? bytes[2] : 0);
}

clt_status clt_image_decode(clt_image *image, const char *path, const unsigned char *bytes,
                            size_t count, clt_image_plan plan, void *user)
{
    CLT_TRY(decode(image, path, bytes, count, plan, user));
    /* Resampling reads these bytes and multiplies them by 0. Clear them, so that they are
     * initialised. */
    memset(image->rgb + (size_t)image->width * (size_t)image->height * 3, 0, CLT_IMAGE_BEHIND);
    return CLT_OK;
}

#ifdef CLT_HAVE_TURBOJPEG

/* Adobe writes CMYK inverted: 255 is no ink. */
static void multiply_cmyk(clt_image *image)
{
    const size_t pixels = (size_t)image->width * (size_t)image->height;
    for (size_t i = 0; i < pixels; i++) {
        const unsigned char *from = image->rgb + 4 * i;
        const unsigned key = from[3];
        unsigned char colour[3];
        for (int c = 0; c < 3; c++)
            colour[c] = (unsigned char)((from[c] * key + 127) / 255);
        memcpy(image->rgb + 3 * i, colour, 3);
    }
}

/* Whether libjpeg's message is a warning. Files of cameras have stray bytes and the like. For an
 * error after a warning, turbojpeg reports a warning with the error's text, so the text decides. */
static bool is_warning(const char *text)
{
    static const char *const warnings[] = {"Corrupt JPEG data: ", "Unknown Adobe color transform",
                                           "Inconsistent progression sequence",
                                           "Warning: unknown JFIF", "Invalid SOS parameters"};
    for (size_t i = 0; i < sizeof warnings / sizeof *warnings; i++)
        if (!strncmp(text, warnings[i], strlen(warnings[i])))
            return true;
    return false;
}

/* Whether an end marker follows the last scan. Turbojpeg tells the first warning only, which may
 * hide that the file is cut short. */
static bool ends(const unsigned char *bytes, size_t count)
{
    enum { MARKER = 0xFF, SCAN = 0xDA, END = 0xD9 };
    for (size_t i = count - 1; i > 0; i--)
        if (bytes[i - 1] == MARKER && (bytes[i] == SCAN || bytes[i] == END))
            return bytes[i] == END;
    return false;
}

static clt_status decode_jpeg(clt_image *image, const char *path, const unsigned char *bytes,
                              size_t count, clt_image_plan plan, void *user)
{
    int width = 0, height = 0, subsampling, colours;
    if (!image->jpeg && !(image->jpeg = tjInitDecompress()))
        return clt_fail(CLT_OUT_OF_MEMORY, "%s: libjpeg-turbo: %s", path, tjGetErrorStr2(NULL));
    const int failed = tjDecompressHeader3(image->jpeg, bytes, (unsigned long)count, &width,
                                           &height, &subsampling, &colours);
    if (width < 1 || height < 1 || (failed && !is_warning(tjGetErrorStr2(image->jpeg))))
        return clt_fail(CLT_FORMAT, "%s: damaged JPEG: %s", path,
                        failed ? tjGetErrorStr2(image->jpeg) : "it ends before its size");
    /* Check the size in the file too, not only the scaled size. */
    CLT_TRY(image_check_size(path, width, height));
    image->shrunk = plan ? plan(user, width, height) : 1;
    const tjscalingfactor scale = {1, image->shrunk};
    width = TJSCALED(width, scale);
    height = TJSCALED(height, scale);
    CLT_TRY(clt_image_resize_room(image, path, width, height));
    const bool inks = colours == TJCS_CMYK || colours == TJCS_YCCK;
    if (tjDecompress2(image->jpeg, bytes, (unsigned long)count, image->rgb, width, 0, height,
                      inks ? TJPF_CMYK : TJPF_RGB, 0)) {
        const char *why = tjGetErrorStr2(image->jpeg);
        if (!is_warning(why) || !ends(bytes, count))
            return clt_fail(CLT_FORMAT, "%s: damaged JPEG: %s", path, why);
    }
    if (inks)
        multiply_cmyk(image);
    return CLT_OK;
}

clt_status clt_image_decode_jpeg(clt_image *image, const char *path, const unsigned char *bytes,
                                 size_t count, clt_image_plan plan, void *user)
{
    const clt_status status = decode_jpeg(image, path, bytes, count, plan, user);
    if (status != CLT_OK && image->jpeg) { /* its state may come from this file */
        tjDestroy(image->jpeg);
        image->jpeg = NULL;
    }
    return status;
}

void clt_image_free(clt_image *image)
{
    if (image->jpeg)
        tjDestroy(image->jpeg);
    clt_free(image->rgb);
    *image = (clt_image){0};
}

#else

clt_status clt_image_decode_jpeg(clt_image *image, const char *path, const unsigned char *bytes,
                                 size_t count, clt_image_plan plan, void *user)
{
    (void)image, (void)bytes, (void)count, (void)plan, (void)user;
    return clt_fail(CLT_UNSUPPORTED,
                    "%s: this build has no libjpeg-turbo (Debian: libturbojpeg0-dev)", path);
}

void clt_image_free(clt_image *image)
{
    clt_free(image->rgb);
    *image = (clt_image){0};
}

#endif
