/*
 * Host memory. All of the library's allocations go through here, so that tests can count them
 * ("no allocation within a step") and make them fail.
 */
#ifndef CLT_BASE_ALLOC_H
#define CLT_BASE_ALLOC_H

#include <stddef.h>
#include <stdint.h>

/* NULL when memory does not suffice (the message is set) or `bytes` is 0. Free with clt_free. */
void *clt_alloc(size_t bytes);

/* Zeroed array; NULL also when count * size overflows. */
void *clt_calloc(size_t count, size_t size);

/* As realloc; on failure the old block stays valid and NULL is returned. */
void *clt_realloc(void *block, size_t bytes);

/* Page-aligned, for transfers and for buffers wrapped with CL_MEM_USE_HOST_PTR. */
void *clt_alloc_pages(size_t bytes);

char *clt_strdup(const char *text);

/* Takes NULL. Frees what any function above returned. */
void clt_free(void *block);

/* Number of allocations by this process so far. */
int64_t clt_alloc_count(void);

/* Zeroed object of a type, as `clt_node *n = CLT_NEW(clt_node)`. */
#define CLT_NEW(type) ((type *)clt_calloc(1, sizeof(type)))

#endif
