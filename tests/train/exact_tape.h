/*
 * Sums of products in double, with their gradients, and how many bits they need. The runtime has no
 * part in this arithmetic, so tests compare the runtime with it.
 *
 * A cell is a number. A term adds factor * a * b to a cell, where a and b are cells or 1. The tape
 * keeps the terms in order, and gives the gradient of a cell by going through them backwards.
 *
 * Each sum keeps the sum of its terms' absolute values, and the lowest bit of any term. If their
 * distance is at most 24 bits, f32 gives the sum without rounding: in every order, in parts on
 * several devices, and with or without FMA.
 */
#ifndef TESTS_TRAIN_EXACT_TAPE_H
#define TESTS_TRAIN_EXACT_TAPE_H

#include <float.h>

#include "train/lab.h"

enum { F32_BITS = 24, NO_CELL = -1 };

typedef struct exact_sum {
    double value, size; /* the sum, and the sum of the terms' absolute values */
    int unit;           /* each term is a multiple of 2^unit; valid if size > 0 */
} exact_sum;

typedef struct tape_cell {
    exact_sum number, gradient;
} tape_cell;

typedef struct tape_term {
    int64_t to, a, b; /* cells; NO_CELL: 1 */
    double factor;
} tape_term;

typedef struct tape {
    tape_cell *cells;
    tape_term *terms;
    int64_t n_cells, room_cells, n_terms, room_terms;
} tape;

static inline void exact_add(exact_sum *sum, double term)
{
    int exponent;
    if (term == 0)
        return;
    int64_t digits = (int64_t)ldexp(frexp(fabs(term), &exponent), DBL_MANT_DIG);
    for (exponent -= DBL_MANT_DIG; digits % 2 == 0; digits /= 2)
        exponent++;
    sum->unit = sum->size > 0 && sum->unit < exponent ? sum->unit : exponent;
    sum->size += fabs(term);
    sum->value += term;
}

/* Returns the bits that hold every partial sum. */
static inline int exact_bits(const exact_sum *sum)
{
    int exponent;
    if (sum->size == 0)
        return 0;
    return frexp(ldexp(sum->size, -sum->unit), &exponent) == 0.5 ? exponent - 1 : exponent;
}

/* Forgets the terms: the number is one that is given. */
static inline void exact_set(exact_sum *sum, double value)
{
    *sum = (exact_sum){0};
    exact_add(sum, value);
}

/* Adds cells that are 0, and returns the first. */
static inline int64_t tape_cells(tape *t, int64_t count)
{
    const int64_t first = t->n_cells;
    t->n_cells += count;
    if (t->n_cells > t->room_cells) {
        t->room_cells = 2 * t->n_cells;
        t->cells = realloc(t->cells, (size_t)t->room_cells * sizeof *t->cells);
        assert_non_null(t->cells);
    }
    memset(t->cells + first, 0, (size_t)count * sizeof *t->cells);
    return first;
}

static inline double tape_value(const tape *t, int64_t cell)
{
    return cell == NO_CELL ? 1 : t->cells[cell].number.value;
}

/* Adds factor * a * b to a cell. */
static inline void tape_add(tape *t, int64_t to, double factor, int64_t a, int64_t b)
{
    if (t->n_terms == t->room_terms) {
        t->room_terms = 2 * t->room_terms + 1024;
        t->terms = realloc(t->terms, (size_t)t->room_terms * sizeof *t->terms);
        assert_non_null(t->terms);
    }
    t->terms[t->n_terms++] = (tape_term){to, a, b, factor};
    exact_add(&t->cells[to].number, factor * tape_value(t, a) * tape_value(t, b));
}

/* Adds the gradients of all terms, from those of the cells that the caller has set. */
static inline void tape_backward(tape *t)
{
    for (int64_t i = t->n_terms - 1; i >= 0; i--) {
        const tape_term *term = &t->terms[i];
        const double dy = t->cells[term->to].gradient.value * term->factor;
        if (term->a != NO_CELL)
            exact_add(&t->cells[term->a].gradient, dy * tape_value(t, term->b));
        if (term->b != NO_CELL)
            exact_add(&t->cells[term->b].gradient, dy * tape_value(t, term->a));
    }
}

static inline void tape_free(tape *t)
{
    free(t->cells);
    free(t->terms);
    *t = (tape){0};
}

#endif
