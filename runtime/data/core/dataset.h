/* Inside of a data set; for data/ and for train/, which adds data sets in device memory. */
#ifndef CLT_DATA_CORE_DATASET_H
#define CLT_DATA_CORE_DATASET_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include <cltrain/data.h>

typedef struct clt_data_field {
    char *name;
    clt_dtype dtype;
    int rank;
    int64_t shape[CLT_DATA_MAX_RANK];
    int64_t elements, bytes; /* of one sample */
    int64_t classes;         /* 0: not labels */
    char **class_names;      /* `classes` of them; NULL: they have none */
    bool image;              /* see clt_dataset_set_image */
    bool augmented;          /* by `augment`, whose padding is not -1 */
    clt_augment augment;
    const void *data; /* host kind: all samples */
    void *owned;      /* `data` if it is ours to free */
} clt_data_field;

/* What is still to be done for a data set opened in the background. */
typedef struct clt_data_job {
    clt_status (*run)(struct clt_data_job *job);
    void (*destroy)(struct clt_data_job *job);
    _Atomic bool stop; /* `run` returns soon with CLT_ABORTED once this is set */
} clt_data_job;

/* Where in a run a sample is asked for: all that random changes of it may depend on. */
typedef struct clt_sample_key {
    uint64_t seed;
    int64_t epoch;
} clt_sample_key;

/* A reader's own callback: writes one sample, as clt_fill_fn; its messages name the file. Called by
 * several threads at once. */
typedef clt_status (*clt_fetch_fn)(clt_dataset *dataset, const clt_sample_key *key, int64_t index,
                                   void *const *fields);

struct clt_dataset {
    clt_data_kind kind;
    char *name;
    int64_t count;
    int field_count;
    clt_data_field fields[CLT_DATA_MAX_FIELDS];
    _Atomic bool sealed; /* a loader knows the fields: no more may be added */

    clt_fill_fn fill;
    clt_fetch_fn fetch;  /* callback kind: instead of `fill` */
    bool augments;       /* `fetch` does what the fields' `augment` says */
    const char *changes; /* how else samples differ between epochs, for people; NULL: they do not */
    uint64_t content;    /* of those with `fetch`: tells two of equal size apart, for digest.c */
    void *user;
    bool serial;
    pthread_mutex_t fill_lock;

    /* Decode in the background: `ready` is set once `status` and `message` stand. */
    clt_data_job *job;
    pthread_t thread;
    bool thread_running;
    pthread_mutex_t wait_lock;
    _Atomic bool ready;
    clt_status status;
    char message[1024];

    /* Device kind and readers with `fetch`: the owner's object, freed by the owner's function. */
    void *payload;
    void (*payload_free)(void *payload);
};

/* An empty data set of a kind. */
clt_status clt_dataset_new(clt_data_kind kind, const char *name, int64_t count, clt_dataset **out);

/* What clt_dataset_add_field makes of its arguments, all but `data`: checks them and finds the
 * sizes of one sample and, *total, of all. Adds nothing. */
clt_status clt_dataset_measure_field(const clt_dataset *dataset, const char *name, clt_dtype dtype,
                                     int rank, const int64_t *shape, clt_data_field *field,
                                     int64_t *total);

/* Adds a field that was measured; what it owns becomes the data set's. `out` may be NULL. */
clt_status clt_dataset_append_field(clt_dataset *dataset, const char *name,
                                    const clt_data_field *field, int *out);

/* Adds a field of a data set in host memory, whose room for all samples it makes and owns. */
clt_status clt_dataset_add_owned(clt_dataset *dataset, const char *name, clt_dtype dtype, int rank,
                                 const int64_t *shape, void **data);

/* Gives a label field's classes their names, which are copied: `classes` of them. */
clt_status clt_dataset_name_classes(clt_dataset *dataset, int field, const char *const *names);

/* The same from the lines of a file. One that is not there is none; FORMAT for too few lines. */
clt_status clt_dataset_read_class_names(clt_dataset *dataset, int field, const char *path);

/*
 * A data set in device memory: fields are appended without `data`, loaders deliver only positions,
 * sample numbers and counts for it. `payload_free` (may be NULL) gets `payload` when the data set
 * is freed, not when this call fails.
 */
clt_status clt_dataset_new_device(const char *name, int64_t count, void *payload,
                                  void (*payload_free)(void *payload), clt_dataset **out);

/* A data set whose samples a reader writes when they are asked for. `payload` as above. */
clt_status clt_dataset_new_fetched(const char *name, int64_t count, clt_fetch_fn fetch,
                                   void *payload, void (*payload_free)(void *payload),
                                   clt_dataset **out);

/* Runs `job` on a thread of its own (`background`) or here; takes ownership of the job even when
 * it fails. */
clt_status clt_dataset_run_job(clt_dataset *dataset, clt_data_job *job, bool background);

/* Calls the callback of a data set of that kind, alone if it asked for that. */
clt_status clt_dataset_fill(clt_dataset *dataset, const clt_sample_key *key, const int64_t *indices,
                            int64_t count, void *const *fields);

#endif
