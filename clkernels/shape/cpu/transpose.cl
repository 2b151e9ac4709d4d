/*
 * Transposes matrices of 4-byte elements on CPUs: out[i0][i1][i2] (n0 x n1 x n2, contiguous) =
 * x[i0 * x0 + i1 + i2 * x2]. All work-groups have one work-item, which transposes COLUMNS columns
 * of ROWS rows of x. It first copies them, row by row, to a tile whose rows are not a power of two
 * apart: such rows would evict each other from the caches. From the tile, it transposes LANES x 4
 * elements at a time in registers.
 *
 * Global size: (ceil(n1 / COLUMNS), ceil(n2 / ROWS), n0). Build options: LANES, width of a vector;
 * ROWS, a multiple of LINE; STREAM: 1 to write results past the caches, if they do not fit.
 */
#include "core/batch_blocked/common.clh"
#include "core/batch_blocked/transpose.clh"

#define COLUMNS 64
#define LINE 16 /* elements of a cache line */
#define PITCH (COLUMNS + LINE)
#define TURNED_PITCH (ROWS + LINE)

typedef float4 four_anywhere __attribute__((aligned(4)));

/* Stores a vector past the caches; its address must be aligned to a vector. All vectors of a cache
 * line should be stored together. */
#if defined(CLT_BUILTINS) && STREAM
#define STORE_PAST(v, p) __builtin_nontemporal_store(v, (global vecf *)(p))
#define END_STREAM __sync_synchronize();
#else
#define STORE_PAST(v, p) STORE(v, p)
#define END_STREAM
#endif

/* to[0 .. n) = from[0 .. n). With STREAM, whole cache lines of `to` are stored together. */
INLINE void write_row(private const float *from, global float *to, int n)
{
    int i = 0;
    const int before = STREAM ? min(n, (int)(-((ulong)to / sizeof(float)) % LINE)) : 0;
    for (; i < before; i++)
        to[i] = from[i];
    for (; i + LINE <= n; i += LINE)
#pragma unroll
        for (int l = 0; l < LINE; l += LANES)
            STORE_PAST(*(private const vecf_anywhere *)(from + i + l), to + i + l);
    for (; i < n; i++)
        to[i] = from[i];
}

KERNEL void transpose(global const float *x, long x_offset, global float *out, long out_offset,
                      long n1, long n2, long x0, long x2)
{
    enum { FETCHED = 8 }; /* distance of prefetches, in rows */
    float tile[ROWS * PITCH] __attribute__((aligned(64)));
    float turned[LANES * TURNED_PITCH] __attribute__((aligned(64)));
    const long first1 = get_global_id(0) * COLUMNS, first2 = get_global_id(1) * ROWS;
    const int width = (int)min((long)COLUMNS, n1 - first1);
    const int height = (int)min((long)ROWS, n2 - first2), whole1 = width / LANES * LANES;
    x += x_offset + get_global_id(2) * x0 + first2 * x2 + first1;
    out += out_offset + (get_global_id(2) * n1 + first1) * n2 + first2;
    for (int i2 = 0; i2 < height; i2++, x += x2) {
        private float *to = tile + i2 * PITCH;
        for (int i1 = 0; i1 < whole1; i1 += LANES) {
            PREFETCH(x + FETCHED * x2 + i1);
            *(private vecf_anywhere *)(to + i1) = LOAD(x + i1);
        }
        for (int i1 = whole1; i1 < width; i1++)
            to[i1] = x[i1];
    }

    const int in_lines = n2 % LINE == 0 && (ulong)out % (LINE * sizeof(float)) == 0;
#define PIECE(i) (*(private const four_anywhere *)(from + (i)*PITCH + 4 * g))
#define PUT_OUT(j, v) STORE_PAST(v, out + (4 * g + j) * n2 + i2 + l)
#define PUT_TURNED(j, v) *(private vecf *)(turned + (4 * g + j) * TURNED_PITCH + i2) = v
    for (int i1 = 0; i1 < width; i1 += LANES, out += LANES * n2) {
        if (in_lines && i1 < whole1) {
            for (int i2 = 0; i2 < height; i2 += LINE)
#pragma unroll
                for (int g = 0; g < LANES / 4; g++)
#pragma unroll
                    for (int l = 0; l < LINE; l += LANES) {
                        private const float *from = tile + (i2 + l) * PITCH + i1;
                        CLT_FOUR_COLUMNS(PIECE, PUT_OUT)
                    }
            continue;
        }
        /* Stores across cache lines are slow. Transposing to `turned` first, and writing row by
         * row, needs the fewest. Elements beyond the edges are transposed too, but not written. */
        for (int i2 = 0; i2 < height; i2 += LANES) {
            private const float *from = tile + i2 * PITCH + i1;
#pragma unroll
            for (int g = 0; g < LANES / 4; g++)
                CLT_FOUR_COLUMNS(PIECE, PUT_TURNED)
        }
        for (int r = 0; r < min(width - i1, LANES); r++)
            write_row(turned + r * TURNED_PITCH, out + r * n2, height);
    }
    END_STREAM
}
