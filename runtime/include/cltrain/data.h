/*
 * Data sets, which hold samples, and loaders, which assemble batches of samples.
 *
 * A data set has a fixed number of samples. All samples have the same named fields ("image",
 * "label"). A field has one element type and one shape. Samples come from files, from arrays in
 * memory, from a callback, or from OpenCL buffers of the host program (<cltrain/opencl.h>).
 */
#ifndef CLTRAIN_DATA_H
#define CLTRAIN_DATA_H

#include <stdint.h>

#include <cltrain/array.h>
#include <cltrain/export.h>
#include <cltrain/split.h>
#include <cltrain/status.h>
#include <cltrain/types.h>

CLT_BEGIN_DECLS

/* A data set. It must outlive the loaders that read it. One thread at a time may build it (create,
 * add, set). Afterwards any thread may call every function but clt_dataset_free. */
typedef struct clt_dataset clt_dataset;

/* Most fields of a data set, and most dimensions of one sample of a field. */
#define CLT_DATA_MAX_FIELDS 16
#define CLT_DATA_MAX_RANK (CLT_MAX_RANK - 1)

/* Where the samples live. */
typedef enum clt_data_kind {
    CLT_DATA_HOST = 0,     /* in host memory: files once decoded, and arrays */
    CLT_DATA_CALLBACK = 1, /* nowhere: a callback or a reader of files writes a sample when it is
                              needed */
    CLT_DATA_DEVICE = 2,   /* in OpenCL buffers (clt_dataset_create_buffers of <cltrain/opencl.h>);
                              fields have no host pointer */
    CLT_DATA_RESERVOIR = 3 /* in host memory, and they change: <cltrain/reservoir.h> */
} clt_data_kind;

/* How clt_dataset_add_field treats the caller's array. */
typedef enum clt_data_ownership {
    CLT_DATA_BORROW = 0, /* the array stays the caller's and must outlive the data set */
    CLT_DATA_COPY = 1    /* the array is copied and may go at once */
} clt_data_ownership;

/*
 * Where the samples of text for training begin.
 *
 * - FIXED: at multiples of the length in each file. All epochs have the same samples.
 * - SHIFTED: as FIXED, but moved by a random part of the length, which differs between files and
 *   epochs. An epoch has every token about once, with other tokens before it than in other epochs.
 *   If the last window has no room after the shift, it takes the tokens at the start of the file
 *   that the shift left out.
 * - RANDOM: anywhere in any file, drawn independently, as nanoGPT does. An epoch has as many
 *   samples as with FIXED.
 * - CONTINUED: as FIXED, in another order, for models that carry states (clt_batch_rows). Batches
 *   have options.rows samples, which read as many parts of the text side by side. Sample i of a
 *   batch goes on where sample i of the batch before ended. An additional field "continues" f32 []
 *   is 1, or 0 where a sample does not go on, as at the begin of an epoch and of a file. Windows
 *   too few for one more batch are left out.
 */
typedef enum clt_windows {
    CLT_WINDOWS_FIXED = 0,
    CLT_WINDOWS_SHIFTED = 1,
    CLT_WINDOWS_RANDOM = 2,
    CLT_WINDOWS_CONTINUED = 3
} clt_windows;

/* How to open files. Set up by clt_dataset_options_init. */
typedef struct clt_dataset_options {
    int64_t struct_size;
    const char *split; /* "train" (default) or "test". npz:FILE and hdf5:FILE with arrays in the
                          root also take "all": every sample, whatever the arrays' names end in. So
                          do images:DIR with a folder for each class, tokens:PATH and text:PATH, and
                          csv:FILE: every row, also without targets */
    int64_t classes;  /* labels must be below this number. 0 (default): the number of the named data
                         set, or for other files the largest label + 1 */
    int background;   /* 0 (default): return when all samples are decoded and checked.
                         1: return after the checks of headers, sizes and labels, and decode the
                         samples in a thread. clt_dataset_wait and reads of samples wait for the
                         thread and report its failure */
    int64_t sequence; /* tokens of a sample of text; 0 (default): 1024 */
    clt_windows windows; /* of the training split of tokens:PATH and text:PATH; FIXED by default. A
                            window depends on the loader's seed, the epoch and the sample's number
                            only */
    int64_t image_size;  /* height and width of images from files; 0 (default): 224 */
    int64_t resize;      /* length of the shorter side before the crop, at least image_size;
                            0 (default): 8/7 of image_size */
    int64_t rows;        /* CLT_WINDOWS_CONTINUED: samples of a batch; otherwise 0. Test splits have
                            FIXED windows, and none of them continues. So has "all" if rows is 0,
                            for validation */
    /* csv:PATH and images:DIR: what clt_dataset_description of the training samples gave. NULL: it
     * is found anew, on the training samples of PATH. The text may go when the call returns */
    const char *description;
} clt_dataset_options;

/* Sets struct_size and the defaults. */
CLT_API void clt_dataset_options_init(clt_dataset_options *options);

/*
 * Opens the data set that `spec` names:
 *
 * - fashion-mnist: Debian's package dataset-fashion-mnist. Fields "image" u8 [1,28,28] and "label"
 *   u8 [].
 * - idx:DIR: {train,t10k}-{images-idx3,labels-idx1}-ubyte in DIR, plain or .gz. Fields "image" u8
 *   [1,rows,columns] and "label" u8 [].
 * - cifar10:DIR: the binary version, data_batch_1.bin to data_batch_5.bin and test_batch.bin, in
 *   DIR or DIR/cifar-10-batches-bin. Fields "image" u8 [3,32,32] and "label" u8 [].
 * - cifar100:DIR: the same with train.bin and test.bin, in DIR or DIR/cifar-100-binary. "label" is
 *   the fine label (100 classes), "coarse_label" u8 [] the coarse one (20).
 * - tokens:PATH: 16-bit tokens; see below.
 * - text:PATH: as tokens:PATH, but plain text. A token is a byte, the vocabulary is 256, and the
 *   names in a folder end in .txt.
 * - images:DIR: JPEG and PNG files; see below.
 * - npz:PATH: numpy's arrays; see below.
 * - hdf5:FILE: the same arrays in an HDF5 file; see below.
 * - csv:PATH[?NAME=VALUE,...]: a table with a row for each sample; see below.
 *
 * tokens:PATH. Tokens are 16-bit numbers, little-endian, in files without a header (as nanoGPT
 * writes them) or with the header of llm.c: 1024 bytes, which begin with 20240520, version 1 and
 * the number of tokens. With 20240801 and version 7 tokens have 32 bits.
 *
 * - Fields: "tokens" i32 [sequence], and "targets" i32 [sequence], the tokens that come next.
 * - Sample i of a file has its tokens i * sequence to (i + 1) * sequence. The last one is a target
 *   only. A file of n tokens has (n - 1) / sequence samples, rounded down. options.windows may move
 *   the samples.
 * - PATH is a file: the last tenth of its samples, rounded up, is for tests, the rest for training.
 *   The last target of training is the first token for tests. Windows stay in the training part.
 * - PATH is a folder or a shell's pattern (*, ?, [a-c], {a,b}): each split has files of its own,
 *   one after the other by name. Names end in .bin and contain "train", or one of "val",
 *   "validation" and "test". No sample reaches from one file into the next.
 * - The classes of both fields are the vocabulary: options.classes, else "vocab_size" in the file
 *   NAME.json beside NAME.bin, else the largest token of the split + 1. The last one may differ
 *   between the splits of a folder.
 * - A token outside the vocabulary fails the opening if the files of the split have at most 1 GiB,
 *   else the load of the sample. The message has its position.
 *
 * images:DIR. Files are in DIR/train/CLASS and in DIR/val/CLASS or DIR/test/CLASS. In DIR/CLASS the
 * last tenth of each class, by name, is for tests. Classes are the folders of the training images,
 * by name. Fields are "image" u8 [3,image_size,image_size] (red, green, blue) and "label" i32 [].
 * The threads of loaders decode the images. The shorter side is resized to options.resize with the
 * bits of Pillow (bilinear, antialiased), and the middle is taken; clt_dataset_augment changes
 * that. A JPEG that becomes smaller by 4 or more is decoded at a half, a quarter or an eighth, as
 * by Pillow's draft of twice the wanted size. A file that cannot be decoded fails the load, with
 * its name. With options.description classes are those of the description: labels follow from
 * folders' names, classes may have no folder or no images, and other folders are refused (FORMAT).
 *
 * npz:PATH. Each array is a field of its name. The first axis counts the samples.
 *
 * - Types: f4, f8 (as f32), i4, i8 (as i32; values must fit), u1 and bool (as u8), in C's order,
 *   little-endian.
 * - An array "image" with two or more axes a sample holds images. An array "label" with a number a
 *   sample has options.classes, else the largest label + 1, at most the number of samples.
 * - Splits: train.npz and test.npz in a folder. In a file: arrays whose names end in _train and
 *   _test, which the fields' names lack; else the first nine tenths of the samples are for
 *   training.
 *
 * hdf5:FILE. The same arrays without bool, in any byte order, in the groups "train" and "test" or
 * in the root. Elements in other files, links to other files, virtual datasets, and filters other
 * than gzip, shuffle and fletcher32 are refused. Use one thread at a time. libhdf5 can crash on
 * some damaged files. Open files of strangers in a process of its own, as the command does.
 *
 * csv:PATH. Values are separated by commas and may have quotes (RFC 4180); files may be .gz. Fields
 * are "x" f32 [features], and "label" i32 [] with names, or "y" f32 [1].
 *
 * - Splits: train.csv and test.csv in a folder. In a file every tenth row is for tests.
 * - Header: the first row has the names of the columns, unless all its texts are numbers. Columns
 *   then have their numbers from 1 as names. header=on|off decides it.
 * - target=COLUMN: what is predicted; the last column by default. Texts are labels, in the order of
 *   their names. Numbers become y; with task=classify they are labels, in the order of the numbers.
 * - A column of numbers is a feature (value - mean) / deviation, and so is y. Other columns are
 *   categories: a feature for each name, which is 1 or 0, or with categories=index one feature, the
 *   number of the name. At most 1000 names. text=A|B makes categories of numbers.
 * - drop=A|B leaves columns out, such as dates. field=A|B makes f32 [] fields of columns of
 * numbers.
 * - Empty texts, NA, N/A, NaN, null and ? are missing values. missing=refuse (default) fails,
 *   missing=mean fills in the mean, and the most frequent text; missing=frequent the most frequent
 *   value. Targets may not be missing.
 * - delimiter=; or another character, or tab. %XX stands for a character: %2C is a comma.
 * - All this is found on the training samples (clt_dataset_description). A text of a category that
 *   they do not have counts as none of the names, with a warning.
 * - Beside options.description, header= and delimiter= are those of this file, by default those of
 *   the training samples. Other options must say what the description says (INVALID_ARGUMENT).
 *
 * Infinite numbers, and rows with too few or too many values, fail; messages name line and column.
 *
 * `options` may be NULL. Files must be regular files. Decoded samples stay in memory; nothing is
 * written to disk. Tokens and text are read when a sample is needed, and a file that was shortened
 * meanwhile fails the read with IO.
 *
 * Errors: NOT_FOUND (unknown name, missing file or package), UNSUPPORTED (a kind that this build
 * lacks), FORMAT (wrong magic number, truncated, corrupt or trailing data, impossible sizes, images
 * and labels that differ in number, a label out of range), IO, OUT_OF_MEMORY, INVALID_ARGUMENT. The
 * message names the file, what was expected and what was found. Free *out with clt_dataset_free.
 */
CLT_API clt_status clt_dataset_open(const char *spec, const clt_dataset_options *options,
                                    clt_dataset **out);

/* Returns a form that a data set's `spec` may have: "fashion-mnist", "idx:DIR" and so on. NULL: the
 * index is past the last. */
CLT_API const char *clt_dataset_form(int index);

/* The form in which clt_image_read returns an image. Set up by clt_image_form_init. */
typedef struct clt_image_form {
    int64_t struct_size;
    int64_t channels; /* 3: red, green and blue; 1: grey, as by Pillow's convert("L") */
    int64_t height, width;
    int64_t resize; /* resize the shorter side to this length and take the middle, as images:DIR
                       outside training; 0 (default): resize the whole image */
} clt_image_form;

/* Sets struct_size, channels 3 and the rest to 0. */
CLT_API void clt_image_form_init(clt_image_form *form);

/* Decodes a JPEG or PNG of any size to `out`, u8 [channels, height, width], with the same bits as
 * images:DIR. Errors: IO, FORMAT (neither JPEG nor PNG, or damaged), UNSUPPORTED (a build without
 * the library), INVALID_ARGUMENT (the form), OUT_OF_MEMORY. The message names the file.
 * Thread-safe. */
CLT_API clt_status clt_image_read(const char *path, const clt_image_form *form, unsigned char *out);

/* Creates a data set of `count` (at least 1) samples whose fields are arrays in memory. Add the
 * fields with clt_dataset_add_field. `name` appears in messages. */
CLT_API clt_status clt_dataset_create_arrays(const char *name, int64_t count, clt_dataset **out);

/*
 * Writes the `count` samples with the numbers `indices` (0 to number of samples - 1, in any order).
 * The samples of field f go to fields[f], one after the other without gaps. fields[f] is NULL if
 * nobody needs the field. Returns CLT_OK, or the status with which the load shall fail.
 */
typedef clt_status (*clt_fill_fn)(void *user, const int64_t *indices, int64_t count,
                                  void *const *fields);

/*
 * Creates a data set whose samples `fill` writes. Several threads of loaders call `fill` at once;
 * with `serial` != 0 one at a time, but not always the same one. `fill` must give the same sample
 * for an index every time, or a resumed run differs from the interrupted one. `user` is passed to
 * `fill` and must outlive the data set.
 */
CLT_API clt_status clt_dataset_create_callback(const char *name, int64_t count, clt_fill_fn fill,
                                               void *user, int serial, clt_dataset **out);

/*
 * Adds a field. `shape` has the `rank` (0 to CLT_DATA_MAX_RANK) dimensions of one sample. *out is
 * the number of the field, 0 for the first; `out` may be NULL.
 *
 * - Data sets of arrays: `data` holds the samples one after the other without gaps, aligned for
 *   their type. `ownership` says whose memory it is.
 * - Callbacks and reservoirs: `data` is NULL.
 * - OpenCL buffers: use clt_dataset_add_buffer.
 *
 * Errors: STATE once a loader has read the data set.
 */
CLT_API clt_status clt_dataset_add_field(clt_dataset *dataset, const char *name, clt_dtype dtype,
                                         int rank, const int64_t *shape, const void *data,
                                         clt_data_ownership ownership, int *out);

/*
 * Adds a field from an array (<cltrain/array.h>) whose first dimension counts the samples. The
 * field has the array's type, but f64 becomes f32, and i64 becomes i32 (values out of range are
 * refused).
 *
 * - Data sets of arrays: the array is copied, unless `ownership` is CLT_DATA_BORROW and it is
 * dense, and neither f64 nor i64 (else INVALID_ARGUMENT).
 * - OpenCL buffers: as clt_dataset_add_buffer.
 *
 * Errors: those of clt_dataset_add_field and clt_dataset_add_buffer; INVALID_ARGUMENT (`whole`, the
 * number of samples).
 */
CLT_API clt_status clt_dataset_add_array(clt_dataset *dataset, const char *name,
                                         const clt_array *samples, clt_data_ownership ownership,
                                         int *out);

/* Declares that a u8 or i32 field holds labels 0 to classes - 1. Loaders check every label that
 * they deliver and name the sample of a wrong one. They do not see labels in device memory. If the
 * number of classes changes, the names of classes are dropped. */
CLT_API clt_status clt_dataset_set_classes(clt_dataset *dataset, int field, int64_t classes);

/* Declares that a field of rank 2 or more holds images, whose last two dimensions are height and
 * width. clt_fit normalises such fields. Readers of files declare their fields themselves. */
CLT_API clt_status clt_dataset_set_image(clt_dataset *dataset, int field);

/* How the samples of a field are changed at random. Set up by clt_augment_init, which changes
 * nothing. */
typedef struct clt_augment {
    int64_t struct_size;
    int crop;          /* take a window of the sample's size from the sample with `padding` zeros
                          around it; images:DIR: from the resized image */
    int64_t padding;   /* -1 (default): 4, for images:DIR 0 */
    int flip;          /* exchange left and right in half of the cases */
    int resized_crop;  /* images:DIR: resize a window of least_area to 1 of the image's area, whose
                          width is 3/4 to 4/3 of its height */
    double least_area; /* default 0.08 */
} clt_augment;

/* Sets struct_size and the defaults. */
CLT_API void clt_augment_init(clt_augment *augment);

/* Reads "crop", "crop:PADDING", "flip", "resized-crop" and "resized-crop:AREA", separated by
 * commas. Errors: INVALID_ARGUMENT for anything else. */
CLT_API clt_status clt_augment_parse(const char *text, clt_augment *out);

/*
 * Lets loaders change each sample of a field, whose last two dimensions are height and width. The
 * change depends on the loader's seed, the epoch and the sample's number only. So it is the same
 * for any number of threads, parts and ranks, and for all fields of the same size and augmentation.
 * A crop pads with zeros before normalisation. Use it for training data only: all loaders of the
 * data set get changed samples. clt_dataset_field_data gives the unchanged ones.
 *
 * Errors: STATE once a loader has read the data set; UNSUPPORTED for fields of rank below 2, for
 * samples in device memory, and for resized_crop without images:DIR.
 */
CLT_API clt_status clt_dataset_augment(clt_dataset *dataset, const char *field,
                                       const clt_augment *augment);

/*
 * Divide a data set into a part for validation and the rest. Both are data sets of their own with
 * the same fields, which read the samples of `dataset`, so `dataset` must outlive them. Nothing is
 * copied but numbers of samples. clt_dataset_augment of one changes neither the other nor
 * `dataset`. Samples keep their order. Messages name the samples by their numbers in `dataset`.
 *
 * clt_dataset_split gives `fraction` of the samples to *part, rounded, at least one. Which ones
 * depends on the number of samples and `seed` only: all ranks and a resumed run get the same part.
 * clt_dataset_split_by gives those to *part whose number in the field `field` is not 0.
 *
 * csv:PATH finds means, deviations and fills anew in *rest only, and changes `dataset` accordingly.
 * FORMAT: the file has changed. STATE: a loader or a part has read the samples.
 * Errors: INVALID_ARGUMENT (a fraction that is not between 0 and 1, or leaves one of the two
 * without samples; a part of a part), NOT_FOUND (no such field), UNSUPPORTED (text whose windows
 * move, because windows of one would cover tokens of the other; a field that is no number or not in
 * host memory), those of the decode, OUT_OF_MEMORY. Free both with clt_dataset_free.
 */
CLT_API clt_status clt_dataset_split(clt_dataset *dataset, double fraction, int64_t seed,
                                     clt_dataset **rest, clt_dataset **part);
CLT_API clt_status clt_dataset_split_by(clt_dataset *dataset, const char *field, clt_dataset **rest,
                                        clt_dataset **part);

/* Returns the number that a sample has in the data set that this one is a part of; the same number
 * if it is no part. */
CLT_API int64_t clt_dataset_number(const clt_dataset *dataset, int64_t sample);

/*
 * Gives each sample a weight of at least 0 (`weights` has a number for each sample, and is copied).
 * Loaders with `shuffle` then draw samples with replacement, in proportion to their weights, as
 * PyTorch's WeightedRandomSampler does. An epoch still has as many positions as the data set has
 * samples. What a position draws depends on the loader's seed, the epoch and the position only, so
 * it is the same on any devices and ranks, and after a resume. NULL: no weights any more.
 *
 * No loader of the data set may exist meanwhile. Errors: INVALID_ARGUMENT (names the sample: a
 * weight that is negative or not finite, or all 0), OUT_OF_MEMORY.
 */
CLT_API clt_status clt_dataset_set_sample_weights(clt_dataset *dataset, const double *weights);

/* Waits until a data set opened in the background is decoded. Returns the failure of the decode, at
 * every call. Other data sets return at once. */
CLT_API clt_status clt_dataset_wait(clt_dataset *dataset);

/* Frees the data set. Stops a decode in the background and waits for it. Takes NULL. In a callback
 * of a call that uses the data set, such as clt_fit, the data set is freed when that call ends.
 * Memory that it borrows must live until then. */
CLT_API void clt_dataset_free(clt_dataset *dataset);

/* Returns the name as given, or the SPEC and split. Valid as long as the data set. */
CLT_API const char *clt_dataset_name(const clt_dataset *dataset);

/* Returns where the samples live. */
CLT_API clt_data_kind clt_dataset_kind(const clt_dataset *dataset);

/* Returns the number of samples. That of a reservoir changes as samples are pushed. */
CLT_API int64_t clt_dataset_count(const clt_dataset *dataset);

/* Returns the number of fields. */
CLT_API int clt_dataset_field_count(const clt_dataset *dataset);

/* Finds the number of the field with this name. Errors: NOT_FOUND; the message suggests the nearest
 * name. */
CLT_API clt_status clt_dataset_find_field(const clt_dataset *dataset, const char *name, int *out);

/* Describes a field. `shape` has room for CLT_DATA_MAX_RANK numbers. Any output may be NULL. */
CLT_API clt_status clt_dataset_field_info(const clt_dataset *dataset, int field, const char **name,
                                          clt_dtype *dtype, int *rank, int64_t *shape,
                                          int64_t *sample_bytes);

/* Returns the number of classes of a label field; 0 if the field holds no labels. */
CLT_API int64_t clt_dataset_classes(const clt_dataset *dataset, int field);

/* Returns 1 if the field is declared to hold images, else 0. */
CLT_API int clt_dataset_is_image(const clt_dataset *dataset, int field);

/* Returns the name of class `number` of a label field; NULL if the data have no names. Valid as
 * long as the data set. */
CLT_API const char *clt_dataset_class_name(const clt_dataset *dataset, int field, int64_t number);

/* Returns what was found in the training samples, as JSON. csv:PATH: names and types of columns,
 * names of categories and labels, means, deviations, and what stands for missing values.
 * images:DIR: names of classes in the order of labels, {"classes": ["crow", "jay"]}. Other samples
 * of the same kind are opened with it (clt_dataset_options.description). NULL: the data set has
 * none. Valid as long as the data set, and until clt_dataset_split. */
CLT_API const char *clt_dataset_description(const clt_dataset *dataset);

/* Returns the file that sample `index` was read from; NULL if samples have no files of their own.
 * Valid as long as the data set. */
CLT_API const char *clt_dataset_sample_file(const clt_dataset *dataset, int64_t index);

/* Gives the samples of a field in host memory, one after the other. Waits for a decode in the
 * background. Read-only; valid as long as the data set. Errors: UNSUPPORTED if the samples are not
 * in host memory, or those of a part (clt_dataset_split), and the failure of the decode. */
CLT_API clt_status clt_dataset_field_data(clt_dataset *dataset, int field, const void **out);

/*
 * A loader. It assembles the batches of a data set, a few ahead, with threads of its own.
 *
 * Positions: an epoch has one position for each sample, in the order of clt_data_order. A batch is
 * the next `batch` positions, or the rest of the epoch if fewer are left. With `drop_last` this
 * rest is left out. clt_split divides a batch among `parts`. This process assembles `local_parts`
 * of them, from `first_part` on. The content of a batch depends on (seed, epoch, offset, batch
 * size) only. Threads, slots, parts and the loader's start do not matter.
 *
 * Slots: a ring of `slots` places for batches. Each has memory for every local part and output. A
 * slot belongs to the caller from clt_loader_next to clt_loader_release.
 *
 * Use: create, add_output (and normalize, set_labels, set_memory), start, then next and release as
 * often as wanted, free. To change the division (another split, a lost device), free the loader and
 * create another one at next_epoch and next_offset of the last batch.
 *
 * Thread safety: one thread at a time calls next; any thread calls release and stop. Before start,
 * one thread at a time calls the other functions.
 */
typedef struct clt_loader clt_loader;

/* What to load. Set up by clt_loader_desc_init; then set `dataset` and `batch`. */
typedef struct clt_loader_desc {
    int64_t struct_size;
    clt_dataset *dataset;
    int64_t batch; /* samples of the global batch; may exceed the data set */
    int64_t seed;  /* default 0 */
    int shuffle;   /* default 1 */
    int64_t epoch; /* start position: default 0, 0; an offset is in samples */
    int64_t offset;
    int64_t end_epoch; /* stop before this epoch; 0 (default): never stop */
    int drop_last;     /* 1: all batches have `batch` samples, as with PyTorch's DataLoader, and
                          `batch` may not exceed the data set; default 0 */

    int parts;             /* devices of all ranks, default 1 */
    const double *weights; /* of the parts; NULL (default): equal; copied */
    int64_t quantum;       /* default 1; see clt_split */
    /* Not NULL: parts + 1 numbers, from 0 on. Part p has the virtual shards [bounds[p],
     * bounds[p + 1]) of the bounds[parts] shards of a batch (clt_virtual_shard_begin). Instead of
     * weights and quantum. Copied. */
    const int64_t *bounds;
    int first_part;  /* the parts assembled here: default 0, */
    int local_parts; /* 0 (default): all from first_part on */

    int slots;       /* default 3, at least 2 */
    int min_threads; /* bounds of the number of threads that work: default 1, */
    int max_threads; /* 0 (default): the processors of this process, at most 8; images:DIR: 64 */
} clt_loader_desc;

/* Sets struct_size and the defaults. */
CLT_API void clt_loader_desc_init(clt_loader_desc *desc);

/* Creates a loader, which has not started. Errors: INVALID_ARGUMENT names the value that is out of
 * range. Free *out with clt_loader_free. */
CLT_API clt_status clt_loader_create(const clt_loader_desc *desc, clt_loader **out);

/*
 * Adds an output: the samples of a field as `dtype`, without gaps, in the order of the batch.
 * Conversions are u8 to f32 (which divides by 255; see clt_loader_normalize), i32 to f32 and u8 to
 * i32. *out is the number of the output, 0 for the first; `out` may be NULL.
 *
 * Errors: UNSUPPORTED for other conversions, and for data sets in device memory. A loader without
 * outputs delivers the positions and sample numbers of such data sets.
 */
CLT_API clt_status clt_loader_add_output(clt_loader *loader, const char *field, clt_dtype dtype,
                                         int *out);

/*
 * Normalises an f32 output: (x / divisor - mean[c]) / std[c]. c is the index in the first dimension
 * if `channels` is the size of that dimension, and 0 if `channels` is 1. `mean` and `std` are
 * copied; NULL means 0 and 1. Errors: INVALID_ARGUMENT for values that are not finite, and for a
 * divisor or std of 0.
 */
CLT_API clt_status clt_loader_normalize(clt_loader *loader, int output, double divisor,
                                        int channels, const double *mean, const double *std);

/*
 * Declares that the output of a u8 or i32 field holds the targets of the loss. The weight of a
 * batch is then the number of targets that differ from *ignore (NULL: of all targets). *ignore may
 * lie out of the range of labels. Without this call the weight is the number of samples.
 */
CLT_API clt_status clt_loader_set_labels(clt_loader *loader, int output, const int64_t *ignore);

/* Returns the bytes of one sample of an output; 0 if there is no such output. */
CLT_API int64_t clt_loader_output_bytes(const clt_loader *loader, int output);

/* Returns the most samples that a batch puts into a local part. Part 0 is the first of this
 * process. */
CLT_API int64_t clt_loader_capacity(const clt_loader *loader, int local_part);

/*
 * Sets the memory of one output of one local part in one slot: clt_loader_capacity samples of
 * clt_loader_output_bytes each, aligned for the type. The memory stays the caller's and must
 * outlive the loader. Without this call the loader allocates page-aligned memory.
 */
CLT_API clt_status clt_loader_set_memory(clt_loader *loader, int slot, int local_part, int output,
                                         void *memory);

/* Returns the memory of one output of one local part in one slot of a loader that has started; NULL
 * if the capacity is 0 or there is no such place. */
CLT_API void *clt_loader_memory(const clt_loader *loader, int slot, int local_part, int output);

/* Starts the threads. Until clt_loader_free neither the threads nor next and release allocate
 * memory, except in a callback. */
CLT_API clt_status clt_loader_start(clt_loader *loader);

/* One batch. Pointers are valid until its slot is released. */
typedef struct clt_batch {
    int64_t struct_size; /* set by clt_batch_init */
    int slot;            /* -1: there are no more batches, and all other members are 0 */
    int last_of_epoch;
    int64_t number;                  /* 0 for the first batch of this loader */
    int64_t epoch, offset;           /* position of the batch's first sample */
    int64_t next_epoch, next_offset; /* position after the last one: where to resume */
    int64_t count;                   /* samples of the global batch */
    int64_t weight;                  /* targets that count in the global batch; -1: unknown, because
                                        other ranks assemble parts of a callback's data set */
    const int64_t *offsets;          /* parts + 1 numbers: part p is [offsets[p], offsets[p + 1]) */
    const int64_t *part_weights;     /* targets that count, for each local part */
    const int64_t *indices;          /* sample numbers of the local parts, in order */
} clt_batch;

/* Sets struct_size. */
CLT_API void clt_batch_init(clt_batch *batch);

/*
 * Waits for the next batch and hands its slot to the caller. A failure (of a callback, of a decode,
 * a label out of range) is returned after the batches before it, and again by every later call.
 * Errors also: STATE if the caller holds all slots, ABORTED after clt_loader_stop.
 */
CLT_API clt_status clt_loader_next(clt_loader *loader, clt_batch *out);

/* Gives a slot back, in any order. Any thread. Errors: STATE if the caller does not hold the
 * slot. */
CLT_API clt_status clt_loader_release(clt_loader *loader, int slot);

/* What the loader measured since it started. */
typedef struct clt_loader_stats {
    int64_t struct_size; /* set by clt_loader_stats_init */
    int threads;         /* working now */
    int64_t batches;     /* handed over */
    double wait_seconds; /* that next waited, without the first batch */
    double busy_seconds; /* that threads assembled batches, summed over the threads */
} clt_loader_stats;

/* Sets struct_size. */
CLT_API void clt_loader_stats_init(clt_loader_stats *stats);

/* Reads the statistics. Any thread, at any time after start. */
CLT_API clt_status clt_loader_get_stats(clt_loader *loader, clt_loader_stats *out);

/* Makes a waiting clt_loader_next, and every later one, return ABORTED. Any thread. */
CLT_API void clt_loader_stop(clt_loader *loader);

/* Stops the threads and frees the loader. Waits at most for the callbacks or decodes that the
 * threads are in. No other thread may be in a call with the loader. Takes NULL. */
CLT_API void clt_loader_free(clt_loader *loader);

CLT_END_DECLS

#endif
