/*
 * Data sets, where samples come from, and loaders, which assemble batches of them.
 *
 * A data set is a fixed number of samples; each sample has the same named fields ("image",
 * "label"), each of one element type and shape. It is filled by files, by arrays in memory, by a
 * callback, or by OpenCL buffers of the host program (<cltrain/opencl.h>).
 */
#ifndef CLTRAIN_DATA_H
#define CLTRAIN_DATA_H

#include <stdint.h>

#include <cltrain/export.h>
#include <cltrain/status.h>
#include <cltrain/types.h>

CLT_BEGIN_DECLS

/* A data set. Building one (create, add, set) is for one thread at a time; afterwards every
 * function but clt_dataset_free may be called from any thread. It must outlive the loaders that
 * read it. */
typedef struct clt_dataset clt_dataset;

/* Most fields of a data set, and most dimensions of one sample of a field. */
#define CLT_DATA_MAX_FIELDS 16
#define CLT_DATA_MAX_RANK (CLT_MAX_RANK - 1)

/* Where the samples live. */
typedef enum clt_data_kind {
    CLT_DATA_HOST = 0,     /* in host memory: files once decoded, and arrays */
    CLT_DATA_CALLBACK = 1, /* nowhere: a callback, or a reader of files, writes those that are
                              asked for */
    CLT_DATA_DEVICE = 2    /* in OpenCL buffers: fields have no host pointer. Made by
                              clt_dataset_create_buffers of <cltrain/opencl.h> */
} clt_data_kind;

/* How clt_dataset_add_field treats the caller's array. */
typedef enum clt_data_ownership {
    CLT_DATA_BORROW = 0, /* the array stays the caller's and must outlive the data set */
    CLT_DATA_COPY = 1    /* the array is copied and may go at once */
} clt_data_ownership;

/* Where the samples of text for training begin. */
typedef enum clt_windows {
    CLT_WINDOWS_FIXED = 0,    /* at multiples of the length in each file: the same in all epochs */
    CLT_WINDOWS_SHIFTED = 1,  /* so, but moved by a random part of the length, another one for each
                                 file and epoch: every token is seen about once an epoch, with other
                                 tokens before it each time. What the last window has no room for is
                                 left out, and it begins where the file does */
    CLT_WINDOWS_RANDOM = 2,   /* anywhere in any of the files, drawn independently, as nanoGPT does;
                                 an epoch has as many of them */
    CLT_WINDOWS_CONTINUED = 3 /* as fixed, in the order in which batches of options.rows samples, in
                                order, read as many parts of the text side by side: sample i of a
                                batch goes on where that of the batch before ended, for models that
                                carry states (clt_batch_rows). A field more tells where it does not,
                                as at an epoch's and a file's begin: "continues" f32 [], 1 or 0.
                                Windows that are too few for one more batch are left out */
} clt_windows;

/* How to open files. Set up by clt_dataset_options_init. */
typedef struct clt_dataset_options {
    int64_t struct_size;
    const char *split; /* "train" (default) or "test"; npz:FILE and hdf5:FILE with arrays in the
                          root: also "all", every sample, whatever the arrays' names end in */
    int64_t classes;   /* labels must be below it; 0 (default): the named data set's own number, or
                          for other files the largest label + 1 */
    int background;    /* 0 (default): return when all samples are decoded and checked.
                          1: return after the checks of headers, of sizes and of all labels, and
                          decode the rest in a thread; clt_dataset_wait, and whatever reads a
                          sample, waits for its end and reports its failure */
    int64_t sequence;  /* tokens of a sample of text; 0 (default): 1024 */
    clt_windows windows; /* of the training split of tokens:PATH and text:PATH. They are a pure
                           function of (the loader's seed, epoch, number of the sample); the default
                           is fixed */
    int64_t image_size;  /* height and width of images from files; 0 (default): 224 */
    int64_t resize;      /* what their shorter side is resized to before the crop, at least
                            image_size; 0 (default): 8/7 of image_size */
    int64_t rows;        /* CLT_WINDOWS_CONTINUED: samples of a batch; 0 otherwise. Test splits have
                            fixed windows, none of which continues */
} clt_dataset_options;

/* Sets struct_size and the defaults. */
CLT_API void clt_dataset_options_init(clt_dataset_options *options);

/*
 * Opens a data set by SPEC, one of
 *   fashion-mnist   Debian's package dataset-fashion-mnist: "image" u8 [1,28,28], "label" u8 []
 *   idx:DIR         a folder with {train,t10k}-{images-idx3,labels-idx1}-ubyte, plain or .gz:
 *                   "image" u8 [1,rows,columns], "label" u8 []
 *   cifar10:DIR     the binary version, in DIR or in DIR/cifar-10-batches-bin: data_batch_1.bin
 *                   to _5.bin, test_batch.bin: "image" u8 [3,32,32], "label" u8 []
 *   cifar100:DIR    the same, in DIR or in DIR/cifar-100-binary: train.bin, test.bin; "label" is
 *                   the fine label of 100 classes, "coarse_label" u8 [] that of 20
 *   tokens:PATH     16-bit numbers of tokens, little-endian, in a file without a header (as
 *                   nanoGPT writes them) or with that of llm.c (1024 bytes: 20240520, version 1,
 *                   number of tokens; with 20240801, version 7, the numbers have 32 bits).
 *                   "tokens" i32 [sequence], and "targets" i32 [sequence], the token that comes
 *                   next. Samples do not overlap (but see options.windows): sample i of a file is
 *                   its tokens i * sequence to (i + 1) * sequence, the last one only a target. So a
 *                   file of n tokens has (n - 1) / sequence samples, rounded down. Tokens at its
 *                   end that fill no sample are left out.
 *                   PATH is one of
 *                   - a file: the splits are parts of it. Its samples, not its tokens, are divided:
 *                     the last tenth, rounded up to whole samples, is for tests, and those before
 *                     it are for training. The last target of training is the first token for
 *                     tests. Windows that move or continue stay within the part for training.
 *                   - a folder, or a shell's pattern (*, ?, [a-c], {a,b}): each split has files of
 *                     its own, one after the other by name. Names end in .bin and have the word
 *                     train, or one of val, validation and test. No sample reaches from one file
 *                     into the next.
 *                   Both fields' classes are the vocabulary: options.classes, else "vocab_size" in
 *                   the file NAME.json beside NAME.bin, else the largest token + 1, for which all
 *                   files of the split are read; so the splits of a folder may differ in it. A
 *                   token out of the vocabulary fails the opening if the split's files have 1 GiB
 *                   at most, else the load, with its position.
 *   text:PATH       the same of plain text: a token a byte, vocabulary 256; in a folder the names
 *                   end in .txt
 *   images:DIR      JPEGs and PNGs in DIR/train/CLASS and DIR/val/CLASS, or DIR/test/CLASS; or in
 *                   DIR/CLASS, of which the last tenth of each class, by name, is for tests.
 *                   Classes are the folders of the training images, by name. "image" u8
 *                   [3,image_size,image_size], red, green and blue, "label" i32 []. Images are
 *                   decoded by the loaders' threads; the shorter side is resized to
 *                   options.resize, with Pillow's bits (bilinear, antialiased), and the middle
 *                   is taken, but see clt_dataset_augment. Of JPEGs that are made smaller by 4 or
 *                   more, a half, a quarter or an eighth is decoded, at least twice what is wanted:
 *                   the bits of Pillow's draft of twice the size and resize of the box that it
 *                   tells. A file that cannot be decoded fails the load, with its name.
 *   npz:PATH        numpy's arrays, each a field of its name, whose first axis are the samples:
 *                   f4, f8 (as f32), i4, i8 (as i32; values must fit), u1 and bool (as u8), in C's
 *                   order, little-endian. One of the name "image", with two or more axes a sample,
 *                   holds images. In a folder train.npz and test.npz; in a file arrays whose names
 *                   end in _train and _test, without that, or else the first nine tenths of the
 *                   samples are for training and the last tenth for tests. An array "label" of a
 *                   number a sample has options.classes, else the largest + 1, at most the number
 *                   of samples.
 *   hdf5:FILE       the same arrays of an HDF5 file, in any byte order, but for bool, in its groups
 * "train" and "test", or in its root. Elements in other files, links into other files, virtual
 *                   datasets and filters but gzip, shuffle and fletcher32 are refused. Not by
 *                   several threads at once. libhdf5 reads the file: damage that it does not
 * survive ends the process, so that a program may try files of strangers in a process of its own,
 * as the command does.
 *
 * `options` may be NULL. Files must be regular files. Decoded samples are kept in memory, nothing
 * is written to disk. Files of tokens and text are read as samples are asked for: if one is
 * shortened meanwhile, reading the sample fails with IO.
 *
 * Fails with NOT_FOUND (unknown name, missing file or package), UNSUPPORTED (a kind that this
 * version does not have), FORMAT (wrong magic number, truncated, corrupt or trailing data, sizes
 * that the file cannot hold, images and labels that disagree in number, label out of range), IO,
 * OUT_OF_MEMORY, INVALID_ARGUMENT. The message names the file, what was expected and what found.
 */
CLT_API clt_status clt_dataset_open(const char *spec, const clt_dataset_options *options,
                                    clt_dataset **out);

/* What clt_image_read makes of a file. Set up by clt_image_form_init. */
typedef struct clt_image_form {
    int64_t struct_size;
    int64_t channels; /* 3: red, green and blue; 1: grey, as Pillow's convert("L") of them */
    int64_t height, width;
    int64_t resize; /* what the shorter side is resized to, of which the middle is taken, as
                       images:DIR does outside training; 0 (default): the whole image is resized to
                       height and width */
} clt_image_form;

/* Sets struct_size, channels 3 and the rest to 0. */
CLT_API void clt_image_form_init(clt_image_form *form);

/* Decodes a JPEG or PNG of any size to `out`: u8 [channels, height, width], with the bits that
 * images:DIR gives. Errors: IO, FORMAT (neither, damaged, cut short), UNSUPPORTED (a build without
 * the library), INVALID_ARGUMENT (the form), OUT_OF_MEMORY; the message names the file.
 * Thread-safe.
 */
CLT_API clt_status clt_image_read(const char *path, const clt_image_form *form, unsigned char *out);

/* A data set of `count` (at least 1) samples whose fields are arrays in memory; `name` is for
 * messages. Add its fields with clt_dataset_add_field. */
CLT_API clt_status clt_dataset_create_arrays(const char *name, int64_t count, clt_dataset **out);

/*
 * Writes `count` samples whose numbers are `indices` (0 to number of samples - 1, any order). Field
 * f's samples go to fields[f], one after the other without gaps; fields[f] is NULL where nobody
 * asked for the field. Returns CLT_OK, or another status to make the load fail with it.
 */
typedef clt_status (*clt_fill_fn)(void *user, const int64_t *indices, int64_t count,
                                  void *const *fields);

/*
 * A data set whose samples are written by `fill`, which is called by loader threads: by several at
 * once, or with `serial` != 0 by one at a time (but not always the same). It must give the same
 * sample for the same index every time, or a resumed run is not the interrupted one. `user` is
 * handed through and must outlive the data set.
 */
CLT_API clt_status clt_dataset_create_callback(const char *name, int64_t count, clt_fill_fn fill,
                                               void *user, int serial, clt_dataset **out);

/*
 * Adds a field and returns its number, 0 for the first. `shape` has `rank` (0 to CLT_DATA_MAX_RANK)
 * dimensions of one sample. For data sets of arrays `data` holds the samples one after the other
 * without gaps, aligned for its type, and `ownership` says whose it is; for callbacks `data` is
 * NULL. `out` may be NULL. STATE once a loader has read the data set. For data sets of OpenCL
 * buffers it is clt_dataset_add_buffer.
 */
CLT_API clt_status clt_dataset_add_field(clt_dataset *dataset, const char *name, clt_dtype dtype,
                                         int rank, const int64_t *shape, const void *data,
                                         clt_data_ownership ownership, int *out);

/* Declares a u8 or i32 field to be labels 0 to classes - 1. Loaders check every label that they
 * deliver and name the sample of a wrong one; labels in device memory they do not see. Where the
 * number was another one, its classes have no names any more. */
CLT_API clt_status clt_dataset_set_classes(clt_dataset *dataset, int field, int64_t classes);

/* Declares a field of rank 2 or more to hold images, whose last two dimensions are height and
 * width: what clt_fit normalises. Readers of files do so themselves. */
CLT_API clt_status clt_dataset_set_image(clt_dataset *dataset, int field);

/* How the samples of a field are changed at random. Set up by clt_augment_init: not at all. */
typedef struct clt_augment {
    int64_t struct_size;
    int crop;          /* a window of the sample's size, anywhere in the sample with `padding` zeros
                          around it; for images:DIR in the resized image */
    int64_t padding;   /* -1 (default): 4, for images:DIR 0 */
    int flip;          /* left and right are exchanged, in half of the cases */
    int resized_crop;  /* images:DIR: a window of least_area to 1 of the image's area and of a
                          ratio of width to height of 3/4 to 4/3, resized */
    double least_area; /* default 0.08 */
} clt_augment;

/* Sets struct_size and the defaults. */
CLT_API void clt_augment_init(clt_augment *augment);

/* From "crop", "crop:PADDING", "flip", "resized-crop" and "resized-crop:AREA" by comma;
 * INVALID_ARGUMENT for anything else. */
CLT_API clt_status clt_augment_parse(const char *text, clt_augment *out);

/*
 * From now on loaders change each sample of the field, whose last two dimensions are height and
 * width, in an epoch in one way that is a pure function of (the loader's seed, epoch, number of the
 * sample): the same for any number of threads, parts and ranks, and for all fields that have the
 * same size and augmentation. Zeros of a crop are the field's, before normalisation. For training
 * data only: whoever reads the data set gets changed samples, but clt_dataset_field_data does not.
 * STATE once a loader has read the data set; UNSUPPORTED for fields of rank below 2, for samples in
 * device memory, and for resized_crop of anything but images:DIR.
 */
CLT_API clt_status clt_dataset_augment(clt_dataset *dataset, const char *field,
                                       const clt_augment *augment);

/* Waits until a data set opened in the background is decoded; its failure, each time it is called.
 * Returns at once for others. */
CLT_API clt_status clt_dataset_wait(clt_dataset *dataset);

/* Frees the data set; stops and waits for a decode in the background. Takes NULL. */
CLT_API void clt_dataset_free(clt_dataset *dataset);

/* Name as given, or the SPEC and split. Valid as long as the data set. */
CLT_API const char *clt_dataset_name(const clt_dataset *dataset);

CLT_API clt_data_kind clt_dataset_kind(const clt_dataset *dataset);

/* Number of samples. */
CLT_API int64_t clt_dataset_count(const clt_dataset *dataset);

CLT_API int clt_dataset_field_count(const clt_dataset *dataset);

/* Number of the field of this name. NOT_FOUND: the message suggests the nearest. */
CLT_API clt_status clt_dataset_find_field(const clt_dataset *dataset, const char *name, int *out);

/* What a field is. `shape` has room for CLT_DATA_MAX_RANK; any output may be NULL. */
CLT_API clt_status clt_dataset_field_info(const clt_dataset *dataset, int field, const char **name,
                                          clt_dtype *dtype, int *rank, int64_t *shape,
                                          int64_t *sample_bytes);

/* Number of classes of a label field; 0 if the field is not declared to be one. */
CLT_API int64_t clt_dataset_classes(const clt_dataset *dataset, int field);

/* Not 0 if the field is declared to hold images. */
CLT_API int clt_dataset_is_image(const clt_dataset *dataset, int field);

/* Name of class `number` of a label field; NULL where the data do not say. Valid as long as the
 * data set. */
CLT_API const char *clt_dataset_class_name(const clt_dataset *dataset, int field, int64_t number);

/* The field's samples in host memory, one after the other, after a wait for a decode in the
 * background. UNSUPPORTED if they are not in host memory. Read-only; valid as long as the set. */
CLT_API clt_status clt_dataset_field_data(clt_dataset *dataset, int field, const void **out);

/*
 * Divides [0, total) among `parts` devices or ranks in proportion to `weights` (NULL: equally):
 * part p is [offsets[p], offsets[p + 1]), offsets[0] = 0, offsets[parts] = total.
 *
 * Each part is a multiple of `quantum` (at least 1), but for the last part that is not empty.
 * Units of `quantum` are given one by one to the part whose load per weight stays lowest (D'Hondt's
 * method; ties to the lower number): the slowest part is as fast as can be, equal weights give the
 * larger parts first, a part of weight 0 gets nothing, parts may be empty, and a larger total
 * gives no part fewer units. The same arguments give the same division everywhere.
 *
 * INVALID_ARGUMENT for total < 0, parts < 1, quantum < 1, and weights that are negative, not
 * finite or all 0.
 */
CLT_API clt_status clt_split(int64_t total, int parts, const double *weights, int64_t quantum,
                             int64_t *offsets);

/* The most samples that clt_split gives to each part for any total up to `total`: how large to make
 * a device's staging. It can be more than its part of `total` by less than one quantum. */
CLT_API clt_status clt_split_capacity(int64_t total, int parts, const double *weights,
                                      int64_t quantum, int64_t *capacity);

/*
 * The sample numbers at positions [begin, begin + count) of an epoch of a data set of `total`
 * samples: a pseudo-random permutation that is a pure function of (seed, epoch), so any thread,
 * device or rank computes just its own part, and a run resumes anywhere. With `shuffle` 0, the
 * positions themselves.
 */
CLT_API clt_status clt_data_order(int64_t total, int64_t seed, int64_t epoch, int shuffle,
                                  int64_t begin, int64_t count, int64_t *indices);

/*
 * A loader assembles the batches of a data set, a few ahead, with threads of its own.
 *
 * Positions: an epoch has one position for each sample, in the order of clt_data_order; a batch is
 * the next `batch` positions, or those that are left of the epoch, few or many (with `drop_last`
 * they are left out, and the next epoch begins). It is divided by
 * clt_split among `parts`, of which this process assembles `local_parts` from `first_part` on. What
 * a batch holds depends on (seed, epoch, offset, batch size) alone: not on threads, slots, parts or
 * where the loader started.
 *
 * Slots: there is a ring of `slots` places for batches, each with memory for every local part and
 * output. A slot belongs to the caller from clt_loader_next to clt_loader_release.
 *
 * Use: create, add_output (and normalize, set_labels, set_memory), start, then next and release as
 * often as wanted, free. To change the division (another split, a lost device), free the loader and
 * create one at the next_epoch and next_offset of the last batch.
 *
 * Thread safety: next is for one thread at a time, release and stop for any; the rest is for one
 * thread at a time, before start.
 */
typedef struct clt_loader clt_loader;

/* What to load. Set up by clt_loader_desc_init; `dataset` and `batch` must be set. */
typedef struct clt_loader_desc {
    int64_t struct_size;
    clt_dataset *dataset;
    int64_t batch; /* samples of the global batch; may exceed the data set */
    int64_t seed;  /* default 0 */
    int shuffle;   /* default 1 */
    int64_t epoch; /* start position: default 0, 0; an offset is in samples */
    int64_t offset;
    int64_t end_epoch; /* stop before this epoch; 0 (default): never stop */
    int drop_last;     /* 1: all batches have `batch` samples, as with PyTorch's DataLoader; then
                          `batch` may not exceed the data set; default 0 */

    int parts;             /* devices of all ranks, default 1 */
    const double *weights; /* of the parts; NULL (default): equal; copied */
    int64_t quantum;       /* default 1; see clt_split */
    int first_part;        /* the parts assembled here: default 0, */
    int local_parts;       /* 0 (default): all from first_part on */

    int slots;       /* default 3, at least 2 */
    int min_threads; /* bounds of the number of threads that work: default 1, */
    int max_threads; /* 0 (default): the processors of this process, at most 8 */
} clt_loader_desc;

/* Sets struct_size and the defaults. */
CLT_API void clt_loader_desc_init(clt_loader_desc *desc);

/* A loader that has not started. INVALID_ARGUMENT names the value that is out of range. */
CLT_API clt_status clt_loader_create(const clt_loader_desc *desc, clt_loader **out);

/*
 * Adds an output: a field in a type of its own, gathered without gaps in the order of the batch.
 * The same type copies; u8 or i32 to f32 and u8 to i32 convert; u8 to f32 also divides by 255 (see
 * clt_loader_normalize). UNSUPPORTED for other pairs, and for data sets in device memory, for which
 * a loader without outputs delivers positions and sample numbers. `out`: its number, 0 for the
 * first; may be NULL.
 */
CLT_API clt_status clt_loader_add_output(clt_loader *loader, const char *field, clt_dtype dtype,
                                         int *out);

/*
 * Gives an f32 output (x / divisor - mean[c]) / std[c]; c is the index in the first dimension if
 * `channels` is its size, or 0 everywhere if `channels` is 1. `mean` and `std` are copied; NULL
 * means 0 and 1. INVALID_ARGUMENT for values that are not finite, and for a divisor or std of 0.
 */
CLT_API clt_status clt_loader_normalize(clt_loader *loader, int output, double divisor,
                                        int channels, const double *mean, const double *std);

/*
 * Says that a u8 or i32 field's output holds the targets whose number is the loss's weight: those
 * that are not `*ignore` (NULL: all of them). `*ignore` is also allowed where a label out of range
 * is not. Without this call the weight is the number of samples.
 */
CLT_API clt_status clt_loader_set_labels(clt_loader *loader, int output, const int64_t *ignore);

/* Bytes of one sample of an output; 0 if there is no such output. */
CLT_API int64_t clt_loader_output_bytes(const clt_loader *loader, int output);

/* The most samples that a batch puts in a local part (0 for the first of this process). */
CLT_API int64_t clt_loader_capacity(const clt_loader *loader, int local_part);

/*
 * Gives the memory of one output of one local part in one slot: clt_loader_capacity samples of
 * clt_loader_output_bytes, aligned for its type, the caller's, to outlive the loader. Places
 * without such a call get page-aligned memory of the loader.
 */
CLT_API clt_status clt_loader_set_memory(clt_loader *loader, int slot, int local_part, int output,
                                         void *memory);

/* The memory of one output of one local part in one slot, once started; NULL where the capacity is
 * 0 or there is no such place. */
CLT_API void *clt_loader_memory(const clt_loader *loader, int slot, int local_part, int output);

/* Starts the threads. From here to clt_loader_free, only what next and release do happens: no
 * allocation in them, nor in the threads between them (a callback's own apart). */
CLT_API clt_status clt_loader_start(clt_loader *loader);

/* One batch. Pointers are valid until its slot is released. */
typedef struct clt_batch {
    int64_t struct_size; /* set by clt_batch_init */
    int slot;            /* -1: there are no more batches, and all else is 0 */
    int last_of_epoch;
    int64_t number;                  /* 0 for the first batch of this loader */
    int64_t epoch, offset;           /* position of the batch's first sample */
    int64_t next_epoch, next_offset; /* position after it: where to resume */
    int64_t count;                   /* samples of the global batch */
    int64_t weight;                  /* targets that count in the global batch; -1: not known here,
                                        as parts of a callback's data set are assembled elsewhere */
    const int64_t *offsets;          /* parts + 1 numbers: part p is [offsets[p], offsets[p + 1]) */
    const int64_t *part_weights;     /* targets that count, for each local part */
    const int64_t *indices;          /* sample numbers of the local parts, in order */
} clt_batch;

CLT_API void clt_batch_init(clt_batch *batch);

/*
 * Waits for the next batch and hands its slot over. A failure (of a callback, a decode in the
 * background, a label out of range) comes in its place in the order, after the batches before it,
 * and again with every further call. STATE when the caller holds all slots, so that waiting would
 * never end; ABORTED after clt_loader_stop.
 */
CLT_API clt_status clt_loader_next(clt_loader *loader, clt_batch *out);

/* Gives a slot back, in any order. STATE if the caller does not hold it. */
CLT_API clt_status clt_loader_release(clt_loader *loader, int slot);

/* What the loader measured since it started. */
typedef struct clt_loader_stats {
    int64_t struct_size; /* set by clt_loader_stats_init */
    int threads;         /* working now */
    int64_t batches;     /* handed over */
    double wait_seconds; /* that next waited, the first batch apart */
    double busy_seconds; /* that threads spent in assembling, summed over them */
} clt_loader_stats;

CLT_API void clt_loader_stats_init(clt_loader_stats *stats);

/* Any thread, any time after start. */
CLT_API clt_status clt_loader_get_stats(clt_loader *loader, clt_loader_stats *out);

/* Makes a waiting and every later clt_loader_next return ABORTED. */
CLT_API void clt_loader_stop(clt_loader *loader);

/* Stops at any time, waits for the threads (at most for the callback or the decode that they are
 * in) and frees the loader. No other thread may be in a call with it. Takes NULL. */
CLT_API void clt_loader_free(clt_loader *loader);

CLT_END_DECLS

#endif
