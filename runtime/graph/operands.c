/* Operands and results of operators, from the text of their schema. */
#include <string.h>

#include "graph/graph.h"

/* Copies a word up to a blank, comma or flag, and returns what follows it. */
static const char *take_word(const char *at, char *word, size_t room)
{
    const size_t length = strcspn(at, " ,?!+");
    const size_t kept = length < room ? length : room - 1;
    memcpy(word, at, kept);
    word[kept] = '\0';
    return at + length;
}

static const char *item_at(const char *list, int index)
{
    for (; index > 0 && list; index--) {
        list = strchr(list, ',');
        list = list ? list + 2 : NULL;
    }
    return list && *list ? list : NULL;
}

bool clt_operand_at(const char *list, int index, clt_operand_schema *out)
{
    const char *at = index < 0 ? NULL : item_at(list, index);
    if (!at)
        return false;
    memset(out, 0, sizeof *out);
    at = take_word(at, out->name, sizeof out->name) + 1;
    at = take_word(at, out->dims, sizeof out->dims);
    for (; *at && strchr("?!+", *at); at++) {
        out->optional |= *at == '?';
        out->once |= *at == '!';
        out->repeated |= *at == '+';
    }
    if (*at == ' ')
        take_word(at + 1, out->type, sizeof out->type);
    else
        memcpy(out->type, "f32", sizeof "f32");
    return true;
}

int clt_op_least(const clt_op *op)
{
    int count = 0;
    clt_operand_schema one;
    while (clt_operand_at(op->operands, count, &one) && !one.optional)
        count++;
    return count;
}

int clt_op_most(const clt_op *op)
{
    int count = 0;
    clt_operand_schema one;
    while (clt_operand_at(op->operands, count, &one)) {
        if (one.repeated)
            return CLT_MAX_OPERANDS;
        count++;
    }
    return count;
}

int clt_op_results(const clt_op *op)
{
    int count = 1;
    for (const char *at = op->results; (at = strchr(at, ',')) != NULL; at++)
        count++;
    return count;
}
