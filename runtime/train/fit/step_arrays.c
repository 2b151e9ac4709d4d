/* Steps and predictions on arrays, whose first dimension says how many samples there are. */
#include "base/error.h"
#include "train/core/trainer.h"

/* Makes the batch of all samples of the arrays. */
static clt_status batch_of(const clt_trainer *t, const clt_feed *feeds, int n_feeds,
                           clt_step_batch *batch)
{
    clt_step_batch_init(batch);
    batch->feeds = feeds;
    batch->n_feeds = n_feeds;
    batch->count = -1;
    CLT_TRY(clt_session_check_names(feeds, n_feeds, NULL, 0));
    for (int i = 0; i < n_feeds; i++) {
        const clt_value *input = clt_graph_find(t->graph, feeds[i].name);
        const clt_array *a = &feeds[i].array;
        if (!input || input->kind != CLT_VALUE_INPUT)
            return clt_fail(CLT_NOT_FOUND, "the graph has no input %s", feeds[i].name);
        if (!clt_type_has_batch(&input->type))
            continue;
        if (a->whole || a->rank < 1 || feeds[i].device >= 0)
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "feed %s needs a shape whose first dimension counts the samples, and "
                            "device -1",
                            feeds[i].name);
        if (batch->count >= 0 && batch->count != a->shape[0])
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "feed %s has %lld samples, and feeds before it %lld", feeds[i].name,
                            (long long)a->shape[0], (long long)batch->count);
        batch->count = a->shape[0];
    }
    return batch->count >= 0 ? CLT_OK
                             : clt_fail(CLT_INVALID_ARGUMENT, "no feed has a batch of samples");
}

clt_status clt_step_arrays(clt_trainer *t, const clt_feed *feeds, int n_feeds, double *loss)
{
    clt_step_batch batch;
    clt_step_result result;
    CLT_TRY(batch_of(t, feeds, n_feeds, &batch));
    CLT_TRY(clt_trainer_step(t, &batch, NULL));
    if (!loss)
        return CLT_OK;
    clt_step_result_init(&result);
    CLT_TRY(clt_trainer_result(t, clt_trainer_steps(t) - 1, &result));
    *loss = result.loss;
    return CLT_OK;
}

clt_status clt_predict_arrays(clt_trainer *t, const clt_feed *feeds, int n_feeds,
                              const clt_fetch *fetches, int n_fetches)
{
    clt_step_batch batch;
    CLT_TRY(batch_of(t, feeds, n_feeds, &batch));
    batch.fetches = fetches;
    batch.n_fetches = n_fetches;
    CLT_TRY(clt_trainer_predict(t, &batch, NULL));
    return clt_trainer_wait(t);
}
