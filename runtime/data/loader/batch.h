/* Gathers samples into batches: which fields, in which type, scaled how, and what their labels
 * weigh. */
#ifndef CLT_DATA_LOADER_BATCH_H
#define CLT_DATA_LOADER_BATCH_H

#include "data/core/dataset.h"

typedef struct clt_data_output {
    int field;
    clt_dtype dtype;
    int64_t bytes;            /* of one sample here */
    bool plain;               /* the same type, unscaled: a copy */
    int channels;             /* of the scaling; 0: none */
    int64_t channel_elements; /* elements that share a channel */
    float *table;             /* u8 to f32: 256 numbers a channel */
    float *scale, *shift;     /* i32 and f32 to f32: a number a channel */
} clt_data_output;

typedef struct clt_gather {
    clt_dataset *dataset;
    int count;
    clt_data_output outputs[CLT_DATA_MAX_FIELDS];
    int labels; /* the output that has the targets; -1: every sample weighs 1 */
    bool has_ignore;
    int64_t ignore;
} clt_gather;

/* What one thread needs for data sets that are filled by callbacks, and for augmented fields. */
typedef struct clt_scratch {
    void *fields[CLT_DATA_MAX_FIELDS];
    void *sample; /* one that was augmented */
} clt_scratch;

void clt_gather_init(clt_gather *gather, clt_dataset *dataset);
void clt_gather_free(clt_gather *gather);
/* Data sets in device memory too: then the output says what to do there. */
clt_status clt_gather_add(clt_gather *gather, const char *field, clt_dtype dtype, int *out);
clt_status clt_gather_normalize(clt_gather *gather, int output, double divisor, int channels,
                                const double *mean, const double *std);
clt_status clt_gather_set_labels(clt_gather *gather, int output, const int64_t *ignore);

/* Room for up to `samples` at a time. */
clt_status clt_scratch_init(clt_scratch *scratch, const clt_gather *gather, int64_t samples);
void clt_scratch_free(clt_scratch *scratch);

/* Writes `count` samples to to[output] on and adds what they weigh to *weight. No allocation, but
 * for what a callback or a reader of files does. */
clt_status clt_gather_run(const clt_gather *gather, const clt_sample_key *key,
                          const int64_t *indices, int64_t count, void *const *to,
                          const clt_scratch *scratch, int64_t *weight);

/* Whether the weight of samples that are assembled elsewhere can be had, and is not simply their
 * number times a constant. */
bool clt_gather_must_count(const clt_gather *gather);
bool clt_gather_can_count(const clt_gather *gather);

/* Adds what `count` samples weigh to *weight, without gathering. Data sets in host memory only. */
void clt_gather_weigh(const clt_gather *gather, const int64_t *indices, int64_t count,
                      int64_t *weight);

/* Targets of one sample, ignored or not. */
int64_t clt_gather_targets(const clt_gather *gather);

#endif
