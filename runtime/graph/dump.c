#include "graph/graph.h"

static void dump_operand(const clt_value *value, clt_str *text)
{
    if (!value)
        clt_str_add(text, "-");
    else if (value->name)
        clt_str_add(text, "%s", value->name);
    else
        clt_str_add(text, "%%%d", value->id);
}

void clt_graph_dump(const clt_graph *graph, clt_str *text)
{
    char type[CLT_TYPE_TEXT];
    static const char *const kinds[] = {"input", "constant", "parameter", "state", "value"};
    for (int i = 0; i < graph->n_values; i++) {
        const clt_value *value = graph->values[i];
        if (value->kind == CLT_VALUE_INTERMEDIATE)
            continue;
        clt_str_add(text, "%-9s ", kinds[value->kind]);
        dump_operand(value, text);
        clt_str_add(text, " %s\n", clt_type_text(&value->type, type));
    }
    for (int i = 0; i < graph->n_nodes; i++) {
        const clt_node *node = graph->nodes[i];
        for (int j = 0; j < node->n_out; j++) {
            clt_str_add(text, j ? ", " : "");
            dump_operand(node->out[j], text);
            clt_str_add(text, " %s%s", clt_type_text(&node->out[j]->type, type),
                        node->out[j]->layout == CLT_LAYOUT_BATCH_BLOCKED ? "'batch_blocked" : "");
        }
        clt_str_add(text, " = %s(", node->op->name);
        for (int j = 0; j < node->n_in; j++) {
            clt_str_add(text, j ? ", " : "");
            dump_operand(node->in[j], text);
        }
        clt_str_add(text, ")");
        if (node->op->describe) {
            clt_str_add(text, " {");
            node->op->describe(node, text);
            clt_str_add(text, "}");
        }
        clt_str_add(text, "  # %s\n", node->name);
    }
}
