/* Writes programs as text. */
#include "train/program/program.h"

static const char *const kinds[] = {
#define X(name, text) text,
    CLT_INSTRUCTION_KINDS(X)
#undef X
};

static const char *const operands[] = {
#define X(name, text) text,
    CLT_OPERANDS(X)
#undef X
};

static const char *const programs[] = {
#define X(name, text) text,
    CLT_PROGRAM_KINDS(X)
#undef X
};

const char *clt_step_program_kind_name(clt_step_program_kind kind)
{
    return programs[kind];
}

/* Adds the number of a micro-batch or version. */
static void add_number(clt_str *s, const char *name, int number, int ahead)
{
    static const char *const names[] = {[-CLT_MICRO_LAST] = "last",
                                        [-CLT_MICRO_EACH] = "each",
                                        [-CLT_VERSION_REDUCED] = "reduced",
                                        [-CLT_VERSION_OLD] = "old",
                                        [-CLT_VERSION_NEW] = "new"};
    if (number == CLT_VERSION_ANY)
        return;
    if (number >= 0)
        clt_str_add(s, " %s %d", name, number);
    else if (ahead && number >= CLT_MICRO_EACH)
        clt_str_add(s, " %s %s%+d", name, names[-number], ahead);
    else
        clt_str_add(s, " %s %s", name, names[-number]);
}

static void print_one(const clt_instruction *i, clt_str *s)
{
    clt_str_add(s, "%s", kinds[i->kind]);
    if (i->on)
        clt_str_add(s, " %s", operands[i->on]);
    if (i->item >= 0)
        clt_str_add(s, " %d", i->item);
    if (i->on == CLT_ON_SLOT)
        clt_str_add(s, " slot %d", i->slot);
    if (i->kind == CLT_DO_RUN || i->kind == CLT_DO_INSPECT)
        clt_str_add(s, " nodes %d to %d", i->first, i->end - 1);
    add_number(s, "micro-batch", i->micro, i->ahead);
    if (i->set)
        clt_str_add(s, " further gradients");
    add_number(s, "version", i->version, i->ahead);
    if (i->group >= CLT_GROUP_EDGE)
        clt_str_add(s, " between stages");
    else if (i->group > CLT_GROUP_ALL)
        clt_str_add(s, " along %s", clt_axis_name((clt_axis)(i->group - CLT_GROUP_AXIS)));
    if (i->peer >= 0)
        clt_str_add(s, " %s %d",
                    i->on == CLT_ON_GRADIENT ? "to"
                    : i->on == CLT_ON_NODE   ? "with"
                                             : "from",
                    i->peer);
}

void clt_step_program_print(const clt_step_program *p, clt_str *text)
{
    for (int n = 0; n < p->n; n++) {
        if (n == p->loop_first && p->loop_end > p->loop_first)
            clt_str_add(text, "    for each micro-batch from 1 to the last but %d\n", p->behind);
        clt_str_add(text, "%s    ", n >= p->loop_first && n < p->loop_end ? "    " : "");
        print_one(&p->code[n], text);
        clt_str_add(text, "\n");
    }
}
