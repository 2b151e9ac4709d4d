/* Writes what a device does for one micro-batch: feed, the segments of nodes with the collectives
 * between them, and the sums of gradients. */
#include "train/program/generate.h"

typedef clt_program_writer writer;

/* Further micro-batches in f32 write gradients to a second set in the arena, which is added to the
 * first. Each virtual shard writes a whole set. */
static int set_of(const writer *w, int micro)
{
    return micro != 0 && !w->in->half && !w->in->tree;
}

/* Adds a RUN or INSPECT. */
static void nodes(writer *w, clt_instruction_kind kind, int first, int end, int micro)
{
    clt_write(w, (clt_instruction){.kind = kind,
                                   .item = -1,
                                   .first = first,
                                   .end = end,
                                   .micro = micro,
                                   .set = set_of(w, micro),
                                   .version = CLT_VERSION_OLD,
                                   .peer = -1});
}

/* Adds a collective of the graph, of the devices along its axis. */
static void of_node(writer *w, clt_instruction_kind kind, int item, int micro, int version)
{
    const clt_step_program_input *in = w->in;
    const clt_outline_collective *c = &in->plan->collectives[item];
    const int own = clt_mesh_coordinate(&in->mesh, CLT_AXIS_PIPELINE, in->self);
    const bool sends = clt_outline_sends(in->plan, item);
    if (!sends && !clt_outline_receives(in->plan, item))
        clt_write_collective(w, clt_group_along(in, (clt_axis)c->axis), kind, CLT_ON_NODE, item,
                             micro, version, -1);
    else
        clt_write_collective(w, clt_group_edge(in, sends ? own : c->peer, sends ? c->peer : own),
                             kind, CLT_ON_NODE, item, micro, version, c->peer > own);
}

void clt_write_sent(writer *w, int end, int micro)
{
    const clt_outline *plan = w->in->plan;
    for (int k = 0; k < plan->n_collectives; k++)
        if (clt_outline_sends(plan, k) && plan->collectives[k].node < end)
            of_node(w, CLT_DO_COMPLETE, k, micro, CLT_VERSION_REDUCED);
}

/* Completes collectives [*next, begun) up to the first that no node before `node` + 1 needs, but
 * for sends. */
static void complete_needed(writer *w, int *next, int begun, int node, int micro)
{
    const clt_outline *plan = w->in->plan;
    for (; *next < begun; ++*next) {
        if (clt_outline_sends(plan, *next))
            continue;
        if (plan->collectives[*next].needed > node)
            break;
        of_node(w, CLT_DO_COMPLETE, *next, micro, CLT_VERSION_REDUCED);
    }
}

/* Adds the segments within nodes [first, end). A collective of the graph starts behind its node and
 * is complete before the first node that needs it. With `reduce`, a bucket's reduction starts when
 * its last gradient is enqueued, and between the same collectives of the graph on all devices. */
static void run_nodes(writer *w, int first, int end, int micro, bool reduce)
{
    const clt_outline *plan = w->in->plan;
    int begun = 0, completed, ready = 0;
    while (begun < plan->n_collectives && plan->collectives[begun].node < first)
        begun++;
    completed = begun;
    for (int i = 0; i < plan->n_segments && plan->segments[i].first < end; i++) {
        const clt_segment *s = &plan->segments[i];
        if (s->first >= first) {
            complete_needed(w, &completed, begun, s->first, micro);
            nodes(w, CLT_DO_RUN, s->first, s->end, micro);
            if (s->begins >= 0)
                of_node(w, CLT_DO_START, begun++, micro, micro);
        }
        while (reduce && ready < s->end_ready && w->in->after[plan->ready[ready]] <= begun)
            clt_write_start_gradient(w, plan->ready[ready++]);
    }
    while (reduce && !plan->n_nodes && ready < plan->n_ready)
        clt_write_start_gradient(w, plan->ready[ready++]);
    complete_needed(w, &completed, begun, plan->n_nodes, micro);
}

static void feed(writer *w, int micro)
{
    if (w->in->poison)
        clt_write_plain(w, CLT_DO_POISON, micro, CLT_VERSION_ANY);
    clt_write_plain(w, CLT_DO_FEED, micro, CLT_VERSION_ANY);
}

void clt_write_upstream(writer *w, int micro)
{
    if (w->in->host_weights)
        clt_write_plain(w, w->in->scaled ? CLT_DO_UPSTREAM_SCALED : CLT_DO_UPSTREAM, micro,
                        CLT_VERSION_ANY);
}

void clt_write_forward(writer *w, int micro)
{
    feed(w, micro);
    clt_write_upstream(w, micro);
    run_nodes(w, 0, w->in->plan->n_forward, micro, false);
    if (w->in->means)
        clt_write_plain(w, CLT_DO_MEAN, micro, micro);
    clt_write_plain(w, CLT_DO_FETCH, micro, micro);
}

void clt_write_backward(writer *w, int micro, bool reduce)
{
    if (!w->in->host_weights && w->in->plan->n_nodes)
        clt_write_plain(w, CLT_DO_UPSTREAM_DEVICE, micro, micro);
    if (w->in->plan->output_gradients)
        clt_write_plain(w, CLT_DO_FEED_GRADIENTS, micro, CLT_VERSION_ANY);
    if (w->in->plan->unwritten && !set_of(w, micro)) /* without nodes, no gradient is written */
        clt_write_plain(w, w->in->plan->n_nodes ? CLT_DO_CLEAR : CLT_DO_ZERO, micro,
                        CLT_VERSION_ANY);
    run_nodes(w, w->in->plan->n_forward, w->in->plan->n_nodes, micro, reduce);
    if (w->in->plan->input_gradients)
        clt_write_plain(w, CLT_DO_KEEP, micro, micro);
    if (w->in->tree && clt_load_is_many(w->load))
        clt_write_plain(w, CLT_DO_MERGE, micro, micro);
    else if (!w->in->tree && (w->in->half ? clt_load_is_many(w->load) : micro != 0))
        clt_write_plain(w, w->in->half ? CLT_DO_ADD_HALF : CLT_DO_ADD, micro, micro);
}

void clt_write_forward_again(writer *w)
{
    if (w->in->poison)
        clt_write_plain(w, CLT_DO_POISON, 0, CLT_VERSION_ANY);
    run_nodes(w, 0, w->in->plan->n_forward, 0, false);
}

/* A device without samples has no gradient. It still computes states that do not depend on the
 * batch. */
void clt_write_idle(writer *w)
{
    const clt_outline *plan = w->in->plan;
    if (!plan->n_assigns)
        return;
    feed(w, 0);
    run_nodes(w, 0, plan->n_forward, 0, false);
    if (w->in->means)
        clt_write_plain(w, CLT_DO_MEAN, 0, 0);
}

void clt_write_weights(writer *w, int micro)
{
    feed(w, micro);
    run_nodes(w, 0, w->in->plan->n_forward, micro, false);
    clt_write_sent(w, w->in->plan->n_forward, micro);
}

void clt_write_outside(writer *w, int micro)
{
    if (w->in->poison)
        clt_write_plain(w, CLT_DO_POISON, micro, CLT_VERSION_ANY);
    clt_write_plain(w, CLT_DO_FEED, micro, CLT_VERSION_ANY);
    run_nodes(w, 0, w->in->plan->n_forward, micro, false);
    clt_write_plain(w, CLT_DO_FETCH, micro, micro);
    clt_write_sent(w, w->in->plan->n_forward, micro);
    if (w->in->carries && w->in->plan->n_assigns)
        clt_write_plain(w, CLT_DO_CARRY, micro, micro);
}

/* Runs a micro-batch of an earlier step node by node. Other devices do not take part. */
void clt_write_diagnosis(writer *w, int micro)
{
    const clt_outline *plan = w->in->plan;
    clt_write_refeed(w, micro);
    for (int node = 0, k = 0; node < plan->n_nodes; node++) {
        nodes(w, CLT_DO_RUN, node, node + 1, micro);
        if (k < plan->n_collectives && plan->collectives[k].node == node)
            of_node(w, CLT_DO_STAND_IN, k++, micro, micro);
        nodes(w, CLT_DO_INSPECT, node, node + 1, micro);
    }
}
