/* Readers for the KINDs of <cltrain/data.h>'s notation, one file each. */
#ifndef CLT_DATA_CORE_KINDS_H
#define CLT_DATA_CORE_KINDS_H

#include "data/core/dataset.h"

/* A data set to open. `path` is the text after the colon, `name` is used in messages. */
typedef struct clt_data_request {
    const char *spec, *name, *path;
    const clt_dataset_options *options;
    bool test; /* the test split, not the training split */
    bool all;  /* no split, all samples; not every kind has that */
} clt_data_request;

clt_status clt_open_idx(const clt_data_request *r, clt_dataset **out);
clt_status clt_open_cifar10(const clt_data_request *r, clt_dataset **out);
clt_status clt_open_cifar100(const clt_data_request *r, clt_dataset **out);
clt_status clt_open_tokens(const clt_data_request *r, clt_dataset **out);
clt_status clt_open_images(const clt_data_request *r, clt_dataset **out);
clt_status clt_open_npz(const clt_data_request *r, clt_dataset **out);
clt_status clt_open_hdf5(const clt_data_request *r, clt_dataset **out);
clt_status clt_open_csv(const clt_data_request *r, clt_dataset **out);
clt_status clt_open_text(const clt_data_request *r, clt_dataset **out);

/*
 * Divides a file that has no splits of its own. The first nine tenths are for training, the last
 * tenth is for tests. FORMAT if there are fewer than two samples.
 */
clt_status clt_data_tenths(const char *path, int64_t total, bool test, int64_t *first,
                           int64_t *count);

#endif
