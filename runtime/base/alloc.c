#include "base/alloc.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/error.h"

enum { PAGE_BYTES = 4096 };

static _Atomic int64_t allocations, live;

static void add_live(int64_t change)
{
    atomic_fetch_add_explicit(&live, change, memory_order_relaxed);
}

static void *counted(void *block, size_t bytes)
{
    if (block)
        atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
    else
        clt_fail(CLT_OUT_OF_MEMORY, "out of host memory: %zu bytes were needed", bytes);
    return block;
}

/* The same for a block that is not an old one resized. */
static void *fresh(void *block, size_t bytes)
{
    if (block)
        add_live(1);
    return counted(block, bytes);
}

void *clt_alloc(size_t bytes)
{
    return bytes ? fresh(malloc(bytes), bytes) : NULL;
}

void *clt_calloc(size_t count, size_t size)
{
    return count && size ? fresh(calloc(count, size), count * size) : NULL;
}

void *clt_realloc(void *block, size_t bytes)
{
    return block ? counted(realloc(block, bytes), bytes) : fresh(malloc(bytes), bytes);
}

void *clt_alloc_pages(size_t bytes)
{
    if (!bytes)
        return NULL;
    size_t rounded = (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    return fresh(rounded < bytes ? NULL : aligned_alloc(PAGE_BYTES, rounded), bytes);
}

void clt_advise_huge(void *data, size_t bytes)
{
    const uintptr_t begin = ((uintptr_t)data + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    const uintptr_t end = ((uintptr_t)data + bytes) / PAGE_BYTES * PAGE_BYTES;
    if (data && end > begin)
        madvise((void *)begin, end - begin, MADV_HUGEPAGE);
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
    if (!block)
        return;
    add_live(-1);
    free(block);
}

void *clt_alloc_give(void *block)
{
    if (block)
        add_live(-1);
    return block;
}

void clt_free_all(void *const *blocks, size_t count)
{
    for (size_t i = 0; i < count; i++)
        clt_free(blocks[i]);
}

int64_t clt_alloc_count(void)
{
    return atomic_load_explicit(&allocations, memory_order_relaxed);
}

int64_t clt_alloc_live(void)
{
    return atomic_load_explicit(&live, memory_order_relaxed);
}
