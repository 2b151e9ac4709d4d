/* A trainer's world of MPI ranks, for small messages between steps. Large data go through
 * communicators.
 *
 * Rank 0 gathers the ranks' messages, so that it knows which rank is missing. It first says that it
 * is there itself. No call of MPI blocks here, because a stopped or hanging rank would keep the
 * others in such a call. */
#include "comm/mpi/bridge.h"
#include "comm/mpi/connect.h"
#include "base/clock.h"
#include "comm/mpi/process.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { HERE = 1, WORD = 2 }; /* tags */

/* Rank 0's own deadline may end a little later than another rank's. */
static const double GRACE = 5;

/* The state of one call. MPI may use its memory until the requests have ended, so the memory is
 * kept after a failure. */
typedef struct round {
    MPI_Request *requests; /* rank 0: receives of messages, by rank; others: of HERE */
    MPI_Request *sends;    /* rank 0: sends of HERE, by rank; others: of the message */
    MPI_Request answer;
    int answering;
    char *mine, *all, here;
    int bytes;
    double began, met; /* seconds; met: when rank 0's HERE came */
} round_state;

typedef struct world {
    MPI_Comm ranks;
    int rank, count;
    clt_world_deadlines deadlines;
    clt_mpi_process *processes; /* of all ranks; NULL: unknown */
    clt_status failed;
    char message[512];
} world;

CLT_STRUCT_INIT(clt_world_deadlines, )

/* --- missing ranks ---------------------------------------------------------------------------- */

static int missing(const world *w, const round_state *r, int rank)
{
    if (w->rank == 0)
        return rank && r->requests[rank] != MPI_REQUEST_NULL;
    return rank == 0 && r->requests[0] != MPI_REQUEST_NULL;
}

static const char *what(const world *w)
{
    const char *text = w->deadlines.what ? w->deadlines.what(w->deadlines.user) : NULL;
    return text ? text : "the other ranks";
}

/* Writes "rank 1 (process 7 on host), rank 3 (...)" for the missing ranks. */
static void name_missing(const world *w, const round_state *r, char *text, size_t room)
{
    size_t used = 0;
    int named = 0, more = 0;
    *text = '\0';
    for (int k = 0; k < w->count; k++) {
        if (!missing(w, r, k))
            continue;
        char place[160] = "";
        if (w->processes)
            snprintf(place, sizeof place, " (process %lld on %.80s)",
                     (long long)w->processes[k].pid, w->processes[k].host);
        if (named == 4)
            more++;
        else if (used < room)
            used += (size_t)snprintf(text + used, room - used, "%srank %d%s", named++ ? ", " : "",
                                     k, place);
    }
    if (more && used < room)
        snprintf(text + used, room - used, " and %d more", more);
    if (!named)
        snprintf(text, room, "a rank, which is not known, to pass on what rank 0 said");
}

/* Returns OK, or fails because a rank will not come: a rank on this node that is stopped for too
 * long, or has ended. This includes ranks whose message has come, because they may have to pass on
 * rank 0's answer. */
static clt_status look_after(world *w, double at)
{
    for (int k = 0; w->processes && w->deadlines.stopped > 0 && k < w->count; k++) {
        clt_mpi_process *p = &w->processes[k];
        const char state = k == w->rank ? 'R' : clt_mpi_process_state(p);
        const int stopped = state == 'T' || state == 't';
        if (!stopped && state != 'X') {
            p->idle_since = 0;
            continue;
        }
        p->idle_since = p->idle_since > 0 ? p->idle_since : at;
        const double limit = stopped ? w->deadlines.stopped : GRACE;
        if (at - p->idle_since < limit)
            continue;
        return clt_mpi_fail(
            CLT_TIMEOUT, "rank %d (process %lld on %.80s) %s; rank %d waits, for %s", k,
            (long long)p->pid, p->host, stopped ? "is stopped" : "has ended", w->rank, what(w));
    }
    return CLT_OK;
}

static clt_status give_up(world *w, const round_state *r, double at)
{
    char text[330];
    const double late = w->deadlines.late, since = r->met > 0 ? r->met : r->began;
    if (w->deadlines.cancelled && w->deadlines.cancelled(w->deadlines.user)) {
        name_missing(w, r, text, sizeof text);
        return clt_mpi_fail(CLT_STOPPED, "told to end while rank %d waited for %s, for %s", w->rank,
                            text, what(w));
    }
    /* Rank 0's deadline comes first, because rank 0 knows which rank is missing. */
    if (late > 0 && at - since > late + (w->rank && r->met > 0 ? GRACE : 0)) {
        name_missing(w, r, text, sizeof text);
        return clt_mpi_fail(CLT_TIMEOUT,
                            "rank %d waited %g s for %s, for %s: stopped, hanging, or "
                            "still at work?",
                            w->rank, late, text, what(w));
    }
    return look_after(w, at);
}

/* --- messages --------------------------------------------------------------------------------- */

static clt_status take_message(const world *w, round_state *r, int from)
{
    int done = 0, bytes = 0;
    MPI_Status status;
    if (r->requests[from] == MPI_REQUEST_NULL)
        return CLT_OK;
    CLT_TRY(clt_mpi_check(MPI_Test(&r->requests[from], &done, &status), "MPI_Test"));
    if (!done)
        return CLT_OK;
    CLT_TRY(clt_mpi_check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count"));
    if (bytes != (w->rank ? 1 : r->bytes))
        return clt_mpi_fail(CLT_MISMATCH,
                            "rank %d is at another place of the program than rank %d: start all "
                            "ranks with the same program, options and data",
                            from, w->rank);
    if (w->rank)
        r->met = clt_clock();
    return CLT_OK;
}

/* Makes progress. Sets *done to whether everything is done. */
static clt_status advance(const world *w, round_state *r, int *done)
{
    int left = 0, sent = 1;
    const int others = w->rank ? 1 : w->count;
    for (int k = 0; k < others; k++) {
        CLT_TRY(take_message(w, r, k));
        left += r->requests[k] != MPI_REQUEST_NULL;
    }
    *done = 0;
    if (w->rank == 0 && left)
        return CLT_OK;
    if (!r->answering) {
        r->answering = 1;
        CLT_TRY(clt_mpi_check(
            MPI_Ibcast(r->all, w->count * r->bytes, MPI_BYTE, 0, w->ranks, &r->answer),
            "MPI_Ibcast"));
    }
    for (int k = 0; k < others; k++) {
        int gone = 0;
        CLT_TRY(clt_mpi_check(MPI_Test(&r->sends[k], &gone, MPI_STATUS_IGNORE), "MPI_Test"));
        sent = sent && gone;
    }
    CLT_TRY(clt_mpi_check(MPI_Test(&r->answer, done, MPI_STATUS_IGNORE), "MPI_Test"));
    *done = *done && sent && !left;
    return CLT_OK;
}

/* Waits until the call is done. MPI's own waiting keeps a core busy, which another rank may compute
 * on. So this polls less and less often, from every 10 us to every 2 ms. */
static clt_status wait_for(world *w, round_state *r)
{
    long pause = 10000;
    double looked = r->began;
    for (;;) {
        int done = 0;
        CLT_TRY(advance(w, r, &done));
        if (done)
            return CLT_OK;
        const double at = clt_clock();
        if (at - looked > 0.1) {
            looked = at;
            CLT_TRY(give_up(w, r, at));
        }
        const struct timespec time = {0, pause};
        nanosleep(&time, NULL);
        pause = pause < 1000000 ? 2 * pause : 2000000;
    }
}

static clt_status begin(const world *w, round_state *r)
{
    r->began = clt_clock();
    for (int k = 1; w->rank == 0 && k < w->count; k++) {
        CLT_TRY(clt_mpi_check(MPI_Isend(&r->here, 1, MPI_BYTE, k, HERE, w->ranks, &r->sends[k]),
                              "MPI_Isend"));
        CLT_TRY(clt_mpi_check(MPI_Irecv(r->all + (size_t)k * (size_t)r->bytes, r->bytes, MPI_BYTE,
                                        k, WORD, w->ranks, &r->requests[k]),
                              "MPI_Irecv"));
    }
    if (w->rank == 0)
        return CLT_OK;
    CLT_TRY(clt_mpi_check(MPI_Irecv(&r->here, 1, MPI_BYTE, 0, HERE, w->ranks, &r->requests[0]),
                          "MPI_Irecv"));
    return clt_mpi_check(MPI_Isend(r->mine, r->bytes, MPI_BYTE, 0, WORD, w->ranks, &r->sends[0]),
                         "MPI_Isend");
}

static void free_round(round_state *r)
{
    if (!r)
        return;
    free(r->requests);
    free(r->sends);
    free(r->mine);
    free(r->all);
    free(r);
}

static round_state *make_round(const world *w, const void *mine, int bytes)
{
    const size_t n = (size_t)w->count, size = (size_t)bytes;
    round_state *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->bytes = bytes;
    r->requests = malloc(n * sizeof(MPI_Request));
    r->sends = malloc(n * sizeof(MPI_Request));
    r->mine = malloc(size + 1);
    r->all = malloc(n * size + 1);
    if (!r->requests || !r->sends || !r->mine || !r->all) {
        free_round(r);
        return NULL;
    }
    for (int k = 0; k < w->count; k++)
        r->requests[k] = r->sends[k] = MPI_REQUEST_NULL;
    r->answer = MPI_REQUEST_NULL;
    memcpy(r->mine, mine, size);
    memcpy(r->all, mine, size); /* rank 0's own message */
    return r;
}

static clt_status gather(void *user, const void *mine, int64_t bytes, void *all)
{
    world *w = user;
    if (w->failed != CLT_OK)
        return clt_mpi_fail(w->failed, "%s", w->message);
    if (bytes < 0 || bytes > INT_MAX / w->count)
        return clt_mpi_fail(CLT_INVALID_ARGUMENT, "ranks cannot tell each other %lld bytes at once",
                            (long long)bytes);
    round_state *r = make_round(w, mine, (int)bytes);
    if (!r)
        return clt_mpi_fail(CLT_OUT_OF_MEMORY, "memory does not suffice");
    clt_status status = begin(w, r);
    CLT_NEXT(status, wait_for(w, r));
    if (status == CLT_OK) {
        memcpy(all, r->all, (size_t)w->count * (size_t)bytes);
        free_round(r);
        return CLT_OK;
    }
    w->failed = status;
    snprintf(w->message, sizeof w->message, "%s", clt_error_message());
    return status;
}

/* --- the world ------------------------------------------------------------------------------- */

/* Makes the communicator of this rank's color. */
static clt_status connect_some(const world *w, int color, const clt_comm_device *devices, int count,
                               const clt_comm_options *options, clt_comm **comm)
{
    MPI_Comm some;
    CLT_TRY(
        clt_mpi_check(MPI_Comm_split(w->ranks, color < 0 ? MPI_UNDEFINED : color, w->rank, &some),
                      "MPI_Comm_split"));
    *comm = NULL;
    if (some == MPI_COMM_NULL)
        return CLT_OK;
    const clt_status status = clt_mpi_connect(some, w->rank, devices, count, options, comm);
    MPI_Comm_free(&some);
    return status;
}

static clt_status connect_ranks(void *user, int color, const clt_comm_device *devices, int count,
                                const clt_comm_options *options, clt_comm **comm)
{
    world *w = user;
    /* The calls of MPI that follow block, so all ranks must be here first. */
    int *all = malloc((size_t)w->count * sizeof *all), same = color >= 0;
    clt_status status = all ? gather(w, &color, sizeof color, all)
                            : clt_mpi_fail(CLT_OUT_OF_MEMORY, "memory does not suffice");
    for (int k = 0; status == CLT_OK && k < w->count; k++)
        same = same && all[k] == color;
    free(all);
    CLT_TRY(status);
    return same ? clt_mpi_connect(w->ranks, -1, devices, count, options, comm)
                : connect_some(w, color, devices, count, options, comm);
}

static void release(void *user)
{
    world *w = user;
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (!finalized && w->failed == CLT_OK) /* this call is collective */
        MPI_Comm_free(&w->ranks);
    free(w->processes);
    free(w);
}

clt_status clt_world_set_deadlines_mpi(clt_world *of, const clt_world_deadlines *deadlines)
{
    if (of->gather != gather)
        return clt_mpi_fail(CLT_INVALID_ARGUMENT,
                            "clt_world_set_deadlines_mpi: the world is not of "
                            "clt_world_open_mpi");
    if (deadlines->struct_size != sizeof *deadlines || !isfinite(deadlines->late) ||
        !isfinite(deadlines->stopped) || deadlines->late < 0 || deadlines->stopped < 0)
        return clt_mpi_fail(CLT_INVALID_ARGUMENT,
                            "deadlines must be set up by "
                            "clt_world_deadlines_init, finite and at least 0");
    world *w = of->user;
    clt_mpi_process own, *all = calloc((size_t)w->count, sizeof *all);
    if (!all)
        return clt_mpi_fail(CLT_OUT_OF_MEMORY, "memory does not suffice");
    w->deadlines = *deadlines;
    clt_mpi_process_self(&own);
    const clt_status status = gather(w, &own, sizeof own, all);
    if (status != CLT_OK) {
        free(all);
        return status;
    }
    free(w->processes);
    w->processes = all;
    return CLT_OK;
}

static clt_status find_place(world *w, clt_world *out)
{
    MPI_Comm node;
    CLT_TRY(clt_mpi_check(MPI_Comm_rank(w->ranks, &out->rank), "MPI_Comm_rank"));
    CLT_TRY(clt_mpi_check(MPI_Comm_size(w->ranks, &out->ranks), "MPI_Comm_size"));
    w->rank = out->rank;
    w->count = out->ranks;
    CLT_TRY(clt_mpi_split_node(w->ranks, &node));
    clt_status status = clt_mpi_check(MPI_Comm_rank(node, &out->node_rank), "MPI_Comm_rank");
    CLT_NEXT(status, clt_mpi_check(MPI_Comm_size(node, &out->node_ranks), "MPI_Comm_size"));
    const clt_status freed = clt_mpi_check(MPI_Comm_free(&node), "MPI_Comm_free");
    return status == CLT_OK ? freed : status;
}

/* Frees the communicator on all ranks if one of them failed, because freeing is collective. It is
 * kept if MPI cannot even tell the ranks so. */
static clt_status agree_or_free(MPI_Comm *ranks, clt_status status)
{
    int mine = status == CLT_OK, all = 0;
    if (MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, *ranks) != MPI_SUCCESS)
        return mine ? clt_mpi_fail(CLT_MPI, "MPI_Allreduce: the ranks cannot agree") : status;
    if (all)
        return CLT_OK;
    MPI_Comm_free(ranks);
    return mine ? clt_mpi_fail(CLT_ABORTED, "clt_world_open_mpi: another rank failed") : status;
}

clt_status clt_world_open_mpi(MPI_Comm ranks, clt_world *out)
{
    CLT_TRY(clt_mpi_running("clt_world_open_mpi"));
    world own = {0};
    clt_world found;
    clt_world_init(&found);
    CLT_TRY(clt_mpi_duplicate(ranks, "clt_world_open_mpi", &own.ranks));
    /* Memory is allocated after the communicator, because a rank without memory takes part until
     * all agree. */
    world *w = calloc(1, sizeof *w);
    clt_status status = find_place(&own, &found);
    if (status == CLT_OK && !w)
        status = clt_mpi_fail(CLT_OUT_OF_MEMORY, "memory does not suffice");
    status = agree_or_free(&own.ranks, status);
    if (status != CLT_OK) {
        free(w);
        return status;
    }
    *w = own;
    found.gather = gather;
    found.connect = connect_ranks;
    found.release = release;
    found.user = w;
    *out = found;
    return CLT_OK;
}
