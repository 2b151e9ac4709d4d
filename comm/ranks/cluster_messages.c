/* Small messages that all ranks of all nodes tell each other: what they send and receive. */
#include <string.h>

#include "base/error.h"
#include "comm/ranks/cluster_internal.h"

/* A node's messages are stored one behind the other, each behind its size. A size of -1 ends
 * them. */
static const int64_t END_OF_MESSAGES = -1;

/* The most bytes of messages of all ranks of a node. */
static const int64_t MOST_MESSAGES = CLT_RANKS_MOST * (int64_t)(CLT_RANKS_SHARE + 16) + 8;

static int64_t padded(int64_t bytes)
{
    return (bytes + 7) / 8 * 8;
}

/* Keeps a rank's message on the first rank of its node. */
static clt_status keep(void *user, const void *from, size_t bytes)
{
    clt_cluster *c = user;
    const int64_t size = (int64_t)bytes;
    if (!c->link)
        return CLT_OK;
    memcpy(c->scratch.memory + c->shared, &size, sizeof size);
    if (bytes) /* `from` may be NULL then */
        memcpy(c->scratch.memory + c->shared + 8, from, bytes);
    c->shared += 8 + padded(size);
    return CLT_OK;
}

/* Gathers every node's messages, in blocks of the size of the largest. */
static clt_status share_nodes(clt_cluster *c)
{
    const head *heads;
    memcpy(c->scratch.memory + c->shared, &END_OF_MESSAGES, 8);
    c->shared += 8;
    head own = {.purpose = SHARE, .bytes = c->shared};
    CLT_TRY(clt_cluster_meet(c, &own, &heads));
    for (int n = 0; n < c->nodes; n++) {
        if (heads[n].bytes < 8 || heads[n].bytes > MOST_MESSAGES)
            return clt_fail(CLT_INTERNAL, "comm: collective %lld: rank %d announces %lld bytes",
                            (long long)c->job.sequence, clt_link_first(c->link, n),
                            (long long)heads[n].bytes);
        c->shared = heads[n].bytes > c->shared ? heads[n].bytes : c->shared;
    }
    CLT_TRY(clt_room_make(&c->rounds.blocks, c->shared * c->nodes));
    return clt_link_gather(c->link, c->scratch.memory, c->shared, c->rounds.blocks.memory);
}

/* Copies the first rank's bytes to all ranks of the node. */
static clt_status spread(clt_cluster *c, void *data, int64_t bytes)
{
    const clt_task task = {.copy = true, .count = bytes};
    clt_ranks_sum ignored;
    double squares = 0;
    bool finite = true;
    clt_tasks_clear(&c->list);
    CLT_TRY(clt_tasks_add(&c->list, &task));
    if (c->link)
        CLT_TRY(clt_tasks_in(&c->list, data));
    else
        CLT_TRY(clt_tasks_out(&c->list, data));
    return clt_cluster_run_node(c, &c->list, &squares, &finite, &ignored);
}

clt_status clt_cluster_share(clt_cluster *c, const clt_ranks_job *job, const void *from,
                             size_t bytes,
                             clt_status (*take)(void *user, const void *from, size_t bytes),
                             void *user)
{
    clt_cluster_begin(c, job);
    c->shared = 0;
    if (c->link)
        CLT_TRY(clt_room_make(&c->scratch, MOST_MESSAGES));
    CLT_TRY(c->node ? clt_ranks_share(c->node, &c->job, from, bytes, keep, c)
                    : keep(c, from, bytes));
    if (c->link)
        CLT_TRY(clt_cluster_abroad(c, share_nodes));
    clt_cluster_await_first(c);
    CLT_TRY(spread(c, &c->shared, 8));
    CLT_TRY(clt_room_make(&c->rounds.blocks, c->shared * c->nodes));
    CLT_TRY(spread(c, c->rounds.blocks.memory, c->shared * c->nodes));
    for (int n = 0; n < c->nodes; n++)
        for (const char *at = c->rounds.blocks.memory + n * c->shared;;) {
            int64_t size;
            memcpy(&size, at, sizeof size);
            if (size == END_OF_MESSAGES)
                break;
            CLT_TRY(take(user, at + 8, (size_t)size));
            at += 8 + padded(size);
        }
    return CLT_OK;
}
