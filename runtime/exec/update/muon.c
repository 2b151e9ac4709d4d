/* Muon's update of a matrix: momentum, Newton-Schulz iterations, and the step. The step status
 * decides on the device whether the first and the last change anything. The iterations always run.
 */
#include "exec/update/update_internal.h"

#include <math.h>

#include "exec/update/newton_schulz.h"

/* Returns the factor of the rate by the size of the matrix. */
static double size_factor(const clt_optimizer_rule *rule, const clt_type *type)
{
    const double rows = (double)type->dims[0], columns = (double)type->dims[1];
    return rule->matches_rms ? 0.2 * sqrt(fmax(rows, columns)) : sqrt(fmax(1, rows / columns));
}

static clt_status average(clt_update *u, const clt_slot *slot, int64_t first, int64_t count)
{
    const clt_replica *r = u->replica;
    const clt_optimizer_rule *rule = &u->options.rule;
    const clt_bucket *bucket = &r->layout->buckets[slot->bucket];
    call c = begin(u, K_MUON_AVERAGE);
    arg_buffer(&c, u->status);
    arg_buffer(&c, clt_replica_gradients(r, summed_type(u))[slot->bucket]);
    arg_int(&c, first);
    arg_int(&c, count);
    arg_int(&c, clt_shard_begin(bucket, r->shard, r->shards) / 4);
    arg_buffer(&c, r->slots[0][slot->bucket]);
    arg_buffer(&c, clt_newton_schulz_input(u->newton));
    arg_float(&c, rule->momentum);
    arg_float(&c, 1 - rule->momentum);
    return clt_update_run_bucket(&c, count, "muon: momentum", 3, true);
}

clt_status clt_update_matrix(clt_update *u, const clt_slot *slot, double lr)
{
    const clt_optimizer_rule *rule = &u->options.rule;
    const int64_t first = slot->offset / 4, count = clt_slot_padded(slot) / 4;
    const double decay = slot->decay == CLT_COMMON_DECAY ? rule->weight_decay : slot->decay;
    clt_view direction;
    CLT_TRY(average(u, slot, first, count));
    CLT_TRY(clt_newton_schulz_run(u->newton, slot, &direction));
    call c = begin(u, K_MUON_STEP);
    arg_buffer(&c, u->status);
    arg_buffer(&c, u->replica->values[slot->bucket]);
    arg_int(&c, first);
    arg_int(&c, count);
    arg_buffer(&c, direction.buffer);
    arg_long(&c, direction.offset / 4);
    arg_float(&c, lr * slot->rate * size_factor(rule, &slot->type));
    arg_float(&c, lr * slot->rate * decay);
    return clt_update_run_bucket(&c, count, "muon: step", 3, false);
}
