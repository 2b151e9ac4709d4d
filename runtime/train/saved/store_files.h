/* Lists of a store's tensors, and reading them for a file and from one. */
#ifndef CLT_TRAIN_SAVED_STORE_FILES_H
#define CLT_TRAIN_SAVED_STORE_FILES_H

#include "exec/update/optimizer.h"
#include "train/ranks/whole.h"
#include <cltrain/checkpoint.h>

/* A tensor of a list. */
typedef struct clt_listed {
    char *name; /* owned */
    const clt_slot *slot;
    int kind; /* CLT_VALUES or a slot of the optimizer */
} clt_listed;

/* Tensors as files list them. */
typedef struct clt_tensor_list {
    clt_tensor *items;
    clt_listed *of; /* by item */
    int count;
} clt_tensor_list;

/* Lists the store's parameters and states if `optimizer` is NULL; else each slot of each parameter.
 * Free with clt_tensor_list_free, also after a failure. */
clt_status clt_tensor_list_make(const clt_store *store, const clt_optimizer_row *optimizer,
                                clt_tensor_list *list);

/* The same for the averages of parameters and states. */
clt_status clt_tensor_list_averages(const clt_store *store, clt_tensor_list *list);

void clt_tensor_list_free(clt_tensor_list *list);

/* Reads tensors of lists from the devices one at a time, in the file's order. */
typedef struct clt_tensor_reader {
    const clt_participants *all;
    const clt_store *store;
    const clt_tensor_list *lists[3]; /* NULL: none */
    void *buffer;                    /* free with clt_free */
} clt_tensor_reader;

clt_status clt_tensor_reader_make(const clt_participants *all, const clt_store *store,
                                  clt_tensor_reader *reader);

/* The `fetch` of descriptions of files, with a reader as its `user`. */
clt_status clt_tensor_reader_fetch(void *user, const clt_tensor *tensor, const void **data);

/* Sets all parameters and states from a file whose names begin with `prefix`, except those whose
 * names match the patterns `skip` (may be NULL). With `leads`, rank 0 sets them on all ranks, which
 * follow (clt_whole_follow). */
clt_status clt_store_load_values(const clt_participants *leads, clt_store *store,
                                 const clt_tensors *tensors, const char *prefix, const char *skip);

#endif
