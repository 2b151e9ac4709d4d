/* Internals of a data set, for data/ and for train/, which adds data sets in device memory. */
#ifndef CLT_DATA_CORE_DATASET_H
#define CLT_DATA_CORE_DATASET_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/in_use.h"
#include <cltrain/data.h>

typedef struct clt_data_field {
    char *name;
    clt_dtype dtype;
    int rank;
    int64_t shape[CLT_DATA_MAX_RANK];
    int64_t elements, bytes; /* of one sample */
    int64_t classes;         /* 0: the field holds no labels */
    char **class_names;      /* `classes` names; NULL: the classes have no names */
    bool image;              /* set by clt_dataset_set_image */
    bool augmented;          /* apply `augment`; its padding is never -1 here */
    clt_augment augment;
    const void *data; /* data sets in host memory: all samples */
    void *owned;      /* equals `data` if the data set frees the samples */
} clt_data_field;

/* The work left after a data set was opened in the background. */
typedef struct clt_data_job {
    clt_status (*run)(struct clt_data_job *job);
    void (*destroy)(struct clt_data_job *job);
    _Atomic bool stop; /* `run` returns soon with CLT_ABORTED once this is set */
} clt_data_job;

/* Identifies the run and epoch in which a sample is read. Random changes depend on nothing else but
 * the sample's number. */
typedef struct clt_sample_key {
    uint64_t seed;
    int64_t epoch;
} clt_sample_key;

/* A reader's own callback: writes one sample, like clt_fill_fn. Its messages name the file. Several
 * threads call it at once. */
typedef clt_status (*clt_fetch_fn)(clt_dataset *dataset, const clt_sample_key *key, int64_t index,
                                   void *const *fields);

struct clt_dataset {
    clt_data_kind kind;
    char *name;
    int64_t count;
    /* Of a part (dataset_parts.c): the data set that it is a part of, and the numbers that its
     * samples have there. NULL: it is no part. Loaders translate numbers, so fields, `fill` and
     * `fetch` only see numbers of the whole. */
    clt_dataset *whole;
    int64_t *map;
    int field_count;
    clt_data_field fields[CLT_DATA_MAX_FIELDS];
    _Atomic bool sealed; /* a loader reads the fields: none may be added */
    clt_in_use in_use;   /* by calls whose callbacks may free the data set */

    clt_fill_fn fill;
    clt_fetch_fn fetch;  /* callback data sets: called instead of `fill` if set */
    bool augments;       /* `fetch` applies the fields' `augment` */
    const char *changes; /* for people: how else samples differ between epochs; may be NULL */
    uint64_t content;    /* data sets with `fetch`: hash of the content, for digest.c */
    /* The file of a sample; NULL: samples have none. */
    const char *(*sample_file)(const clt_dataset *dataset, int64_t index);
    char *description; /* see clt_dataset_description; NULL: none */
    /* A field that the samples may lack, and why they do. NULL: they lack none. */
    const char *lacked;
    char *lacked_why;
    /* Finds what normalises the samples anew, without those whose `held` is 1, which become samples
     * for validation. NULL: samples are not normalised. */
    clt_status (*refit)(clt_dataset *dataset, const char *held);
    double *drawn; /* sums of the weights of samples 0 to i, by sample; NULL: no weights */
    void *user;
    bool serial;
    pthread_mutex_t fill_lock;

    /* Decoding in the background. `ready` is set after `status` and `message` are final. */
    clt_data_job *job;
    pthread_t thread;
    bool thread_running;
    pthread_mutex_t wait_lock;
    _Atomic bool ready;
    clt_status status;
    char message[1024];

    _Atomic int64_t *present; /* reservoirs: the number of samples; `count` is the capacity */

    /* Data of the owner: train/ for device memory, readers for `fetch`, reservoirs. Freed by
     * `payload_free`. */
    void *payload;
    void (*payload_free)(void *payload);
};

/* A call that runs callbacks uses the data set, and what it is a part of, between these two. The
 * second one frees what was freed meanwhile. NULL: does nothing. */
void clt_dataset_hold(clt_dataset *dataset);
void clt_dataset_let_go(clt_dataset *dataset);

/* Creates a data set without fields. */
clt_status clt_dataset_new(clt_data_kind kind, const char *name, int64_t count, clt_dataset **out);

/* Checks the arguments of clt_dataset_add_field except `data`, and adds nothing. *field gets the
 * sizes of one sample, *total the bytes of all samples. */
clt_status clt_dataset_measure_field(const clt_dataset *dataset, const char *name, clt_dtype dtype,
                                     int rank, const int64_t *shape, clt_data_field *field,
                                     int64_t *total);

/* Adds a field from clt_dataset_measure_field. The data set takes over `owned`. `out` may be
 * NULL. */
/* clt_dataset_add_array for an array of the host. */
clt_status clt_dataset_add_host_array(clt_dataset *dataset, const char *name,
                                      const clt_array *samples, clt_data_ownership ownership,
                                      int *out);

clt_status clt_dataset_append_field(clt_dataset *dataset, const char *name,
                                    const clt_data_field *field, int *out);

/* Adds a field to a data set in host memory. Allocates memory for all samples, which the data set
 * owns. */
clt_status clt_dataset_add_owned(clt_dataset *dataset, const char *name, clt_dtype dtype, int rank,
                                 const int64_t *shape, void **data);

/* Names the classes of a label field. The `classes` names are copied. */
clt_status clt_dataset_name_classes(clt_dataset *dataset, int field, const char *const *names);

/* Reads the names of the classes from the lines of a file. A missing file is no error. FORMAT if
 * the file has too few lines. */
clt_status clt_dataset_read_class_names(clt_dataset *dataset, int field, const char *path);

/*
 * Creates a data set in device memory. Its fields are appended without `data`. Loaders deliver only
 * positions, sample numbers and counts for it. `payload_free` (may be NULL) is called with
 * `payload` when the data set is freed, but not when this call fails.
 */
clt_status clt_dataset_new_device(const char *name, int64_t count, void *payload,
                                  void (*payload_free)(void *payload), clt_dataset **out);

/* Creates a data set whose samples a reader writes on request. `payload` as for
 * clt_dataset_new_device. */
clt_status clt_dataset_new_fetched(const char *name, int64_t count, clt_fetch_fn fetch,
                                   void *payload, void (*payload_free)(void *payload),
                                   clt_dataset **out);

/* Runs `job` on a new thread (`background`) or in this call. Takes ownership of the job, also when
 * the call fails. */
clt_status clt_dataset_run_job(clt_dataset *dataset, clt_data_job *job, bool background);

/* Replaces positions in a part by the numbers of the samples in the whole data set. */
void clt_dataset_translate(const clt_dataset *dataset, int64_t count, int64_t *indices);

/* Calls the callback of a callback data set. Serial callbacks are never called by two threads at
 * once. */
clt_status clt_dataset_fill(clt_dataset *dataset, const clt_sample_key *key, const int64_t *indices,
                            int64_t count, void *const *fields);

/* Fails with UNSUPPORTED for a reservoir, whose samples change. `what` needs other data. */
clt_status clt_dataset_need_fixed(const clt_dataset *dataset, const char *what);

#endif
