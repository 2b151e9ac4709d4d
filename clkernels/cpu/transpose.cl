/*
 * Transposes matrices of 4-byte elements on CPUs: out[i0][i1][i2] (n0 x n1 x n2, contiguous) =
 * x[i0 * x0 + i1 + i2 * x2]. A work-item has TILE x TILE elements. It first copies them, row by row,
 * to where rows do not lie at a power of two's distance: such rows would evict each other from the
 * caches. From there it takes them four columns at a time, by pieces of four elements.
 * Global size: (ceil(n1 / TILE), ceil(n2 / TILE), n0), local (1, 1, 1).
 *
 * Build options: LANES; STREAM: results go past the caches, for such that do not fit in them.
 */
#include "lanes/common.clh"
#include "lanes/tile.clh"

#define TILE 64
#define ROW (TILE + 16)

typedef float4 quarter_anywhere __attribute__((aligned(4)));
#define QUARTER(p) (*(private const quarter_anywhere *)(p))

/* GATHER: four elements each of rows 0, 4, 8 and 12 (as far as there are lanes) from p on. The
 * others interleave two such vectors, within each piece of four. */
#if LANES == 4
#define GATHER(p) QUARTER(p)
#define LOW(x, y) (vecf)(x.s0, y.s0, x.s1, y.s1)
#define HIGH(x, y) (vecf)(x.s2, y.s2, x.s3, y.s3)
#define LOW_PAIRS(x, y) (vecf)(x.s0, x.s1, y.s0, y.s1)
#define HIGH_PAIRS(x, y) (vecf)(x.s2, x.s3, y.s2, y.s3)
#define GROUPS 1
#elif LANES == 8
#define GATHER(p) (vecf)(QUARTER(p), QUARTER((p) + 4 * ROW))
#define LOW(x, y) (vecf)(x.s0, y.s0, x.s1, y.s1, x.s4, y.s4, x.s5, y.s5)
#define HIGH(x, y) (vecf)(x.s2, y.s2, x.s3, y.s3, x.s6, y.s6, x.s7, y.s7)
#define LOW_PAIRS(x, y) (vecf)(x.s01, y.s01, x.s45, y.s45)
#define HIGH_PAIRS(x, y) (vecf)(x.s23, y.s23, x.s67, y.s67)
#define GROUPS 2
#else
#define GATHER(p)                                                                                  \
    (vecf)(QUARTER(p), QUARTER((p) + 4 * ROW), QUARTER((p) + 8 * ROW), QUARTER((p) + 12 * ROW))
#define LOW(x, y)                                                                                  \
    (vecf)(x.s0, y.s0, x.s1, y.s1, x.s4, y.s4, x.s5, y.s5, x.s8, y.s8, x.s9, y.s9, x.sc, y.sc,     \
           x.sd, y.sd)
#define HIGH(x, y)                                                                                 \
    (vecf)(x.s2, y.s2, x.s3, y.s3, x.s6, y.s6, x.s7, y.s7, x.sa, y.sa, x.sb, y.sb, x.se, y.se,     \
           x.sf, y.sf)
#define LOW_PAIRS(x, y) (vecf)(x.s01, y.s01, x.s45, y.s45, x.s89, y.s89, x.scd, y.scd)
#define HIGH_PAIRS(x, y) (vecf)(x.s23, y.s23, x.s67, y.s67, x.sab, y.sab, x.sef, y.sef)
#define GROUPS 4
#endif

/* Past the caches, for addresses at whole vectors. The parts of a cache's line belong together. */
#if defined(CLT_BUILTINS) && STREAM
#define STORE_PAST(v, p) __builtin_nontemporal_store(v, (global vecf *)(p))
#define END_STREAM __sync_synchronize();
#else
#define STORE_PAST(v, p) STORE(v, p)
#define END_STREAM
#endif

/* Columns 4 g .. 4 g + 3 of the LANES x LANES elements at `from`, as rows n2 apart. */
#define FOUR_COLUMNS(g, PUT, s)                                                                    \
    {                                                                                              \
        const vecf a = GATHER(from + 4 * g), b = GATHER(from + ROW + 4 * g);                       \
        const vecf c = GATHER(from + 2 * ROW + 4 * g), d = GATHER(from + 3 * ROW + 4 * g);         \
        const vecf ab = LOW(a, b), cd = LOW(c, d), ab2 = HIGH(a, b), cd2 = HIGH(c, d);             \
        PUT(LOW_PAIRS(ab, cd), to + (4 * g) * n2);                                                 \
        PUT(HIGH_PAIRS(ab, cd), to + (4 * g + 1) * n2);                                            \
        PUT(LOW_PAIRS(ab2, cd2), to + (4 * g + 2) * n2);                                           \
        PUT(HIGH_PAIRS(ab2, cd2), to + (4 * g + 3) * n2);                                          \
    }

/* The same of LINE / LANES such blocks below each other, whose rows follow on each other. */
#define LINE 16
#define FOUR_LINES(g, PUT, s)                                                                      \
    {                                                                                              \
        FOUR_COLUMNS(g, PUT, s)                                                                    \
        for (int l = LANES; l < LINE; l += LANES) {                                                \
            from += LANES * ROW;                                                                   \
            to += LANES;                                                                           \
            FOUR_COLUMNS(g, PUT, s)                                                                \
        }                                                                                          \
        from -= (LINE - LANES) * ROW;                                                              \
        to -= LINE - LANES;                                                                        \
    }

#define BLOCKS(FOUR, PUT, STEP)                                                                    \
    for (int i1 = 0; i1 < whole1; i1 += LANES)                                                     \
        for (int i2 = 0; i2 < whole2; i2 += STEP) {                                                \
            private const float *from = tile + i2 * ROW + i1;                                      \
            global float *to = out + i1 * n2 + i2;                                                 \
            FOR_A(GROUPS, FOUR, PUT, 0)                                                            \
        }

KERNEL void transpose(global const float *x, long x_offset, global float *out, long out_offset,
                      long n1, long n2, long x0, long x2)
{
    enum { FETCHED = 8 }; /* rows ahead */
    float tile[TILE * ROW] __attribute__((aligned(64)));
    const long first1 = get_global_id(0) * TILE, first2 = get_global_id(1) * TILE;
    const int width = (int)min((long)TILE, n1 - first1), height = (int)min((long)TILE, n2 - first2);
    const int whole1 = width / LANES * LANES, whole2 = height / LANES * LANES;
    x += x_offset + get_global_id(2) * x0 + first2 * x2 + first1;
    out += out_offset + (get_global_id(2) * n1 + first1) * n2 + first2;
    for (int i2 = 0; i2 < height; i2++, x += x2) {
        private float *to = tile + i2 * ROW;
        for (int i1 = 0; i1 < whole1; i1 += LANES) {
            PREFETCH(x + FETCHED * x2 + i1);
            *(private vecf_anywhere *)(to + i1) = LOAD(x + i1);
        }
        for (int i1 = whole1; i1 < width; i1++)
            to[i1] = x[i1];
    }
    if (STREAM && n2 % LINE == 0 && (ulong)out % (LINE * sizeof(float)) == 0) {
        BLOCKS(FOUR_LINES, STORE_PAST, LINE)
        END_STREAM
    } else {
        BLOCKS(FOUR_COLUMNS, STORE, LANES)
    }
    for (int i1 = 0; i1 < width; i1++)
        for (int i2 = i1 < whole1 ? whole2 : 0; i2 < height; i2++)
            out[i1 * n2 + i2] = tile[i2 * ROW + i1];
}
