#include "ops/harness/compared.h"

enum { OP_MAX_COMPARED = 512 };

static struct op_compared {
    const clt_op *op;
    const clt_variant *variant; /* NULL: a view */
} op_compared[OP_MAX_COMPARED];
static int op_n_compared;

static bool op_was_compared(const clt_op *op, const clt_variant *variant)
{
    for (int i = 0; i < op_n_compared; i++)
        if (op_compared[i].op == op && op_compared[i].variant == variant)
            return true;
    return false;
}

void op_record_compared(const clt_plan *plan)
{
    for (int i = 0; i < plan->n_nodes; i++) {
        const clt_plan_node *pn = &plan->nodes[i];
        if (op_was_compared(pn->node->op, pn->variant))
            continue;
        assert_true(op_n_compared < OP_MAX_COMPARED);
        op_compared[op_n_compared++] = (struct op_compared){pn->node->op, pn->variant};
    }
}

bool op_has_clblast(void)
{
    return !getenv("CLT_TEST_OCLGRIND") && clt_clblast_found();
}

void op_write_compared(const clt_caps *caps)
{
    const char *path = getenv("CLT_OPS_RUN");
    if (!path)
        return;
    FILE *file = fopen(path, "w");
    if (!file)
        fail_msg("%s, which CLT_OPS_RUN names, cannot be written", path);
    fprintf(file, "device %s\n", caps->name);
    fprintf(file, "%scpu\n", clt_caps_is_cpu(caps) ? "has " : "no ");
    fprintf(file, "%sunits\n", caps->compute_units > 1 ? "has " : "no ");
    fprintf(file, "%ssubgroups\n", caps->subgroups ? "has " : "no ");
    fprintf(file, "%sclblast\n", op_has_clblast() ? "has " : "no ");
    int count;
    const clt_op *const *ops = clt_ops(&count);
    for (int i = 0; i < count; i++) {
        const clt_variant *v = ops[i]->variants;
        if (!v)
            fprintf(file, "%s %s -\n", op_was_compared(ops[i], NULL) ? "compared" : "listed",
                    ops[i]->name);
        for (; v && v->name; v++)
            fprintf(file, "%s %s %s\n", op_was_compared(ops[i], v) ? "compared" : "listed",
                    ops[i]->name, v->name);
    }
    assert_int_equal(fclose(file), 0);
}
