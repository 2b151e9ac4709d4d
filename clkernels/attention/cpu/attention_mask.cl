/*
 * The gradient of attention's mask on CPUs: of each element, the sum of ds / scale over all scores
 * that the element is added to (attention/attention.clh has the formulas). Work-groups have one
 * work-item.
 *
 * Work-item (x, y, z) computes a tile of ROWS rows x COLUMNS keys of the mask: key block x, and row
 * block and head of the mask y. z is the image. If one mask serves all images, z is a slice, which
 * sums over every `slices`th image from z on; the slices' results lie mask_elements apart. The
 * work-item loops over the images, heads, rows and keys along which the mask is broadcast. The
 * tile's sums stay in local memory until the end.
 *
 * Build options: those of attention_weights.clh.
 */
#include "attention/cpu/attention_weights.clh"

KERNEL void attention_mask_grad(TENSOR(const STORED(X_T), q), TENSOR(const STORED(X_T), k),
                                TENSOR(const STORED(X_T), v), MASK,
                                TENSOR(const STORED(DY_T), dout), global const float *log_sum,
                                long log_sum_offset, global const float *delta, long delta_offset,
                                global float *to, long to_offset, int heads, int group, int T,
                                int S, float scale, int images, int slices, long mask_elements DROP)
{
    local float k_panel[D * COLUMNS] __attribute__((aligned(64)));
    local float v_panel[D * COLUMNS] __attribute__((aligned(64)));
    local float sums[ROWS * COLUMNS] __attribute__((aligned(64)));
    local float weights[2 * ROWS * COLUMNS] __attribute__((aligned(64)));
#if COPIES
    local float x_rows[ROWS * D] __attribute__((aligned(64)));
    local float dy_rows[ROWS * D] __attribute__((aligned(64)));
#endif
    local float *p = weights, *ds = weights + ROWS * COLUMNS;
    const int before = preceding(PAST, S), blocks = mask_row ? (T + ROWS - 1) / ROWS : 1;
    const int z = (int)get_global_id(2);
    const int own_head = (int)get_global_id(1) / blocks;
    const int own_t0 = (int)get_global_id(1) % blocks * ROWS;
    const int own_k0 = (int)get_global_id(0) * COLUMNS;
    const int end_t = mask_row ? own_t0 + 1 : T, end_k = mask_key ? own_k0 + 1 : S;
    const int end_head = mask_head ? own_head + 1 : heads;
    const int end_image = mask_image ? z + 1 : images;
    log_sum += log_sum_offset;
    delta += delta_offset;
    for (int i = 0; i < ROWS * COLUMNS; i += VW)
        *(local vecf *)(sums + i) = (vecf)(0.0f);
    for (long image = z; image < end_image; image += slices)
        for (int head = own_head; head < end_head; head++)
            for (int k0 = own_k0; k0 < end_k; k0 += COLUMNS) {
                const long masked = mask_offset + image * mask_image;
                const int keys = min(COLUMNS, S - k0), first = is_causal ? k0 - before : 0;
                global const STORED(X_T) *y = ROWS_OF(k, image, head / group) + k0 * k_row;
                global const STORED(X_T) *w = ROWS_OF(v, image, head / group) + k0 * v_row;
                load_panel(k_panel, y, k_row, keys, scale);
                load_panel(v_panel, w, v_row, keys, 1.0f);
                for (int t0 = own_t0; t0 < end_t; t0 += ROWS) {
                    const int rows = min(ROWS, T - t0);
                    const long at = (image * heads + head) * T + t0;
                    global const STORED(X_T) *x = ROWS_OF(q, image, head) + t0 * q_row;
                    global const STORED(DY_T) *dy = ROWS_OF(dout, image, head) + t0 * dout_row;
                    if (t0 + rows <= first)
                        continue; /* these rows see none of these keys */
#if COPIES
                    copy_rows(x_rows, x, q_row, rows);
                    copy_dout(dy_rows, dy, dout_row, rows);
#endif
                    WEIGH(ROWS_AT(x_rows, x, q_row), ROWS_AT(dy_rows, dy, dout_row), log_sum + at,
                          delta + at, 1.0f)
                    for (int i = 0; i < rows * COLUMNS; i += VW)
                        *(local vecf *)(sums + i) += *(local vecf *)(ds + i);
                }
            }
    /* If the mask is broadcast along rows, their sums are added to the first row; then likewise
     * along keys. */
    const int rows = mask_row ? min(ROWS, T - own_t0) : 1;
    const int keys = mask_key ? min(COLUMNS, S - own_k0) : 1;
    for (int r = mask_row ? ROWS : 1; r < ROWS; r++)
        EACH(c, 0, NV)
        *(local vecf *)(sums + c * VW) += *(local vecf *)(sums + r * COLUMNS + c * VW);
    for (int r = 0; r < (mask_key ? 0 : rows); r++) {
        vecf sum = *(local vecf *)(sums + r * COLUMNS);
        EACH(c, 1, NV) sum += *(local vecf *)(sums + r * COLUMNS + c * VW);
        sums[r * COLUMNS] = clt_sum_lanes(sum);
    }
    to += to_offset + (mask_image ? z * mask_image : z * mask_elements) + own_head * mask_head +
          own_t0 * mask_row + own_k0 * mask_key;
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < keys; c++)
            to[r * mask_row + c * mask_key] = sums[r * COLUMNS + c];
}
