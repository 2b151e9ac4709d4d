/* Selects the variants that a case's plans ask for, so that all are compared. For harness.h. */
#ifndef TESTS_OPS_VARIANTS_H
#define TESTS_OPS_VARIANTS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "plan/plan.h"

/* How a plan is made. */
typedef struct op_mode {
    bool as_gpu, portable;
    clt_dtype precision; /* 0 or F32; F16 or BF16: precision of values between input and output */
    char variants[1024]; /* OP=NAME,... or "" */
    int tile;            /* number of the tuner's tile, from 1 on; 0: none */
    const char *options; /* options of a record instead; NULL: none */
} op_mode;

static const op_mode op_as_device = {.as_gpu = false};

enum { OP_MAX_ASKED = 128 };

/* The variants of the operators in a case's plans, and which of them were compared. */
typedef struct op_walk {
    struct op_asked {
        const clt_op *op;
        const clt_variant *variant;
        bool as_gpu, done, now, alone;
    } asked[OP_MAX_ASKED];
    int count;
} op_walk;

/* Adds the variants that accept a node of the plan when they are asked for. The variant that the
 * plan uses is done. Several operators may share a table of variants. */
static inline void op_list_variants(const clt_plan *plan, op_walk *w)
{
    for (int i = 0; i < plan->n_nodes; i++) {
        const clt_plan_node *pn = &plan->nodes[i];
        char name[sizeof((op_mode *)NULL)->variants];
        const clt_target target = {.caps = &plan->caps,
                                   .lanes = plan->options.lanes,
                                   .max_batch = plan->options.max_batch,
                                   .variants = name};
        for (const clt_variant *v = pn->node->op->variants; v && v->name; v++) {
            char why[CLT_WHY];
            bool known = false;
            snprintf(name, sizeof name, "%s=%s", pn->node->op->name, v->name);
            for (int j = 0; j < w->count; j++)
                known = known || (w->asked[j].op == pn->node->op && w->asked[j].variant == v);
            if (known || (v->accepts && !v->accepts(pn->node, &target, why)))
                continue;
            assert_true(w->count < OP_MAX_ASKED);
            w->asked[w->count++] = (struct op_asked){.op = pn->node->op,
                                                     .variant = v,
                                                     .as_gpu = plan->caps.kind == CLT_KIND_GPU,
                                                     .done = v == pn->variant};
        }
    }
}

/* Makes a mode that asks by name for one variant of each operator that is not done. Returns false
 * if all are done. */
static inline bool op_ask(op_walk *w, op_mode *mode)
{
    const struct op_asked *first = NULL;
    *mode = op_as_device;
    for (int i = 0; i < w->count; i++)
        w->asked[i].now = false;
    for (int i = 0; i < w->count && !(first && first->alone); i++) {
        struct op_asked *a = &w->asked[i];
        bool wait = a->done || (first && (a->as_gpu != first->as_gpu || a->alone));
        for (int j = 0; j < i; j++)
            wait = wait || (w->asked[j].now && w->asked[j].op == a->op);
        if (wait)
            continue;
        const size_t used = strlen(mode->variants), room = sizeof mode->variants - used;
        const int n = snprintf(mode->variants + used, room, "%s%s=%s", used ? "," : "", a->op->name,
                               a->variant->name);
        assert_true(n > 0 && (size_t)n < room);
        mode->as_gpu = a->as_gpu;
        a->now = true;
        first = first ? first : a;
    }
    return first != NULL;
}

/* Marks variants that the plan has as done. If the plan lacks one, another variant asked for is in
 * its way because of its layouts. Then it is asked for without others. */
static inline void op_asked_for(op_walk *w, const clt_plan *plan)
{
    for (int i = 0; i < w->count; i++) {
        struct op_asked *a = &w->asked[i];
        for (int j = 0; a->now && j < plan->n_nodes; j++)
            a->done = a->done ||
                      (plan->nodes[j].node->op == a->op && plan->nodes[j].variant == a->variant);
        if (a->now && !a->done && a->alone)
            fail_msg("variant %s of %s accepts, and is not taken when it is asked for",
                     a->variant->name, a->op->name);
        a->alone = a->now && !a->done;
    }
}

#endif
