/*
 * Tensors in safetensors files, and checkpoints of a run.
 *
 * The files are those that PyTorch's safetensors package reads and writes. A checkpoint is a folder
 * DIR/step-00001234 that holds model.safetensors, optimizer.safetensors and state.json. Everything
 * here works on host memory and needs no device; nothing in a checkpoint depends on the number or
 * kind of devices.
 */
#ifndef CLTRAIN_CHECKPOINT_H
#define CLTRAIN_CHECKPOINT_H

#include <stdint.h>

#include <cltrain/export.h>
#include <cltrain/status.h>
#include <cltrain/types.h>

CLT_BEGIN_DECLS

/* One row an element type that a file may hold: name in the file, value, bytes. The first six have
 * the values of clt_dtype. Those after I64 are opaque: they can be listed and written, but
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
    const void *data; /* little-endian elements; where tensors are only described, not used */
} clt_tensor;

/* Fills a description. `dims` has `rank` entries; `name` and `data` are borrowed. Errors:
 * INVALID_ARGUMENT for a rank, dimension or type out of range. Thread-safe. */
CLT_API clt_status clt_tensor_init(clt_tensor *tensor, const char *name, clt_file_dtype dtype,
                                   int rank, const int64_t *dims, const void *data);

/* Bytes of a tensor's elements; -1 if its type, rank or dimensions are out of range or the product
 * does not fit in 63 bits. Thread-safe. */
CLT_API int64_t clt_tensor_bytes(const clt_tensor *tensor);

/* "F32" and so on, as in the file; "?" for an unknown type. A constant string. Thread-safe. */
CLT_API const char *clt_file_dtype_name(clt_file_dtype dtype);

/* An open file. Reading it from several threads at once is safe; closing is not. */
typedef struct clt_tensors clt_tensors;

/* Opens and checks a file: header, names, types, shapes, and that the tensors cover the data
 * exactly, without overlap. The whole file is read into memory, so that it may change afterwards.
 * It must be a regular file. Errors: NOT_FOUND, IO, OUT_OF_MEMORY, and FORMAT with what is wrong
 * with which tensor. */
CLT_API clt_status clt_tensors_open(const char *path, clt_tensors **out);

/* Takes NULL. All pointers that came from the file end here. */
CLT_API void clt_tensors_close(clt_tensors *tensors);

/* Number of tensors. */
CLT_API int clt_tensors_count(const clt_tensors *tensors);

/* The tensor at `index`, in the order of the data, of whatever type; NULL if out of range. Valid
 * until the file is closed. `data` is aligned for the element type. */
CLT_API const clt_tensor *clt_tensors_at(const clt_tensors *tensors, int index);

/* The tensor of that name, valid until the file is closed; `data` is aligned for the element type.
 * Errors: NOT_FOUND, with the nearest name; UNSUPPORTED if its type is opaque. */
CLT_API clt_status clt_tensors_find(const clt_tensors *tensors, const char *name,
                                    const clt_tensor **out);

/* A string of the file's `__metadata__`; NULL if there is none of that key. Valid until closed. */
CLT_API const char *clt_tensors_metadata(const clt_tensors *tensors, const char *key);

/* What clt_tensors_match lets pass. */
enum {
    CLT_MATCH_EXACT = 0,
    CLT_MATCH_EXTRA = 1,   /* tensors in the file that are not expected */
    CLT_MATCH_FLOATS = 2,  /* F16, BF16, F32 and F64 for each other; see clt_tensor_to_f32 */
    CLT_MATCH_INTEGERS = 4 /* I64 in the file for an expected I32, if all values fit; see
                              clt_tensor_to_i32 */
};

/* Compares names, shapes and types in the file with `count` expected descriptions (their `data` is
 * not used). `flags` is a sum of CLT_MATCH_*. Errors: MISMATCH naming the first tensor, in the
 * order of `expected`, that differs or is missing, with both shapes, or one that was not expected,
 * or the first with a value that does not fit (CLT_MATCH_INTEGERS), with the value. */
CLT_API clt_status clt_tensors_match(const clt_tensors *tensors, const clt_tensor *expected,
                                     int count, int flags);

/* Converts a tensor of F16, BF16, F32 or F64 to `count` floats, rounding F64 to nearest. Errors:
 * SHAPE if it does not have `count` elements, UNSUPPORTED for other types. Thread-safe. */
CLT_API clt_status clt_tensor_to_f32(const clt_tensor *tensor, int64_t count, float *out);

/* Converts a tensor of I32 or I64 to `count` elements of I32. Errors: SHAPE if it does not have
 * `count` elements, MISMATCH for a value out of I32's range, UNSUPPORTED for other types.
 * Thread-safe. */
CLT_API clt_status clt_tensor_to_i32(const clt_tensor *tensor, int64_t count, int32_t *out);

/* Gives the data of a tensor whose `data` is NULL, as when it must be fetched from a device. What
 * it returns has to stay valid until the next call for the same file only, so that one staging area
 * serves all. Tensors are asked for once each, in the order of the file, which is not that of the
 * list. A status other than CLT_OK ends the write with that status and the message set. */
typedef clt_status (*clt_tensor_fetch_fn)(void *user, const clt_tensor *tensor, const void **data);

/* What to write. Initialise with clt_tensors_desc_init. All pointers are borrowed. */
typedef struct clt_tensors_desc {
    int64_t struct_size;
    const clt_tensor *tensors;
    int64_t count;
    const char *const *metadata; /* key, value, key, value, ... (UTF-8), or NULL */
    int64_t metadata_pairs;
    clt_tensor_fetch_fn fetch; /* needed if a tensor has no `data` */
    void *fetch_user;
} clt_tensors_desc;

CLT_API void clt_tensors_desc_init(clt_tensors_desc *desc);

/* Writes a file beside `path`, syncs it to the disk and renames it, so that `path` is either the
 * old file or the whole new one. One writer at a time for a path. Errors: INVALID_ARGUMENT (names
 * that are not UTF-8 or occur twice, shapes out of range), IO with the system's reason, what
 * `fetch` returned. */
CLT_API clt_status clt_tensors_save(const char *path, const clt_tensors_desc *desc);

/* Where a run stands. The generators are counter based, so the seed and the position are the whole
 * state of the random numbers. */
typedef struct clt_run_state {
    int64_t step;   /* updates made, from the start of the run */
    int64_t epoch;  /* the epoch in progress, from 0 */
    int64_t batch;  /* batches of that epoch already used */
    int64_t sample; /* samples of that epoch already used: the position in its permutation */
    int64_t seed;   /* any 64 bits */
} clt_run_state;

/* A named piece of state.json, for what is not in clt_run_state: readers that do not know a name
 * leave it alone. */
typedef struct clt_section {
    const char *name; /* UTF-8 */
    const char *text; /* UTF-8 text, or one JSON value of any kind */
    int is_json;      /* 1: `text` is JSON; the same value comes back, spaces aside. A JSON string
                         comes back as text. */
} clt_section;

/* The sections for choices that a resumed run repeats: kernel variants; split of the batch and size
 * of the buckets of gradients. */
#define CLT_SECTION_FROZEN "frozen"
#define CLT_SECTION_SPLIT "split"

/* What to save. Initialise with clt_checkpoint_desc_init. All pointers are borrowed. */
typedef struct clt_checkpoint_desc {
    int64_t struct_size;
    clt_run_state run;       /* nothing negative but the seed */
    const clt_tensor *model; /* parameters and state by their names in PyTorch */
    int64_t model_count;
    const clt_tensor *optimizer; /* such as conv1.weight.exp_avg */
    int64_t optimizer_count;
    const clt_section *sections;
    int64_t section_count;
    clt_tensor_fetch_fn fetch; /* needed if a tensor has no `data`; the model's come first */
    void *fetch_user;
    int64_t keep; /* how many checkpoints to keep, this one included; 0: all */
} clt_checkpoint_desc;

/* Nothing to save, seed 0, keep all. */
CLT_API void clt_checkpoint_desc_init(clt_checkpoint_desc *desc);

/* Saves `dir`/step-N, creating `dir` and the folders above it where needed. It is written beside,
 * synced to the disk and renamed, so that it is there whole or not at all; one of the same step is
 * replaced. Leftovers of a save that was killed are removed. Then those older than the `keep` - 1
 * newest before it are deleted; ones of later steps are left alone. One process and thread saves to
 * a `dir` at a time: clt_folder_lock_take sees to it, this call does not. On failure every
 * checkpoint that was there still is. A deletion that fails is logged as a warning only. Errors:
 * INVALID_ARGUMENT, IO with the system's reason, what `fetch` returned. */
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

/* Takes the lock without waiting; creates `dir` and the folders above it where needed. A file
 * system without locks is logged as a warning, and the call succeeds. Errors: BUSY if another
 * process, or another lock of this process, holds it: the message says who; IO; OUT_OF_MEMORY.
 * Thread-safe. */
CLT_API clt_status clt_folder_lock_take(const char *dir, clt_folder_lock **out);

/* Releases the lock and removes its file. Takes NULL. */
CLT_API void clt_folder_lock_release(clt_folder_lock *lock);

/* An open checkpoint. Reading it from several threads at once is safe; closing is not. */
typedef struct clt_checkpoint clt_checkpoint;

/* Opens a step folder, or the one of the highest step in the folder `path`, and checks it: each
 * file is there, its hash is right and its content valid. The files are kept in memory until
 * closed. Errors: NOT_FOUND if there is no checkpoint; FORMAT if it is damaged, naming the file,
 * what is wrong with it and the newest intact one before it (which is not opened in its place);
 * UNSUPPORTED if a newer version wrote it; IO. */
CLT_API clt_status clt_checkpoint_open(const char *path, clt_checkpoint **out);

/* Takes NULL. All pointers that came from the checkpoint end here. */
CLT_API void clt_checkpoint_close(clt_checkpoint *checkpoint);

/* Writes to `found` (of `room` bytes, ended by 0) the path of the step folder that
 * clt_checkpoint_open(path) would open, after the same checks. Errors: the same, and
 * INVALID_ARGUMENT if `room` is too small. */
CLT_API clt_status clt_checkpoint_find(const char *path, int64_t room, char *found);

/* The same of the newest step folder in `dir` that is intact: those after it are damaged, or lack a
 * file. Errors: NOT_FOUND if there is no step folder; FORMAT if none is intact; UNSUPPORTED and IO,
 * which say nothing of damage, of the first that has them; INVALID_ARGUMENT. */
CLT_API clt_status clt_checkpoint_find_intact(const char *dir, int64_t room, char *found);

/* The parts of an open checkpoint, valid until it is closed. */
CLT_API const char *clt_checkpoint_path(const clt_checkpoint *checkpoint); /* the step folder */
CLT_API const clt_run_state *clt_checkpoint_run(const clt_checkpoint *checkpoint);
CLT_API const clt_tensors *clt_checkpoint_model(const clt_checkpoint *checkpoint);
CLT_API const clt_tensors *clt_checkpoint_optimizer(const clt_checkpoint *checkpoint);

/* The section of that name, or at that index in the order of saving; NULL if there is none. */
CLT_API const clt_section *clt_checkpoint_section(const clt_checkpoint *checkpoint,
                                                  const char *name);
CLT_API const clt_section *clt_checkpoint_section_at(const clt_checkpoint *checkpoint, int index);

CLT_END_DECLS

#endif
