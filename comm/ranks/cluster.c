#include "comm/ranks/cluster_internal.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/vec.h"
#include "comm/core/tree.h"
#include "comm/ranks/rounds.h"

clt_status clt_cluster_open(clt_ranks *node, int rank, bool leads, const clt_comm_bridge *bridge,
                            clt_link_run run, void *user, clt_cluster **out)
{
    clt_cluster *c = CLT_NEW(clt_cluster);
    CLT_TRY_MEMORY(c);
    c->node = node;
    c->rank = rank;
    c->nodes = bridge->nodes;
    c->rounds = (clt_rounds){.node = bridge->node, .nodes = bridge->nodes};
    c->listens = !run;
    const clt_status status =
        leads ? clt_link_open(node, rank, bridge, run, user, &c->link) : CLT_OK;
    c->rounds.link = c->link;
    if (status != CLT_OK)
        clt_free(c);
    else
        *out = c;
    return status;
}

void clt_cluster_close(clt_cluster *c)
{
    if (!c)
        return;
    if (c->link)
        clt_link_give_up(c->link);
    /* Memory that the network may still read or write is never freed. */
    if (!c->link || !clt_link_busy(c->link)) {
        CLT_FREE(c->scratch.memory, c->rounds.blocks.memory, c->heads.memory, c->uses);
    }
    clt_tasks_free(&c->list);
    clt_link_close(c->link);
    CLT_FREE(c->places, c->messages, c);
}

clt_status clt_cluster_listen(clt_cluster *c)
{
    return clt_link_listen(c->link, NULL);
}

bool clt_cluster_heard(clt_cluster *c, clt_ranks_notice *notice)
{
    return c->link && clt_link_heard(c->link, notice);
}

void clt_cluster_tell(clt_cluster *c, const clt_ranks_notice *notice, bool aborted)
{
    clt_link_tell(c->link, notice, aborted);
}

int64_t clt_cluster_sent(const clt_cluster *c, clt_comm_kind kind)
{
    return c->link ? clt_link_sent(c->link, kind) : 0;
}

clt_status clt_cluster_late(const clt_cluster *c, const clt_ranks_job *job)
{
    const uint64_t missing = c->node ? clt_ranks_missing(c->node) : 0;
    return c->link && atomic_load(&c->abroad) ? clt_link_late(c->link, job)
           : missing                          ? clt_ranks_late(c->node, job, missing)
                                              : CLT_OK;
}

int clt_cluster_grace_ms(int timeout_ms)
{
    enum { LEAST = 100, MOST = 1000 };
    const int ms = timeout_ms / 4;
    return !timeout_ms ? 0 : ms < LEAST ? LEAST : ms > MOST ? MOST : ms;
}

static clt_status listen(void *arg)
{
    const clt_cluster *c = arg;
    return clt_link_listen(c->link, &c->job);
}

void clt_cluster_begin(clt_cluster *c, const clt_ranks_job *job)
{
    c->job = *job;
    if (!c->link)
        return;
    c->job.grace_ms = clt_cluster_grace_ms(job->timeout_ms);
    if (c->listens)
        c->job.listen = listen;
    c->job.listener = c;
    clt_link_begin(c->link, &c->job);
    c->job.grace_ms = 0;
}

void clt_cluster_await_first(clt_cluster *c)
{
    c->job.grace_ms = 2 * clt_cluster_grace_ms(c->job.timeout_ms);
    if (c->link)
        clt_link_end(c->link);
}

/* --- within the node -------------------------------------------------------------------------- */

static void run_piece(void *arg, int64_t piece)
{
    clt_tasks_do(arg, piece);
}

clt_status clt_cluster_run_node(clt_cluster *c, clt_task_list *list, double *sum_squares,
                                bool *finite, clt_ranks_sum *sum)
{
    const clt_ranks_job *job = &c->job;
    *sum = (clt_ranks_sum){job->contributors, job->votes};
    CLT_TRY(clt_tasks_cut(list));
    if (c->node)
        return clt_ranks_run(c->node, job, list, sum_squares, finite, sum);
    clt_team_run(job->team, run_piece, list, list->pieces);
    clt_tasks_measured(list, sum_squares, finite);
    return CLT_OK;
}

/* The type between nodes. 16-bit sums of nodes travel in 16 bits. They are added in f32, so a sum
 * is rounded once on each node and once for the result. A node's sum of f16 may overflow where the
 * mean does not, so parts of a mean travel as f32. */
static clt_dtype wire_type(const clt_task *t)
{
    const bool half = t->from == CLT_F16 || t->from == CLT_BF16;
    return half && t->reduction == CLT_COMM_MEAN ? CLT_F32 : t->from;
}

static int64_t wire_bytes(const clt_task *t)
{
    return t->copy ? t->count : t->count * clt_dtype_size(wire_type(t));
}

static char *data_of(const clt_cluster *c, int task)
{
    return c->scratch.memory + c->places[task];
}

/* Returns how many leaves this rank's devices have. All sums of a request have the same. */
static int32_t leaves_of(const clt_task_list *tasks)
{
    int32_t leaves = 0;
    for (int i = 0; i < tasks->count && !leaves; i++)
        for (int k = 0; tasks->tasks[i].tree && k < tasks->tasks[i].in_count; k++)
            leaves += 1 << clt_tasks_levels(tasks, &tasks->tasks[i])[k];
    return leaves;
}

static clt_status lay_out(clt_cluster *c, const clt_task_list *tasks)
{
    int64_t bytes = 0;
    if (tasks->count >= c->room) {
        const int room = tasks->count + 1;
        CLT_FREE(c->places, c->uses);
        c->room = 0;
        c->places = clt_calloc((size_t)room, sizeof *c->places);
        c->uses = clt_calloc((size_t)room * (size_t)(c->nodes + 2), sizeof *c->uses);
        CLT_TRY_MEMORY(c->places && c->uses);
        c->owners = c->uses + room;
        c->all = c->owners + room;
        c->room = room;
    }
    for (int i = 0; i < tasks->count; i++) {
        c->places[i] = bytes;
        c->uses[i] = tasks->tasks[i].in_count + OUTPUT * tasks->tasks[i].out_count;
        bytes += (wire_bytes(&tasks->tasks[i]) + 63) / 64 * 64;
    }
    c->uses[tasks->count] = leaves_of(tasks);
    return c->link ? clt_room_make(&c->scratch, bytes + 64) : CLT_OK;
}

/* Collects the node's data of all tasks, and what they use, on the node's first rank. */
static clt_status collect(clt_cluster *c, const clt_task_list *tasks)
{
    double squares = 0;
    bool finite = true;
    clt_tasks_clear(&c->list);
    const clt_task counts = {.from = CLT_I32, .to = CLT_I32, .count = tasks->count + 1};
    CLT_TRY(clt_tasks_add(&c->list, &counts));
    CLT_TRY(clt_tasks_in(&c->list, c->uses));
    if (c->link)
        CLT_TRY(clt_tasks_out(&c->list, c->uses));
    for (int i = 0; i < tasks->count; i++) {
        const clt_task *t = &tasks->tasks[i];
        clt_task part = *t;
        part.to = wire_type(t);
        part.round = t->node_round;
        part.measure = false;
        part.divisor = 0;
        part.in_count = part.out_count = 0;
        if (part.reduction == CLT_COMM_MEAN)
            part.reduction = CLT_COMM_SUM;
        CLT_TRY(clt_tasks_add(&c->list, &part));
        for (int k = 0; k < t->in_count; k++)
            CLT_TRY(clt_tasks_in_block(&c->list, tasks->pointers[t->first + k],
                                       clt_tasks_levels(tasks, t)[k]));
        if (c->link)
            CLT_TRY(clt_tasks_out(&c->list, data_of(c, i)));
    }
    return clt_cluster_run_node(c, &c->list, &squares, &finite, &c->said.sum);
}

/* --- between nodes ---------------------------------------------------------------------------- */

clt_status clt_cluster_meet(clt_cluster *c, head *own, const head **heads)
{
    const int64_t size = (int64_t)sizeof *own;
    own->signature = c->job.signature;
    CLT_TRY(clt_room_make(&c->heads, size * (c->nodes + 1)));
    char *memory = c->heads.memory;
    memcpy(memory, own, sizeof *own);
    *heads = (const head *)(memory + size);
    CLT_TRY(clt_link_gather(c->link, memory, size, memory + size));
    for (int n = 0; n < c->nodes; n++) {
        const head *h = &(*heads)[n];
        if (h->signature != own->signature || h->purpose != own->purpose || h->tasks != own->tasks)
            return clt_fail(CLT_MISMATCH,
                            "comm: collective %lld: rank %d brings %s, rank %d something else; all "
                            "ranks must start the same in the same order",
                            (long long)c->job.sequence, c->rank, c->job.label,
                            clt_link_first(c->link, n));
    }
    return CLT_OK;
}

/* Finds the level of each node in a tree. All first ranks see the same heads. */
static clt_status find_levels(clt_cluster *c, const head *heads)
{
    for (int n = 0; n < c->nodes; n++)
        c->levels[n] = (int8_t)clt_tree_level(heads[n].leaves);
    if (!c->uses[c->tasks->count] || clt_tree_join(c->levels, c->nodes) >= 0)
        return CLT_OK;
    return clt_fail(CLT_MISMATCH,
                    "comm: collective %lld: the leaves of %d nodes are no whole tree; divide them "
                    "anew",
                    (long long)c->job.sequence, c->nodes);
}

/* Exchanges the heads of a request of tasks. What the tasks use goes to `all`. */
static clt_status meet_tasks(clt_cluster *c)
{
    const int count = c->tasks->count, first = count < HEAD_TASKS ? count : HEAD_TASKS;
    const int rest = count - first;
    const head *heads;
    head own = {.purpose = RUN,
                .contributors = c->said.sum.contributors,
                .votes = c->said.sum.votes,
                .tasks = count,
                .leaves = c->uses[count]};
    memcpy(own.uses, c->uses, (size_t)first * sizeof *c->uses);
    CLT_TRY(clt_cluster_meet(c, &own, &heads));
    CLT_TRY(find_levels(c, heads));
    c->said.sum = (clt_ranks_sum){0};
    for (int n = 0; n < c->nodes; n++) {
        c->said.sum.contributors += heads[n].contributors;
        c->said.sum.votes |= heads[n].votes;
        memcpy(c->all + (size_t)n * (size_t)first, heads[n].uses, (size_t)first * sizeof *c->all);
    }
    return rest ? clt_link_gather(c->link, c->uses + first, rest * (int64_t)sizeof *c->uses,
                                  c->all + (size_t)c->nodes * (size_t)first)
                : CLT_OK;
}

static int uses_of(const clt_cluster *c, int node, int task)
{
    const int count = c->tasks->count, first = count < HEAD_TASKS ? count : HEAD_TASKS;
    return task < first ? c->all[node * first + task]
                        : c->all[c->nodes * first + node * (count - first) + task - first];
}

static int inputs_of(const clt_cluster *c, int task)
{
    int inputs = 0;
    for (int n = 0; n < c->nodes; n++)
        inputs += uses_of(c, n, task) % OUTPUT;
    return inputs;
}

/* Returns the only node that has the bytes of a copy; -1: there is none, or no other node wants
 * them. Sets *taker to the last node that does. */
static int source_of(const clt_cluster *c, int task, int *taker)
{
    int source = -1;
    *taker = -1;
    for (int n = 0; n < c->nodes && source < 0; n++)
        source = uses_of(c, n, task) % OUTPUT ? n : -1;
    for (int n = 0; n < c->nodes; n++)
        if (n != source && uses_of(c, n, task) / OUTPUT)
            *taker = n;
    return *taker >= 0 && c->tasks->tasks[task].count ? source : -1;
}

static clt_status broadcast_task(clt_cluster *c, int task)
{
    int taker;
    const int root = source_of(c, task, &taker);
    return root < 0
               ? CLT_OK
               : clt_link_broadcast(c->link, root, data_of(c, task), c->tasks->tasks[task].count);
}

/* Does the sends from `first` to `end` at once. Other nodes than the two get nothing. */
static clt_status send_tasks(clt_cluster *c, int first, int end)
{
    const int own = c->rounds.node;
    int count = 0, taker;
    CLT_TRY(CLT_RESERVE(c->messages, 0, c->message_room, end - first));
    for (int i = first; i < end; i++) {
        const int from = source_of(c, i, &taker);
        if (from == own || (from >= 0 && taker == own))
            c->messages[count++] = (clt_comm_message){.send = from == own,
                                                      .node = from == own ? taker : from,
                                                      .data = data_of(c, i),
                                                      .bytes = c->tasks->tasks[i].count};
    }
    return clt_link_transfer(c->link, c->messages, count);
}

static clt_round_sum sum_of(const clt_cluster *c, int task)
{
    const clt_task *t = &c->tasks->tasks[task];
    return (clt_round_sum){.dtype = wire_type(t),
                           .reduction = t->reduction,
                           .divisor = inputs_of(c, task),
                           .levels = t->tree ? c->levels : NULL,
                           .round = t->round};
}

/* Returns the only node that wants a block of a reduce-scatter; -1: the task is of another kind. */
static int owner_of(const clt_cluster *c, int task)
{
    int owner = -1;
    for (int n = 0; n < c->nodes && c->tasks->tasks[task].kind == CLT_COMM_REDUCE_SCATTER; n++)
        owner = uses_of(c, n, task) / OUTPUT ? n : owner;
    return owner;
}

static bool same_sums(const clt_task *a, const clt_task *b)
{
    return a->from == b->from && a->reduction == b->reduction && a->count == b->count;
}

/* Reduces blocks of reduce-scatters, one for each node at a time. All have one size and type. */
static clt_status scatter_tasks(clt_cluster *c, int first, int end)
{
    int next[CLT_RANKS_MOST], own = 0;
    for (int n = 0; n < c->nodes; n++)
        next[n] = first;
    for (bool any = true; any;) {
        char *data[CLT_RANKS_MOST];
        any = false;
        for (int n = 0; n < c->nodes; n++) {
            while (next[n] < end && owner_of(c, next[n]) != n)
                next[n]++;
            data[n] = next[n] < end ? data_of(c, next[n]) : NULL;
            any = any || data[n];
            own = n == c->rounds.node && data[n] ? next[n] : own;
            next[n]++;
        }
        const clt_round_sum sum = sum_of(c, data[c->rounds.node] ? own : first);
        if (any)
            CLT_TRY(clt_rounds_scatter(&c->rounds, &sum, data, c->tasks->tasks[first].count));
    }
    return CLT_OK;
}

static clt_status share_partials(clt_cluster *c)
{
    clt_link_kind(c->link, CLT_COMM_REDUCE_SCATTER);
    return clt_rounds_share_partials(&c->rounds, &c->list, c->owners);
}

clt_status clt_cluster_abroad(clt_cluster *c, clt_status (*fn)(clt_cluster *c))
{
    atomic_store(&c->abroad, true);
    const clt_status status = fn(c);
    atomic_store(&c->abroad, status != CLT_OK);
    return status;
}

/* Measures the result. Every first rank does the same, so all nodes get the same bits. */
static clt_status measure(clt_cluster *c)
{
    bool finite = true, parted = false;
    c->said.sum_squares = 0;
    clt_tasks_clear(&c->list);
    for (int i = 0; i < c->tasks->count; i++) {
        clt_task part = c->tasks->tasks[i];
        if (!part.measure)
            continue;
        const int owner = owner_of(c, i);
        parted = parted || owner >= 0;
        c->owners[c->list.count] = owner;
        part.from = wire_type(&part);
        part.round = (clt_rounding){0};
        part.divisor = 0;
        part.in_count = part.out_count = 0;
        part.reduction = CLT_COMM_SUM;
        CLT_TRY(clt_tasks_add(&c->list, &part));
        CLT_TRY(clt_tasks_in(&c->list, data_of(c, i)));
    }
    CLT_TRY(clt_tasks_cut(&c->list));
    clt_team_run(c->job.team, run_piece, &c->list, c->list.pieces);
    if (parted && c->list.pieces)
        CLT_TRY(clt_cluster_abroad(c, share_partials));
    clt_tasks_measured(&c->list, &c->said.sum_squares, &finite);
    c->said.finite = finite;
    return CLT_OK;
}

static clt_status between_nodes(clt_cluster *c)
{
    CLT_TRY(meet_tasks(c));
    for (int i = 0, end; i < c->tasks->count; i = end) {
        const clt_task *t = &c->tasks->tasks[i];
        end = i + 1;
        clt_link_kind(c->link, t->kind);
        const clt_round_sum sum = sum_of(c, i);
        const bool scatters = owner_of(c, i) >= 0;
        while (scatters && end < c->tasks->count && owner_of(c, end) >= 0 &&
               same_sums(t, &c->tasks->tasks[end]))
            end++;
        while (t->kind == CLT_COMM_SEND && end < c->tasks->count)
            end++;
        CLT_TRY(t->kind == CLT_COMM_SEND ? send_tasks(c, i, end)
                : t->copy                ? broadcast_task(c, i)
                : scatters               ? scatter_tasks(c, i, end)
                           : clt_rounds_all_reduce(&c->rounds, &sum, data_of(c, i), t->count));
    }
    return CLT_OK;
}

/* --- whole requests --------------------------------------------------------------------------- */

/* Gives the results, and the facts about the request, to the ranks of the node. */
static clt_status hand_out(clt_cluster *c, const clt_task_list *tasks)
{
    outcome said = c->said;
    clt_ranks_sum ignored;
    double squares = 0;
    bool finite = true;
    clt_tasks_clear(&c->list);
    const clt_task told = {.copy = true, .count = (int64_t)sizeof said};
    CLT_TRY(clt_tasks_add(&c->list, &told));
    if (c->link)
        CLT_TRY(clt_tasks_in(&c->list, &c->said));
    CLT_TRY(clt_tasks_out(&c->list, &said));
    for (int i = 0; i < tasks->count; i++) {
        const clt_task *t = &tasks->tasks[i];
        clt_task part = *t;
        part.from = wire_type(t);
        part.round = part.rank_round = (clt_rounding){0};
        part.measure = false;
        part.divisor = 0;
        part.in_count = part.out_count = 0;
        part.reduction = CLT_COMM_SUM;
        part.tree = false;
        CLT_TRY(clt_tasks_add(&c->list, &part));
        if (c->link)
            CLT_TRY(clt_tasks_in(&c->list, data_of(c, i)));
        for (int k = 0; k < t->out_count; k++)
            CLT_TRY(clt_tasks_out(&c->list, tasks->pointers[t->first + t->in_count + k]));
    }
    CLT_TRY(clt_cluster_run_node(c, &c->list, &squares, &finite, &ignored));
    c->said = said;
    return CLT_OK;
}

clt_status clt_cluster_run(clt_cluster *c, const clt_ranks_job *job, const clt_task_list *tasks,
                           double *sum_squares, bool *finite, clt_ranks_sum *sum)
{
    clt_cluster_begin(c, job);
    c->tasks = tasks;
    CLT_TRY(lay_out(c, tasks));
    CLT_TRY(collect(c, tasks));
    if (c->link) {
        CLT_TRY(clt_cluster_abroad(c, between_nodes));
        CLT_TRY(measure(c));
    }
    clt_cluster_await_first(c);
    CLT_TRY(hand_out(c, tasks));
    *sum_squares += c->said.sum_squares;
    *finite = *finite && c->said.finite;
    *sum = c->said.sum;
    return CLT_OK;
}

/* --- barriers -------------------------------------------------------------------------------- */

static clt_status barrier_nodes(clt_cluster *c)
{
    const head *heads;
    head own = {.purpose = BARRIER};
    return clt_cluster_meet(c, &own, &heads);
}

clt_status clt_cluster_barrier(clt_cluster *c, const clt_ranks_job *job)
{
    clt_cluster_begin(c, job);
    if (c->node)
        CLT_TRY(clt_ranks_barrier(c->node, &c->job));
    if (c->link)
        CLT_TRY(clt_cluster_abroad(c, barrier_nodes));
    clt_cluster_await_first(c);
    return c->node ? clt_ranks_barrier(c->node, &c->job) : CLT_OK;
}
