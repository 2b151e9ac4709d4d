/*
 * Transposes matrices of 4-byte elements on GPUs: out[i0][i1][i2] (n0 x n1 x n2, contiguous) =
 * x[i0 * x0 + i1 + i2 * x2]. A work-group transposes a tile of TILE x TILE elements in local
 * memory, so that loads and stores are both coalesced. Rows of the tile are padded by one element,
 * which avoids bank conflicts when columns are read. Consecutive groups have consecutive tiles
 * along n2. Build option: V, 4 if uint4 fits the rows of both arrays, else 1.
 */
#define TILE 32
#define GROUP 256
#define LANES (TILE / V)
#define ROWS (GROUP / LANES)

#if V == 4
#define VEC uint4
#else
#define VEC uint
#endif

kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
transpose(global const uint *x, long x_offset, global uint *out, long out_offset, int n1, int n2,
          long x0, long x2)
{
    local uint tile[TILE * (TILE + 1)];
    const int lid = (int)get_local_id(0), lane = lid % LANES * V, row = lid / LANES;
    const int blocks2 = (n2 + TILE - 1) / TILE, blocks1 = (n1 + TILE - 1) / TILE;
    const int group = (int)get_group_id(0), rest = group / blocks2;
    const int i2 = (group - rest * blocks2) * TILE, i0 = rest / blocks1;
    const int i1 = (rest - i0 * blocks1) * TILE;
    x += x_offset + i0 * x0;
    out += out_offset + (long)i0 * n1 * n2;
#pragma unroll
    for (int r = row; r < TILE; r += ROWS)
        if (i2 + r < n2 && i1 + lane < n1) {
            uint v[V];
            *(VEC *)v = *(global const VEC *)(x + (i2 + r) * x2 + i1 + lane);
#pragma unroll
            for (int j = 0; j < V; j++)
                tile[r * (TILE + 1) + lane + j] = v[j];
        }
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
    for (int r = row; r < TILE; r += ROWS)
        if (i1 + r < n1 && i2 + lane < n2) {
            uint v[V];
#pragma unroll
            for (int j = 0; j < V; j++)
                v[j] = tile[(lane + j) * (TILE + 1) + r];
            *(global VEC *)(out + (long)(i1 + r) * n2 + i2 + lane) = *(VEC *)v;
        }
}
