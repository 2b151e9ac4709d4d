/* Whole tensors in arrays of the caller. */
#ifndef CLT_TRAIN_STORE_WHOLE_ARRAYS_H
#define CLT_TRAIN_STORE_WHOLE_ARRAYS_H

#include "base/array.h"
#include "train/store/store.h"

/* Checks that the array of the host fits a tensor of `dtype`. *dense: memory of the whole tensor,
 * in the array itself if it is dense, else new. Free it with clt_tensor_dense_free. */
typedef struct clt_tensor_dense {
    clt_array view; /* of the memory */
    void *own;      /* NULL: the array's own memory */
} clt_tensor_dense;

clt_status clt_tensor_dense_make(const clt_array *array, const clt_slot *slot, clt_dtype dtype,
                                 clt_tensor_dense *dense);

/* The same of a buffer of the first device's context, which is read. */
clt_status clt_tensor_dense_read(const clt_store *store, const clt_array *buffer,
                                 const clt_slot *slot, clt_dtype dtype, clt_tensor_dense *dense);

/* Whether a buffer of the first device's context is not one of all devices. */
bool clt_store_contexts_differ(const clt_store *store);

void clt_tensor_dense_free(clt_tensor_dense *dense);

/* The first byte of the memory. */
static inline void *clt_tensor_dense_data(const clt_tensor_dense *dense)
{
    return (char *)dense->view.host + dense->view.offset;
}

#endif
