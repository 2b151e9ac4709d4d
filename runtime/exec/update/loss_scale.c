#include "exec/update/loss_scale.h"

#include <math.h>

/* Values of PyTorch's torch.amp.GradScaler: init_scale 65536, growth_factor 2, backoff_factor 0.5,
 * growth_interval 2000. Scales are powers of two, which change no digit. At the least scale
 * training has failed. The greatest scale has an inverse that is not denormal. The kernels of
 * clkernels/train/update.clh count in the same way. */
static const float FIRST = 0x1p16f, LEAST = 0x1p-14f, MOST = 0x1p60f;
enum { GOOD_STEPS = 2000 };

clt_scaling clt_scaling_begin(void)
{
    return (clt_scaling){.scale = FIRST};
}

bool clt_scaling_step(clt_scaling *s, bool finite)
{
    const bool least = s->scale <= LEAST;
    if (!finite) {
        s->scale = fmaxf(s->scale / 2, LEAST);
        s->good = 0;
        s->skipped++;
        return !least;
    }
    if (++s->good >= GOOD_STEPS) {
        s->scale = fminf(2 * s->scale, MOST);
        s->good = 0;
    }
    return true;
}

bool clt_scaling_valid(const clt_scaling *s)
{
    int exponent;
    return s->scale >= LEAST && s->scale <= MOST && frexpf(s->scale, &exponent) == 0.5f &&
           s->good >= 0 && s->good < GOOD_STEPS && s->skipped >= 0;
}
