/* The readers behind the KINDs of <cltrain/data.h>'s notation, a file each. */
#ifndef CLT_DATA_CORE_KINDS_H
#define CLT_DATA_CORE_KINDS_H

#include "data/core/dataset.h"

/* What to open: `path` is what stands behind the colon, `name` what messages call it. */
typedef struct clt_data_request {
    const char *spec, *name, *path;
    const clt_dataset_options *options;
    bool test; /* which split */
    bool all;  /* arrays: none, but all samples of a file */
} clt_data_request;

clt_status clt_open_idx(const clt_data_request *r, clt_dataset **out);
clt_status clt_open_cifar10(const clt_data_request *r, clt_dataset **out);
clt_status clt_open_cifar100(const clt_data_request *r, clt_dataset **out);
clt_status clt_open_tokens(const clt_data_request *r, clt_dataset **out);
clt_status clt_open_images(const clt_data_request *r, clt_dataset **out);
clt_status clt_open_npz(const clt_data_request *r, clt_dataset **out);
clt_status clt_open_hdf5(const clt_data_request *r, clt_dataset **out);
clt_status clt_open_text(const clt_data_request *r, clt_dataset **out);

/*
 * Which samples of a file without splits of its own are the split's: the first nine tenths are for
 * training, the last tenth for tests. FORMAT where there are fewer than two.
 */
clt_status clt_data_tenths(const char *path, int64_t total, bool test, int64_t *first,
                           int64_t *count);

#endif
