/*
 * State of each sample. The tensor `all` has a row for each sample of the largest global batch.
 * batch_rows copies the rows of this device's samples, batch_rows_put returns the tensor with these
 * rows replaced. `sample` is the position of the first sample in the global batch.
 *
 * A work-item copies V elements. `row` (a row's size), `count` (that of the rows) and `all_count`
 * (that of the tensor) are in units of V. Build option: V, 4 or 1.
 */
#if V == 4
#define VEC float4
#else
#define VEC float
#endif

/* Rows that the tensor does not have become NaN, so that a step with them is not finite. */
kernel void batch_rows(global const float *all_base, long all_offset, global float *out_base,
                       long out_offset, long count, long all_count, int row, long sample)
{
    const long at = get_global_id(0), from = at + sample * row;
    global const VEC *all = (global const VEC *)(all_base + all_offset);
    if (at < count)
        ((global VEC *)(out_base + out_offset))[at] =
            from >= 0 && from < all_count ? all[from] : (VEC)(NAN);
}

kernel void batch_rows_put(global const float *all_base, long all_offset,
                           global const float *rows_base, long rows_offset, global float *out_base,
                           long out_offset, long count, long all_count, int row, long sample)
{
    const long at = get_global_id(0), from = at - sample * row;
    if (at >= all_count)
        return;
    global const VEC *all = (global const VEC *)(all_base + all_offset);
    global const VEC *rows = (global const VEC *)(rows_base + rows_offset);
    ((global VEC *)(out_base + out_offset))[at] =
        from >= 0 && from < count ? rows[from] : all[at];
}
