#include "train/ranks/connect.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/vec.h"
#include "device/discover/sub_devices.h"
#include "train/ranks/world.h"
#include <cltrain/comm.h>

/* The communicators of a split: one for each device of this rank. */
typedef struct group {
    clt_comm *of[CLT_MOST_DEVICES]; /* by device; several may have the same; NULL: it has none */
    int index[CLT_MOST_DEVICES];    /* by device: its number among `of`'s devices of this rank */
} group;

typedef struct connection {
    clt_device *devices[CLT_MOST_DEVICES];
    int count;
    const clt_world *world;
    clt_comm_options options;
    group *groups;
    int n_groups, groups_room;
    clt_comm **comms; /* of all groups, each once */
    int n_comms, comms_room;
} connection;

static const clt_comm_kind kinds[] = {
    [CLT_COLLECTIVE_ALL_REDUCE] = CLT_COMM_ALL_REDUCE,
    [CLT_COLLECTIVE_REDUCE] = CLT_COMM_REDUCE,
    [CLT_COLLECTIVE_REDUCE_SCATTER] = CLT_COMM_REDUCE_SCATTER,
    [CLT_COLLECTIVE_ALL_GATHER] = CLT_COMM_ALL_GATHER,
    [CLT_COLLECTIVE_BROADCAST] = CLT_COMM_BROADCAST,
    [CLT_COLLECTIVE_SEND] = CLT_COMM_SEND,
    [CLT_COLLECTIVE_RECEIVE] = CLT_COMM_RECEIVE,
    [CLT_COLLECTIVE_SHIFT] = CLT_COMM_SEND, /* or receive */
    [CLT_COLLECTIVE_BARRIER] = CLT_COMM_BARRIER,
};

static const clt_comm_reduction reductions[] = {
    [CLT_COLLECTIVE_SUM] = CLT_COMM_SUM,
    [CLT_COLLECTIVE_MIN] = CLT_COMM_MIN,
    [CLT_COLLECTIVE_MAX] = CLT_COMM_MAX,
};

/* --- a collective ---------------------------------------------------------------------------- */

static void translate(const clt_collective *what, clt_comm_op *op)
{
    clt_comm_op_init(op);
    op->kind = kinds[what->kind];
    op->dtype = what->dtype;
    op->reduction = reductions[what->reduction];
    op->flags = (what->empty ? CLT_COMM_EMPTY : 0) | (what->measure ? CLT_COMM_MEASURE : 0) |
                (what->whole ? CLT_COMM_EXCLUSIVE : 0);
    op->root = what->root;
    op->peer = what->peer;
    op->count = what->count;
    op->mem = what->buffer;
    op->offset = what->offset;
    op->out = what->out;
    op->out_offset = what->out_offset;
    op->host = what->host;
    op->vote = what->vote;
    op->leaves = what->leaves;
    op->label = what->label;
    op->residual = (clt_comm_residual *)what->residual;
    if (what->residual)
        op->residual_scale = what->residual_scale;
}

static void stop(void *self, clt_status status, const char *message)
{
    const connection *c = self;
    for (int i = 0; i < c->n_comms; i++)
        clt_comm_abort(c->comms[i], status, message);
}

/* After a failure, ends all groups: a rank that waits in another group may wait for this one. */
static clt_status stop_all(connection *c, clt_status status)
{
    char message[512];
    if (status != CLT_OK && c->n_comms > 1) {
        snprintf(message, sizeof message, "%s", clt_error_message());
        stop(c, status, message);
        clt_error_restore(message);
    }
    return status;
}

/* Makes the operations of a participant in a shift: a send, a receive, both or a barrier. Each is
 * in place, so that its buffer need not be copied. */
static void translate_shift(const clt_collective *what, int own, int size, clt_comm_op op[2])
{
    const int to = own + what->step, from = own - what->step;
    const bool sends = to >= 0 && to < size, receives = from >= 0 && from < size;
    clt_comm_op send, receive;
    translate(what, &send);
    receive = send;
    if (what->out) {
        receive.mem = what->out;
        receive.offset = what->out_offset;
    }
    send.out = receive.out = NULL;
    receive.kind = CLT_COMM_RECEIVE;
    receive.peer = from;
    send.kind = sends ? CLT_COMM_SEND : CLT_COMM_BARRIER;
    send.peer = to;
    op[0] = sends || !receives ? send : receive;
    op[1] = receive;
    op[0].next = sends && receives ? &op[1] : NULL;
}

static clt_status start(void *self, int device, const clt_collective *what, cl_uint n_wait,
                        const cl_event *wait, clt_collective_request *request)
{
    connection *c = self;
    clt_comm_op op[2];
    clt_comm_request *started;
    if (what->group < 0 || what->group >= c->n_groups)
        return clt_fail(CLT_INTERNAL, "%s: there is no group %d of devices, only %d",
                        what->label ? what->label : "a collective", what->group, c->n_groups);
    const group *g = &c->groups[what->group];
    if (!g->of[device])
        return clt_fail(CLT_INTERNAL, "%s: device %d is not in group %d",
                        what->label ? what->label : "a collective", device, what->group);
    clt_comm *comm = g->of[device];
    const int index = g->index[device];
    if (what->kind == CLT_COLLECTIVE_SHIFT)
        translate_shift(what, clt_comm_participant(comm, index), clt_comm_size(comm), op);
    else
        translate(what, op);
    CLT_TRY(stop_all(c, clt_comm_start(comm, index, -1, op, (int)n_wait, wait, &started)));
    *request = (clt_collective_request){started, what->group};
    return CLT_OK;
}

static clt_status complete(void *self, int device, const clt_collective_request *request,
                           clt_collective_result *result)
{
    connection *c = self;
    clt_comm_result measured;
    clt_comm_result_init(&measured);
    const int index = c->groups[request->group].index[device];
    CLT_TRY(stop_all(c, clt_comm_complete(request->request, index, &measured, NULL)));
    result->sum_squares = measured.sum_squares;
    result->finite = measured.finite != 0;
    result->votes = measured.votes;
    result->ready = measured.ready;
    result->done = measured.done;
    return CLT_OK;
}

static clt_status reserve(void *self, int number, int device, int64_t bytes, int requests)
{
    const group *g = &((const connection *)self)->groups[number];
    return clt_comm_reserve(g->of[device], g->index[device], bytes, requests);
}

/* --- error feedback -------------------------------------------------------------------------- */

static clt_status residual_open(void *self, int number, int64_t count,
                                clt_collective_residual **residual)
{
    clt_comm_residual *made = NULL;
    const clt_status status =
        clt_comm_residual_create(((const connection *)self)->groups[number].of[0], count, &made);
    if (status == CLT_OK)
        *residual = (clt_collective_residual *)made;
    return status;
}

static void residual_close(clt_collective_residual *residual)
{
    clt_comm_residual_destroy((clt_comm_residual *)residual);
}

static void residual_accept(clt_collective_residual *residual)
{
    clt_comm_residual_accept((clt_comm_residual *)residual);
}

static int residual_has(const clt_collective_residual *residual, int rounding)
{
    return clt_comm_residual_has((const clt_comm_residual *)residual, (clt_comm_rounding)rounding);
}

static void residual_get(const clt_collective_residual *residual, int rounding, float *data)
{
    clt_comm_residual_get((const clt_comm_residual *)residual, (clt_comm_rounding)rounding, data);
}

static clt_status residual_set(clt_collective_residual *residual, int rounding, const float *data)
{
    return clt_comm_residual_set((clt_comm_residual *)residual, (clt_comm_rounding)rounding, data);
}

/* --- all communicators ----------------------------------------------------------------------- */

static clt_status status_of(void *self)
{
    const connection *c = self;
    for (int i = 0; i < c->n_comms; i++)
        CLT_TRY(clt_comm_status(c->comms[i]));
    return CLT_OK;
}

static bool needs_progress(void *self)
{
    const connection *c = self;
    bool needs = false;
    for (int i = 0; i < c->n_comms; i++)
        needs = needs || clt_comm_needs_progress(c->comms[i]);
    return needs;
}

static void progress(void *self)
{
    const connection *c = self;
    clt_comm_progress(c->comms[0]); /* works for all communicators of the thread */
}

static clt_status finish(void *self)
{
    const connection *c = self;
    for (int i = 0; i < c->n_comms; i++)
        CLT_TRY(clt_comm_finalize(c->comms[i]));
    return CLT_OK;
}

static void explain(void *self, const clt_collective *what, clt_str *text)
{
    const connection *c = self;
    clt_comm_op op;
    bool taken[2] = {false, false};
    translate(what, &op);
    for (int i = 0; i < CLT_COMM_TRANSPORTS; i++) {
        const clt_comm_transport t = (clt_comm_transport)i;
        bool *others = &taken[t >= CLT_COMM_SHARED_MEMORY];
        const clt_status status = clt_comm_accepts(c->groups[0].of[0], 0, t, &op);
        clt_str_add(text, "  %-14s %s\n", clt_comm_transport_name(t),
                    status != CLT_OK ? clt_error_message()
                    : *others        ? "would be taken after that"
                                     : "taken");
        *others = *others || status == CLT_OK;
    }
}

static void close_all(void *self)
{
    connection *c = self;
    while (c->n_comms)
        clt_comm_destroy(c->comms[--c->n_comms]);
    CLT_FREE(c->comms, c->groups, c);
}

/* --- opening --------------------------------------------------------------------------------- */

/* Opens a communicator over this rank's devices with member[device] == wanted. `color` is that of
 * the world's connect; LOCAL: the communicator is within this rank. */
enum { LOCAL = -2 };

static clt_status open_comm(connection *c, int color, const int *member, int wanted, bool sends,
                            group *g)
{
    clt_comm_device list[CLT_MOST_DEVICES];
    clt_comm_options options = c->options;
    clt_comm *comm = NULL;
    int count = 0;
    for (int d = 0; d < c->count; d++) {
        if (member[d] != wanted)
            continue;
        clt_comm_device_init(&list[count]);
        list[count].context = c->devices[d]->context;
        list[count].device = c->devices[d]->id;
        list[count].compute = c->devices[d]->queue;
        g->index[d] = count++;
    }
    /* Between ranks, the devices' own threads would wait for each other within their queues. A
     * thread of several devices would wait in one group, while another rank waits in another. */
    if (color != LOCAL && (sends || clt_split_shares_cores(c->devices, c->count)))
        options.threads = 1;
    CLT_TRY(color == LOCAL
                ? clt_comm_create(list, count, &options, &comm)
                : c->world->connect(c->world->user, color, list, count, &options, &comm));
    if (!comm)
        return CLT_OK;
    c->comms[c->n_comms++] = comm;
    for (int d = 0; d < c->count; d++)
        if (member[d] == wanted)
            g->of[d] = comm;
    return CLT_OK;
}

static bool several_ranks(const connection *c)
{
    return c->world && c->world->ranks > 1;
}

/* The participants of all ranks, for a split. */
typedef struct everyone {
    int total, ranks, first; /* first: this rank's first participant */
    int *rank;               /* by participant */
    int *round;              /* by participant: the call of the world's connect that makes its
                                group; LOCAL: its group lies within a rank */
    int *busy;               /* by rank: rounds that it is busy with so far */
} everyone;

static clt_status find_everyone(const connection *c, everyone *all)
{
    int32_t count = c->count;
    void *counts = NULL;
    all->total = clt_comm_size(c->comms[0]);
    all->ranks = several_ranks(c) ? c->world->ranks : 1;
    all->rank = clt_calloc((size_t)(2 * all->total + all->ranks), sizeof *all->rank);
    CLT_TRY(clt_ranks_agree(c->world, all->rank ? CLT_OK : CLT_OUT_OF_MEMORY, NULL));
    all->round = all->rank + all->total;
    all->busy = all->round + all->total;
    CLT_TRY(clt_ranks_gather(c->world, &count, sizeof count, &counts));
    for (int r = 0, p = 0; r < all->ranks; r++) {
        if (all->ranks > 1 && r == c->world->rank)
            all->first = p;
        for (int d = 0; d < ((const int32_t *)counts)[r]; d++)
            all->rank[p++] = r;
    }
    clt_free(counts);
    return CLT_OK;
}

/* A rank makes one group in each call of connect. So groups that share a rank get different rounds,
 * in the order of their first members. Returns the number of rounds. */
static int find_rounds(const int *colours, everyone *all)
{
    int rounds = 0;
    for (int p = 0; p < all->total; p++) {
        int first = 0, last = p, round = 0;
        while (colours[first] != colours[p])
            first++;
        for (int q = p; q < all->total; q++)
            if (colours[q] == colours[p]) {
                last = q;
                round = all->busy[all->rank[q]] > round ? all->busy[all->rank[q]] : round;
            }
        /* Participants are in the order of their ranks. */
        const bool local = colours[p] < 0 || all->rank[first] == all->rank[last];
        if (first < p || local) {
            all->round[p] = first < p ? all->round[first] : LOCAL;
            continue;
        }
        all->round[p] = round;
        for (int q = p; q < all->total; q++)
            if (colours[q] == colours[p])
                all->busy[all->rank[q]] = round + 1;
        rounds = round + 1 > rounds ? round + 1 : rounds;
    }
    return rounds;
}

/* Makes this rank's groups. All ranks make the same calls of connect, even after a failure. */
static clt_status open_groups(connection *c, const int *colours, const everyone *all, int rounds,
                              bool sends, group *g)
{
    const int *own = colours + all->first, *round = all->round + all->first;
    clt_status status = CLT_OK;
    for (int r = 0; r < rounds; r++) {
        int color = -1;
        for (int d = 0; d < c->count; d++)
            color = round[d] == r ? own[d] : color;
        const clt_status opened = open_comm(c, color, own, color, sends, g);
        status = status == CLT_OK ? opened : status;
    }
    for (int d = 0; d < c->count && status == CLT_OK; d++)
        if (own[d] >= 0 && round[d] == LOCAL && !g->of[d])
            status = open_comm(c, LOCAL, own, own[d], sends, g);
    return status;
}

static clt_status split(void *self, const int *colours, bool sends, int *out)
{
    connection *c = self;
    everyone all = {0};
    group g = {0};
    int rounds = 0;
    clt_status status = find_everyone(c, &all);
    if (status == CLT_OK) {
        rounds = find_rounds(colours, &all);
        status = CLT_RESERVE(c->groups, c->n_groups, c->groups_room, 1);
        CLT_NEXT(status, CLT_RESERVE(c->comms, c->n_comms, c->comms_room, rounds + c->count));
        status = clt_ranks_agree(c->world, status, NULL);
    }
    CLT_NEXT(status,
             clt_ranks_agree(c->world, open_groups(c, colours, &all, rounds, sends, &g), NULL));
    clt_free(all.rank);
    CLT_TRY(status);
    c->groups[c->n_groups] = g;
    *out = c->n_groups++;
    return CLT_OK;
}

clt_status clt_collectives_open(clt_device *const *devices, int count, const clt_world *world,
                                double timeout, clt_connect_path path, clt_collectives *table)
{
    static const clt_comm_path paths[] = {[CLT_CONNECT_AUTO] = CLT_COMM_PATH_AUTO,
                                          [CLT_CONNECT_STAGED] = CLT_COMM_PATH_STAGED,
                                          [CLT_CONNECT_PEER] = CLT_COMM_PATH_PEER};
    const int all[CLT_MOST_DEVICES] = {0};
    connection *c = CLT_NEW(connection);
    clt_status status = c ? CLT_RESERVE(c->groups, 0, c->groups_room, 1) : CLT_OUT_OF_MEMORY;
    if (status == CLT_OK) {
        c->world = world;
        clt_comm_options_init(&c->options);
        c->options.path = paths[path];
        c->options.timeout_ms = (int)fmin(timeout * 1e3, INT_MAX);
        for (int d = 0; d < count; d++) {
            c->devices[d] = devices[d];
            if (devices[d]->sleep_poll)
                c->options.wait_poll_us = 100;
        }
        c->count = count;
        c->groups[0] = (group){0};
        c->n_groups = 1;
        status = CLT_RESERVE(c->comms, 0, c->comms_room, 1);
        CLT_NEXT(status, open_comm(c, several_ranks(c) ? 0 : LOCAL, all, 0, false, &c->groups[0]));
    }
    if (status != CLT_OK) {
        if (c)
            close_all(c);
        return status;
    }
    *table = (clt_collectives){.self = c,
                               .start = start,
                               .complete = complete,
                               .reserve = reserve,
                               .residual_open = residual_open,
                               .residual_close = residual_close,
                               .residual_accept = residual_accept,
                               .residual_has = residual_has,
                               .residual_get = residual_get,
                               .residual_set = residual_set,
                               .split = split,
                               .stop = stop,
                               .status = status_of,
                               .needs_progress = needs_progress,
                               .progress = progress,
                               .finish = finish,
                               .explain = explain,
                               .close = close_all};
    return CLT_OK;
}

void clt_collectives_close(clt_collectives *table)
{
    if (table->close)
        table->close(table->self);
    *table = (clt_collectives){0};
}
