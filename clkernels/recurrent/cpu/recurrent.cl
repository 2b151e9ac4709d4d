/*
 * Whole sequences through an LSTM or GRU, and their gradients, on CPUs; recurrent/recurrent.clh has
 * layouts and formulas. All work-groups have one work-item, which takes `share` samples through all
 * steps. So it waits for no other one, one launch computes all steps, and the weights stay in its
 * core's cache.
 *
 * A launch before copies the weights into panels [panel][k][NV][VW]: NV vectors of columns, 0
 * beyond the last column. A register tile of MR samples and one panel runs over all k. Forward, a
 * panel's vectors are the GATES gates of VW units, so a tile has all products that a step of these
 * units needs. Backward, they are NV vectors of units, and k runs over the gates' gradients.
 *
 * `states` holds rows of the work-item's samples, `pitch` floats apart: forward the hidden states
 * before and after the step; backward dh, the carry and the gates' gradients.
 *
 * Build options: FORWARD; GATES; VW, width of a vector (4, 8 or 16); MR; NV, which is GATES if
 * FORWARD is 1.
 */
#define LANES VW
#include "core/batch_blocked/math.clh"
#include "core/batch_blocked/transpose.clh"
#include "recurrent/recurrent.clh"

#define ROUND_UP(a, b) (((a) + (b)-1) / (b) * (b))
#define PITCH(n) (ROUND_UP(n, NV * VW) + 16)

INLINE vecf logistic(vecf v)
{
    vecf scale;
    const vecf e = clt_exp_split(clt_within(-v, -87.0f, 87.0f), &scale);
    return 1.0f / fma(e, scale, (vecf)1.0f);
}

/* Loads a vector, or `count` elements and zeros if `count` is less than a vector. `put` stores in
 * the same way. */
INLINE vecf get(global const float *from, int count)
{
    return count >= VW ? LOAD(from) : clt_load_part(from, count, 0.0f);
}

INLINE void put(vecf v, global float *to, int count)
{
    if (count >= VW)
        STORE(v, to);
    else
        clt_store_part(v, to, count);
}

/* row[0 .. n) = from[0 .. n), or 0 if not `there`. Writes whole vectors, for which a row of
 * `states` has room. */
INLINE void fill_row(global float *row, global const float *from, int there, int n)
{
    for (int u = 0; u < n; u += VW)
        STORE(there ? get(from + u, n - u) : (vecf)0.0f, row + u);
}

/* The same for rows without room beyond n. */
INLINE void copy_row(global float *to, global const float *from, int there, int n)
{
    for (int u = 0; u < n; u += VW)
        put(there ? get(from + u, n - u) : (vecf)0.0f, to + u, n - u);
}

/* --- panels ---------------------------------------------------------------------------------- */

#if FORWARD

/* panels[p][k][g] = w[g * H + units of p][k]. Work-item (p, g) copies gate g of panel p. */
KERNEL void pack_gates(global const float *w, long w_offset, global float *panels,
                       long panels_offset, int H)
{
    const int p = (int)get_global_id(0), g = (int)get_global_id(1), u = p * VW;
    const int there = min(VW, H - u);
    global const float *from = w + w_offset + ((long)g * H + u) * H;
    global float *to = panels + panels_offset + ((long)p * H * GATES + g) * VW;
    int k = 0;
#define GET_FOUR(j) CLT_FOUR(from + (long)(j)*H + k)
#define PUT_COLUMN(i, x) STORE(x, to + (long)(k + i) * GATES * VW)
    for (; there == VW && k + 4 <= H; k += 4)
        CLT_FOUR_COLUMNS(GET_FOUR, PUT_COLUMN)
    for (; k < H; k++)
        for (int j = 0; j < VW; j++)
            to[(long)k * GATES * VW + j] = j < there ? from[(long)j * H + k] : 0.0f;
}

#else

/* panels[p][k] = w[k][units of p]. Work-item (p, g) copies the k of gate g of panel p. */
KERNEL void pack_units(global const float *w, long w_offset, global float *panels,
                       long panels_offset, int H)
{
    const int p = (int)get_global_id(0), g = (int)get_global_id(1), u = p * NV * VW;
    global const float *from = w + w_offset + (long)g * H * H + u;
    global float *to = panels + panels_offset + ((long)p * GATES + g) * H * NV * VW;
    for (int k = 0; k < H; k++, from += H, to += NV * VW)
        for (int v = 0; v < NV * VW; v += VW)
            STORE(u + v < H ? get(from + v, H - u - v) : (vecf)0.0f, to + v);
}

#endif

/* --- products -------------------------------------------------------------------------------- */

/* out[i][v] = sum over k of a[i][k] panel[k][v], for ROWS rows. A macro, because compilers reliably
 * unroll only loops whose ends are literals. */
#define MULTIPLY(name, ROWS)                                                                       \
    INLINE void name(global const float *a, int pitch, global const float *panel, int K,           \
                     vecf *out)                                                                    \
    {                                                                                              \
        vecf acc[ROWS][NV];                                                                        \
        EACH(i, ROWS) EACH(v, NV) acc[i][v] = (vecf)(0.0f);                                        \
        for (int k = 0; k < K; k++) {                                                              \
            vecf y[NV];                                                                            \
            EACH(v, NV) y[v] = *(global const vecf *)(panel + (k * NV + v) * VW);                  \
            EACH(i, ROWS)                                                                          \
            {                                                                                      \
                const vecf x = (vecf)(a[(long)i * pitch + k]);                                     \
                EACH(v, NV) acc[i][v] = fma(x, y[v], acc[i][v]);                                   \
            }                                                                                      \
        }                                                                                          \
        EACH(i, ROWS) EACH(v, NV) out[i * NV + v] = acc[i][v];                                     \
    }
#define EACH(i, count) _Pragma("unroll") for (int i = 0; i < count; i++)
MULTIPLY(multiply, MR)
#if MR > 4
MULTIPLY(multiply_4, 4)
#endif
#if MR > 2
MULTIPLY(multiply_2, 2)
#endif
#if MR > 1
MULTIPLY(multiply_1, 1)
#endif

/* Computes the largest tile of at most `left` rows, and returns its number of rows. */
INLINE int tile(global const float *a, int pitch, global const float *panel, int K, vecf *out,
                int left)
{
    if (left >= MR) {
        multiply(a, pitch, panel, K, out);
        return MR;
    }
#if MR > 4
    if (left >= 4) {
        multiply_4(a, pitch, panel, K, out);
        return 4;
    }
#endif
#if MR > 2
    if (left >= 2) {
        multiply_2(a, pitch, panel, K, out);
        return 2;
    }
#endif
#if MR > 1
    multiply_1(a, pitch, panel, K, out);
#endif
    return 1;
}

#if FORWARD

/* --- forward --------------------------------------------------------------------------------- */

/* The buffers of a work-group, from its first sample on. */
typedef struct sequences {
    global const float *x, *bias, *h0, *c0;
    global const int *lengths;
    global float *y, *h_n, *c_n, *saved;
    int T, H, flags;
} sequences;

/* Computes step t of sample b for the vector of units from u on, and returns their hidden states.
 * `a` has the recurrent products of the gates. */
INLINE vecf cells(const sequences *s, const vecf *a, global const float *now, int b, int t, int u,
                  int steps)
{
    const int H = s->H, count = H - u;
    const long at = (long)b * s->T + t;
    global const float *x = s->x + at * GATES * H + u;
    global float *keep = s->saved + at * SAVED * H + u;
    vecf z[GATES], h;
#pragma unroll
    for (int g = 0; g < GATES; g++) {
        z[g] = a[g];
        if (s->flags & HAS_BIAS)
            z[g] += get(s->bias + g * H + u, count);
    }
#if GATES == 4
    const vecf i = logistic(z[0] + get(x, count));
    const vecf f = logistic(z[1] + get(x + H, count));
    const vecf g = clt_tanh(z[2] + get(x + 2 * H, count));
    const vecf o = logistic(z[3] + get(x + 3 * H, count));
    const int before = step_before(t, s->flags);
    vecf c = 0.0f;
    if (is_step(before, steps))
        c = get(s->saved + ((long)b * s->T + before) * SAVED * H + 4 * H + u, count);
    else if (s->flags & HAS_C0)
        c = get(s->c0 + (long)b * H + u, count);
    c = fma(f, c, i * g);
    h = o * clt_tanh(c);
    put(i, keep, count);
    put(f, keep + H, count);
    put(g, keep + 2 * H, count);
    put(o, keep + 3 * H, count);
    put(c, keep + 4 * H, count);
#else
    const vecf r = logistic(z[0] + get(x, count));
    const vecf m = logistic(z[1] + get(x + H, count));
    const vecf n = clt_tanh(fma(r, z[2], get(x + 2 * H, count)));
    h = fma(m, LOAD(now + u) - n, n);
    put(r, keep, count);
    put(m, keep + H, count);
    put(n, keep + 2 * H, count);
    put(z[2], keep + 3 * H, count);
#endif
    put(h, s->y + at * H + u, count);
    return h;
}

/* Prefetches everything that cells() reads and writes, while the products are computed. */
INLINE void fetch_cells(const sequences *s, long at, int u)
{
    const int H = s->H;
#pragma unroll
    for (int g = 0; g < GATES; g++)
        PREFETCH(s->x + (at * GATES + g) * H + u);
#pragma unroll
    for (int k = 0; k < SAVED; k++)
        PREFETCH(s->saved + (at * SAVED + k) * H + u);
    PREFETCH(s->y + at * H + u);
}

/* Two rows of hidden states for each sample change roles after every step: `now` is read by all
 * tiles, `next` is written. */
KERNEL void recurrent(global const float *x, long x_offset, global const float *panels,
                      long panels_offset, global const float *bias, long bias_offset,
                      global const float *h0, long h0_offset, global const float *c0,
                      long c0_offset, global const int *lengths, long lengths_offset,
                      global float *y, long y_offset, global float *h_n, long h_n_offset,
                      global float *c_n, long c_n_offset, global float *saved, long saved_offset,
                      global float *states, long states_offset, int B, int T, int H, int flags,
                      int share)
{
    const int group = (int)get_global_id(0), first = group * share, rows = min(share, B - first);
    const int pitch = PITCH(H), C = GATES == 4 ? H : 0;
    const sequences s = {.x = x + x_offset + (long)first * T * GATES * H,
                         .bias = bias + bias_offset,
                         .h0 = h0 + h0_offset + (long)first * H,
                         .c0 = c0 + c0_offset + (long)first * C,
                         .lengths = lengths + lengths_offset + first,
                         .y = y + y_offset + (long)first * T * H,
                         .h_n = h_n + h_n_offset + (long)first * H,
                         .c_n = c_n + c_n_offset + (long)first * C,
                         .saved = saved + saved_offset + (long)first * T * SAVED * H,
                         .T = T,
                         .H = H,
                         .flags = flags};
    global float *now = states + states_offset + (long)group * 2 * share * pitch;
    global float *next = now + (long)share * pitch;
    panels += panels_offset;
    for (int b = 0; b < rows; b++)
        fill_row(now + (long)b * pitch, s.h0 + (long)b * H, flags & HAS_H0, H);
    for (int i = 0; i < T; i++) {
        const int t = flags & REVERSE ? T - 1 - i : i;
        for (int u = 0; u < H; u += VW)
            for (int r = 0, done; r < rows; r += done) {
                vecf a[MR * NV];
                for (int b = r; b < min(r + MR, rows); b++)
                    fetch_cells(&s, (long)b * T + t, u);
                done = tile(now + (long)r * pitch, pitch, panels + (long)u * H * GATES, H, a,
                            rows - r);
                for (int j = 0; j < done; j++) {
                    const int b = r + j, steps = steps_of(s.lengths, b, T, flags);
                    vecf h = LOAD(now + (long)b * pitch + u);
                    if (t < steps)
                        h = cells(&s, a + j * NV, now + (long)b * pitch, b, t, u, steps);
                    else
                        put((vecf)0.0f, s.y + ((long)b * T + t) * H + u, H - u);
                    STORE(h, next + (long)b * pitch + u);
                }
            }
        global float *other = now;
        now = next;
        next = other;
    }
    for (int b = 0; b < rows; b++) {
        copy_row(s.h_n + (long)b * H, now + (long)b * pitch, 1, H);
#if GATES == 4
        const int steps = steps_of(s.lengths, b, T, flags), last = last_step(steps, flags);
        if (steps > 0)
            copy_row(s.c_n + (long)b * H, s.saved + ((long)b * T + last) * SAVED * H + 4 * H, 1, H);
        else
            copy_row(s.c_n + (long)b * H, s.c0 + (long)b * H, flags & HAS_C0, H);
#endif
    }
}

#else

/* --- backward -------------------------------------------------------------------------------- */

typedef struct gradients {
    global const float *saved, *y, *dy, *h0, *c0;
    global float *dx, *dgates, *before;
    int T, H, flags;
} gradients;

/* Prefetches what the next step of the recurrence reads and writes. */
INLINE void fetch_grad(const gradients *s, long at, int u)
{
    const int H = s->H;
#pragma unroll
    for (int g = 0; g < GATES; g++)
        PREFETCH(s->dx + (at * GATES + g) * H + u);
#pragma unroll
    for (int k = 0; k < SAVED; k++)
        PREFETCH(s->saved + (at * SAVED + k) * H + u);
    PREFETCH(s->before + at * H + u);
    PREFETCH(s->dy + at * H + u);
}

/* The gradients of step t of sample b: writes dx, the gates' gradients to `gates`, and the carry
 * for the step before. dh_row is the gradient of the hidden state through the step after it. */
INLINE void cells_grad(const gradients *s, global const float *dh_row, global float *carry_row,
                       global float *gates, int b, int t, int steps)
{
    const int H = s->H, T = s->T, before = step_before(t, s->flags);
    const int is_first = !is_step(before, steps);
    const long at = (long)b * T + t;
    global const float *h_row = is_first ? s->h0 + (long)b * H : s->y + ((long)b * T + before) * H;
    const int has_h = !is_first || s->flags & HAS_H0;
#if GATES == 4
    global const float *c_row = is_first
                                    ? s->c0 + (long)b * H
                                    : s->saved + ((long)b * T + before) * SAVED * H + 4 * H;
    const int has_c = !is_first || s->flags & HAS_C0;
#endif
    for (int u = 0; u < H; u += VW) {
        const int count = H - u;
        fetch_grad(s, at + T, u);
        global const float *kept = s->saved + at * SAVED * H + u;
        global float *to = s->dx + at * GATES * H + u;
        vecf dh = LOAD(dh_row + u), d[GATES];
        if (s->flags & HAS_DY)
            dh += get(s->dy + at * H + u, count);
        const vecf h = has_h ? get(h_row + u, count) : (vecf)0.0f;
        put(h, s->before + at * H + u, count);
#if GATES == 4
        const vecf i = get(kept, count), f = get(kept + H, count);
        const vecf g = get(kept + 2 * H, count), o = get(kept + 3 * H, count);
        const vecf tanh_c = clt_tanh(get(kept + 4 * H, count));
        const vecf c = has_c ? get(c_row + u, count) : (vecf)0.0f;
        const vecf dc = fma(dh * o, fma(-tanh_c, tanh_c, (vecf)1.0f), LOAD(carry_row + u));
        d[0] = dc * g * i * (1.0f - i);
        d[1] = dc * c * f * (1.0f - f);
        d[2] = dc * i * fma(-g, g, (vecf)1.0f);
        d[3] = dh * tanh_c * o * (1.0f - o);
        STORE(dc * f, carry_row + u);
#pragma unroll
        for (int k = 0; k < GATES; k++)
            put(d[k], to + k * H, count);
#else
        const vecf r = get(kept, count), z = get(kept + H, count);
        const vecf n = get(kept + 2 * H, count), q = get(kept + 3 * H, count);
        const vecf dn = dh * (1.0f - z) * fma(-n, n, (vecf)1.0f);
        global float *to_gates = s->dgates + at * GATES * H + u;
        d[0] = dn * q * r * (1.0f - r);
        d[1] = dh * (h - n) * z * (1.0f - z);
        d[2] = dn * r;
        STORE(dh * z, carry_row + u);
        put(d[0], to, count);
        put(d[1], to + H, count);
        put(dn, to + 2 * H, count);
#pragma unroll
        for (int k = 0; k < GATES; k++)
            put(d[k], to_gates + k * H, count);
#endif
#pragma unroll
        for (int k = 0; k < GATES; k++)
            put(d[k], gates + k * H + u, count);
    }
}

/* Writes zeros for a step beyond the length of sample b. */
INLINE void no_cells(const gradients *s, int b, int t)
{
    const int H = s->H, n = GATES * H;
    const long at = (long)b * s->T + t;
    copy_row(s->dx + at * n, s->dx, 0, n);
    if (GATES == 3)
        copy_row(s->dgates + at * n, s->dgates, 0, n);
    copy_row(s->before + at * H, s->before, 0, H);
}

/* The gradients of all steps and of the initial states. The third output is dc0 for an LSTM and
 * dgates for a GRU; for an LSTM, dgates is dx. */
KERNEL void recurrent_grad(global const float *panels, long panels_offset,
                           global const float *saved, long saved_offset, global const float *y,
                           long y_offset, global const float *dy, long dy_offset,
                           global const float *dh_n, long dh_n_offset, global const float *dc_n,
                           long dc_n_offset, global const float *h0, long h0_offset,
                           global const float *c0, long c0_offset, global const int *lengths,
                           long lengths_offset, global float *dx, long dx_offset,
                           global float *dh0, long dh0_offset, global float *dc0_or_dgates,
                           long third_offset, global float *before, long before_offset,
                           global float *states, long states_offset, int B, int T, int H, int flags,
                           int share)
{
    const int group = (int)get_global_id(0), first = group * share, rows = min(share, B - first);
    const int pitch = PITCH(H), gates_pitch = PITCH(GATES * H), K = GATES * H;
    const long n = (long)first * T * H;
    global float *third =
        dc0_or_dgates + third_offset + (GATES == 4 ? (long)first * H : n * GATES);
    const gradients s = {.saved = saved + saved_offset + n * SAVED,
                         .y = y + y_offset + n,
                         .dy = dy + dy_offset + n,
                         .h0 = h0 + h0_offset + (long)first * H,
                         .c0 = c0 + c0_offset + (long)first * H,
                         .dx = dx + dx_offset + n * GATES,
                         .dgates = third,
                         .before = before + before_offset + n,
                         .T = T,
                         .H = H,
                         .flags = flags};
    global float *dh = states + states_offset + (long)group * share * (2 * pitch + gates_pitch);
    global float *carry = dh + (long)share * pitch, *gates = carry + (long)share * pitch;
    lengths += lengths_offset + first;
    panels += panels_offset;
    for (int b = 0; b < rows; b++) {
        const long own = (long)(first + b) * H;
        fill_row(dh + (long)b * pitch, dh_n + dh_n_offset + own, flags & HAS_DH, H);
        fill_row(carry + (long)b * pitch, dc_n + dc_n_offset + own, flags & HAS_DC, H);
        fill_row(gates + (long)b * gates_pitch, gates, 0, K);
    }
    for (int i = 0; i < T; i++) {
        const int t = flags & REVERSE ? i : T - 1 - i;
        for (int b = 0; b < rows; b++) {
            const int steps = steps_of(lengths, b, T, flags);
            if (t < steps)
                cells_grad(&s, dh + (long)b * pitch, carry + (long)b * pitch,
                           gates + (long)b * gates_pitch, b, t, steps);
            else
                no_cells(&s, b, t);
        }
        for (int u = 0; u < H; u += NV * VW)
            for (int r = 0, done; r < rows; r += done) {
                vecf a[MR * NV];
                done = tile(gates + (long)r * gates_pitch, gates_pitch, panels + (long)u * K, K, a,
                            rows - r);
                for (int j = 0; j < done; j++) {
                    const long at = (long)(r + j) * pitch + u;
                    if (t < steps_of(lengths, r + j, T, flags))
                        for (int v = 0; v < NV && u + v * VW < H; v++)
                            STORE(GATES == 3 ? a[j * NV + v] + LOAD(carry + at + v * VW)
                                             : a[j * NV + v],
                                  dh + at + v * VW);
                }
            }
    }
    for (int b = 0; b < rows; b++) {
        copy_row(dh0 + dh0_offset + (long)(first + b) * H, dh + (long)b * pitch, 1, H);
        if (GATES == 4)
            copy_row(third + (long)b * H, carry + (long)b * pitch, 1, H);
    }
}

#endif
