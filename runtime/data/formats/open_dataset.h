#ifndef CLT_DATA_FORMATS_OPEN_DATASET_H
#define CLT_DATA_FORMATS_OPEN_DATASET_H

#include <cltrain/data.h>

/* Opens a data set as clt_dataset_open, but with `root` for /usr/share/datasets. For tests. */
clt_status clt_dataset_open_below(const char *root, const char *spec,
                                  const clt_dataset_options *options, clt_dataset **out);

#endif
