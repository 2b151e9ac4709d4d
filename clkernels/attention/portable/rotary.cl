/*
 * Rotary position embedding: turns pairs (a, b) of elements of each row by an angle that depends on
 * the row's position and the pair's number: (a cos - b sin, a sin + b cos).
 *
 * A row of `width` elements consists of parts of 2 * pairs elements, of which the first `turned`
 * parts are turned and the others copied. The two elements of pair i are i and i + pairs of their
 * part with `halves`, else 2 i and 2 i + 1.
 */

/* table[t][i] = (cos, sign * sin) of the angle (position + t) * base^(-i / pairs). A work-item
 * computes one entry. sign = -1 turns back, for the gradient. */
kernel void rotary_table(global float2 *table, long table_offset, global const int *position,
                         long position_offset, int has_position, int offset, int items, int pairs,
                         float log2_base, float sign)
{
    const int item = (int)get_global_id(0);
    if (item >= items)
        return;
    const int i = item % pairs, first = has_position ? position[position_offset] : offset;
    const float angle = (float)(first + item / pairs) * exp2(-log2_base * (float)i / (float)pairs);
    table[table_offset / 2 + item] = (float2)(cos(angle), sign * sin(angle));
}

/* x [.., T, width] -> y. A work-item turns one pair. */
kernel void rotary(global const float *x, long x_offset, global float *y, long y_offset,
                   global const float2 *table, long table_offset, long items, int T, int width,
                   int turned, int pairs, int halves)
{
    const long item = get_global_id(0);
    if (item >= items)
        return;
    const long row = item / (width / 2);
    const int rest = (int)(item % (width / 2)), i = rest % pairs;
    const long part = row * width + rest / pairs * 2 * pairs;
    const long first = part + (halves ? i : 2 * i), second = part + (halves ? i + pairs : 2 * i + 1);
    const float2 by = rest / pairs < turned ? table[table_offset / 2 + row % T * pairs + i]
                                            : (float2)(1.0f, 0.0f);
    const float a = x[x_offset + first], b = x[x_offset + second];
    y[y_offset + first] = a * by.x - b * by.y;
    y[y_offset + second] = a * by.y + b * by.x;
}
