/*
 * Tensors in safetensors files, and checkpoints of a run.
 *
 * PyTorch's safetensors package reads and writes these files. A checkpoint is a folder
 * DIR/step-00001234 with model.safetensors, optimizer.safetensors and state.json, and perhaps
 * average.safetensors. It does not depend on the number or kind of devices. All functions work on
 * host memory and need no device.
 */
#ifndef CLTRAIN_CHECKPOINT_H
#define CLTRAIN_CHECKPOINT_H

#include <stdint.h>

#include <cltrain/export.h>
#include <cltrain/status.h>
#include <cltrain/types.h>

CLT_BEGIN_DECLS

/* The element types of files, a row each: name in the file, value, bytes. The first six have the
 * values of clt_dtype. Types after I64 are opaque: they can be listed and written, but
 * clt_tensors_find refuses them. */
#define CLT_FILE_DTYPE_LIST(X)                                                                     \
    X(F32, 0, 4)                                                                                   \
    X(F16, 1, 2)                                                                                   \
    X(BF16, 2, 2)                                                                                  \
    X(I32, 3, 4)                                                                                   \
    X(U8, 4, 1)                                                                                    \
    X(F64, 5, 8)                                                                                   \
    X(I64, 6, 8)                                                                                   \
    X(BOOL, 7, 1)                                                                                  \
    X(I8, 8, 1)                                                                                    \
    X(I16, 9, 2)                                                                                   \
    X(U16, 10, 2)                                                                                  \
    X(U32, 11, 4)                                                                                  \
    X(U64, 12, 8)                                                                                  \
    X(F8_E4M3, 13, 1)                                                                              \
    X(F8_E5M2, 14, 1)

typedef enum clt_file_dtype {
#define CLT_FILE_DTYPE_ENUM(name, value, bytes) CLT_FILE_##name = value,
    CLT_FILE_DTYPE_LIST(CLT_FILE_DTYPE_ENUM)
#undef CLT_FILE_DTYPE_ENUM
} clt_file_dtype;

/* A named tensor in host memory, row-major without gaps. Rank 0 is one element. */
typedef struct clt_tensor {
    const char *name; /* UTF-8 */
    clt_file_dtype dtype;
    int rank; /* 0 to CLT_MAX_RANK */
    int64_t dims[CLT_MAX_RANK];
    const void *data; /* little-endian elements; not used in descriptions */
} clt_tensor;

/* Fills a description. `dims` has `rank` entries; `name` and `data` are borrowed. Errors:
 * INVALID_ARGUMENT for a rank, dimension or type out of range. Thread-safe. */
CLT_API clt_status clt_tensor_init(clt_tensor *tensor, const char *name, clt_file_dtype dtype,
                                   int rank, const int64_t *dims, const void *data);

/* Returns the bytes of a tensor's elements; -1 if its type, rank or dimensions are out of range or
 * the product does not fit in 63 bits. Thread-safe. */
CLT_API int64_t clt_tensor_bytes(const clt_tensor *tensor);

/* Returns the name of a type in files, such as "F32"; "?" for an unknown type. Thread-safe. */
CLT_API const char *clt_file_dtype_name(clt_file_dtype dtype);

/* An open file. Several threads may read it at once. One thread closes it. */
typedef struct clt_tensors clt_tensors;

/* Opens and checks a file: header, names, types, shapes, and that the tensors cover the data
 * exactly, without overlap. It must be a regular file. The whole file is read into memory, so it
 * may change afterwards. Errors: NOT_FOUND, IO, OUT_OF_MEMORY, FORMAT (names the tensor and the
 * mistake). Close *out with clt_tensors_close. */
CLT_API clt_status clt_tensors_open(const char *path, clt_tensors **out);

/* Closes the file. Takes NULL. Pointers from the file are invalid afterwards. */
CLT_API void clt_tensors_close(clt_tensors *tensors);

/* Returns the number of tensors. */
CLT_API int clt_tensors_count(const clt_tensors *tensors);

/* Returns the tensor at `index`, in the order of the data, of any type; NULL if out of range. Valid
 * until the file is closed. `data` is aligned for the element type. */
CLT_API const clt_tensor *clt_tensors_at(const clt_tensors *tensors, int index);

/* Finds the tensor of a name. Valid until the file is closed. `data` is aligned for the element
 * type. Errors: NOT_FOUND, with the nearest name; UNSUPPORTED if the type is opaque. */
CLT_API clt_status clt_tensors_find(const clt_tensors *tensors, const char *name,
                                    const clt_tensor **out);

/* Returns a string of the file's `__metadata__`; NULL for an unknown key. Valid until the file is
 * closed. */
CLT_API const char *clt_tensors_metadata(const clt_tensors *tensors, const char *key);

/* What clt_tensors_match accepts. */
enum {
    CLT_MATCH_EXACT = 0,
    CLT_MATCH_EXTRA = 1,   /* tensors in the file that are not expected */
    CLT_MATCH_FLOATS = 2,  /* F16, BF16, F32 and F64 for each other; see clt_tensor_to_f32 */
    CLT_MATCH_INTEGERS = 4 /* I64 in the file for an expected I32, if all values fit; see
                              clt_tensor_to_i32 */
};

/* Compares names, shapes and types in the file with `count` expected descriptions. `flags` is a sum
 * of CLT_MATCH_*. Errors: MISMATCH names the first tensor, in the order of `expected`, that differs
 * or is missing, with both shapes; or a tensor that was not expected; or the first value that does
 * not fit (CLT_MATCH_INTEGERS). */
CLT_API clt_status clt_tensors_match(const clt_tensors *tensors, const clt_tensor *expected,
                                     int count, int flags);

/* Converts a tensor of F16, BF16, F32 or F64 to `count` floats, rounding F64 to nearest. Errors:
 * SHAPE if it does not have `count` elements, UNSUPPORTED for other types. Thread-safe. */
CLT_API clt_status clt_tensor_to_f32(const clt_tensor *tensor, int64_t count, float *out);

/* Converts a tensor of I32 or I64 to `count` elements of I32. Errors: SHAPE if it does not have
 * `count` elements, MISMATCH for a value out of I32's range, UNSUPPORTED for other types.
 * Thread-safe. */
CLT_API clt_status clt_tensor_to_i32(const clt_tensor *tensor, int64_t count, int32_t *out);

/* Gives the data of a tensor whose `data` is NULL, for example from a device. *data must stay valid
 * until the next call for the same file, so one staging area serves all tensors. Each tensor is
 * requested once, in the order of the file, which differs from that of the list. A status other
 * than CLT_OK ends the write with this status and its message. */
typedef clt_status (*clt_tensor_fetch_fn)(void *user, const clt_tensor *tensor, const void **data);

/* What to write. Set up by clt_tensors_desc_init. All pointers are borrowed. */
typedef struct clt_tensors_desc {
    int64_t struct_size;
    const clt_tensor *tensors;
    int64_t count;
    const char *const *metadata; /* key, value, key, value, ... (UTF-8), or NULL */
    int64_t metadata_pairs;
    clt_tensor_fetch_fn fetch; /* needed if a tensor has no `data` */
    void *fetch_user;
} clt_tensors_desc;

/* Sets struct_size; everything else is 0. */
CLT_API void clt_tensors_desc_init(clt_tensors_desc *desc);

/* Writes a file. It is written beside `path`, synced to the disk and renamed. So `path` is either
 * the old file or the whole new one. One writer at a time for a path. Errors: INVALID_ARGUMENT
 * (names that are not UTF-8 or occur twice, shapes out of range), IO with the system's reason,
 * those of `fetch`. */
CLT_API clt_status clt_tensors_save(const char *path, const clt_tensors_desc *desc);

/* The position of a run. Random numbers depend on the seed and the position only, so these are
 * their whole state. */
typedef struct clt_run_state {
    int64_t step;   /* updates since the start of the run */
    int64_t epoch;  /* the epoch in progress, from 0 */
    int64_t batch;  /* batches of this epoch that were used */
    int64_t sample; /* samples of this epoch that were used: the position in its permutation */
    int64_t seed;   /* any 64 bits */
} clt_run_state;

/* A named part of state.json with data that clt_run_state lacks. Readers ignore names that they do
 * not know. */
typedef struct clt_section {
    const char *name; /* UTF-8 */
    const char *text; /* UTF-8 text, or one JSON value of any kind */
    int is_json;      /* 1: `text` is JSON. Reading gives the same value, perhaps with other spaces;
                         a JSON string is read as text */
} clt_section;

/* The sections with choices that a resumed run repeats: kernel variants; the division of the batch
 * and the size of buckets; of an asynchronous run the batches that were dealt and not applied. */
#define CLT_SECTION_FROZEN "frozen"
#define CLT_SECTION_SPLIT "split"
#define CLT_SECTION_SHARDS "virtual_shards" /* of clt_trainer_options; "0": none */
#define CLT_SECTION_ASYNC "async"

/* What to save. Set up by clt_checkpoint_desc_init. All pointers are borrowed. */
typedef struct clt_checkpoint_desc {
    int64_t struct_size;
    clt_run_state run;       /* nothing negative but the seed */
    const clt_tensor *model; /* parameters and state by their names in PyTorch */
    int64_t model_count;
    const clt_tensor *optimizer; /* such as conv1.weight.exp_avg */
    int64_t optimizer_count;
    const clt_section *sections;
    int64_t section_count;
    clt_tensor_fetch_fn fetch; /* needed if a tensor has no `data`; the model is written first */
    void *fetch_user;
    int64_t keep; /* number of checkpoints to keep, with this one; 0: all */
    int64_t
        best; /* step of the best checkpoint, this one or an earlier one; 0: leave it as it is */
    const clt_tensor *average; /* averages of the model's tensors; they are written last */
    int64_t average_count;     /* 0: the checkpoint has no average.safetensors */
} clt_checkpoint_desc;

/* Sets struct_size and the defaults: nothing to save, seed 0, keep all. */
CLT_API void clt_checkpoint_desc_init(clt_checkpoint_desc *desc);

/*
 * Saves the checkpoint `dir`/step-N. Creates `dir` and the folders above it.
 *
 * - The checkpoint is written beside, synced to the disk and renamed. So it is there whole or not
 *   at all. It replaces one of the same step. Leftovers of a killed save are removed.
 * - With `best`, the link `dir`/best then points to that checkpoint. If it is not there, a warning
 * is logged. The link is a name of the checkpoint for all functions that open one.
 * - Then older checkpoints are deleted, except the `keep` - 1 newest ones and the target of the
 * link `best`. Checkpoints of later steps stay. A deletion that fails is logged as a warning.
 * - A failure leaves all earlier checkpoints as they are.
 * - One process and thread at a time may save to `dir`. Take clt_folder_lock_take for that.
 *
 * Errors: INVALID_ARGUMENT, IO with the system's reason, those of `fetch`.
 */
CLT_API clt_status clt_checkpoint_save(const char *dir, const clt_checkpoint_desc *desc);

/*
 * The right to save in a folder. It keeps a second run from writing into the same folder, which
 * would delete the first one's unfinished files. Readers of checkpoints need no lock.
 *
 * The lock is flock's, on the file .lock in the folder. The kernel releases the lock when the
 * process ends, also when the process is killed. The file's text says which process holds the lock,
 * on which host and since when. Children that the host program forks share the lock until they end
 * or execute another program. On NFS the server keeps the lock: mounts with `nolock` or
 * `local_lock` only see locks of their own host, and the server keeps the lock of a host that
 * crashed until its lease ends.
 */
typedef struct clt_folder_lock clt_folder_lock;

/* Takes the lock without waiting. Creates `dir` and the folders above it. On a file system without
 * locks it logs a warning and succeeds. Errors: BUSY if another process, or another lock of this
 * process, holds it (the message says who); IO; OUT_OF_MEMORY. Thread-safe. Free *out with
 * clt_folder_lock_release. */
CLT_API clt_status clt_folder_lock_take(const char *dir, clt_folder_lock **out);

/* Releases the lock and removes its file. Takes NULL. */
CLT_API void clt_folder_lock_release(clt_folder_lock *lock);

/* An open checkpoint. Several threads may read it at once. One thread closes it. */
typedef struct clt_checkpoint clt_checkpoint;

/* Opens the folder of a step, or the highest step in the folder `path`, and checks that each file
 * is there, has the right hash and valid content. The files stay in memory until the checkpoint is
 * closed. Errors: NOT_FOUND if there is no checkpoint; FORMAT if it is damaged (names the file, the
 * damage and the newest intact checkpoint before it, which is not opened); UNSUPPORTED if a newer
 * version wrote it; IO. Close *out with clt_checkpoint_close. */
CLT_API clt_status clt_checkpoint_open(const char *path, clt_checkpoint **out);

/* Closes the checkpoint. Takes NULL. Pointers from the checkpoint are invalid afterwards. */
CLT_API void clt_checkpoint_close(clt_checkpoint *checkpoint);

/* Finds the folder that clt_checkpoint_open(path) would open, after the same checks. Writes its
 * path to `found`, which has `room` bytes, with a 0 byte at the end. Errors: as
 * clt_checkpoint_open; INVALID_ARGUMENT if `room` is too small. */
CLT_API clt_status clt_checkpoint_find(const char *path, int64_t room, char *found);

/* Finds the newest intact step folder in `dir`, and passes over folders that are damaged or lack a
 * file. Errors: NOT_FOUND if there is no step folder; FORMAT if none is intact; INVALID_ARGUMENT;
 * UNSUPPORTED or IO of the first folder with such an error, since these do not tell of damage. */
CLT_API clt_status clt_checkpoint_find_intact(const char *dir, int64_t room, char *found);

/* Return the parts of an open checkpoint, valid until it is closed. */
CLT_API const char *clt_checkpoint_path(const clt_checkpoint *checkpoint); /* the step folder */
CLT_API const clt_run_state *clt_checkpoint_run(const clt_checkpoint *checkpoint);
CLT_API const clt_tensors *clt_checkpoint_model(const clt_checkpoint *checkpoint);
CLT_API const clt_tensors *clt_checkpoint_optimizer(const clt_checkpoint *checkpoint);
/* Averages of the model's tensors; NULL: there are none. */
CLT_API const clt_tensors *clt_checkpoint_average(const clt_checkpoint *checkpoint);

/* Return the section of a name, or at an index in the order of saving; NULL if there is none. Valid
 * until the checkpoint is closed. */
CLT_API const clt_section *clt_checkpoint_section(const clt_checkpoint *checkpoint,
                                                  const char *name);
CLT_API const clt_section *clt_checkpoint_section_at(const clt_checkpoint *checkpoint, int index);

CLT_END_DECLS

#endif
