#include "train/ranks/connect.h"

#include <limits.h>
#include <math.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/vec.h"
#include "train/ranks/world.h"
#include <cltrain/comm.h>

/* One communicator for each device of this rank, after a split by colour. */
typedef struct group {
    clt_comm *of[CLT_MOST_DEVICES]; /* by device; several devices may have the same */
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
    op->label = what->label;
}

static clt_status start(void *self, int device, const clt_collective *what, cl_uint n_wait,
                        const cl_event *wait, clt_collective_request *request)
{
    const connection *c = self;
    clt_comm_op op;
    clt_comm_request *started;
    if (what->group < 0 || what->group >= c->n_groups)
        return clt_fail(CLT_INTERNAL, "%s: there is no group %d of devices, only %d",
                        what->label ? what->label : "a collective", what->group, c->n_groups);
    const group *g = &c->groups[what->group];
    translate(what, &op);
    CLT_TRY(clt_comm_start(g->of[device], g->index[device], -1, &op, (int)n_wait, wait, &started));
    *request = (clt_collective_request){started, what->group};
    return CLT_OK;
}

static clt_status complete(void *self, int device, const clt_collective_request *request,
                           clt_collective_result *result)
{
    const connection *c = self;
    clt_comm_result measured;
    clt_comm_result_init(&measured);
    CLT_TRY(clt_comm_complete(request->request, c->groups[request->group].index[device], &measured,
                              NULL));
    result->sum_squares = measured.sum_squares;
    result->finite = measured.finite != 0;
    result->votes = measured.votes;
    result->ready = measured.ready;
    result->done = measured.done;
    return CLT_OK;
}

static clt_status reserve(void *self, int device, int64_t bytes, int requests)
{
    const connection *c = self;
    return clt_comm_reserve(c->groups[0].of[device], device, bytes, requests);
}

/* --- all communicators ----------------------------------------------------------------------- */

static void stop(void *self, clt_status status, const char *message)
{
    const connection *c = self;
    for (int i = 0; i < c->n_comms; i++)
        clt_comm_abort(c->comms[i], status, message);
}

static clt_status status_of(void *self)
{
    const connection *c = self;
    for (int i = 0; i < c->n_comms; i++)
        CLT_TRY(clt_comm_status(c->comms[i]));
    return CLT_OK;
}

static void progress(void *self)
{
    const connection *c = self;
    for (int i = 0; i < c->n_comms; i++)
        clt_comm_progress(c->comms[i]);
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

/* Opens a communicator over this rank's devices that are members; with `ranks`, over the members of
 * all ranks. */
static clt_status open_comm(connection *c, const bool *member, bool ranks, group *g)
{
    clt_comm_device list[CLT_MOST_DEVICES];
    clt_comm *comm;
    int count = 0;
    for (int d = 0; d < c->count; d++) {
        if (!member[d])
            continue;
        clt_comm_device_init(&list[count]);
        list[count].context = c->devices[d]->context;
        list[count].device = c->devices[d]->id;
        list[count].compute = c->devices[d]->queue;
        g->index[d] = count++;
    }
    CLT_TRY(CLT_RESERVE(c->comms, c->n_comms, c->comms_room, 1));
    CLT_TRY(ranks ? c->world->connect(c->world->user, list, count, &c->options, &comm)
                  : clt_comm_create(list, count, &c->options, &comm));
    c->comms[c->n_comms++] = comm;
    for (int d = 0; d < c->count; d++)
        if (member[d])
            g->of[d] = comm;
    return CLT_OK;
}

static bool several_ranks(const connection *c)
{
    return c->world && c->world->ranks > 1;
}

/* Opens a communicator over the participants with `colour`; those of rank r are [begins[r],
 * begins[r + 1]). All ranks make the same calls, even if one fails on a rank. */
static clt_status open_colour(connection *c, const int *colours, const int *begins, int colour,
                              group *g)
{
    const int ranks = several_ranks(c) ? c->world->ranks : 1, own = ranks > 1 ? c->world->rank : 0;
    bool member[CLT_MOST_DEVICES], here = false;
    int with = 0;
    for (int r = 0; r < ranks; r++) {
        bool any = false;
        for (int p = begins[r]; p < begins[r + 1]; p++) {
            any = any || colours[p] == colour;
            if (r == own)
                member[p - begins[r]] = colours[p] == colour;
        }
        with += any;
        here = here || (any && r == own);
    }
    if (with > 1 && with < ranks)
        return clt_fail(CLT_UNSUPPORTED,
                        "a group of devices (colour %d) lies on %d of %d ranks: put it within one "
                        "rank, or give every rank a device of it",
                        colour, with, ranks);
    return here ? open_comm(c, member, with > 1, g) : CLT_OK;
}

static clt_status split(void *self, const int *colours, int *out)
{
    connection *c = self;
    const int total = clt_comm_size(c->groups[0].of[0]);
    int32_t count = c->count;
    void *counts = NULL;
    int *begins = clt_calloc((size_t)total + 1, sizeof *begins);
    clt_status status =
        begins ? CLT_RESERVE(c->groups, c->n_groups, c->groups_room, 1) : CLT_OUT_OF_MEMORY;
    status = clt_ranks_agree(c->world, status, NULL);
    CLT_NEXT(status, clt_ranks_gather(c->world, &count, sizeof count, &counts));
    for (int r = 0; status == CLT_OK && r < (several_ranks(c) ? c->world->ranks : 1); r++)
        begins[r + 1] = begins[r] + ((const int32_t *)counts)[r];
    group g = {0};
    for (int p = 0; status == CLT_OK && p < total; p++) {
        bool first = colours[p] >= 0;
        for (int before = 0; before < p; before++)
            first = first && colours[before] != colours[p];
        status = colours[p] < 0 ? clt_fail(CLT_INVALID_ARGUMENT, "participant %d has no colour: %d",
                                           p, colours[p])
                 : first        ? open_colour(c, colours, begins, colours[p], &g)
                                : CLT_OK;
    }
    CLT_FREE(counts, begins);
    CLT_TRY(clt_ranks_agree(c->world, status, NULL));
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
    bool all[CLT_MOST_DEVICES];
    connection *c = CLT_NEW(connection);
    clt_status status = c ? CLT_RESERVE(c->groups, 0, c->groups_room, 1) : CLT_OUT_OF_MEMORY;
    if (status == CLT_OK) {
        c->world = world;
        clt_comm_options_init(&c->options);
        c->options.path = paths[path];
        c->options.timeout_ms = (int)fmin(timeout * 1e3, INT_MAX);
        for (int d = 0; d < count; d++) {
            c->devices[d] = devices[d];
            all[d] = true;
            if (devices[d]->sleep_poll)
                c->options.wait_poll_us = 100;
        }
        c->count = count;
        c->groups[0] = (group){0};
        c->n_groups = 1;
        status = open_comm(c, all, several_ranks(c), &c->groups[0]);
    }
    if (status != CLT_OK) {
        if (c)
            close_all(c);
        return status;
    }
    const bool needs = clt_comm_needs_progress(c->comms[0]);
    *table = (clt_collectives){.self = c,
                               .start = start,
                               .complete = complete,
                               .reserve = reserve,
                               .split = split,
                               .stop = stop,
                               .status = status_of,
                               .progress = needs ? progress : NULL,
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
