#include "tune/testing.h"

#include <string.h>

#ifdef CLT_TESTING
const char *clt_tuning_testing_spoils, *clt_tuning_testing_flatters, *clt_tuning_testing_breaks,
    *clt_tuning_testing_skips, *clt_tuning_testing_spoils_own;
#endif

bool clt_testing_chose(const char *text, const clt_tuning_entry *entry)
{
    return text && strstr(entry->options, text);
}

bool clt_testing_chose_op(const char *text, const char *op)
{
    return text && strstr(text, op);
}

void clt_testing_spoil(clt_outcome *own)
{
    for (int o = CLT_MAX_OUTPUTS - 1; o >= 0; o--)
        if (own->values[o] && own->dtype[o] == CLT_F32) {
            ((float *)own->values[o])[own->count[o] / 2] += 1;
            return;
        }
}

void clt_testing_skip_half(clt_program *program, int64_t count)
{
    clt_launch *last = &program->launches[program->n_launches - 1];
    int most = 0;
    int64_t groups = 0;
    for (int d = 0; d < last->work_dim; d++) {
        const int64_t size = last->local[d] ? last->local[d] : 1;
        const int64_t all = clt_extent_at(last->global[d], count) / size;
        most = all > groups ? d : most;
        groups = all > groups ? all : groups;
    }
    last->global[most] = clt_fixed(groups / 2 * (last->local[most] ? last->local[most] : 1));
}
