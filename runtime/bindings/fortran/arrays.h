/* See arrays.c. Module cltrain_core declares these functions for Fortran. */
#ifndef CLTRAIN_FORTRAN_ARRAYS_H
#define CLTRAIN_FORTRAN_ARRAYS_H

#include <ISO_Fortran_binding.h>

#include <cltrain/cltrain.h>

/* Describes an array. Messages begin with the name of the call and have the array's name `what`.
 * Errors: INVALID_ARGUMENT (a type that the library does not take, assumed size, not allocated). */
clt_status clt_f_array(const char *call, const char *what, const CFI_cdesc_t *a, clt_array *out);

/* Gives the memory of a contiguous array. */
clt_status clt_f_memory(const char *call, const char *what, const CFI_cdesc_t *a, void **memory,
                        size_t *bytes);

/* Returns the size of clt_array. */
size_t clt_f_array_bytes(void);

/* A list of feeds, or of fetches, which have the same members. A failure is kept until
 * clt_f_list_get. clt_f_list_samples gives the last dimension of the first array that has one; -1:
 * none has; 0: there are no arrays. */
typedef struct clt_f_list clt_f_list;
clt_f_list *clt_f_list_new(const char *call);
void clt_f_list_add(clt_f_list *list, const char *name, const CFI_cdesc_t *a);
void clt_f_list_refuse(clt_f_list *list, const char *text);
int64_t clt_f_list_samples(const clt_f_list *list);
clt_status clt_f_list_get(const clt_f_list *list, const clt_feed **entries, int *count);
clt_status clt_f_list_arrays(clt_f_list *list, const clt_array **arrays, int *count);
void clt_f_list_free(clt_f_list *list);

/* Adds a constant with the numbers and the shape of an array. f64 becomes f32, and i64 i32. */
clt_status clt_f_constant(clt_graph *graph, const CFI_cdesc_t *a, clt_value **value);

#endif
