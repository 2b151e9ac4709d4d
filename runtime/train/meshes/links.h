/* The time of a collective of a group of devices: from measurements of the devices at hand, or from
 * the links of machines that are not there. */
#ifndef CLT_TRAIN_MESHES_LINKS_H
#define CLT_TRAIN_MESHES_LINKS_H

#include "train/planner/cost.h"
#include "train/program/timeline.h"

enum { CLT_CURVE_POINTS = 3 };

/* Times of exchanges of several sizes, ascending. */
typedef struct clt_exchange_curve {
    double bytes[CLT_CURVE_POINTS], seconds[CLT_CURVE_POINTS];
} clt_exchange_curve;

/* Exchanges of one group of devices. */
typedef struct clt_exchange_curves {
    int devices; /* that took part; 0: nothing was measured */
    clt_exchange_curve reduce, scatter, gather, shift;
} clt_exchange_curves;

typedef struct clt_mesh_links {
    /* Measured. */
    bool on_host; /* the cores that compute also exchange */
    int per_rank; /* devices of a rank */
    /* All devices; those of a rank; one of each rank. The last two are measured where they differ
     * from all. */
    clt_exchange_curves all, inside, across;
    /* Sums of gradients among all devices in the type of the wire, by bytes of that type. */
    clt_exchange_curves wire;
    /* Simulated. */
    bool simulated;
    int per_node;      /* devices of a node */
    clt_network link;  /* of a device to others of its node */
    clt_network inter; /* of a node to others; its devices share it */
    bool half;         /* gradients travel in 16 bits, and are f32 */
} clt_mesh_links;

/* Returns the time of an exchange of `bytes`: between the points of the curve, or on the line
 * through the last two. */
double clt_curve_at(const clt_exchange_curve *curve, double bytes);

/*
 * Prices an exchange; a clt_timeline_price whose user is a clt_mesh_links.
 *
 * Measured: groups within a rank, and with one device of each rank, have curves of their own. The
 * latency is the curve's. Gradients have the curves of the wire, if those were measured. The rest
 * is in proportion to what each of m members sends in a ring, which is (m - 1) / m of the bytes.
 *
 * Simulated: an all-reduce first adds up the members of a node, then the nodes, each by a ring or
 * by halving (clt_network_reduce). Groups that leave a node at the same time share its link. Half
 * of an all-reduce is a reduce-scatter or a gather.
 */
clt_timeline_cost clt_mesh_price(void *links, const clt_timeline_exchange *exchange);

/* Predicts an all-reduce of `bytes` among `members` of simulated machines whose numbers differ by
 * `stride`. */
double clt_mesh_reduce(const clt_mesh_links *links, int members, int stride, double bytes);

#endif
