/*
 * Conversion between element types (elementwise/cast.clh) on GPUs. A work-item converts V
 * neighbouring elements, the next work-item the next V.
 * Build options: V (1, 2 or 4); FROM and TO, unsigned vector types as which V elements are read and
 * written, such as ushort4 for f16; FROM_x and TO_x.
 */
#include "elementwise/cast.clh"
#define GROUP 256

/* Used without loops, because compilers keep arrays that loops index in memory. */
#define CONVERT(i)                                                                                 \
    {                                                                                              \
        const VIA v = VALUE(i);                                                                    \
        STORE(v, i);                                                                               \
    }

kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
cast(global const from_type *x_base, long x_offset, global to_type *out_base, long out_offset,
     long count)
{
    const long at = (long)get_global_id(0) * V;
    if (at >= count)
        return;
    x_base += x_offset + at;
    out_base += out_offset + at;
    if (at + V > count) {
        global const from_type *x = x_base;
        global to_type *out = out_base;
        const int left = (int)(count - at);
        CONVERT(0)
#if V == 4
        if (left > 1)
            CONVERT(1)
        if (left > 2)
            CONVERT(2)
#endif
        return;
    }
    FROM read = *(global const FROM *)x_base;
    TO made;
    const from_type *x = (const from_type *)&read;
    to_type *out = (to_type *)&made;
    CONVERT(0)
#if V > 1
    CONVERT(1)
#endif
#if V == 4
    CONVERT(2)
    CONVERT(3)
#endif
    *(global TO *)out_base = made;
}
