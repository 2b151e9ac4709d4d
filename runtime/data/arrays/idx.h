/*
 * IDX files, the format of MNIST and its successors: two zero bytes, a type (8: unsigned byte), the
 * number of dimensions, each dimension as a big-endian 32-bit number, then the elements.
 */
#ifndef CLT_DATA_ARRAYS_IDX_H
#define CLT_DATA_ARRAYS_IDX_H

#include <stdbool.h>

#include <cltrain/data.h>

/*
 * Opens the two files of a split ("train" or "test") in `folder`. If `classes` is 0, there is one
 * class more than the largest label. `missing` is added to the message if a file is not found (""
 * for nothing).
 */
clt_status clt_idx_open(const char *name, const char *folder, const char *split, int64_t classes,
                        bool background, const char *missing, clt_dataset **out);

#endif
