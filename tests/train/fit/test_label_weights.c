/* Weights of losses that only labels decide are known before a step runs: clt_fit has them from the
 * loader, and steps count them in the feeds. So no step needs a forward pass before. */
#include "train/text_lab.h"

#include "train/core/trainer.h"
#include <cltrain/fit.h>

enum { TEXTS = 12, BATCH = 4 };

static int32_t tokens[TEXTS * LENGTH], targets[TEXTS * LENGTH];

static clt_dataset *texts(void)
{
    const int64_t shape[] = {LENGTH};
    clt_dataset *set;
    int field;
    make_texts(TEXTS, tokens, targets);
    ok(clt_dataset_create_arrays("texts", TEXTS, &set));
    ok(clt_dataset_add_field(set, "tokens", CLT_I32, 1, shape, tokens, CLT_DATA_BORROW, &field));
    ok(clt_dataset_set_classes(set, field, WORDS));
    ok(clt_dataset_add_field(set, "targets", CLT_I32, 1, shape, targets, CLT_DATA_BORROW, &field));
    ok(clt_dataset_set_classes(set, field, WORDS));
    return set;
}

static lab lab_text(void)
{
    clt_trainer_options o;
    lab l = text_lab("pocl/2", "pp=2");
    clt_trainer_options_init(&o);
    o.batch = BATCH;
    o.accumulate = 2;
    lab_trainer(&l, &o);
    return l;
}

static double weight_of_batch(int first)
{
    return weight_of_texts(targets + first * LENGTH, BATCH);
}

/* The last batch of the epoch has the last texts. */
static void loaders_count_labels(void **state)
{
    clt_fit_options o;
    clt_dataset *set = texts();
    lab l = lab_text();
    (void)state;
    clt_fit_options_init(&o);
    o.shuffle = 0;
    ok(clt_fit(l.trainer, set, NULL, &o));
    assert_non_null(l.trainer->call.batch.loss_weights);
    assert_true(l.trainer->call.loss_weights[0] == weight_of_batch(TEXTS - BATCH));
    lab_close(&l);
    clt_dataset_free(set);
}

/* Labels in memory of the host are counted. Other feeds leave the weight to a forward pass. */
static void steps_count_labels(void **state)
{
    static const clt_feed feeds[] = {{"tokens", -1, CLT_HOST(tokens)},
                                     {"targets", -1, CLT_HOST(targets)}};
    static const clt_feed apart[] = {{"tokens", -1, CLT_HOST(tokens)},
                                     {"targets", 0, CLT_HOST(targets)},
                                     {"targets", 1, CLT_HOST(targets)}};
    clt_step_batch batch;
    double weight;
    float first[WORDS * WIDTH], second[WORDS * WIDTH];
    (void)state;
    clt_dataset_free(texts());
    for (int k = 0; k < 2; k++) {
        lab l = lab_text();
        clt_step_batch_init(&batch);
        batch.count = BATCH;
        batch.feeds = k ? apart : feeds;
        batch.n_feeds = k ? 3 : 2;
        assert_int_equal(clt_session_label_weights(l.trainer->training, &batch, &weight), !k);
        ok(clt_trainer_step(l.trainer, &batch, NULL));
        ok(clt_trainer_wait(l.trainer));
        assert_true(l.trainer->call.loss_weights[0] == weight_of_batch(0));
        ok(clt_store_get(l.store, "wte.weight", k ? second : first, sizeof first));
        lab_close(&l);
    }
    assert_memory_equal(first, second, sizeof first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(loaders_count_labels),
                                       cmocka_unit_test(steps_count_labels)};
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
