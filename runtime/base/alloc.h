/*
 * Host memory. The library allocates only through these functions, so that tests can count
 * allocations ("no allocation within a step") and make them fail.
 */
#ifndef CLT_BASE_ALLOC_H
#define CLT_BASE_ALLOC_H

#include <stddef.h>
#include <stdint.h>

/* Allocates memory. Returns NULL if there is not enough (the message is set) or `bytes` is 0. Free
 * it with clt_free. */
void *clt_alloc(size_t bytes);

/* Allocates a zeroed array. Returns NULL also if count * size overflows. */
void *clt_calloc(size_t count, size_t size);

/* Resizes a block as realloc does. On failure it returns NULL and the old block stays valid. */
void *clt_realloc(void *block, size_t bytes);

/* Allocates page-aligned memory, for transfers and for buffers wrapped with CL_MEM_USE_HOST_PTR. */
void *clt_alloc_pages(size_t bytes);

/* Asks the system for huge pages where memory is not yet touched. A hint: there is no error.
 * Touching small pages first takes a tenth of the time to decode images. Translating their
 * addresses takes 3 % of a step of GPT-2 124M (docs/performance.md). `data` may be NULL. */
void clt_advise_huge(void *data, size_t bytes);

char *clt_strdup(const char *text);

/* Frees memory from any function above. NULL is allowed. */
void clt_free(void *block);

/* Frees several blocks, as CLT_FREE(d->file, d->window, d). */
#define CLT_FREE(...)                                                                              \
    clt_free_all((void *const[]){__VA_ARGS__},                                                     \
                 sizeof((void *const[]){__VA_ARGS__}) / sizeof(void *))
void clt_free_all(void *const *blocks, size_t count);

/* Gives a block to the caller of the library, who frees it with free(). It is live no more. Returns
 * the block. */
void *clt_alloc_give(void *block);

/* Returns the number of allocations by this process so far. */
int64_t clt_alloc_count(void);

/* Returns the number of blocks that are neither freed nor given away. */
int64_t clt_alloc_live(void);

/* Allocates a zeroed object: `clt_node *n = CLT_NEW(clt_node)`. */
#define CLT_NEW(type) ((type *)clt_calloc(1, sizeof(type)))

#endif
