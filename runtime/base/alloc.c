#include "base/alloc.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

enum { PAGE_BYTES = 4096 };

static _Atomic int64_t allocations;

static void *counted(void *block, size_t bytes)
{
    if (block)
        atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
    else
        clt_fail(CLT_OUT_OF_MEMORY, "out of host memory: %zu bytes were needed", bytes);
    return block;
}

void *clt_alloc(size_t bytes)
{
    return bytes ? counted(malloc(bytes), bytes) : NULL;
}

void *clt_calloc(size_t count, size_t size)
{
    return count && size ? counted(calloc(count, size), count * size) : NULL;
}

void *clt_realloc(void *block, size_t bytes)
{
    return counted(realloc(block, bytes), bytes);
}

void *clt_alloc_pages(size_t bytes)
{
    if (!bytes)
        return NULL;
    size_t rounded = (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    return counted(rounded < bytes ? NULL : aligned_alloc(PAGE_BYTES, rounded), bytes);
}

char *clt_strdup(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = clt_alloc(bytes);
    if (copy)
        memcpy(copy, text, bytes);
    return copy;
}

void clt_free(void *block)
{
    free(block);
}

void clt_free_all(void *const *blocks, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(blocks[i]);
}

int64_t clt_alloc_count(void)
{
    return atomic_load_explicit(&allocations, memory_order_relaxed);
}
