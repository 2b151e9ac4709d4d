#include "train/meshes/links.h"

#include <math.h>
#include <stdlib.h>

#include "ops/core/ops.h"

double clt_curve_at(const clt_exchange_curve *c, double bytes)
{
    int k = 0;
    while (k < CLT_CURVE_POINTS - 2 && bytes > c->bytes[k + 1])
        k++;
    const double slope = (c->seconds[k + 1] - c->seconds[k]) / (c->bytes[k + 1] - c->bytes[k]);
    return fmax(bytes <= c->bytes[0] ? c->seconds[0] : 0,
                c->seconds[k] + fmax(0, slope) * (bytes - c->bytes[k]));
}

/* --- machines that are not there ------------------------------------------------------------- */

/* A group as it lies on nodes: members of a node, nodes, and groups that leave a node at once. */
typedef struct spread {
    int inside, nodes, crossing;
} spread;

/* Whether groups begin at the same places of all nodes: they are whole parts of a node, or whole
 * nodes. */
static bool is_aligned(const clt_mesh_links *l, int members, int stride)
{
    const int span = members * stride;
    return l->per_node % stride == 0 && (l->per_node % span == 0 || span % l->per_node == 0);
}

/* Some groups lie worse on nodes than others, and a step waits for the slowest. A node has the ends
 * of at most two blocks of groups, of `stride` groups each. */
static spread worst_spread(const clt_mesh_links *l, int members, int stride)
{
    const int reach = (members - 1) * stride; /* from the first member to the last */
    const int most = (reach + l->per_node - 1) / l->per_node + 1;
    const int room = (l->per_node + stride - 1) / stride; /* members that a node has at most */
    spread s = {.nodes = most < members ? most : members};
    const int rest = members - s.nodes + 1;
    s.inside = room < rest ? room : rest;
    s.crossing = 2 * stride < l->per_node ? 2 * stride : l->per_node;
    return s;
}

static spread spread_of(const clt_mesh_links *l, int members, int stride)
{
    spread s = {.inside = 1};
    if (stride < l->per_node && !is_aligned(l, members, stride))
        return worst_spread(l, members, stride);
    if (stride < l->per_node)
        s.inside = l->per_node / stride < members ? l->per_node / stride : members;
    s.nodes = (members + s.inside - 1) / s.inside;
    s.crossing = l->per_node / s.inside > 1 ? l->per_node / s.inside : 1;
    return s;
}

static clt_network shared(const clt_network *inter, int groups)
{
    return (clt_network){inter->bytes_per_second / groups, inter->latency};
}

double clt_mesh_reduce(const clt_mesh_links *l, int members, int stride, double bytes)
{
    const spread s = spread_of(l, members, stride);
    const clt_network between = shared(&l->inter, s.crossing);
    clt_network_algorithm algorithm;
    double seconds = 0;
    if (s.inside > 1)
        seconds += clt_network_reduce(&l->link, s.inside, bytes, &algorithm);
    if (s.nodes > 1)
        seconds += clt_network_reduce(&between, s.nodes, bytes, &algorithm);
    return seconds;
}

/* The link between two devices; those of a node send at the same time. */
static double message(const clt_mesh_links *l, int from, int to, double bytes)
{
    const bool near = from / l->per_node == to / l->per_node;
    const int apart = abs(from - to);
    const clt_network between = shared(&l->inter, apart < l->per_node ? apart : l->per_node);
    const clt_network *network = near ? &l->link : &between;
    return network->latency + bytes / network->bytes_per_second;
}

static double simulate(const clt_mesh_links *l, const clt_timeline_exchange *e, double bytes)
{
    const clt_step_program_input *in = e->input;
    const int first = clt_group_member(in, e->group, e->participant, 0);
    const int last = clt_group_member(in, e->group, e->participant, e->members - 1);
    double longest = 0;
    switch (e->kind) {
    case CLT_OP_SEND:
        return message(l, first, last, bytes);
    case CLT_OP_SHIFT: /* all at once: the slowest link counts */
        for (int k = 1; k < e->members; k++)
            longest =
                fmax(longest, message(l, clt_group_member(in, e->group, e->participant, k - 1),
                                      clt_group_member(in, e->group, e->participant, k),
                                      bytes / (e->members - 1)));
        return longest;
    case CLT_OP_ALL_GATHER:
    case CLT_OP_REDUCE_SCATTER:
        return 0.5 * clt_mesh_reduce(l, e->members, e->stride, bytes);
    default:
        return clt_mesh_reduce(l, e->members, e->stride, bytes);
    }
}

/* --- machines at hand ------------------------------------------------------------------------ */

static bool is_gradient(const clt_timeline_exchange *e)
{
    return e->on == CLT_ON_GRADIENT || e->on == CLT_ON_TIED;
}

/* Returns the curves of the group that is most like the one of the exchange. */
static const clt_exchange_curves *curves_of(const clt_mesh_links *l, const clt_timeline_exchange *e)
{
    bool inside = l->inside.devices > 0, across = l->across.devices > 0;
    int before = -1;
    if (l->wire.devices && is_gradient(e))
        return &l->wire;
    for (int k = 0; (inside || across) && k < e->members; k++) {
        const int rank = clt_group_member(e->input, e->group, e->participant, k) / l->per_rank;
        inside = inside && (k == 0 || rank == before);
        across = across && rank != before;
        before = rank;
    }
    return inside ? &l->inside : across ? &l->across : &l->all;
}

/* The part of the bytes that each member of a ring sends. */
static double ring(int members)
{
    return (members - 1.0) / members;
}

static double measured(const clt_mesh_links *l, const clt_timeline_exchange *e, double bytes)
{
    const clt_exchange_curves *of = curves_of(l, e);
    const clt_exchange_curve *c = e->kind == CLT_OP_ALL_GATHER       ? &of->gather
                                  : e->kind == CLT_OP_REDUCE_SCATTER ? &of->scatter
                                  : e->kind == CLT_OP_ALL_REDUCE     ? &of->reduce
                                                                     : &of->shift;
    if (e->kind == CLT_OP_SHIFT)
        bytes /= e->members - 1;
    const double least = c->seconds[0];
    if (e->kind == CLT_OP_SEND || e->kind == CLT_OP_SHIFT)
        return clt_curve_at(c, bytes);
    return least + fmax(0, clt_curve_at(c, bytes) - least) * ring(e->members) / ring(of->devices);
}

clt_timeline_cost clt_mesh_price(void *user, const clt_timeline_exchange *e)
{
    const clt_mesh_links *l = user;
    const bool rounds = l->half && is_gradient(e);
    const double bytes = (rounds ? 0.5 : 1) * (double)e->bytes;
    if (e->members < 2)
        return (clt_timeline_cost){0};
    if (l->simulated)
        return (clt_timeline_cost){.network = simulate(l, e, bytes)};
    const double seconds = measured(l, e, bytes);
    return l->on_host && e->kind != CLT_OP_SEND ? (clt_timeline_cost){.local = seconds}
                                                : (clt_timeline_cost){.network = seconds};
}
