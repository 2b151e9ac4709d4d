#include "saved/sampling.h"

#include <math.h>
#include <stdlib.h>

/* Returns a number in [0, 1) with 53 random bits for the counter (position, text). The generator is
 * Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011). */
static double uniform(uint64_t seed, uint64_t text, uint64_t position)
{
    uint32_t x[4] = {(uint32_t)position, (uint32_t)(position >> 32), (uint32_t)text,
                     (uint32_t)(text >> 32)};
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)0xD2511F53u * x[0], b = (uint64_t)0xCD9E8D57u * x[2];
        const uint32_t y[4] = {(uint32_t)(b >> 32) ^ x[1] ^ key[0], (uint32_t)b,
                               (uint32_t)(a >> 32) ^ x[3] ^ key[1], (uint32_t)a};
        for (int i = 0; i < 4; i++)
            x[i] = y[i];
        key[0] += 0x9E3779B9u;
        key[1] += 0xBB67AE85u;
    }
    return (double)(((uint64_t)x[0] << 32 | x[1]) >> 11) * 0x1p-53;
}

/* Orders by falling probability, and equal ones by token. */
static int by_logit(const void *a, const void *b)
{
    const struct choice *x = a, *y = b;
    if (x->logit != y->logit)
        return x->logit < y->logit ? 1 : -1;
    return (x->token > y->token) - (x->token < y->token);
}

/* Moves the `kept` most probable of n choices to the front, sorted (Hoare's selection). */
static void sort_front(struct choice *c, int64_t n, int64_t kept)
{
    int64_t first = 0, end = n;
    while (end - first > 1 && kept < end) {
        const struct choice middle = c[first + (end - first) / 2];
        int64_t i = first, j = end - 1;
        while (i <= j) {
            while (by_logit(&c[i], &middle) < 0)
                i++;
            while (by_logit(&c[j], &middle) > 0)
                j--;
            if (i <= j) {
                const struct choice held = c[i];
                c[i++] = c[j];
                c[j--] = held;
            }
        }
        /* All of [first, j] come before all of [i, end). */
        if (kept <= j)
            end = j + 1;
        else if (kept >= i)
            first = i;
        else
            break;
    }
    qsort(c, (size_t)kept, sizeof *c, by_logit);
}

static double weight(const draw *d, const struct choice *c, double most)
{
    /* inf - inf is not a number. The largest logits weigh 1, infinite ones too. */
    return c->logit == most ? 1 : exp((c->logit - most) / d->temperature);
}

/* Returns how many of n choices may be drawn, and sets `sum` to their weight. For top_p these are
 * the fewest choices that reach top_p of the whole weight. Only as many choices as needed are
 * sorted. */
static int64_t keep(const draw *d, struct choice *c, int64_t n, double most, double *sum)
{
    double all = 0;
    if (d->top_k > 0 && d->top_k < n) {
        sort_front(c, n, d->top_k);
        n = d->top_k;
    }
    for (int64_t i = 0; i < n; i++)
        all += weight(d, &c[i], most);
    *sum = all;
    if (d->top_p >= 1)
        return n;
    for (int64_t sorted = 64 < n ? 64 : n;; sorted = 8 * sorted < n ? 8 * sorted : n) {
        int64_t kept = 0;
        sort_front(c, n, sorted);
        *sum = 0;
        while (kept < sorted && (kept == 0 || *sum < d->top_p * all))
            *sum += weight(d, &c[kept++], most);
        if (*sum >= d->top_p * all || sorted == n)
            return kept;
    }
}

/* Returns the first token with the largest logit, or -1 if no logit is a number. */
static int32_t most_probable(const float *logits, int64_t count)
{
    int64_t best = -1;
    for (int64_t i = 0; i < count; i++)
        if (!isnan(logits[i]) && (best < 0 || logits[i] > logits[best]))
            best = i;
    return (int32_t)best;
}

int32_t draw_token(draw *d, const float *logits, int64_t text, int64_t position)
{
    struct choice *c = d->choices;
    int64_t n = 0, best = 0;
    if (d->temperature <= 0)
        return most_probable(logits, d->count);
    for (int64_t i = 0; i < d->count; i++)
        if (!isnan(logits[i])) {
            c[n] = (struct choice){logits[i], (int32_t)i};
            best = c[n].logit > c[best].logit ? n : best;
            n++;
        }
    if (!n)
        return -1;
    const double most = c[best].logit;
    double sum;
    const int64_t kept = keep(d, c, n, most, &sum);
    double left = uniform(d->seed, (uint64_t)text, (uint64_t)position) * sum;
    for (int64_t i = 0; i < kept; i++) {
        left -= weight(d, &c[i], most);
        if (left < 0)
            return c[i].token;
    }
    return c[kept - 1].token;
}
