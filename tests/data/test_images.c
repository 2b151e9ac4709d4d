/* Image files, which must give Pillow's bits when decoded and resampled (goldens/make_images.py).
 * Also folders of classes, crops, and files that are no images. */
#include "data/expect.h"
#include "data/files.h"
#include "data/image/image.h"
#include "data/image/resample.h"
#include "goldens/goldens.h"

#include <ftw.h>
#include <sys/stat.h>

#if defined CLT_HAVE_TURBOJPEG && defined CLT_HAVE_PNG

enum { WIDTH = 37, HEIGHT = 45, COLOURS = 3 };

static const char *const names[] = {"rgb.jpg",     "sub420.jpg",  "progressive.jpg", "grey.jpg",
                                    "cmyk.jpg",    "rgb.png",     "rgba.png",        "grey.png",
                                    "palette.png", "one_bit.png", "grey_alpha.png"};
enum { NAMES = sizeof names / sizeof *names };

static clt_tensors *goldens;
static char spec[128];

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)info, (void)kind, (void)at;
    return remove(path);
}

static int begin(void **state)
{
    goldens = golden_open("images/pillow.safetensors");
    const int failed = make_folder(state);
    snprintf(spec, sizeof spec, "images:%s", folder);
    return failed;
}

static int end(void **state)
{
    (void)state;
    clt_tensors_close(goldens);
    return nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static unsigned char *read_golden(const char *name, size_t *count)
{
    char path[4200], inner[64];
    snprintf(inner, sizeof inner, "images/%s", name);
    golden_path(inner, path, sizeof path);
    FILE *f = fopen(path, "rb");
    unsigned char *bytes = malloc(1 << 20);
    if (!f || !bytes)
        fail_msg("%s is not there", path);
    *count = fread(bytes, 1, 1 << 20, f);
    fclose(f);
    return bytes;
}

/* Copies a golden file into the folder under another name. Cuts it to `count` bytes unless that is
 * 0. */
static void put(const char *golden, const char *name, size_t count)
{
    size_t all;
    unsigned char *bytes = read_golden(golden, &all);
    spill(name, bytes, count ? count : all);
    free(bytes);
}

static void make_folders(const char *const *wanted)
{
    nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    assert_int_equal(mkdir(folder, 0777), 0);
    for (; *wanted; wanted++)
        assert_int_equal(mkdir(path_of(*wanted), 0777), 0);
}
#define MAKE_FOLDERS(...) make_folders((const char *const[]){__VA_ARGS__, NULL})

static void every_kind_of_file_has_pillows_colours(void **state)
{
    (void)state;
    clt_image image = {0};
    for (int i = 0; i < NAMES; i++) {
        size_t count;
        unsigned char *bytes = read_golden(names[i], &count);
        const uint8_t *want = golden_u8(goldens, NULL, names[i], WIDTH * HEIGHT * COLOURS);
        if (clt_image_decode(&image, names[i], bytes, count, NULL, NULL) != CLT_OK)
            fail_msg("%s", clt_error_message());
        assert_int_equal(image.width, WIDTH);
        assert_int_equal(image.height, HEIGHT);
        /* Pillow rounds the product of inks differently. */
        const int most = strcmp(names[i], "cmyk.jpg") ? 0 : 1;
        for (int k = 0; k < WIDTH * HEIGHT * COLOURS; k++)
            if (abs(image.rgb[k] - want[k]) > most)
                fail_msg("%s: byte %d is %d, not %d", names[i], k, image.rgb[k], want[k]);
        free(bytes);
    }
    clt_image_free(&image);
}

/* Checks that the window is the same part of `want`, whose colours are interleaved. */
static void expect_window(const unsigned char *have, const clt_resample *r, const uint8_t *want)
{
    for (int y = 0; y < r->rows; y++)
        for (int x = 0; x < r->columns; x++)
            for (int c = 0; c < COLOURS; c++) {
                const int is = have[(y * COLOURS + c) * r->columns + x];
                const int golden = want[((y + r->top) * r->to_width + x + r->left) * COLOURS + c];
                if (is != golden)
                    fail_msg("%s: row %d, column %d, colour %d: %d instead of %d",
                             clt_resample_choose()->name, y, x, c, is, golden);
            }
}

static void expect_resampled(const clt_image *image, clt_resample r, const char *golden)
{
    clt_resample_work work = {0};
    unsigned char *out = malloc((size_t)(r.to_width * r.to_height * COLOURS));
    const uint8_t *want = golden_u8(goldens, NULL, golden, r.to_width * r.to_height * COLOURS);
    assert_non_null(out);
    for (int i = 0; clt_resample_methods(i); i++) {
        clt_resample_prefer(clt_resample_methods(i));
        r.left = r.top = 0;
        r.columns = r.to_width;
        r.rows = r.to_height;
        assert_int_equal(clt_image_resample(image, &r, &work, out), CLT_OK);
        expect_window(out, &r, want);
        /* A window must equal that part of the whole image. */
        r.left = r.to_width / 3;
        r.top = r.to_height / 4;
        r.columns = r.to_width - r.left - r.to_width / 5;
        r.rows = r.to_height - r.top;
        assert_int_equal(clt_image_resample(image, &r, &work, out), CLT_OK);
        expect_window(out, &r, want);
    }
    clt_resample_prefer(NULL);
    clt_resample_work_free(&work);
    free(out);
}

static void resampling_has_pillows_bits(void **state)
{
    (void)state;
    static const int sizes[][2] = {{16, 16}, {7, 40},   {61, 45}, {37, 45},
                                   {3, 5},   {100, 45}, {1, 1}};
    size_t count;
    clt_image image = {0};
    unsigned char *bytes = read_golden("rgb.png", &count);
    assert_int_equal(clt_image_decode(&image, "rgb.png", bytes, count, NULL, NULL), CLT_OK);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char golden[40];
        snprintf(golden, sizeof golden, "resized.%dx%d", sizes[i][0], sizes[i][1]);
        expect_resampled(&image,
                         (clt_resample){.width = WIDTH,
                                        .height = HEIGHT,
                                        .to_width = sizes[i][0],
                                        .to_height = sizes[i][1]},
                         golden);
    }
    expect_resampled(
        &image,
        (clt_resample){.x = 5, .y = 9, .width = 25, .height = 31, .to_width = 16, .to_height = 16},
        "part.16x16");
    free(bytes);
    clt_image_free(&image);
}

/* --- folders ---------------------------------------------------------------------------------- */

static clt_dataset_options small(int64_t size, int64_t resize)
{
    clt_dataset_options options;
    clt_dataset_options_init(&options);
    options.image_size = size;
    options.resize = resize;
    return options;
}

/* Returns one epoch in order, or NULL after a failure. */
static unsigned char *read_epoch(clt_dataset *d, int64_t epoch, int threads, int parts,
                                 clt_status *status)
{
    int rank;
    int64_t bytes, shape[CLT_DATA_MAX_RANK];
    clt_loader *loader;
    clt_loader_desc desc;
    clt_loader_desc_init(&desc);
    desc.dataset = d;
    desc.batch = 4;
    desc.shuffle = 1;
    desc.seed = 11;
    desc.epoch = epoch;
    desc.end_epoch = epoch + 1;
    desc.min_threads = desc.max_threads = threads;
    desc.parts = parts;
    assert_int_equal(clt_dataset_field_info(d, 0, NULL, NULL, &rank, shape, &bytes), CLT_OK);
    unsigned char *all = calloc((size_t)clt_dataset_count(d), (size_t)bytes);
    assert_non_null(all);
    assert_int_equal(clt_loader_create(&desc, &loader), CLT_OK);
    assert_int_equal(clt_loader_add_output(loader, "image", CLT_U8, NULL), CLT_OK);
    assert_int_equal(clt_loader_add_output(loader, "label", CLT_I32, NULL), CLT_OK);
    assert_int_equal(clt_loader_start(loader), CLT_OK);
    clt_batch b = {.struct_size = sizeof b};
    while ((*status = clt_loader_next(loader, &b)) == CLT_OK && b.slot >= 0) {
        for (int p = 0; p < parts; p++)
            for (int64_t i = b.offsets[p]; i < b.offsets[p + 1]; i++)
                memcpy(all + b.indices[i] * bytes,
                       (char *)clt_loader_memory(loader, b.slot, p, 0) + (i - b.offsets[p]) * bytes,
                       (size_t)bytes);
        assert_int_equal(clt_loader_release(loader, b.slot), CLT_OK);
    }
    clt_loader_free(loader);
    return all;
}

/* Returns whether planes hold the window of `want` (interleaved, `wide` columns) at (left, top). */
static int is_window(const unsigned char *planes, int size, const uint8_t *want, int wide, int left,
                     int top, int flips)
{
    for (int c = 0; c < COLOURS; c++)
        for (int y = 0; y < size; y++)
            for (int x = 0; x < size; x++)
                if (planes[(c * size + y) * size + (flips ? size - 1 - x : x)] !=
                    want[((y + top) * wide + x + left) * COLOURS + c])
                    return 0;
    return 1;
}

/* A quarter of 101 x 77 pixels is 25.25 x 19.25. The result must equal Pillow's draft and resize of
 * this box bit for bit. It must also be close to the result from the whole image. */
static void expect_odd_photograph(void)
{
    enum { SIZE = 8, MOST = 8 };
    MAKE_FOLDERS("a");
    put("odd.jpg", "a/1.jpg", 0);
    put("odd.jpg", "a/2.jpg", 0);
    clt_dataset_options options = small(SIZE, 9);
    clt_dataset *d = expect_open(spec, "train", &options);
    clt_status status;
    unsigned char *all = read_epoch(d, 0, 1, 1, &status);
    assert_int_equal(status, CLT_OK);
    const uint8_t *want = golden_u8(goldens, NULL, "odd.8x8", SIZE * SIZE * COLOURS);
    assert_true(is_window(all, SIZE, want, SIZE, 0, 0, 0));
    want = golden_u8(goldens, NULL, "odd.whole", SIZE * SIZE * COLOURS);
    for (int i = 0; i < SIZE * SIZE * COLOURS; i++) {
        const int have = all[i % COLOURS * SIZE * SIZE + i / COLOURS];
        if (abs(have - want[i]) > MOST)
            fail_msg("value %d is %d, of the whole image %d", i, have, want[i]);
    }
    free(all);
    clt_dataset_free(d);
}

/* The result must equal Pillow's draft and resize bit for bit. */
static void large_photographs_are_decoded_at_a_part_of_their_size(void **state)
{
    (void)state;
    MAKE_FOLDERS("a");
    put("large.jpg", "a/1.jpg", 0);
    put("large.jpg", "a/2.jpg", 0);
    clt_dataset_options options = small(32, 36);
    clt_dataset *d = expect_open(spec, "train", &options);
    clt_status status;
    unsigned char *all = read_epoch(d, 0, 1, 1, &status);
    assert_int_equal(status, CLT_OK);
    assert_true(is_window(all, 32, golden_u8(goldens, NULL, "large.32x32", 32 * 32 * COLOURS), 32,
                          0, 0, 0));
    free(all);
    clt_dataset_free(d);
    expect_odd_photograph();
    MAKE_FOLDERS("a");
    put("large.jpg", "a/1.jpg", 0);
    put("large.jpg", "a/2.jpg", 0);
    /* A crop takes a part of the image. The whole image would be decoded at a smaller size. */
    clt_augment augment;
    assert_int_equal(clt_augment_parse("resized-crop:0.05,flip", &augment), CLT_OK);
    unsigned char *one = NULL;
    for (int threads = 1; threads < 4; threads++) {
        d = expect_open(spec, "train", &options);
        assert_int_equal(clt_dataset_augment(d, "image", &augment), CLT_OK);
        all = read_epoch(d, 3, threads, threads, &status);
        assert_int_equal(status, CLT_OK);
        if (one)
            assert_memory_equal(all, one, 32 * 32 * COLOURS);
        free(one);
        one = all;
        clt_dataset_free(d);
    }
    free(one);
}

static void folders_are_classes_and_splits(void **state)
{
    (void)state;
    MAKE_FOLDERS("train", "val", "train/b", "train/a", "train/.hidden", "val/b");
    put("rgb.png", "train/a/2.png", 0);
    put("rgb.jpg", "train/a/1.JPEG", 0);
    put("grey.png", "train/a/wrong_ending.jpg", 0); /* the bytes decide, not the ending */
    put("grey.png", "train/b/1.png", 0);
    put("grey.png", "train/b/notes.txt", 0);
    put("rgb.jpg", "val/b/1.jpg", 0);
    clt_dataset_options options = small(37, 37);
    clt_dataset *d = expect_open(spec, "train", &options);
    clt_status status;
    assert_int_equal(clt_dataset_count(d), 4);
    expect_field(d, "image", CLT_U8, "[3,37,37]");
    assert_int_equal(clt_dataset_classes(d, expect_field(d, "label", CLT_I32, "[]")), 2);
    assert_string_equal(clt_dataset_class_name(d, 1, 0), "a");
    assert_string_equal(clt_dataset_class_name(d, 1, 1), "b");
    assert_int_equal(clt_dataset_set_classes(d, 1, 2), CLT_OK);
    assert_string_equal(clt_dataset_class_name(d, 1, 1), "b");
    /* Names are known only for the original number of classes. */
    assert_int_equal(clt_dataset_set_classes(d, 1, 1000), CLT_OK);
    assert_null(clt_dataset_class_name(d, 1, 1));
    assert_null(clt_dataset_class_name(d, 1, 999));
    unsigned char *all = read_epoch(d, 0, 2, 1, &status);
    assert_int_equal(status, CLT_OK);
    static const char *const order[] = {"rgb.jpg", "rgb.png", "grey.png", "grey.png"};
    for (int i = 0; i < 4; i++) /* the middle of 45 rows */
        assert_true(is_window(all + i * 37 * 37 * 3, 37,
                              golden_u8(goldens, NULL, order[i], WIDTH * HEIGHT * COLOURS), 37, 0,
                              4, 0));
    free(all);
    clt_dataset_free(d);
    d = expect_open(spec, "test", &options);
    assert_int_equal(clt_dataset_count(d), 1);
    assert_int_equal(clt_dataset_classes(d, 1), 2);
    clt_dataset_free(d);
    /* The default is 224 pixels, cut from 256. */
    d = expect_open(spec, "test", NULL);
    expect_field(d, "image", CLT_U8, "[3,224,224]");
    clt_dataset_free(d);
}

static void the_last_tenth_of_each_class_is_for_tests(void **state)
{
    (void)state;
    MAKE_FOLDERS("a", "b");
    for (int i = 0; i < 14; i++) {
        char name[32];
        snprintf(name, sizeof name, "%c/%02d.png", i < 11 ? 'a' : 'b', i);
        put("rgb.png", name, 0);
    }
    clt_dataset_options options = small(8, 0);
    clt_dataset *d = expect_open(spec, "train", &options);
    assert_int_equal(clt_dataset_count(d), 9 + 2);
    clt_dataset_free(d);
    d = expect_open(spec, "test", &options);
    assert_int_equal(clt_dataset_count(d), 2 + 1);
    clt_dataset_free(d);
}

static void augment(clt_dataset *d, const char *text)
{
    clt_augment a;
    assert_int_equal(clt_augment_parse(text, &a), CLT_OK);
    assert_int_equal(clt_dataset_augment(d, "image", &a), CLT_OK);
}

/* Every crop is a window of the resized image, every window occurs, and threads and parts do not
 * change the crops. */
static void crops_are_windows_whoever_makes_them(void **state)
{
    (void)state;
    enum { SIZE = 34, COUNT = 22, BYTES = 3 * SIZE * SIZE };
    MAKE_FOLDERS("a");
    for (int i = 0; i < COUNT + COUNT / 9; i++) {
        char name[32];
        snprintf(name, sizeof name, "a/%02d.png", i);
        put("rgb.png", name, 0);
    }
    const uint8_t *want = golden_u8(goldens, NULL, "rgb.png", WIDTH * HEIGHT * COLOURS);
    int seen[HEIGHT - SIZE + 1][WIDTH - SIZE + 1][2] = {{{0}}}, kinds = 0;
    for (int epoch = 0; epoch < 12; epoch++) {
        unsigned char *first = NULL;
        for (int way = 0; way < 3; way++) {
            clt_dataset_options options = small(SIZE, WIDTH);
            clt_dataset *d = expect_open(spec, "train", &options);
            clt_status status;
            augment(d, "crop,flip");
            assert_int_equal(clt_dataset_count(d), 21);
            unsigned char *all = read_epoch(d, epoch, 1 + way, 1 + way % 2, &status);
            assert_int_equal(status, CLT_OK);
            if (first)
                assert_memory_equal(all, first, 21 * BYTES);
            for (int s = 0; s < 21 && !first; s++) {
                int found = 0;
                for (int k = 0; k < (HEIGHT - SIZE + 1) * (WIDTH - SIZE + 1) * 2; k++) {
                    const int f = k % 2, x = k / 2 % (WIDTH - SIZE + 1);
                    const int y = k / 2 / (WIDTH - SIZE + 1);
                    if (is_window(all + s * BYTES, SIZE, want, WIDTH, x, y, f)) {
                        kinds += !seen[y][x][f]++;
                        found = 1;
                        break;
                    }
                }
                assert_true(found);
            }
            if (first)
                free(all);
            else
                first = all;
            clt_dataset_free(d);
        }
        free(first);
    }
    assert_true(kinds > (HEIGHT - SIZE + 1) * (WIDTH - SIZE + 1) * 2 * 8 / 10);
}

/* The crop of the whole area of a nearly square image is known exactly. Other crops differ between
 * epochs and do not depend on the number of threads. */
static void resized_crops_are_the_same_for_any_threads(void **state)
{
    (void)state;
    enum { SIZE = 16, BYTES = 3 * SIZE * SIZE };
    MAKE_FOLDERS("a");
    for (int i = 0; i < 20; i++) {
        char name[32];
        snprintf(name, sizeof name, "a/%02d.png", i);
        put(i % 2 ? "rgb.png" : "rgb.jpg", name, 0);
    }
    unsigned char *runs[3];
    for (int run = 0; run < 3; run++) {
        clt_dataset_options options = small(SIZE, 0);
        clt_dataset *d = expect_open(spec, "train", &options);
        clt_status status;
        augment(d, "resized-crop:0.2,flip");
        runs[run] = read_epoch(d, run / 2, 1 + run, 1, &status);
        assert_int_equal(status, CLT_OK);
        clt_dataset_free(d);
    }
    assert_memory_equal(runs[0], runs[1], 18 * BYTES);
    for (int s = 0; s < 18; s++) {
        assert_memory_not_equal(runs[0] + s * BYTES, runs[2] + s * BYTES, BYTES);
        for (int t = 0; t < s; t++)
            assert_memory_not_equal(runs[0] + s * BYTES, runs[0] + t * BYTES, BYTES);
    }
    for (int run = 0; run < 3; run++)
        free(runs[run]);
}

/* --- invalid files ---------------------------------------------------------------------------- */

static void fails_to_load(const char *file, const char *what)
{
    clt_dataset_options options = small(16, 0);
    clt_dataset *d = expect_open(spec, "train", &options);
    clt_status status;
    free(read_epoch(d, 0, 2, 1, &status));
    assert_int_equal(status, CLT_FORMAT);
    expect_words((const char *const[]){file, what, NULL});
    clt_dataset_free(d);
    unlink(path_of(file));
}

static void files_that_are_no_images_are_named(void **state)
{
    (void)state;
    MAKE_FOLDERS("train", "train/a", "val", "val/a");
    put("rgb.jpg", "train/a/good.jpg", 0);
    spill("train/a/text.jpg", "hello", 5);
    fails_to_load("train/a/text.jpg", "neither a JPEG nor a PNG: it begins with 68 65 6c");
    spill("train/a/empty.png", "", 0);
    fails_to_load("train/a/empty.png", "is empty");
    put("rgb.jpg", "train/a/cut.jpg", 600);
    fails_to_load("train/a/cut.jpg", "damaged JPEG");
    put("rgb.jpg", "train/a/head.jpg", 100);
    fails_to_load("train/a/head.jpg", "damaged JPEG");
    put("rgb.png", "train/a/cut.png", 600);
    fails_to_load("train/a/cut.png", "damaged PNG: cut short");
    size_t count;
    unsigned char *bytes = read_golden("rgb.png", &count);
    bytes[count / 2] ^= 0x55;
    spill("train/a/flipped.png", bytes, count);
    fails_to_load("train/a/flipped.png", "damaged PNG");
    memcpy(bytes + 16, "\x7f\xff\xff\xff", 4);
    spill("train/a/huge.png", bytes, count);
    fails_to_load("train/a/huge.png", "train/a/huge.png");
    free(bytes);
}

/* A JPEG that is cut anywhere is refused, and the decoder can read the next file. */
static void jpegs_are_cut_anywhere(void **state)
{
    (void)state;
    static const char *const kinds[] = {"rgb.jpg", "progressive.jpg", "cmyk.jpg", "grey.jpg"};
    clt_image image = {0};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        size_t count;
        unsigned char *bytes = read_golden(kinds[k], &count);
        const uint8_t *want = golden_u8(goldens, NULL, kinds[k], WIDTH * HEIGHT * COLOURS);
        for (size_t left = 3; left < count - 2; left += 7) {
            if (clt_image_decode(&image, "cut.jpg", bytes, left, NULL, NULL) == CLT_OK)
                fail_msg("%s: %zu of %zu bytes are an image", kinds[k], left, count);
            assert_non_null(strstr(clt_error_message(), "cut.jpg: damaged JPEG: "));
            assert_int_equal(clt_image_decode(&image, kinds[k], bytes, count, NULL, NULL), CLT_OK);
            if (k != 2)
                assert_memory_equal(image.rgb, want, WIDTH * HEIGHT * COLOURS);
        }
        free(bytes);
    }
    clt_image_free(&image);
}

static void folders_that_are_wrong_are_named(void **state)
{
    (void)state;
    clt_dataset *d = NULL;
    clt_dataset_options options = small(16, 0);
    MAKE_FOLDERS("train", "train/a", "train/b", "val", "val/c");
    put("rgb.jpg", "train/a/1.jpg", 0);
    EXPECT_FAILURE(clt_dataset_open(spec, &options, &d), CLT_FORMAT, "train/b", "class is empty");
    put("rgb.jpg", "train/b/1.jpg", 0);
    put("rgb.jpg", "val/c/1.jpg", 0);
    options.split = "test";
    EXPECT_FAILURE(clt_dataset_open(spec, &options, &d), CLT_FORMAT, "val/c", "not a class");
    MAKE_FOLDERS("train");
    EXPECT_FAILURE(clt_dataset_open(spec, &options, &d), CLT_FORMAT, "train", "no folder");
    MAKE_FOLDERS("train", "train/a");
    put("rgb.jpg", "train/a/1.jpg", 0);
    EXPECT_FAILURE(clt_dataset_open(spec, &options, &d), CLT_NOT_FOUND,
                   "needs a folder val or test", "val or test");
    EXPECT_FAILURE(clt_dataset_open("images:/does/not/exist", NULL, &d), CLT_NOT_FOUND,
                   "/does/not/exist");
    options = small(64, 32);
    EXPECT_FAILURE(clt_dataset_open(spec, &options, &d), CLT_INVALID_ARGUMENT, "64", "32");
    options = small(16, 0);
    options.classes = 3;
    EXPECT_FAILURE(clt_dataset_open(spec, &options, &d), CLT_INVALID_ARGUMENT, "1 folders",
                   "3 classes");
    MAKE_FOLDERS("a");
    put("rgb.jpg", "a/1.jpg", 0);
    options = small(16, 0);
    EXPECT_FAILURE(clt_dataset_open(spec, &options, &d), CLT_FORMAT, "/a", "too few to divide");
    assert_null(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_file_has_pillows_colours),
        cmocka_unit_test(resampling_has_pillows_bits),
        cmocka_unit_test(large_photographs_are_decoded_at_a_part_of_their_size),
        cmocka_unit_test(folders_are_classes_and_splits),
        cmocka_unit_test(the_last_tenth_of_each_class_is_for_tests),
        cmocka_unit_test(crops_are_windows_whoever_makes_them),
        cmocka_unit_test(resized_crops_are_the_same_for_any_threads),
        cmocka_unit_test(files_that_are_no_images_are_named),
        cmocka_unit_test(jpegs_are_cut_anywhere),
        cmocka_unit_test(folders_that_are_wrong_are_named),
    };
    return cmocka_run_group_tests(tests, begin, end);
}

#else

static void without_its_libraries_the_build_says_so(void **state)
{
    (void)state;
    static const unsigned char jpeg[] = {0xFF, 0xD8, 0xFF, 0xE0}, png[] = "\x89PNG\r\n\x1a\n";
    clt_image image = {0};
#ifndef CLT_HAVE_TURBOJPEG
    EXPECT_FAILURE(clt_image_decode(&image, "a.jpg", jpeg, sizeof jpeg, NULL, NULL),
                   CLT_UNSUPPORTED, "a.jpg", "libturbojpeg0-dev");
#endif
#ifndef CLT_HAVE_PNG
    EXPECT_FAILURE(clt_image_decode(&image, "a.png", png, 8, NULL, NULL), CLT_UNSUPPORTED, "a.png",
                   "libpng-dev");
#endif
    assert_null(image.rgb);
    (void)jpeg, (void)png;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(without_its_libraries_the_build_says_so)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
