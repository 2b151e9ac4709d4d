/* Conversion between element types (elementwise/cast.clh) for every device. A work-item converts 16
 * elements. */
#include "elementwise/cast.clh"

kernel void cast(global const from_type *x_base, long x_offset, global to_type *out_base,
                 long out_offset, long count)
{
    const long first = (long)get_global_id(0) * 16;
    if (first >= count)
        return;
    global const from_type *x = x_base + x_offset + first;
    global to_type *out = out_base + out_offset + first;
    const int run = (int)min(16L, count - first);
    for (int i = 0; i < run; i++) {
        const VIA v = VALUE(i);
        STORE(v, i);
    }
}
