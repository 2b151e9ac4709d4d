/* The parts of the choice of what backward recomputes: a choice and its cost. */
#ifndef CLT_PLAN_RECOMPUTE_INTERNAL_H
#define CLT_PLAN_RECOMPUTE_INTERNAL_H

#include "plan/recompute.h"

/* Seconds of a launch, for comparing nodes: a processor's order of magnitude. */
#define CLT_LAUNCH_SECONDS 3e-6

/* A place in the schedule. */
typedef struct clt_recompute_item {
    int node;
    bool copy; /* the one that backward computes */
} clt_recompute_item;

typedef struct clt_recompute_visit {
    int node, next; /* `next`: the operand to visit next */
} clt_recompute_visit;

/* What a choice costs. */
typedef struct clt_recompute_cost {
    int64_t peak;   /* bytes */
    double excess;  /* bytes over the target, summed over the schedule */
    double seconds; /* time of the copies */
} clt_recompute_cost;

struct clt_recompute {
    const clt_plan *plan;
    int n_values, n_nodes;
    int *root;                 /* by value: the value that owns its memory; -1: not in the arena */
    int64_t *bytes;            /* by value, of roots */
    bool *lasting;             /* by value, of roots: lives to the end of the step anyway */
    bool *fetched;             /* by value, of roots: lives to the end of forward anyway */
    int64_t *scratch;          /* by node */
    int64_t *left;             /* by node: bytes that it leaves to the end, see clt_plan.further */
    double *seconds;           /* by node */
    bool *fixed;               /* by node: never recomputed */
    bool *candidate;           /* by node: the backward pass reads its results */
    bool *recomputed;          /* by node: the choice: recompute it */
    bool *recomputed_values;   /* by value: the choice, for the pass */
    double *gains;             /* by node: the gain when last evaluated */
    int *looked;               /* by node: version of the choice when last evaluated */
    bool *best;                /* by node: the best choice so far */
    clt_recompute_item *order; /* the schedule of the choice */
    int n_order;
    clt_recompute_visit *stack; /* of the nodes whose copies are being ordered */
    bool *made;                 /* by node: its copy is in `order` */
    int *last;     /* by instance (value, or n_values + value for its copy): last use */
    int *block;    /* by instance: the instance whose block it overwrites */
    int *died;     /* by instance: when its block dies */
    int64_t *live; /* by place in `order` */
    int64_t work;  /* places of the schedule that evaluations have visited */
};

/* plan/recompute_cost.c: whether the value owns its memory in the arena. */
bool clt_recompute_is_root(const clt_recompute *r, const clt_value *value);

/* Whether the backward pass and copies read a copy of the value. */
bool clt_recompute_is_copied(const clt_recompute *r, const clt_value *value);

/* The cost of the choice in r->recomputed. */
clt_recompute_cost clt_recompute_evaluate(clt_recompute *r, double target);

/* plan/recompute_search.c: whether the search has taken so long that it gives up. */
bool clt_recompute_search_is_long(const clt_recompute *r);

/* Chooses the least peak that is found, and returns it in bytes. */
double clt_recompute_search_least(clt_recompute *r);

/* Chooses as little as is found to bring the peak to at most `bytes`; false: not found. */
bool clt_recompute_search_within(clt_recompute *r, double bytes);

/* plan/recompute_segments.c: whether the graph is too large for the search. */
bool clt_recompute_is_large(const clt_recompute *r);

/* Chooses as little as is found to bring the peak to at most `bytes` (0: to the least); false: not
 * found. */
bool clt_recompute_segments(clt_recompute *r, int64_t bytes);

#endif
