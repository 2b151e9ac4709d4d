#include "gpu/covered.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/core/ops.h"

enum { MOST = 1024 };

typedef struct row {
    const clt_op *op;
    const clt_variant *variant; /* NULL: a view, which launches nothing */
    bool compiled, tried;
    bool cpu;  /* accepts a node on a CPU */
    bool gpu;  /* accepts a node on a GPU, but is in no plan for one */
    bool more; /* accepts a node on a GPU that has all features */
} row;

static row rows[MOST];
static int n_rows;

static row *find(const clt_op *op, const clt_variant *variant)
{
    for (int i = 0; i < n_rows; i++)
        if (rows[i].op == op && rows[i].variant == variant)
            return &rows[i];
    fprintf(stderr, "gpu_launches: operator %s is not in ops.def\n", op->name);
    exit(1);
}

/* Lists all rows of all operators' tables. */
static void list(void)
{
    int count;
    const clt_op *const *ops = clt_ops(&count);
    if (n_rows)
        return;
    for (int i = 0; i < count; i++) {
        if (ops[i]->collective) /* the host does these: nothing is compiled */
            continue;
        const clt_variant *v = ops[i]->view ? NULL : ops[i]->variants;
        do {
            if (n_rows == MOST) {
                fprintf(stderr, "gpu_launches: more than %d variants\n", MOST);
                exit(1);
            }
            rows[n_rows++] = (row){.op = ops[i], .variant = v && v->name ? v : NULL};
        } while (v && v->name && (++v)->name);
    }
}

static bool accepts(const clt_plan *plan, int node, const clt_variant *v, const clt_caps *caps)
{
    const clt_plan_node *pn = &plan->nodes[node];
    char name[128], why[CLT_WHY];
    const clt_target target = {.caps = caps,
                               .lanes = plan->options.lanes,
                               .max_batch = plan->options.max_batch,
                               .variants = name};
    snprintf(name, sizeof name, "%s=%s", pn->node->op->name, v->name);
    return !v->accepts || v->accepts(pn->node, &target, why);
}

/* Returns a GPU with all features. */
static clt_caps complete(const clt_caps *caps)
{
    clt_caps more = *caps;
    more.subgroups = more.fp16 = more.fp64 = more.clblast = true;
    if (!more.matrix.kind)
        more.matrix = (clt_matrix_unit){CLT_MATRIX_MMA, true, true, false};
    return more;
}

void covered_by(const clt_plan *plan)
{
    list();
    const clt_caps more = complete(&plan->caps);
    for (int i = 0; i < plan->n_nodes; i++) {
        const clt_plan_node *pn = &plan->nodes[i];
        find(pn->node->op, pn->variant)->compiled = true;
        for (const clt_variant *v = pn->variant ? pn->node->op->variants : NULL; v && v->name;
             v++) {
            row *r = find(pn->node->op, v);
            r->more = r->more || accepts(plan, i, v, &more);
        }
    }
}

bool covered_find(const clt_plan *plan, char *asked, size_t room)
{
    for (int i = 0; i < plan->n_nodes; i++) {
        const clt_op *op = plan->nodes[i].node->op;
        for (const clt_variant *v = plan->nodes[i].variant ? op->variants : NULL; v && v->name;
             v++) {
            row *r = find(op, v);
            if (r->compiled || r->tried || !accepts(plan, i, v, &plan->caps))
                continue;
            r->tried = true;
            snprintf(asked, room, "%s=%s", op->name, v->name);
            return true;
        }
    }
    return false;
}

void covered_on_cpu(const clt_plan *plan, const clt_caps *gpu)
{
    const clt_caps more = complete(gpu);
    for (int i = 0; i < plan->n_nodes; i++) {
        const clt_plan_node *pn = &plan->nodes[i];
        const bool plain = clt_all_plain(pn->node);
        for (const clt_variant *v = pn->variant ? pn->node->op->variants : NULL; v && v->name;
             v++) {
            row *r = find(pn->node->op, v);
            r->cpu = r->cpu || accepts(plan, i, v, &plan->caps);
            /* Plans for GPUs have no batch-blocked values: passes/choose_layout.c. */
            r->gpu = r->gpu || (plain && accepts(plan, i, v, &more));
        }
    }
}

int covered_report(const clt_caps *caps)
{
    int missing = 0;
    for (int i = 0; i < n_rows; i++) {
        const row *r = &rows[i];
        const char *name = r->variant ? r->variant->name : "view";
        if (r->compiled || (r->cpu && !r->gpu))
            continue;
        /* Nodes have 16-bit operands that only these variants take, if there is a unit for them. */
        const bool needs_unit =
            strstr(name, "matrix") && !strcmp(caps->vendor, "Intel(R) Corporation");
        if ((r->more && !r->tried) || needs_unit) {
            fprintf(stderr,
                    "%s of %s is not compiled for %s, whose drivers do not report what it needs\n",
                    name, r->op->name, caps->name);
            continue;
        }
        missing++;
        fprintf(stderr,
                "gpu_launches: %s: %s of %s is in no plan: give tests/gpu a layer that has it\n",
                caps->name, name, r->op->name);
    }
    return missing;
}
