/*
 * Byte-pair encoding of a piece of text. Among all pairs of neighbours, the pair whose merge has
 * the lowest rank is merged, and the leftmost of equal ones. This repeats until no pair has a
 * merge. A heap of pairs over a linked list of tokens makes it n log n steps for n bytes.
 */
#include "base/alloc.h"
#include "base/error.h"
#include "data/tokenizer/tokenizer.h"

struct bpe_link {
    int32_t id; /* -1: merged into its left neighbour */
    int prev, next;
};

/* Merge `rank` of the tokens at link `at` and its right neighbour. Skipped if they are no longer
 * the tokens `left` and `right`. */
struct bpe_pair {
    int32_t rank;
    int at;
    int32_t left, right, merged;
};

void clt_bpe_work_free(clt_bpe_work *work)
{
    CLT_FREE(work->links, work->heap);
    *work = (clt_bpe_work){0};
}

static clt_status make_room(clt_bpe_work *work, int bytes)
{
    if (bytes <= work->room)
        return CLT_OK;
    const int room = bytes < 64 ? 64 : bytes * 2;
    clt_bpe_work_free(work);
    work->links = clt_calloc((size_t)room, sizeof *work->links);
    /* One pair for each two neighbours at the start, and at most two more for each merge. */
    work->heap = clt_calloc((size_t)room * 3, sizeof *work->heap);
    CLT_TRY_MEMORY(work->links && work->heap);
    work->room = room;
    return CLT_OK;
}

const clt_merge *clt_bpe_find(const clt_tokenizer *t, int32_t left, int32_t right)
{
    uint32_t at = (uint32_t)left * 0x9E3779B1u ^ (uint32_t)right * 0x85EBCA77u;
    for (at = (at ^ at >> 15) & t->merge_mask; t->merges[at].left >= 0;
         at = (at + 1) & t->merge_mask)
        if (t->merges[at].left == left && t->merges[at].right == right)
            return &t->merges[at];
    return NULL;
}

static int before(const struct bpe_pair *a, const struct bpe_pair *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void sift_up(struct bpe_pair *heap, int i)
{
    const struct bpe_pair pair = heap[i];
    for (; i > 0 && before(&pair, &heap[(i - 1) / 2]); i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = pair;
}

static struct bpe_pair pop(struct bpe_pair *heap, int *count)
{
    const struct bpe_pair first = heap[0], last = heap[--*count];
    int i = 0;
    for (int child; (child = 2 * i + 1) < *count; i = child) {
        if (child + 1 < *count && before(&heap[child + 1], &heap[child]))
            child++;
        if (!before(&heap[child], &last))
            break;
        heap[i] = heap[child];
    }
    heap[i] = last;
    return first;
}

static void push(const clt_tokenizer *t, clt_bpe_work *work, int at, int *count)
{
    const struct bpe_link *left = &work->links[at];
    if (left->next < 0)
        return;
    const int32_t right = work->links[left->next].id;
    const clt_merge *merge = clt_bpe_find(t, left->id, right);
    if (!merge)
        return;
    work->heap[*count] = (struct bpe_pair){merge->rank, at, left->id, right, merge->merged};
    sift_up(work->heap, (*count)++);
}

clt_status clt_bpe_encode(const clt_tokenizer *t, const char *piece, int bytes, clt_bpe_work *work,
                          int32_t *ids, int *count)
{
    CLT_TRY(make_room(work, bytes));
    struct bpe_link *links = work->links;
    int pairs = 0, n = 0;
    for (int i = 0; i < bytes; i++) {
        const int32_t id = t->of_byte[(unsigned char)piece[i]];
        if (id < 0)
            return clt_fail(CLT_FORMAT, "tokenizer '%s': the vocabulary has no token for byte %d",
                            t->spec, (unsigned char)piece[i]);
        links[i] = (struct bpe_link){id, i - 1, i + 1 < bytes ? i + 1 : -1};
    }
    for (int i = 0; i + 1 < bytes; i++)
        push(t, work, i, &pairs);
    while (pairs) {
        const struct bpe_pair pair = pop(work->heap, &pairs);
        struct bpe_link *left = &links[pair.at];
        if (left->id != pair.left || left->next < 0 || links[left->next].id != pair.right)
            continue;
        struct bpe_link *right = &links[left->next];
        right->id = -1;
        left->id = pair.merged;
        left->next = right->next;
        if (left->next >= 0)
            links[left->next].prev = pair.at;
        if (left->prev >= 0)
            push(t, work, left->prev, &pairs);
        push(t, work, pair.at, &pairs);
    }
    for (int i = 0; i >= 0; i = links[i].next)
        ids[n++] = links[i].id;
    *count = n;
    return CLT_OK;
}
