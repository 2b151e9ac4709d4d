#ifndef CLT_DATA_FORMATS_OPEN_DATASET_H
#define CLT_DATA_FORMATS_OPEN_DATASET_H

#include <cltrain/data.h>

/* clt_dataset_open with another folder in the place of /usr/share/datasets, for tests. */
clt_status clt_dataset_open_below(const char *root, const char *spec,
                                  const clt_dataset_options *options, clt_dataset **out);

#endif
