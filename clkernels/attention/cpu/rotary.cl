/*
 * Rotary position embedding on CPUs. attention/portable/rotary.cl says what it computes, and makes
 * the table of cosines and sines.
 *
 * Work-groups have one work-item. Work-item (x, y) turns ROWS rows from x * ROWS on of matrix
 * number y, [T, width], VW pairs at a time. Pairs that fill no vector are turned one by one. A row
 * of the table serves all parts of a row of x.
 * Build options: VW (4 or 8: half the lanes of the vectors of pairs), ROWS.
 */
#define LANES VW
#include "core/batch_blocked/common.clh"

#define PAIR CLT_JOIN(float, CLT_TWICE)
/* By shuffles, because Oclgrind aborts at .even and .odd of vectors. */
#if VW == 4
#define CLT_TWICE 8
#define EVEN(v) shuffle(v, (uint4)(0, 2, 4, 6))
#define ODD(v) shuffle(v, (uint4)(1, 3, 5, 7))
#define JOINED(a, b) shuffle2(a, b, (uint8)(0, 4, 1, 5, 2, 6, 3, 7))
#else
#define CLT_TWICE 16
#define EVEN(v) shuffle(v, (uint8)(0, 2, 4, 6, 8, 10, 12, 14))
#define ODD(v) shuffle(v, (uint8)(1, 3, 5, 7, 9, 11, 13, 15))
#define JOINED(a, b) shuffle2(a, b, (uint16)(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15))
#endif
typedef PAIR pairs_of;
typedef pairs_of pairs_anywhere __attribute__((aligned(4)));

KERNEL void rotary(global const float *x, long x_offset, global float *y, long y_offset,
                   global const float *table, long table_offset, int T, int width, int turned,
                   int pairs, int halves)
{
    const int t0 = (int)get_global_id(0) * ROWS;
    for (int t = t0; t < min(t0 + ROWS, T); t++) {
        global const float *by = table + table_offset + (long)t * 2 * pairs;
        const long row = (get_global_id(1) * (long)T + t) * width;
        for (int part = 0; part < width / (2 * pairs); part++) {
            global const float *from = x + x_offset + row + part * 2 * pairs;
            global float *to = y + y_offset + row + part * 2 * pairs;
            const int still = part >= turned;
            int i = 0;
            for (; i + VW <= pairs; i += VW) {
                const pairs_of turn = *(global const pairs_anywhere *)(by + 2 * i);
                const vecf cosine = still ? (vecf)(1.0f) : EVEN(turn);
                const vecf sine = still ? (vecf)(0.0f) : ODD(turn);
                if (halves) {
                    const vecf a = LOAD(from + i), b = LOAD(from + pairs + i);
                    STORE(a * cosine - b * sine, to + i);
                    STORE(a * sine + b * cosine, to + pairs + i);
                } else {
                    const pairs_of v = *(global const pairs_anywhere *)(from + 2 * i);
                    const vecf a = EVEN(v), b = ODD(v);
                    *(global pairs_anywhere *)(to + 2 * i) =
                        JOINED(a * cosine - b * sine, a * sine + b * cosine);
                }
            }
            for (; i < pairs; i++) {
                const int first = halves ? i : 2 * i, second = halves ? i + pairs : 2 * i + 1;
                const float cosine = still ? 1.0f : by[2 * i], sine = still ? 0.0f : by[2 * i + 1];
                const float a = from[first], b = from[second];
                to[first] = a * cosine - b * sine;
                to[second] = a * sine + b * cosine;
            }
        }
    }
}
