/*
 * A chain of elementwise operators as one node with one kernel, made by fusion. The attribute has
 * the chain as statements, LET(t0,..)LET(t1,..), over the node's operands and numbers.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "ops/elementwise/elementwise_cpu.h"
#include "ops/elementwise/elementwise_gpu.h"
#include "ops/core/ops.h"

enum { BODY_TEXT = 640 };

typedef struct fused_attr {
    clt_elementwise_attr numbers;
    int n_numbers, n_steps;
    char text[BODY_TEXT];
} fused_attr;

static void body_of(const fused_attr *attr, char *body, size_t room)
{
    snprintf(body, room, "%sOUT(t%d)", attr->text, attr->n_steps - 1);
}

static void emit(const clt_node *node, const clt_target *target, clt_program *p)
{
    char body[BODY_TEXT + 32];
    body_of(node->attr, body, sizeof body);
    clt_elementwise_emit(node, target, p, body);
}

static void emit_cpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    char body[BODY_TEXT + 32];
    body_of(node->attr, body, sizeof body);
    clt_elementwise_cpu_emit(node, target, p, body);
}

static void emit_gpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    char body[BODY_TEXT + 32];
    body_of(node->attr, body, sizeof body);
    clt_elementwise_gpu_emit(node, target, p, body);
}

static void describe(const clt_node *node, clt_str *text)
{
    const fused_attr *attr = node->attr;
    clt_str_add(text, "%s", attr->text);
    for (int i = 0; i < attr->n_numbers; i++)
        clt_str_add(text, " p%d=%g", i, (double)attr->numbers.p[i]);
}

static double flops(const clt_node *node, int64_t n)
{
    const fused_attr *attr = node->attr;
    return (double)attr->n_steps * (double)clt_type_elements(&node->out[0]->type, n);
}

const clt_op clt_op_fused_elementwise = {
    .name = "fused_elementwise",
    .doc = "Several element-wise operators in one. The fusion pass makes this node.",
    .operands = "x *+ any",
    .results = "y * any",
    CLT_ATTRIBUTES(
        fused_attr,
        {CLT_ATTRIBUTE(REAL, "numbers", fused_attr, numbers.p,
                       "The constants of all fused operators."),
         .count = CLT_ELEMENTWISE_NUMBERS, .internal = 1},
        {CLT_ATTRIBUTE(TEXT, "body", fused_attr, text, "The fused expression."), .internal = 1}),
    .infer = clt_elementwise_infer,
    .describe = describe,
    .flops = flops,
    .batch_blocked = clt_elementwise_batch_blocked,
    .in_place = 15,
    .half = clt_half_all,
    .absorb = clt_elementwise_absorb,
    CLT_VARIANTS({"runs_cpu", clt_elementwise_cpu_accepts, emit_cpu},
                 {"vectors_gpu", clt_elementwise_gpu_accepts, emit_gpu},
                 {"elementwise", NULL, emit})};

/* The chain while fusion adds steps. */
typedef struct chain {
    fused_attr attr;
    clt_value *in[CLT_ELEMENTWISE_IN];
    int n_in;
} chain;

/* The letter by which the chain reads an operand; 0 if the chain has too many operands already. */
static char letter_of(chain *c, clt_value *value)
{
    int i = 0;
    while (i < c->n_in && c->in[i] != value)
        i++;
    if (i == CLT_ELEMENTWISE_IN)
        return 0;
    if (i == c->n_in)
        c->in[c->n_in++] = value;
    return (char)('a' + i);
}

/* Copies a token of an expression and renames operands and numbers to those of the chain. */
static int add_word(char *to, size_t room, const char *word, size_t length, const char *letters,
                    int first_number)
{
    if (length == 1 && word[0] >= 'a' && word[0] <= 'd')
        return letters[word[0] - 'a'] == 't'
                   ? snprintf(to, room, "t%d", letters[CLT_ELEMENTWISE_IN])
                   : snprintf(to, room, "%c", letters[word[0] - 'a']);
    if (length == 2 && word[0] == 'p' && isdigit((unsigned char)word[1]))
        return snprintf(to, room, "p%d", word[1] - '0' + first_number);
    return snprintf(to, room, "%.*s", (int)length, word);
}

/* Adds LET(tK,expression). `letters` holds the new names of the operands a .. d; 't' means the step
 * whose number is the last element of `letters`. */
static bool add_step(chain *c, const clt_elementwise_row *row, const clt_elementwise_attr *numbers,
                     const char *letters)
{
    fused_attr *attr = &c->attr;
    size_t used = strlen(attr->text);
    if (attr->n_numbers + row->numbers > CLT_ELEMENTWISE_NUMBERS)
        return false;
    used += (size_t)snprintf(attr->text + used, BODY_TEXT - used, "LET(t%d,", attr->n_steps);
    for (const char *at = row->expression; *at && used < BODY_TEXT;) {
        size_t length = 0;
        while (isalnum((unsigned char)at[length]) || at[length] == '_' ||
               (at[length] == '.' && isdigit((unsigned char)at[0])))
            length++;
        if (!length) {
            attr->text[used++] = *at++;
            continue;
        }
        used += (size_t)add_word(attr->text + used, BODY_TEXT - used, at, length, letters,
                                 attr->n_numbers);
        at += length;
    }
    if (used + 2 > BODY_TEXT)
        return false;
    attr->text[used++] = ')';
    attr->text[used] = 0;
    for (int i = 0; i < row->numbers; i++)
        attr->numbers.p[attr->n_numbers++] = numbers->p[i];
    attr->n_steps++;
    return true;
}

/* Starts a chain with the node's own computation. */
static bool begin(chain *c, const clt_node *node)
{
    memset(c, 0, sizeof *c);
    if (node->op == &clt_op_fused_elementwise) {
        memcpy(&c->attr, node->attr, sizeof c->attr);
        memcpy(c->in, node->in, (size_t)node->n_in * sizeof(clt_value *));
        c->n_in = node->n_in;
        return true;
    }
    char letters[CLT_ELEMENTWISE_IN + 1] = {0};
    for (int i = 0; i < node->n_in; i++)
        letters[i] = letter_of(c, node->in[i]);
    return add_step(c, clt_elementwise_find(node->op), node->attr, letters);
}

/* Compares dimensions only. A mask within a chain is computed as a number, 0 or 1, so its type does
 * not matter. */
static bool same_shape(const clt_type *a, const clt_type *b)
{
    return a->rank == b->rank && !memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims);
}

/* Whether the kernels can iterate over all operands of the chain at once. Operands that broadcast
 * along different dimensions keep these dimensions from merging. */
static bool iterates(chain *c, const clt_node *next)
{
    const clt_node whole = {.op = &clt_op_fused_elementwise,
                            .in = c->in,
                            .n_in = c->n_in,
                            .out = {next->out[0]},
                            .n_out = 1};
    return clt_elementwise_strided(&whole, 1).rank <= CLT_ELEMENTWISE_DIMS;
}

/* Fusing is valid only if the result has the shape of the node's result. The caller made sure that
 * `next` is the node's only user, so the other operands of `next` cannot depend on the node. */
bool clt_elementwise_absorb(clt_node *node, const clt_node *next)
{
    const clt_elementwise_row *row = clt_elementwise_find(next->op);
    char letters[CLT_ELEMENTWISE_IN + 1] = {0};
    chain c;
    if (!row || !same_shape(&node->out[0]->type, &next->out[0]->type) || !begin(&c, node))
        return false;
    letters[CLT_ELEMENTWISE_IN] = (char)(c.attr.n_steps - 1);
    for (int i = 0; i < next->n_in; i++) {
        letters[i] = next->in[i] == node->out[0] ? 't' : letter_of(&c, next->in[i]);
        if (!letters[i])
            return false;
    }
    if (!iterates(&c, next) || !add_step(&c, row, next->attr, letters))
        return false;
    clt_value **in = clt_calloc(CLT_ELEMENTWISE_IN, sizeof *in);
    fused_attr *attr = clt_alloc(sizeof *attr);
    if (!in || !attr) {
        CLT_FREE(in, attr);
        return false;
    }
    memcpy(in, c.in, (size_t)c.n_in * sizeof *in);
    memcpy(attr, &c.attr, sizeof *attr);
    CLT_FREE(node->in, node->attr);
    node->op = &clt_op_fused_elementwise;
    node->in = in;
    node->n_in = c.n_in;
    node->attr = attr;
    return true;
}
