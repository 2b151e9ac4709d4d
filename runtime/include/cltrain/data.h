/*
 * Data sets: where samples come from.
 *
 * A data set is a fixed number of samples; each sample has the same named fields ("image",
 * "label"), each of one element type and shape. It is filled by files, by arrays in memory, or by a
 * callback.
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
    CLT_DATA_CALLBACK = 1, /* nowhere: a callback writes those that are asked for */
    CLT_DATA_DEVICE = 2    /* in device memory: fields have no host pointer */
} clt_data_kind;

/* How clt_dataset_add_field treats the caller's array. */
typedef enum clt_data_ownership {
    CLT_DATA_BORROW = 0, /* the array stays the caller's and must outlive the data set */
    CLT_DATA_COPY = 1    /* the array is copied and may go at once */
} clt_data_ownership;

/* How to open files. Set up by clt_dataset_options_init. */
typedef struct clt_dataset_options {
    int64_t struct_size;
    const char *split; /* "train" (default) or "test" */
    int64_t classes;   /* labels must be below it; 0 (default): the named data set's own number, or
                          for other files the largest label + 1 */
    int background;    /* 0 (default): return when all samples are decoded and checked.
                          1: return after the checks of headers, of sizes and of all labels, and
                          decode the rest in a thread; clt_dataset_wait, and whatever reads a
                          sample, waits for its end and reports its failure */
} clt_dataset_options;

/* Sets struct_size and the defaults. */
CLT_API void clt_dataset_options_init(clt_dataset_options *options);

/*
 * Opens a data set by SPEC, one of
 *   fashion-mnist   Debian's package dataset-fashion-mnist: "image" u8 [1,28,28], "label" u8 []
 *   idx:DIR         a folder with {train,t10k}-{images-idx3,labels-idx1}-ubyte, plain or .gz:
 *                   "image" u8 [1,rows,columns], "label" u8 []
 * `options` may be NULL. Decoded samples are kept in memory, nothing is written to disk.
 *
 * Fails with NOT_FOUND (unknown name, missing file or package), UNSUPPORTED (a kind that this
 * version does not have), FORMAT (wrong magic number, truncated, corrupt or trailing data, sizes
 * that the file cannot hold, images and labels that disagree in number, label out of range), IO,
 * OUT_OF_MEMORY, INVALID_ARGUMENT. The message names the file, what was expected and what found.
 */
CLT_API clt_status clt_dataset_open(const char *spec, const clt_dataset_options *options,
                                    clt_dataset **out);

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
 * NULL. `out` may be NULL. STATE once a loader has read the data set.
 */
CLT_API clt_status clt_dataset_add_field(clt_dataset *dataset, const char *name, clt_dtype dtype,
                                         int rank, const int64_t *shape, const void *data,
                                         clt_data_ownership ownership, int *out);

/* Declares a u8 or i32 field to be labels 0 to classes - 1. Loaders check every label that they
 * deliver and name the sample of a wrong one. */
CLT_API clt_status clt_dataset_set_classes(clt_dataset *dataset, int field, int64_t classes);

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

CLT_END_DECLS

#endif
