#include "comm/ranks/cluster.h"

#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "comm/local/reduction.h"
#include "comm/ranks/flag.h"

/* Bytes that a node reduces at once for the others: a few of them stay in a second-level cache. */
enum { BLOCK = 256 * 1024 };

/* What nodes tell each other of a request before its data; the inputs of each task follow. */
typedef struct head {
    uint64_t signature;
    int32_t contributors, votes;
} head;

/* What all ranks learn of a request, beside its data. */
typedef struct words {
    clt_ranks_sum sum;
    double sum_squares;
    int64_t finite;
} words;

struct clt_cluster {
    clt_ranks *node;
    bool leads;
    clt_comm_bridge bridge;
    clt_status (*call)(void *user, clt_cluster_fn fn, void *arg);
    void *user;
    clt_task_list list;
    /* Of the first rank: room for all tasks' data, blocks of all nodes, heads of all nodes. */
    char *scratch, *blocks, *heads;
    int64_t scratch_room, blocks_room, heads_room;
    /* Of the request under way. */
    const clt_ranks_job *job;
    const clt_task_list *tasks;
    int64_t *places; /* by task: its data in scratch */
    int32_t *inputs; /* by task: of this node */
    int room;        /* tasks that both hold */
    clt_deadline deadline;
    words said;
    int64_t shared; /* bytes of a node's words, as clt_cluster_share lays them out */
};

clt_status clt_cluster_open(clt_ranks *node, bool leads, const clt_comm_bridge *bridge,
                            clt_status (*call)(void *user, clt_cluster_fn fn, void *arg),
                            void *user, clt_cluster **out)
{
    clt_cluster *c = CLT_NEW(clt_cluster);
    if (!c)
        return CLT_OUT_OF_MEMORY;
    *c = (clt_cluster){.node = node, .leads = leads, .bridge = *bridge, .call = call, .user = user};
    *out = c;
    return CLT_OK;
}

void clt_cluster_close(clt_cluster *c)
{
    if (!c)
        return;
    clt_tasks_free(&c->list);
    clt_free(c->scratch);
    clt_free(c->blocks);
    clt_free(c->heads);
    clt_free(c->places);
    clt_free(c->inputs);
    clt_free(c);
}

static clt_status make_room(char **memory, int64_t *room, int64_t bytes)
{
    if (bytes <= *room)
        return CLT_OK;
    clt_free(*memory);
    *room = 0;
    *memory = clt_alloc_pages((size_t)bytes);
    if (!*memory)
        return CLT_OUT_OF_MEMORY;
    *room = bytes;
    return CLT_OK;
}

/* --- the bridge ------------------------------------------------------------------------------- */

/* Asked by the bridge's functions while they wait: 0, or the status to end with. */
static int cancelled(void *arg)
{
    const clt_cluster *c = arg;
    if (c->job->aborted && atomic_load(c->job->aborted))
        return CLT_ABORTED;
    return clt_deadline_passed(&c->deadline) ? CLT_TIMEOUT : CLT_OK;
}

static clt_status explain(const clt_cluster *c, clt_status status)
{
    if (status == CLT_TIMEOUT)
        return clt_fail(status,
                        "comm: collective %lld (%s): node %d of %d waited %.3g s for other nodes; "
                        "is one of them stopped, or much slower?",
                        (long long)c->job->sequence, c->job->label, c->bridge.node, c->bridge.nodes,
                        c->job->timeout_ms * 1e-3);
    return status == CLT_ABORTED ? clt_fail(status, "comm: the communicator was aborted") : status;
}

static clt_status bridge_gather(const clt_cluster *c, const void *mine, int64_t bytes, void *all)
{
    return explain(c, c->bridge.gather(c->bridge.user, mine, bytes, all, cancelled, (void *)c));
}

static clt_status bridge_exchange(const clt_cluster *c, const void *blocks, int64_t bytes,
                                  void *received)
{
    return explain(
        c, c->bridge.exchange(c->bridge.user, blocks, bytes, received, cancelled, (void *)c));
}

/* --- within the node -------------------------------------------------------------------------- */

static void run_piece(void *arg, int64_t piece)
{
    clt_tasks_do(arg, piece);
}

/* The list by the ranks of the node; alone, by this one's threads. */
static clt_status run_node(clt_cluster *c, const clt_ranks_job *job, clt_task_list *list,
                           double *sum_squares, bool *finite, clt_ranks_sum *sum)
{
    *sum = (clt_ranks_sum){job->contributors, job->votes};
    CLT_TRY(clt_tasks_cut(list));
    if (c->node)
        return clt_ranks_run(c->node, job, list, sum_squares, finite, sum);
    clt_team_run(job->team, run_piece, list, list->pieces);
    clt_tasks_measured(list, sum_squares, finite);
    return CLT_OK;
}

/* Short types are added in f32, and rounded once, at the end. */
static clt_dtype sum_type(const clt_task *t)
{
    return t->from == CLT_F16 || t->from == CLT_BF16 ? CLT_F32 : t->from;
}

static int64_t sum_bytes(const clt_task *t)
{
    return t->copy ? t->count : t->count * clt_dtype_size(sum_type(t));
}

static clt_status lay_out(clt_cluster *c, const clt_task_list *tasks)
{
    int64_t bytes = 0;
    if (tasks->count >= c->room) {
        clt_free(c->places);
        clt_free(c->inputs);
        c->room = 0;
        c->places = clt_calloc((size_t)tasks->count + 1, sizeof *c->places);
        c->inputs = clt_calloc((size_t)tasks->count + 1, sizeof *c->inputs);
        if (!c->places || !c->inputs)
            return CLT_OUT_OF_MEMORY;
        c->room = tasks->count + 1;
    }
    for (int i = 0; i < tasks->count; i++) {
        c->places[i] = bytes;
        c->inputs[i] = tasks->tasks[i].in_count;
        bytes += (sum_bytes(&tasks->tasks[i]) + 63) / 64 * 64;
    }
    return c->leads ? make_room(&c->scratch, &c->scratch_room, bytes + 64) : CLT_OK;
}

/* Brings the node's data of all tasks, and how many inputs they had, to its first rank. */
static clt_status collect(clt_cluster *c, const clt_ranks_job *job, const clt_task_list *tasks)
{
    double squares = 0;
    bool finite = true;
    clt_tasks_clear(&c->list);
    const clt_task counts = {.from = CLT_I32, .to = CLT_I32, .count = tasks->count};
    CLT_TRY(clt_tasks_add(&c->list, &counts));
    CLT_TRY(clt_tasks_in(&c->list, c->inputs));
    if (c->leads)
        CLT_TRY(clt_tasks_out(&c->list, c->inputs));
    for (int i = 0; i < tasks->count; i++) {
        const clt_task *t = &tasks->tasks[i];
        clt_task part = *t;
        part.to = sum_type(t);
        part.measure = false;
        part.divisor = 0;
        part.in_count = part.out_count = 0;
        if (part.reduction == CLT_COMM_MEAN)
            part.reduction = CLT_COMM_SUM;
        CLT_TRY(clt_tasks_add(&c->list, &part));
        for (int k = 0; k < t->in_count; k++)
            CLT_TRY(clt_tasks_in(&c->list, tasks->pointers[t->first + k]));
        if (c->leads)
            CLT_TRY(clt_tasks_out(&c->list, c->scratch + c->places[i]));
    }
    return run_node(c, job, &c->list, &squares, &finite, &c->said.sum);
}

/* --- between nodes ---------------------------------------------------------------------------- */

static const head *head_of(const clt_cluster *c, int node, int64_t bytes)
{
    return (const head *)(c->heads + (node + 1) * bytes);
}

/* Whether all nodes are at the same request, and what they say together. */
static clt_status meet(clt_cluster *c, const clt_task_list *tasks, int64_t *bytes)
{
    *bytes = (int64_t)sizeof(head) + (int64_t)tasks->count * (int64_t)sizeof(int32_t);
    *bytes = (*bytes + 7) / 8 * 8;
    CLT_TRY(make_room(&c->heads, &c->heads_room, *bytes * (c->bridge.nodes + 1)));
    const head own = {c->job->signature, c->said.sum.contributors, c->said.sum.votes};
    memcpy(c->heads, &own, sizeof own);
    memcpy(c->heads + sizeof own, c->inputs, (size_t)tasks->count * sizeof(int32_t));
    CLT_TRY(bridge_gather(c, c->heads, *bytes, c->heads + *bytes));
    c->said.sum = (clt_ranks_sum){0};
    for (int n = 0; n < c->bridge.nodes; n++) {
        const head *h = head_of(c, n, *bytes);
        if (h->signature != c->job->signature)
            return clt_fail(CLT_MISMATCH,
                            "comm: collective %lld: node %d brings %s, node %d something else; all "
                            "ranks must start the same in the same order",
                            (long long)c->job->sequence, c->bridge.node, c->job->label, n);
        c->said.sum.contributors += h->contributors;
        c->said.sum.votes |= h->votes;
    }
    return CLT_OK;
}

static int inputs_of(const clt_cluster *c, int node, int64_t head_bytes, int task)
{
    int32_t inputs;
    memcpy(&inputs, (const char *)(head_of(c, node, head_bytes) + 1) + (size_t)task * sizeof inputs,
           sizeof inputs);
    return inputs;
}

/* The bytes of the only node that has them. */
static clt_status copy_task(const clt_cluster *c, int64_t head_bytes, int task)
{
    const clt_task *t = &c->tasks->tasks[task];
    int root = -1;
    for (int n = 0; n < c->bridge.nodes && root < 0; n++)
        root = inputs_of(c, n, head_bytes, task) > 0 ? n : -1;
    if (root < 0 || !t->count)
        return CLT_OK;
    return explain(c, c->bridge.broadcast(c->bridge.user, root, c->scratch + c->places[task],
                                          t->count, cancelled, (void *)c));
}

/* One round: each node reduces a block of up to BLOCK bytes for all. */
static clt_status reduce_round(clt_cluster *c, const clt_task *t, char *data, int64_t count,
                               int divisor)
{
    const int nodes = c->bridge.nodes;
    const clt_dtype type = sum_type(t);
    const int64_t size = clt_dtype_size(type), block = (count + nodes - 1) / nodes;
    char *out = c->blocks, *in = c->blocks + nodes * block * size;
    const void *inputs[CLT_RANKS_MOST];
    void *result = out;
    memset(out + count * size, 0, (size_t)((nodes * block - count) * size));
    memcpy(out, data, (size_t)(count * size));
    CLT_TRY(bridge_exchange(c, out, block * size, in));
    for (int n = 0; n < nodes; n++)
        inputs[n] = in + n * block * size;
    bool finite;
    clt_reduce_for(type, type)(inputs, nodes, &result, 1, block, t->reduction,
                               divisor ? divisor : 1, NULL, &finite);
    CLT_TRY(bridge_gather(c, result, block * size, in));
    memcpy(data, in, (size_t)(count * size));
    return CLT_OK;
}

static clt_status reduce_task(clt_cluster *c, int64_t head_bytes, int task)
{
    const clt_task *t = &c->tasks->tasks[task];
    const int64_t size = clt_dtype_size(sum_type(t));
    const int64_t most = BLOCK / size * c->bridge.nodes;
    int divisor = 0;
    for (int n = 0; n < c->bridge.nodes; n++)
        divisor += inputs_of(c, n, head_bytes, task);
    CLT_TRY(make_room(&c->blocks, &c->blocks_room,
                      2 * (most + c->bridge.nodes) * size * (t->count > 0)));
    for (int64_t at = 0; at < t->count; at += most)
        CLT_TRY(reduce_round(c, t, c->scratch + c->places[task] + at * size,
                             t->count - at < most ? t->count - at : most, divisor));
    return CLT_OK;
}

/* On every first rank alike, so that all nodes have the same bits. */
static clt_status measure(clt_cluster *c)
{
    bool finite = true;
    c->said.sum_squares = 0;
    clt_tasks_clear(&c->list);
    for (int i = 0; i < c->tasks->count; i++) {
        clt_task part = c->tasks->tasks[i];
        if (!part.measure)
            continue;
        part.from = sum_type(&part);
        part.divisor = 0;
        part.in_count = part.out_count = 0;
        part.reduction = CLT_COMM_SUM;
        CLT_TRY(clt_tasks_add(&c->list, &part));
        CLT_TRY(clt_tasks_in(&c->list, c->scratch + c->places[i]));
    }
    CLT_TRY(clt_tasks_cut(&c->list));
    clt_team_run(c->job->team, run_piece, &c->list, c->list.pieces);
    clt_tasks_measured(&c->list, &c->said.sum_squares, &finite);
    c->said.finite = finite;
    return CLT_OK;
}

static clt_status between_nodes(void *arg)
{
    clt_cluster *c = arg;
    int64_t head_bytes;
    CLT_TRY(meet(c, c->tasks, &head_bytes));
    for (int i = 0; i < c->tasks->count; i++)
        CLT_TRY(c->tasks->tasks[i].copy ? copy_task(c, head_bytes, i)
                                        : reduce_task(c, head_bytes, i));
    return CLT_OK;
}

static clt_status call(clt_cluster *c, clt_cluster_fn fn)
{
    return c->call ? c->call(c->user, fn, c) : fn(c);
}

/* --- the whole -------------------------------------------------------------------------------- */

/* Gives the results to the ranks of the node, and what all nodes say together. */
static clt_status hand_out(clt_cluster *c, const clt_ranks_job *job, const clt_task_list *tasks)
{
    words said = c->said;
    clt_ranks_sum ignored;
    double squares = 0;
    bool finite = true;
    clt_tasks_clear(&c->list);
    const clt_task told = {.copy = true, .count = (int64_t)sizeof said};
    CLT_TRY(clt_tasks_add(&c->list, &told));
    if (c->leads)
        CLT_TRY(clt_tasks_in(&c->list, &c->said));
    CLT_TRY(clt_tasks_out(&c->list, &said));
    for (int i = 0; i < tasks->count; i++) {
        const clt_task *t = &tasks->tasks[i];
        clt_task part = *t;
        part.from = sum_type(t);
        part.measure = false;
        part.divisor = 0;
        part.in_count = part.out_count = 0;
        part.reduction = CLT_COMM_SUM;
        CLT_TRY(clt_tasks_add(&c->list, &part));
        if (c->leads)
            CLT_TRY(clt_tasks_in(&c->list, c->scratch + c->places[i]));
        for (int k = 0; k < t->out_count; k++)
            CLT_TRY(clt_tasks_out(&c->list, tasks->pointers[t->first + t->in_count + k]));
    }
    CLT_TRY(run_node(c, job, &c->list, &squares, &finite, &ignored));
    c->said = said;
    return CLT_OK;
}

clt_status clt_cluster_run(clt_cluster *c, const clt_ranks_job *job, const clt_task_list *tasks,
                           double *sum_squares, bool *finite, clt_ranks_sum *sum)
{
    c->job = job;
    c->tasks = tasks;
    c->deadline = clt_deadline_in(job->timeout_ms);
    CLT_TRY(lay_out(c, tasks));
    CLT_TRY(collect(c, job, tasks));
    if (c->leads) {
        CLT_TRY(call(c, between_nodes));
        CLT_TRY(measure(c));
    }
    CLT_TRY(hand_out(c, job, tasks));
    *sum_squares += c->said.sum_squares;
    *finite = *finite && c->said.finite;
    *sum = c->said.sum;
    return CLT_OK;
}

/* --- small words ------------------------------------------------------------------------------ */

/* A node's words lie one behind the other, each behind its size, up to a size of -1. */
static const int64_t END_OF_WORDS = -1;

static int64_t padded(int64_t bytes)
{
    return (bytes + 7) / 8 * 8;
}

/* Keeps a rank's words on the first one of its node. */
static clt_status keep(void *user, const void *from, size_t bytes)
{
    clt_cluster *c = user;
    const int64_t size = (int64_t)bytes;
    if (!c->leads)
        return CLT_OK;
    memcpy(c->scratch + c->shared, &size, sizeof size);
    memcpy(c->scratch + c->shared + 8, from, bytes);
    c->shared += 8 + padded(size);
    return CLT_OK;
}

/* Every node's words, in blocks of the size of the largest. */
static clt_status share_nodes(void *arg)
{
    clt_cluster *c = arg;
    int64_t sizes[CLT_RANKS_MOST];
    memcpy(c->scratch + c->shared, &END_OF_WORDS, 8);
    c->shared += 8;
    CLT_TRY(bridge_gather(c, &c->shared, 8, sizes));
    for (int n = 0; n < c->bridge.nodes; n++)
        c->shared = sizes[n] > c->shared ? sizes[n] : c->shared;
    CLT_TRY(make_room(&c->blocks, &c->blocks_room, c->shared * c->bridge.nodes));
    return bridge_gather(c, c->scratch, c->shared, c->blocks);
}

/* The first rank's bytes to all of the node. */
static clt_status spread(clt_cluster *c, const clt_ranks_job *job, void *data, int64_t bytes)
{
    const clt_task task = {.copy = true, .count = bytes};
    clt_ranks_sum ignored;
    double squares = 0;
    bool finite = true;
    clt_tasks_clear(&c->list);
    CLT_TRY(clt_tasks_add(&c->list, &task));
    if (c->leads)
        CLT_TRY(clt_tasks_in(&c->list, data));
    else
        CLT_TRY(clt_tasks_out(&c->list, data));
    return run_node(c, job, &c->list, &squares, &finite, &ignored);
}

clt_status clt_cluster_share(clt_cluster *c, const clt_ranks_job *job, const void *from,
                             size_t bytes,
                             clt_status (*take)(void *user, const void *from, size_t bytes),
                             void *user)
{
    c->job = job;
    c->deadline = clt_deadline_in(job->timeout_ms);
    c->shared = 0;
    if (c->leads) /* the longest words of all ranks of a node */
        CLT_TRY(make_room(&c->scratch, &c->scratch_room,
                          CLT_RANKS_MOST * (int64_t)(CLT_RANKS_SHARE + 16) + 8));
    CLT_TRY(c->node ? clt_ranks_share(c->node, job, from, bytes, keep, c) : keep(c, from, bytes));
    if (c->leads)
        CLT_TRY(call(c, share_nodes));
    CLT_TRY(spread(c, job, &c->shared, 8));
    CLT_TRY(make_room(&c->blocks, &c->blocks_room, c->shared * c->bridge.nodes));
    CLT_TRY(spread(c, job, c->blocks, c->shared * c->bridge.nodes));
    for (int n = 0; n < c->bridge.nodes; n++)
        for (const char *at = c->blocks + n * c->shared;;) {
            int64_t size;
            memcpy(&size, at, sizeof size);
            if (size == END_OF_WORDS)
                break;
            CLT_TRY(take(user, at + 8, (size_t)size));
            at += 8 + padded(size);
        }
    return CLT_OK;
}

static clt_status barrier_nodes(void *arg)
{
    clt_cluster *c = arg;
    char mine = 0, all[CLT_RANKS_MOST];
    return bridge_gather(c, &mine, 1, all);
}

clt_status clt_cluster_barrier(clt_cluster *c, const clt_ranks_job *job)
{
    c->job = job;
    c->deadline = clt_deadline_in(job->timeout_ms);
    if (c->node)
        CLT_TRY(clt_ranks_barrier(c->node, job));
    if (c->leads)
        CLT_TRY(call(c, barrier_nodes));
    return c->node ? clt_ranks_barrier(c->node, job) : CLT_OK;
}
