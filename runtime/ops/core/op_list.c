/* The list of operators, and the public functions that read the schema. */
#include "ops/core/ops.h"

#include <string.h>

static const clt_op *const all[] = {
#define CLT_OP(name) &clt_op_##name,
#define CLT_CALL(name) &clt_call_##name,
#include "ops/core/ops.def"
#undef CLT_OP
#undef CLT_CALL
};

/* The operators that are nodes, in the order of `all`. */
static const clt_op *const nodes[] = {
#define CLT_OP(name) &clt_op_##name,
#define CLT_CALL(name)
#include "ops/core/ops.def"
#undef CLT_OP
#undef CLT_CALL
};

const clt_op *const *clt_ops(int *count)
{
    *count = (int)(sizeof nodes / sizeof *nodes);
    return nodes;
}

int clt_operator_count(void)
{
    return (int)(sizeof all / sizeof *all);
}

const clt_operator *clt_operator_at(int index)
{
    return index >= 0 && index < clt_operator_count() ? all[index] : NULL;
}

const clt_operator *clt_operator_find(const char *name)
{
    const clt_op *found = NULL;
    for (int i = 0; i < clt_operator_count(); i++)
        if (!strcmp(all[i]->name, name) && (!found || all[i]->callable))
            found = all[i];
    return found;
}

const char *clt_operator_name(const clt_operator *op)
{
    return op->name;
}

const char *clt_operator_doc(const clt_operator *op)
{
    return op->doc;
}

int clt_operator_callable(const clt_operator *op)
{
    return op->callable;
}

int clt_operator_differentiable(const clt_operator *op)
{
    return op->gradient || !op->infer;
}

int clt_operator_operand(const clt_operator *op, int index, clt_operand_schema *out)
{
    return clt_operand_at(op->operands, index, out);
}

int clt_operator_result(const clt_operator *op, int index, clt_operand_schema *out)
{
    return clt_operand_at(op->results, index, out);
}

const clt_attribute *clt_operator_attributes(const clt_operator *op)
{
    static const clt_attribute none[] = {{0}};
    return op->attributes ? op->attributes : none;
}
