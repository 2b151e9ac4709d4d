#include "train/core/division.h"

int64_t clt_share_begin(const clt_share *s, int micro)
{
    const int64_t quantum = s->quantum, each = (s->count + s->micros - 1) / s->micros;
    const int64_t whole = (each + quantum - 1) / quantum * quantum;
    if (quantum > 1 && whole <= s->per_run && whole * (s->micros - 1) < s->count)
        return micro < s->micros ? micro * whole : s->count;
    return s->count * micro / s->micros;
}

clt_part clt_share_part(const clt_share *s, int micro)
{
    if (micro >= s->micros)
        return (clt_part){s->begin + s->count, 0, s->begin, micro};
    const int64_t begin = clt_share_begin(s, micro);
    return (clt_part){s->begin + begin, clt_share_begin(s, micro + 1) - begin, s->begin, micro};
}
