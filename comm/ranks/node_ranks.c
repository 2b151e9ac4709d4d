#include "comm/ranks/node_ranks.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "comm/core/tree.h"
#include "comm/ranks/flag.h"

/* A few chunks of every rank stay in the second-level caches. */
enum { SLOTS = 4, CHUNK = 128 * 1024, LINE = 64, PAGE = 4096 };

/* Polls of a flag before sleeping. LONG takes some milliseconds, SHORT a tenth of one. CROWDED is
 * one pause, because the awaited rank may need this rank's core. */
enum { LONG = 20000, SHORT = 1000, CROWDED = 16 };

/* The facts that a rank publishes with its chunk. */
typedef struct head {
    uint64_t signature;
    int contributors; /* devices of the rank that are not empty, in the request's first operation */
    int votes;
    int inputs; /* devices that added to this chunk; for clt_ranks_share: bytes */
    int level;  /* of a tree: that of the node that these devices form */
} head;

/* One rank's part of the shared memory. */
typedef struct area {
    _Alignas(LINE) clt_flag posted;  /* chunks that the rank has written */
    _Alignas(LINE) clt_flag taken;   /* chunks of all ranks that the rank has read */
    _Alignas(LINE) clt_flag arrived; /* barriers that the rank has reached */
    _Alignas(LINE) atomic_int state; /* RUNNING, ABORTED, CLOSED */
    atomic_int number; /* 1 + the rank's number among the ranks of all nodes; 0: the rank has not
                          come yet */
    head heads[SLOTS];
    clt_ranks_notice notice; /* written before `state` */
    _Alignas(PAGE) char data[SLOTS][CLT_RANKS_SHARE];
} area;

enum { RUNNING, ABORTED, CLOSED };

struct clt_ranks {
    area *areas;
    int rank, ranks;
    bool crowded;      /* there are more ranks than processors */
    uint32_t step;     /* chunks so far */
    uint32_t barriers; /* barriers so far */
    atomic_flag said;  /* this rank's end was published */
    atomic_int ended;  /* 1 + the rank that ended a run */
    _Atomic uint64_t missing;
    clt_task_list work; /* the tasks of the present chunk */
};

/* A part of a task, or no data. */
typedef struct chunk {
    const clt_task *task;
    int64_t first, count; /* elements; bytes of a copy */
} chunk;

size_t clt_ranks_bytes(int ranks)
{
    return (size_t)ranks * sizeof(area);
}

clt_status clt_ranks_open(void *memory, int rank, int ranks, int number, clt_ranks **out)
{
    if (ranks > CLT_RANKS_MOST)
        return clt_fail(CLT_UNSUPPORTED, "comm: at most %d ranks on a node, not %d", CLT_RANKS_MOST,
                        ranks);
    clt_ranks *node = CLT_NEW(clt_ranks);
    CLT_TRY_MEMORY(node);
    node->areas = memory;
    node->rank = rank;
    node->ranks = ranks;
    node->crowded = ranks > sysconf(_SC_NPROCESSORS_ONLN);
    atomic_flag_clear(&node->said);
    node->step = node->barriers = 0;
    /* The first write places the pages of a rank's slots near its processor. */
    memset(node->areas[rank].data, 0, sizeof node->areas[rank].data);
    atomic_store(&node->areas[rank].number, number + 1);
    *out = node;
    return CLT_OK;
}

/* Returns the number by which messages call a rank of the node. */
static int number_of(const clt_ranks *node, int rank)
{
    const int number = atomic_load(&node->areas[rank].number);
    return number ? number - 1 : rank;
}

static void publish(clt_ranks *node, int state, const clt_ranks_notice *notice)
{
    if (atomic_flag_test_and_set(&node->said))
        return;
    area *own = &node->areas[node->rank];
    own->notice = *notice;
    atomic_store(&own->state, state);
    clt_flag_wake(&own->posted);
    clt_flag_wake(&own->taken);
    clt_flag_wake(&own->arrived);
}

void clt_ranks_close(clt_ranks *node)
{
    if (!node)
        return;
    const clt_ranks_notice notice = {CLT_ABORTED, number_of(node, node->rank),
                                     "it destroyed its communicator"};
    publish(node, CLOSED, &notice);
    clt_tasks_free(&node->work);
    clt_free(node);
}

void clt_ranks_abort(clt_ranks *node, const clt_ranks_notice *notice)
{
    publish(node, ABORTED, notice);
}

bool clt_ranks_heard(const clt_ranks *node, clt_ranks_notice *notice)
{
    int found = atomic_load(&node->ended);
    for (int r = 0; r < node->ranks && !found; r++)
        if (r != node->rank && atomic_load(&node->areas[r].state) == ABORTED)
            found = r + 1;
    if (found)
        *notice = node->areas[found - 1].notice;
    return found > 0;
}

/* Returns `text` without `start`, if it begins with `start`. */
static const char *behind(const char *text, const char *start)
{
    const size_t length = strlen(start);
    return strncmp(text, start, length) ? text : text + length;
}

/* The other rank's message may begin in the same way: with the collective, and with that rank's
 * number if it timed out. */
clt_status clt_ranks_ended(const clt_ranks_job *job, const clt_ranks_notice *notice)
{
    char place[160], rank[24];
    snprintf(place, sizeof place, "comm: collective %lld (%s): ", (long long)job->sequence,
             job->label);
    snprintf(rank, sizeof rank, "rank %d ", notice->rank);
    const char *text = behind(behind(notice->text, place), "comm: ");
    if (behind(text, rank) != text)
        return clt_fail(CLT_ABORTED, "%s%s", place, text);
    return clt_fail(CLT_ABORTED, "%srank %d: %s", place, notice->rank, text);
}

uint64_t clt_ranks_missing(const clt_ranks *node)
{
    return atomic_load_explicit(&node->missing, memory_order_relaxed);
}

/* --- waiting ---------------------------------------------------------------------------------- */

/* Returns a rank's flag at `offset` in its area. */
static clt_flag *flag_of(clt_ranks *node, int rank, size_t offset)
{
    return (clt_flag *)((char *)&node->areas[rank] + offset);
}

static uint64_t missing_at(clt_ranks *node, size_t offset, uint32_t value)
{
    uint64_t missing = 0;
    for (int r = 0; r < node->ranks; r++)
        if (!clt_flag_reached(flag_of(node, r, offset), value))
            missing |= (uint64_t)1 << r;
    return missing;
}

clt_status clt_ranks_timeout(const clt_ranks_job *job, const char *waiting, const char *missing)
{
    return clt_fail(CLT_TIMEOUT,
                    "comm: collective %lld (%s): %s waited %.3g s for %s: stopped, or much slower?",
                    (long long)job->sequence, job->label, waiting, job->timeout_ms * 1e-3, missing);
}

clt_status clt_ranks_waited(const clt_ranks_job *job, int own, const int *numbers, uint64_t missing)
{
    char self[96], others[6 + 12 * CLT_RANKS_MOST];
    int used = snprintf(others, sizeof others, "rank%s", missing & (missing - 1) ? "s" : "");
    for (int r = 0, n = 0; r < CLT_RANKS_MOST; r++)
        if (missing >> r & 1)
            used += snprintf(others + used, sizeof others - (size_t)used, "%s %d", n++ ? "," : "",
                             numbers[r]);
    snprintf(self, sizeof self, "rank %d%s%.64s%s", own, job->device ? " (" : "",
             job->device ? job->device : "", job->device ? ")" : "");
    return clt_ranks_timeout(job, self, others);
}

clt_status clt_ranks_late(const clt_ranks *node, const clt_ranks_job *job, uint64_t missing)
{
    int numbers[CLT_RANKS_MOST];
    for (int r = 0; r < node->ranks; r++)
        numbers[r] = number_of(node, r);
    return clt_ranks_waited(job, numbers[node->rank], numbers, missing);
}

/* Checks whether to go on waiting for a rank's flag. */
static clt_status look(clt_ranks *node, const clt_ranks_job *job, int rank, size_t offset,
                       uint32_t value)
{
    clt_ranks_notice notice;
    if (job->aborted && atomic_load(job->aborted))
        return clt_fail(CLT_ABORTED, "comm: the communicator was aborted");
    const int state = atomic_load(&node->areas[rank].state);
    /* The rank may have come, done its part and ended since the flag was read. */
    if (clt_flag_reached(flag_of(node, rank, offset), value))
        return CLT_OK;
    int none = 0;
    if (state != RUNNING)
        atomic_compare_exchange_strong(&node->ended, &none, rank + 1);
    if (clt_ranks_heard(node, &notice))
        return clt_ranks_ended(job, &notice);
    return job->listen ? job->listen(job->listener) : CLT_OK;
}

/* Waits until the flag of every rank has reached the value. */
static clt_status await(clt_ranks *node, const clt_ranks_job *job, size_t offset, uint32_t value)
{
    const int looks = node->crowded ? CROWDED : job->patient ? LONG : SHORT;
    clt_deadline deadline;
    bool timed = false;
    for (int r = 0; r < node->ranks; r++) {
        const clt_flag *flag = flag_of(node, r, offset);
        if (clt_flag_spin(flag, value, looks))
            continue;
        if (!timed)
            deadline = clt_deadline_in(job->timeout_ms ? job->timeout_ms + job->grace_ms : 0);
        timed = true;
        while (!clt_flag_reached(flag, value)) {
            CLT_TRY(look(node, job, r, offset, value));
            const uint64_t missing = missing_at(node, offset, value);
            atomic_store_explicit(&node->missing, missing, memory_order_relaxed);
            if (missing && clt_deadline_passed(&deadline))
                return clt_ranks_late(node, job, missing);
            clt_flag_wait(flag, value);
        }
    }
    if (timed)
        atomic_store_explicit(&node->missing, 0, memory_order_relaxed);
    return CLT_OK;
}

clt_status clt_ranks_barrier(clt_ranks *node, const clt_ranks_job *job)
{
    clt_flag_raise(&node->areas[node->rank].arrived, ++node->barriers);
    return await(node, job, offsetof(area, arrived), node->barriers);
}

/* --- a chunk ---------------------------------------------------------------------------------- */

/* Slots hold 16-bit types as f32, so that they are rounded once. A tree rounds at each node, and
 * error feedback at each rank. */
static clt_dtype slot_type(const clt_task *t)
{
    return (t->from == CLT_F16 || t->from == CLT_BF16) && !t->tree && !t->narrow ? CLT_F32
                                                                                 : t->from;
}

static int64_t chunk_elements(const clt_task *t)
{
    return t->copy ? CHUNK : CHUNK / clt_dtype_size(slot_type(t));
}

/* Finds the next chunk from the position (*task, *element), and advances it. Returns false if there
 * is none. */
static bool next_chunk(const clt_task_list *tasks, int *task, int64_t *element, chunk *c)
{
    while (*task < tasks->count && *element >= tasks->tasks[*task].count) {
        ++*task;
        *element = 0;
    }
    if (*task == tasks->count)
        return false;
    const clt_task *t = &tasks->tasks[*task];
    const int64_t most = chunk_elements(t), left = t->count - *element;
    *c = (chunk){t, *element, left < most ? left : most};
    *element += c->count;
    return true;
}

static int64_t bytes_at(const clt_task *t, clt_dtype type, int64_t element)
{
    return t->copy ? element : element * clt_dtype_size(type);
}

static void run_work(void *arg, int64_t piece)
{
    clt_tasks_do(arg, piece);
}

static clt_status do_work(clt_ranks *node, const clt_ranks_job *job)
{
    CLT_TRY(clt_tasks_cut(&node->work));
    if (job->guests) {
        clt_team_open(job->team, run_work, &node->work, node->work.pieces, job->guests);
        clt_team_finish(job->team);
    } else {
        clt_team_run(job->team, run_work, &node->work, node->work.pieces);
    }
    return CLT_OK;
}

/* Whether a rank's data for a task are one device's data without a conversion. */
static bool as_they_are(const clt_task *t)
{
    return t->in_count == 1 && slot_type(t) == t->from;
}

/* Returns a chunk's data of pointer number `pointer`. Inputs come first, then outputs, which may
 * have another type. */
static char *data_of(const clt_task_list *tasks, const chunk *c, int pointer)
{
    const clt_task *t = c->task;
    return (char *)tasks->pointers[t->first + pointer] +
           bytes_at(t, pointer < t->in_count ? t->from : t->to, c->first);
}

/* Reduces this rank's data of a chunk into its slot. */
static clt_status fill(clt_ranks *node, const clt_ranks_job *job, const clt_task_list *tasks,
                       const chunk *c, uint32_t step)
{
    area *own = &node->areas[node->rank];
    head *h = &own->heads[step % SLOTS];
    *h = (head){.signature = job->signature,
                .contributors = job->contributors,
                .votes = job->votes,
                .inputs = c ? c->task->in_count : 0};
    if (h->inputs && c->task->tree)
        h->level = clt_tree_join(clt_tasks_levels(tasks, c->task), c->task->in_count);
    const clt_rounding round =
        c ? clt_rounding_from(&c->task->rank_round, c->first) : (clt_rounding){0};
    if (round.before && !h->inputs) /* nothing is sent, so the residual stays */
        memcpy(round.after, round.before, (size_t)c->count * sizeof *round.after);
    if (h->inputs && as_they_are(c->task) && !round.before) {
        memcpy(own->data[step % SLOTS], data_of(tasks, c, 0),
               (size_t)bytes_at(c->task, c->task->from, c->count));
    } else if (h->inputs) {
        clt_task part = *c->task;
        part.count = c->count;
        part.measure = false;
        part.to = slot_type(c->task);
        part.round = round;
        if (part.reduction == CLT_COMM_MEAN)
            part.reduction = CLT_COMM_SUM;
        clt_tasks_clear(&node->work);
        CLT_TRY(clt_tasks_add(&node->work, &part));
        for (int i = 0; i < c->task->in_count; i++)
            CLT_TRY(clt_tasks_in_block(&node->work, data_of(tasks, c, i),
                                       clt_tasks_levels(tasks, c->task)[i]));
        CLT_TRY(clt_tasks_out(&node->work, own->data[step % SLOTS]));
        CLT_TRY(do_work(node, job));
    }
    clt_flag_raise(&own->posted, step + 1);
    return CLT_OK;
}

/* Checks that all ranks are at the same operations, and adds up their heads. */
static clt_status compare(const clt_ranks *node, const clt_ranks_job *job, uint32_t step,
                          clt_ranks_sum *all)
{
    *all = (clt_ranks_sum){0};
    for (int r = 0; r < node->ranks; r++) {
        const head *h = &node->areas[r].heads[step % SLOTS];
        if (h->signature != job->signature)
            return clt_fail(CLT_MISMATCH,
                            "comm: collective %lld: rank %d brings %s, rank %d something else; all "
                            "ranks must start the same in the same order",
                            (long long)job->sequence, number_of(node, node->rank), job->label,
                            number_of(node, r));
        all->contributors += h->contributors;
        all->votes |= h->votes;
    }
    return CLT_OK;
}

/* The ranks of a node are added before other nodes, so they must form a node of a tree. All ranks
 * see the same heads. */
static clt_status check_tree(const clt_ranks *node, const clt_ranks_job *job, uint32_t step)
{
    int8_t levels[CLT_RANKS_MOST];
    int count = 0;
    for (int r = 0; r < node->ranks; r++)
        if (node->areas[r].heads[step % SLOTS].inputs)
            levels[count++] = (int8_t)node->areas[r].heads[step % SLOTS].level;
    if (!count || clt_tree_join(levels, count) >= 0)
        return CLT_OK;
    return clt_fail(CLT_MISMATCH,
                    "comm: collective %lld: the leaves of %d ranks of a node are no block of the "
                    "tree; divide them anew",
                    (long long)job->sequence, count);
}

/* Reduces the slots of all ranks, and writes the result of a chunk. */
static clt_status drain(clt_ranks *node, const clt_ranks_job *job, const clt_task_list *tasks,
                        const chunk *c, uint32_t step, double *sum_squares, bool *finite)
{
    if (c && (c->task->out_count || c->task->measure || c->task->round.before)) {
        if (c->task->tree)
            CLT_TRY(check_tree(node, job, step));
        clt_task part = *c->task;
        part.count = c->count;
        part.round = clt_rounding_from(&c->task->round, c->first);
        part.from = slot_type(c->task);
        part.divisor = 0;
        for (int r = 0; r < node->ranks; r++)
            part.divisor += node->areas[r].heads[step % SLOTS].inputs;
        clt_tasks_clear(&node->work);
        CLT_TRY(clt_tasks_add(&node->work, &part));
        for (int r = 0; r < node->ranks; r++) {
            if (!node->areas[r].heads[step % SLOTS].inputs)
                continue;
            const bool here =
                r == node->rank && as_they_are(c->task) && !c->task->rank_round.before;
            CLT_TRY(clt_tasks_in_block(
                &node->work, here ? data_of(tasks, c, 0) : node->areas[r].data[step % SLOTS],
                node->areas[r].heads[step % SLOTS].level));
        }
        for (int i = 0; i < c->task->out_count; i++)
            CLT_TRY(clt_tasks_out(&node->work, data_of(tasks, c, c->task->in_count + i)));
        CLT_TRY(do_work(node, job));
        clt_tasks_measured(&node->work, sum_squares, finite);
    }
    clt_flag_raise(&node->areas[node->rank].taken, step + 1);
    return CLT_OK;
}

clt_status clt_ranks_share(clt_ranks *node, const clt_ranks_job *job, const void *from,
                           size_t bytes,
                           clt_status (*take)(void *user, const void *from, size_t bytes),
                           void *user)
{
    const uint32_t step = node->step++;
    area *own = &node->areas[node->rank];
    clt_ranks_sum sum;
    CLT_TRY(await(node, job, offsetof(area, taken), step - SLOTS + 1));
    own->heads[step % SLOTS] = (head){.signature = job->signature,
                                      .contributors = job->contributors,
                                      .votes = job->votes,
                                      .inputs = (int)bytes};
    if (bytes) /* `from` may be NULL then */
        memcpy(own->data[step % SLOTS], from, bytes);
    clt_flag_raise(&own->posted, step + 1);
    CLT_TRY(await(node, job, offsetof(area, posted), step + 1));
    CLT_TRY(compare(node, job, step, &sum));
    for (int r = 0; r < node->ranks; r++)
        CLT_TRY(take(user, node->areas[r].data[step % SLOTS],
                     (size_t)node->areas[r].heads[step % SLOTS].inputs));
    clt_flag_raise(&own->taken, step + 1);
    return CLT_OK;
}

clt_status clt_ranks_run(clt_ranks *node, const clt_ranks_job *job, const clt_task_list *tasks,
                         double *sum_squares, bool *finite, clt_ranks_sum *sum)
{
    chunk chunks[SLOTS];
    bool real[SLOTS];
    int task = 0;
    int64_t element = 0;
    const uint32_t first = node->step;
    uint32_t ended = first;
    /* Ranks meet once even if there is no chunk. */
    for (bool more = true;;) {
        /* Chunks are filled ahead into all slots, so that ranks rarely wait. */
        while (node->step - ended < SLOTS && more) {
            const uint32_t step = node->step;
            more = next_chunk(tasks, &task, &element, &chunks[step % SLOTS]);
            real[step % SLOTS] = more;
            if (!more && step != first)
                break;
            CLT_TRY(await(node, job, offsetof(area, taken), step - SLOTS + 1));
            CLT_TRY(fill(node, job, tasks, more ? &chunks[step % SLOTS] : NULL, step));
            node->step++;
        }
        if (ended == node->step)
            return CLT_OK;
        const chunk *c = real[ended % SLOTS] ? &chunks[ended % SLOTS] : NULL;
        CLT_TRY(await(node, job, offsetof(area, posted), ended + 1));
        CLT_TRY(compare(node, job, ended, sum));
        CLT_TRY(drain(node, job, tasks, c, ended, sum_squares, finite));
        ended++;
    }
}
