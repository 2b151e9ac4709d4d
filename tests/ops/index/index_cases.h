/* References of the operators on indices. They see an array as [outer, size, inner]. */
#ifndef TESTS_OPS_INDEX_CASES_H
#define TESTS_OPS_INDEX_CASES_H

#include "ops/harness/harness.h"
#include "ops/index/index.h"

typedef struct index_case {
    int axis;
    int64_t padding;       /* -1: none */
    int array;             /* the operand that is picked from or added to */
    bool each;             /* each element has an index (gather), not each slice */
    int64_t lowest, whole; /* the array has these elements of a longer axis; whole 0: all */
} index_case;

/* Makes a node one of a part of the array. */
static inline void index_make_part(const index_case *k, clt_value *out)
{
    clt_index_attr *attr = out->producer->attr;
    attr->lowest = k->lowest;
    attr->whole = k->whole;
}

/* The sizes of one call with a batch of n. */
typedef struct index_sizes {
    int64_t outer, picks, size, inner;
} index_sizes;

static inline index_sizes index_sizes_of(const op_case *c, int64_t n)
{
    const index_case *k = c->attr;
    index_sizes s = {1, 1, op_dim(c, k->array, k->axis, n), 1};
    for (int i = 0; i < k->axis; i++)
        s.outer *= op_dim(c, k->array, i, n);
    for (int i = k->axis + 1; i < c->in[k->array].rank; i++)
        s.inner *= op_dim(c, k->array, i, n);
    s.picks = k->each ? op_dim(c, 0, k->axis, n) : op_count(c, 0, n);
    return s;
}

/* Returns the place that element e (of outer x picks x inner) is picked from or added to; -1: there
 * is no such place; -2: another part of the array has it. */
static inline int64_t index_place(const op_case *c, const index_sizes *s, const double *index,
                                  int64_t e)
{
    const index_case *k = c->attr;
    const int64_t i = e % s->inner, pick = e / s->inner % s->picks, o = e / s->inner / s->picks;
    const int64_t at = (int64_t)(k->each ? index[e] : index[pick]), here = at - k->lowest;
    if (at < 0 || at >= (k->whole ? k->whole : s->size))
        return -1;
    return here < 0 || here >= s->size ? -2 : (o * s->size + here) * s->inner + i;
}

/* Returns place 0 of the element's line, to which a wrong index adds NaN. */
static inline int64_t index_zero(const index_sizes *s, int64_t e)
{
    return e / s->inner / s->picks * s->size * s->inner + e % s->inner;
}

static inline void index_pick(const op_case *c, int64_t n, const double *index, const double *from,
                              double *to, double *bound)
{
    const index_sizes s = index_sizes_of(c, n);
    for (int64_t e = 0; e < s.outer * s.picks * s.inner; e++) {
        const int64_t place = index_place(c, &s, index, e);
        to[e] = place == -1 ? NAN : place < 0 ? 0 : from[place];
        if (bound)
            bound[e] = 0;
    }
}

/* Adds to `to`, which must be set, and adds the absolute terms to `bound`. */
static inline void index_sum(const op_case *c, int64_t n, const double *index, const double *from,
                             double *to, double *bound)
{
    const index_case *k = c->attr;
    const index_sizes s = index_sizes_of(c, n);
    const int64_t places = s.outer * s.size * s.inner;
    double *terms = op_array(places);
    for (int64_t e = 0; e < s.outer * s.picks * s.inner; e++) {
        const int64_t place = index_place(c, &s, index, e);
        if (place == -1 && k->lowest == 0) {
            to[index_zero(&s, e)] = NAN;
        } else if (place >= 0 &&
                   (k->padding < 0 || place / s.inner % s.size + k->lowest != k->padding)) {
            to[place] += from[e];
            terms[place]++;
            if (bound)
                bound[place] += fabs(from[e]);
        }
    }
    for (int64_t i = 0; bound && i < places; i++)
        bound[i] *= sqrt(terms[i]);
    free(terms);
}

/* Operands: indices, array. */
static inline void index_forward_pick(const op_case *c, int64_t n, double *const *x,
                                      double *const *y, double *const *bound)
{
    index_pick(c, n, x[0], x[1], y[0], bound ? bound[0] : NULL);
}

static inline void index_backward_pick(const op_case *c, int64_t n, double *const *x,
                                       double *const *dy, double *const *dx, double *const *bound)
{
    index_sum(c, n, x[0], dy[0], dx[1], bound[1]);
}

/* Operands: indices, source, base. */
static inline void index_forward_sum(const op_case *c, int64_t n, double *const *x,
                                     double *const *y, double *const *bound)
{
    for (int64_t i = 0; i < op_count(c, 2, n); i++) {
        y[0][i] = x[2][i];
        if (bound)
            bound[0][i] = fabs(x[2][i]);
    }
    index_sum(c, n, x[0], x[1], y[0], bound ? bound[0] : NULL);
}

static inline void index_backward_sum(const op_case *c, int64_t n, double *const *x,
                                      double *const *dy, double *const *dx, double *const *bound)
{
    index_pick(c, n, x[0], dy[0], dx[1], bound[1]);
    for (int64_t i = 0; i < op_count(c, 2, n); i++)
        dx[2][i] = dy[0][i];
}

#endif
