/* Gathers samples into batches: selects fields, converts and scales them, and sums the weights of
 * their labels. */
#ifndef CLT_DATA_LOADER_BATCH_H
#define CLT_DATA_LOADER_BATCH_H

#include "data/core/dataset.h"

typedef struct clt_data_output {
    int field;
    clt_dtype dtype;
    int64_t bytes;            /* of one sample in this output */
    bool plain;               /* same type, not scaled: copied */
    int channels;             /* number of scales; 0: not scaled */
    int64_t channel_elements; /* elements of one channel */
    float *table;             /* u8 to f32: 256 results a channel */
    float divisor;            /* not 0: a quotient has the same bits as the tables */
    float *scale, *shift;     /* i32 and f32 to f32: one number a channel */
} clt_data_output;

typedef struct clt_gather {
    clt_dataset *dataset;
    int count;
    clt_data_output outputs[CLT_DATA_MAX_FIELDS];
    int labels; /* the output with the targets; -1: every sample weighs 1 */
    bool has_ignore;
    int64_t ignore;
} clt_gather;

/* Scratch memory of one thread, for data sets filled by callbacks and for augmented fields. */
typedef struct clt_scratch {
    void *fields[CLT_DATA_MAX_FIELDS];
    void *sample; /* one augmented sample */
} clt_scratch;

void clt_gather_init(clt_gather *gather, clt_dataset *dataset);
void clt_gather_free(clt_gather *gather);
/* Adds an output. Data sets in device memory may have outputs too, which then say how to convert
 * there. */
clt_status clt_gather_add(clt_gather *gather, const char *field, clt_dtype dtype, int *out);
clt_status clt_gather_normalize(clt_gather *gather, int output, double divisor, int channels,
                                const double *mean, const double *std);
clt_status clt_gather_set_labels(clt_gather *gather, int output, const int64_t *ignore);

/* Allocates room for up to `samples` samples at a time. */
clt_status clt_scratch_init(clt_scratch *scratch, const clt_gather *gather, int64_t samples);
void clt_scratch_free(clt_scratch *scratch);

/* Writes `count` samples to to[output] and adds their weight to *weight. Allocates nothing itself,
 * but a callback or a reader of files may. */
clt_status clt_gather_run(const clt_gather *gather, const clt_sample_key *key,
                          const int64_t *indices, int64_t count, void *const *to,
                          const clt_scratch *scratch, int64_t *weight);

/* must_count: the weight of samples is not simply their number times a constant. can_count: this
 * process can find the weight of samples that other processes gather. */
bool clt_gather_must_count(const clt_gather *gather);
bool clt_gather_can_count(const clt_gather *gather);

/* Adds the weight of `count` samples to *weight without gathering them. For data sets in host
 * memory. */
void clt_gather_weigh(const clt_gather *gather, const int64_t *indices, int64_t count,
                      int64_t *weight);

/* Returns the number of targets of one sample, ignored ones included. */
int64_t clt_gather_targets(const clt_gather *gather);

#endif
