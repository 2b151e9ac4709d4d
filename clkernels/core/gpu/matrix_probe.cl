/*
 * Tests the matrix unit of core/gpu/matrix_unit.clh: each of two warps adds the product of its own
 * matrices a [UNIT_M][DEPTH] and b [UNIT_N][DEPTH], stored row by row, to its sums [UNIT_M][UNIT_N]
 * in `sums`.
 *
 * Build options: those of core/gpu/matrix_unit.clh.
 */
#include "core/gpu/matrix_unit.clh"

#define PROBE_WARPS 2
#define PROBE_THREADS (PROBE_WARPS * UNIT_LANES)
#define DEPTH (2 * UNIT_K)
#define LD (DEPTH + 8)

kernel __attribute__((reqd_work_group_size(PROBE_THREADS, 1, 1))) void
matrix_probe(global const ushort *a, global const ushort *b, global float *sums)
{
    local ushort x[PROBE_WARPS * UNIT_M * LD] __attribute__((aligned(16)));
    local ushort y[PROBE_WARPS * UNIT_N * LD] __attribute__((aligned(16)));
    UNIT_SCRATCH(PROBE_WARPS)
    const int lid = (int)get_local_id(0), lane = lid % UNIT_LANES, warp = lid / UNIT_LANES;
    for (int i = lid; i < PROBE_WARPS * UNIT_M * DEPTH; i += PROBE_THREADS)
        x[i / DEPTH * LD + i % DEPTH] = a[i];
    for (int i = lid; i < PROBE_WARPS * UNIT_N * DEPTH; i += PROBE_THREADS)
        y[i / DEPTH * LD + i % DEPTH] = b[i];
    barrier(CLK_LOCAL_MEM_FENCE);
    unit_c c = unit_zero();
    sums += warp * UNIT_M * UNIT_N;
    for (int e = 0; e < UNIT_SUMS; e++)
        ((float *)&c)[e] = sums[UNIT_ROW(lane, e) * UNIT_N + UNIT_COLUMN(lane, e)];
    for (int k = 0; k < DEPTH; k += UNIT_K)
        c = unit_multiply(c, unit_load_a(x + warp * UNIT_M * LD + k, LD, lane),
                          unit_load_b(y + warp * UNIT_N * LD + k, LD, lane), lane,
                          UNIT_SCRATCH_OF(lid));
    for (int e = 0; e < UNIT_SUMS; e++)
        sums[UNIT_ROW(lane, e) * UNIT_N + UNIT_COLUMN(lane, e)] = UNIT_GET(c, e);
}
