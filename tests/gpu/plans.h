/*
 * Makes plans for GPUs and prints their launches. A failure ends the program with a message.
 */
#ifndef TESTS_GPU_PLANS_H
#define TESTS_GPU_PLANS_H

#include "base/caps.h"
#include "ops/core/nn.h"
#include "plan/plan.h"
#include <cltrain/ops.h>

#define OK(expression)                                                                             \
    do {                                                                                           \
        if ((expression) != CLT_OK)                                                                \
            stop(#expression);                                                                     \
    } while (0)

extern bool with_tiles;   /* more shapes, and a tuner's tiles */
extern clt_dtype kept_in; /* storage type of layers' values */
extern const char *asked; /* OP=NAME,...: variants instead of a plan's own choice */

extern const char *counted; /* not NULL: plans print counts, and this is their model's name */

/* Ends the program. `what` failed for the reason of the last error. */
void stop(const char *what);

/* Prints a kernel with work-groups of `items` work-items. role: chosen or fallback (launches.c). */
void print_line(const char *file, const char *options, const char *kernel, int64_t items,
                const char *role);

/* Prints a line for each launch of the plan, for its largest batch: file, build options, kernel,
 * model, number of the node, operator, shapes, work-items, work-items of a group, floating-point
 * operations of the node, bytes of the launch's buffers. */
void print_counts(const clt_plan *plan);

/* Plans a graph and destroys it. Also plans the tiles that a tuner would try, and the variants that
 * the plan's choices hide. */
void plan_graph(clt_graph *graph, const clt_caps *caps, clt_plan_mode mode, int64_t batch);

/* Plans one layer and its gradients: `y` in a graph of the inputs x0, x1, x2. */
void plan_layer(clt_graph *graph, clt_value *y, clt_value **x, int n, const clt_caps *caps);

/* Layers by subject. Each subject has a file here. */
void plan_products(const clt_caps *caps);
void plan_long_products(const clt_caps *caps);
void plan_convolutions(const clt_caps *caps);
void plan_reductions(const clt_caps *caps);
void plan_portable_parts(const clt_caps *caps);
void plan_rows(const clt_caps *caps);
void plan_subgroups(const clt_caps *caps);
void plan_moves(const clt_caps *caps);
void plan_places(const clt_caps *caps);
void plan_casts(const clt_caps *caps);
void plan_activations(const clt_caps *caps);
void plan_pooling(const clt_caps *caps);
void plan_norms(const clt_caps *caps);
void plan_resampling(const clt_caps *caps);
void plan_indices(const clt_caps *caps); /* index.c */
void plan_recurrent(const clt_caps *caps);

/* pointwise.c */
void plan_functions(const clt_caps *caps);
void plan_masks(const clt_caps *caps);
void plan_parts(const clt_caps *caps);
void plan_pair_losses(const clt_caps *caps);
void plan_attention(const clt_caps *caps);
void plan_matrix_units(const clt_caps *caps); /* matrix.c */

/* beside.c */
void print_beside(const clt_caps *caps);
void print_sums(const clt_caps *caps);
void print_matrix_probes(const clt_caps *caps);

#endif
