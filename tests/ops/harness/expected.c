#include "ops/harness/expected.h"

static void op_agree(const op_test *t, const op_case *c, const char *what, int index, int64_t count,
                     const double *got, const double *bound, const double *want)
{
    for (int64_t i = 0; want && i < count; i++)
        if (!(fabs(got[i] - want[i]) <= 1e-12 * (bound[i] + fabs(want[i])) + 1e-300))
            fail_msg("%s, %s: the reference's %s%d[%lld] is %.15g, the golden's %.15g", t->op,
                     c->text, what, index, (long long)i, got[i], want[i]);
}

/* Checks that the reference agrees with the numbers of the other implementation. */
static void op_judge(const op_test *t, const op_case *c, const op_bound *b, int64_t n,
                     const op_expected *e)
{
    for (int o = 0; o < t->n_out; o++)
        op_agree(t, c, "y", o, clt_type_elements(&b->out[o]->type, n), e->y[o], e->y_bound[o],
                 c->y_set[o]);
    for (int i = 0; i < c->n_in; i++)
        op_agree(t, c, "dx", i, op_count(c, i, n), e->dx[i], e->dx_bound[i], c->dx_set[i]);
}

void op_expect(const op_test *t, const op_case *c, const op_bound *b, int64_t n, op_expected *e)
{
    uint64_t state = 77;
    *e = (op_expected){{0}, {0}, {0}, {0}, {0}, {0}};
    for (int i = 0; i < c->n_in; i++)
        if (b->in[i]) {
            e->x[i] = op_array(op_count(c, i, n));
            e->dx[i] = op_array(op_count(c, i, n));
            e->dx_bound[i] = op_array(op_count(c, i, n));
            op_fill_operand(c, i, n, e->x[i]);
            op_half_round(&b->half, b->plan, "x", i, op_count(c, i, n), e->x[i]);
        }
    for (int o = 0; o < t->n_out; o++) {
        const int64_t count = clt_type_elements(&b->out[o]->type, n);
        e->y[o] = op_array(count);
        e->y_bound[o] = op_array(count);
        e->dy[o] = op_array(count);
        for (int64_t i = 0; i < count; i++)
            e->dy[o][i] = n == c->batch && c->dy_set[o] ? c->dy_set[o][i] : op_uniform(&state);
        op_half_round(&b->half, b->plan, "dy", o, count, e->dy[o]);
    }
    t->forward(c, n, e->x, e->y, e->y_bound);
    if (t->backward)
        t->backward(c, n, e->x, e->dy, e->dx, e->dx_bound);
    if (n == c->batch && !b->half.precision)
        op_judge(t, c, b, n, e);
}

void op_forget(op_expected *e)
{
    for (int i = 0; i < OP_MAX_IN; i++) {
        free(e->x[i]);
        free(e->dx[i]);
        free(e->dx_bound[i]);
    }
    for (int o = 0; o < OP_MAX_OUT; o++) {
        free(e->y[o]);
        free(e->y_bound[o]);
        free(e->dy[o]);
    }
}

static unsigned op_rounded(const op_test *t, const op_case *c, const op_bound *b)
{
    unsigned bits = 0;
    for (int i = 0; i < c->n_in; i++)
        bits |= (unsigned)op_half_rounds(&b->half, b->plan, "x", i) << i;
    for (int o = 0; o < t->n_out; o++)
        bits |= (unsigned)op_half_rounds(&b->half, b->plan, "dy", o) << (OP_MAX_IN + o);
    return bits;
}

const op_expected *op_recall(const op_test *t, const op_case *c, const op_bound *b, int64_t n,
                             op_memo *memo)
{
    const unsigned rounded = op_rounded(t, c, b);
    int at = 0;
    while (at < memo->count && (memo->row[at].n != n || memo->row[at].rounded != rounded ||
                                memo->row[at].precision != b->half.precision))
        at++;
    if (at == memo->count) {
        if (at == OP_MEMO)
            op_forget(&memo->row[--at].e);
        op_expect(t, c, b, n, &memo->row[at].e);
        memo->row[at].n = n;
        memo->row[at].rounded = rounded;
        memo->row[at].precision = b->half.precision;
        memo->count = at + 1;
    }
    return &memo->row[at].e;
}

void op_memo_free(op_memo *memo)
{
    for (int i = 0; i < memo->count; i++)
        op_forget(&memo->row[i].e);
    memo->count = 0;
}

static uint64_t op_hash_numbers(const double *numbers, int64_t count, uint64_t hash)
{
    return numbers ? clt_hash(numbers, (size_t)count * sizeof *numbers, hash) : hash + 1;
}

uint64_t op_hash_plan(const clt_plan *plan)
{
    uint64_t hash = clt_hash(&plan->hash, sizeof plan->hash, op_settled.code);
    hash = clt_hash(plan->slabs, (size_t)plan->n_slabs * sizeof *plan->slabs, hash);
    for (int i = 0; i < plan->graph->n_values; i++) {
        const clt_place *place = &plan->places[plan->graph->values[i]->id];
        const int64_t at[] = {place->kind, place->index, place->offset};
        hash = clt_hash(at, sizeof at, hash);
    }
    for (int i = 0; i < plan->n_constants; i++) {
        const clt_type *type = &plan->constants[i]->type;
        hash = clt_hash(plan->constants[i]->data,
                        (size_t)(clt_type_elements(type, 0) * clt_dtype_size(type->dtype)), hash);
    }
    for (int i = 0; i < plan->n_nodes; i++) {
        const clt_program *program = &plan->nodes[i].program;
        const uint64_t launches = clt_program_hash(program);
        hash = clt_hash(&launches, sizeof launches, hash);
        for (int j = 0; j < program->n_launches; j++) {
            clt_str source = {0};
            if (program->launches[j].blas)
                continue;
            OP_OK(clt_source_resolve(program->launches[j].file, NULL, &source));
            hash = clt_hash_text(source.text, hash);
            clt_str_free(&source);
        }
    }
    return hash;
}

uint64_t op_hash_expected(const op_test *t, const op_case *c, const op_bound *b,
                          const op_expected *e, int64_t n, uint64_t hash)
{
    for (int i = 0; i < c->n_in; i++) {
        hash = op_hash_numbers(e->x[i], op_count(c, i, n), hash);
        hash = op_hash_numbers(e->dx[i], op_count(c, i, n), hash);
        hash = op_hash_numbers(e->dx_bound[i], op_count(c, i, n), hash);
    }
    for (int o = 0; o < t->n_out; o++) {
        const int64_t count = clt_type_elements(&b->out[o]->type, n);
        hash = op_hash_numbers(e->y[o], count, hash);
        hash = op_hash_numbers(e->y_bound[o], count, hash);
        hash = op_hash_numbers(e->dy[o], count, hash);
    }
    const int64_t run[] = {n, c->lead, c->sharp, c->trains};
    return clt_hash(run, sizeof run, hash);
}
