/* Keeps the replicas of a trainer's devices equal: compares them, and copies one rank's replica to
 * all. */
#include "train/core/trainer.h"
#include "train/step/averages.h"
#include "train/step/shards.h"
#include "train/step/programs.h"
#include "train/step/verify.h"
#include "train/ranks/whole.h"

clt_status clt_trainer_copy_replica(clt_trainer *t, int participant)
{
    if (t->all.total == 1 || participant < 0)
        return CLT_OK;
    CLT_TRY(clt_programs_copy(t, participant));
    return clt_averages_copy(t, participant);
}

clt_status clt_trainer_broadcast(clt_trainer *t, int root)
{
    CLT_TRY(clt_store_check_devices(t->store));
    if (root < 0 || root >= t->all.ranks)
        return clt_fail(CLT_INVALID_ARGUMENT, "rank %d is not one of %d", root, t->all.ranks);
    const int source = clt_whole_source(&t->all, t->store);
    int64_t numbers[] = {t->steps, (int64_t)t->options.seed, source};
    CLT_TRY(clt_world_tell(&t->all, root, numbers, sizeof numbers));
    if (numbers[2] < 0)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "rank %d has no whole replica on this mesh: broadcast from rank 0", root);
    clt_trainer_set_steps(t, numbers[0]);
    t->options.seed = (uint64_t)numbers[1];
    clt_scaling scaling;
    CLT_TRY(clt_update_scaling(t->devices[0].update, &scaling));
    CLT_TRY(clt_world_tell(&t->all, root, &scaling, sizeof scaling));
    CLT_TRY(clt_trainer_set_scaling(t, &scaling));
    CLT_TRY(clt_trainer_copy_replica(t, (int)numbers[2]));
    CLT_TRY(clt_averages_tell(t, root));
    CLT_TRY(clt_shards_tell(t, root));
    clt_verification_skip(t->verification);
    return CLT_OK;
}

clt_status clt_verify_step(clt_trainer *t, const char *what)
{
    if (!t->verification || !t->options.check_every || (t->steps + 1) % t->options.check_every)
        return CLT_OK;
    return clt_programs_run(t, CLT_PROGRAM_VERIFY, what, true);
}

/* Every rank finds the same mismatch by itself, so no rank waits for a failed one. */
static clt_status verify_once(clt_trainer *t, bool *done)
{
    if (*done)
        return CLT_OK;
    CLT_TRY(clt_programs_run(t, CLT_PROGRAM_VERIFY, NULL, false));
    *done = true;
    return CLT_OK;
}

clt_status clt_verify_start(clt_trainer *t)
{
    return t->verification ? verify_once(t, &t->verification->verified) : CLT_OK;
}

clt_status clt_verify_evaluation(clt_trainer *t)
{
    return t->verification && !t->verification->verified
               ? verify_once(t, &t->verification->evaluated)
               : CLT_OK;
}
