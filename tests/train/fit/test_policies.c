/* Policies of clt_fit: one of one's own with its state in checkpoints, and options that make no
 * sense. */
#include "train/lab.h"

#include <math.h>

#include "train/lab_scratch.h"

/* --- a policy of one's own -------------------------------------------------------------------- */

enum { ROWS = 24, BATCH = 8, MOST = 64 };

typedef struct seen {
    int evaluations, stop_after, saves;
    double values[MOST], losses[MOST], lr;
    char names[400];
    int64_t steps[MOST];
    int64_t last_step; /* of on_step */
    int stop_at;       /* of should_stop */
    bool damaged;      /* gives a state that is not JSON */
    char said[200];
} seen;

static clt_status own_begin(void *user, clt_policy_run *run, const char *state)
{
    seen *s = user;
    double lr = 0;
    assert_non_null(clt_policy_trainer(run));
    s->evaluations = 0;
    if (!state)
        return CLT_OK;
    assert_int_equal(sscanf(state, "[%d,%lf]", &s->evaluations, &lr), 2);
    s->lr = lr;
    return clt_policy_set_lr(run, lr, NULL);
}

static clt_status own_evaluated(void *user, clt_policy_run *run, const clt_evaluation *e)
{
    seen *s = user;
    int found;
    s->names[0] = '\0';
    for (int i = 0; i < e->count; i++)
        snprintf(s->names + strlen(s->names), sizeof s->names - strlen(s->names), "%s ",
                 e->names[i]);
    s->values[s->evaluations] = clt_evaluation_value(e, "val_loss", NULL);
    s->losses[s->evaluations] = clt_evaluation_value(e, "loss", NULL);
    assert_true(isnan(clt_evaluation_value(e, "nothing", &found)) && !found);
    s->steps[s->evaluations++] = e->step;
    s->lr = clt_policy_lr(run) * 0.7;
    ok(clt_policy_set_lr(run, s->lr, "because"));
    if (s->evaluations == s->stop_after)
        clt_policy_stop(run, "enough");
    return CLT_OK;
}

static char *own_save(void *user)
{
    seen *s = user;
    char *text = malloc(64);
    snprintf(text, 64, "[%d,%.17g%s", s->evaluations, s->lr, s->damaged ? "" : "]");
    s->saves++;
    return text;
}

static void on_step(void *user, const clt_progress *p)
{
    ((seen *)user)->last_step = p->step;
}

static int should_stop(void *user)
{
    const seen *s = user;
    return s->stop_at && s->last_step + 1 >= s->stop_at;
}

static void on_policy(void *user, int64_t step, const char *what)
{
    seen *s = user;
    snprintf(s->said, sizeof s->said, "%lld %s", (long long)step, what);
}

static clt_graph *slope(void)
{
    const int64_t x[] = {CLT_BATCH, 1};
    clt_graph *g;
    clt_value *sum, *weight;
    ok(clt_graph_create(&g));
    clt_mse(layer(g, clt_input(g, "x", CLT_F32, 2, x), "fc.weight", "fc.bias", 1, 1),
            clt_input(g, "y", CLT_F32, 2, x), &sum, &weight);
    clt_loss(g, "loss", sum, weight, 1);
    ok(clt_graph_status(g));
    return g;
}

static clt_dataset *line(int64_t rows, float tilt)
{
    static float xs[2][ROWS], ys[2][ROWS];
    const int64_t shape[] = {1};
    const int k = tilt > 1;
    clt_dataset *set;
    for (int i = 0; i < ROWS; i++) {
        xs[k][i] = (float)i / ROWS;
        ys[k][i] = tilt * xs[k][i] + 0.5f;
    }
    ok(clt_dataset_create_arrays("line", rows, &set));
    ok(clt_dataset_add_field(set, "x", CLT_F32, 1, shape, xs[k], CLT_DATA_BORROW, NULL));
    ok(clt_dataset_add_field(set, "y", CLT_F32, 1, shape, ys[k], CLT_DATA_BORROW, NULL));
    return set;
}

/* Runs, and returns the weight at the end. */
static float run(seen *s, const char *dir, int64_t every, bool resume, clt_status wanted,
                 int64_t *steps)
{
    clt_trainer_options options;
    clt_fit_options fit;
    clt_policy own;
    lab l = lab_on("pocl", NULL);
    clt_trainer_options_init(&options);
    options.batch = BATCH;
    options.lr = 0.3;
    lab_store(&l, slope(), 1);
    lab_trainer(&l, &options);
    clt_policy_init(&own);
    own.name = "own";
    own.user = s;
    own.begin = own_begin;
    own.evaluated = own_evaluated;
    own.save = own_save;
    clt_policy *const policies[] = {&own};
    clt_dataset *train = line(ROWS, 1), *held = line(7, 2), *test = line(5, 1);
    clt_fit_options_init(&fit);
    fit.epochs = 4;
    fit.validation = held;
    fit.validate_every = every;
    fit.policies = policies;
    fit.n_policies = 1;
    fit.checkpoint_dir = dir;
    fit.resume = resume;
    fit.on_step = on_step;
    fit.on_policy = on_policy;
    fit.should_stop = should_stop;
    fit.user = s;
    const clt_status status = clt_fit(l.trainer, train, test, &fit);
    if (status != wanted)
        fail_msg("%s", clt_error_message());
    float weight;
    ok(clt_store_get(l.store, "fc.weight", &weight, sizeof weight));
    *steps = clt_trainer_steps(l.trainer);
    clt_dataset_free(train);
    clt_dataset_free(held);
    clt_dataset_free(test);
    lab_close(&l);
    return weight;
}

static void own_policy_goes_on(void **state)
{
    (void)state;
    static const int64_t everies[] = {0, 2};
    for (int i = 0; i < 2; i++) {
        char dir[300];
        int64_t steps;
        seen whole = {0}, broken = {0};
        const float a = run(&whole, NULL, everies[i], false, CLT_OK, &steps);
        assert_int_equal(steps, 12);
        assert_int_equal(whole.evaluations,
                         everies[i] ? 8 : 4); /* ends of epochs too, without val */
        snprintf(dir, sizeof dir, "%s/own-%d", scratch, i);
        broken.stop_at = 5;
        run(&broken, dir, everies[i], false, CLT_STOPPED, &steps);
        broken.stop_at = 0;
        const float b = run(&broken, dir, everies[i], true, CLT_OK, &steps);
        assert_memory_equal(&a, &b, sizeof a);
        assert_int_equal(broken.evaluations, whole.evaluations);
        for (int e = 0; e < whole.evaluations; e++) {
            assert_int_equal(whole.steps[e], broken.steps[e]);
            assert_memory_equal(&whole.values[e], &broken.values[e], sizeof(double));
            assert_memory_equal(&whole.losses[e], &broken.losses[e], sizeof(double));
        }
    }
}

static void own_policy_stops(void **state)
{
    (void)state;
    int64_t steps;
    seen s = {.stop_after = 2};
    run(&s, NULL, 0, false, CLT_OK, &steps);
    assert_int_equal(steps, 6);
    assert_string_equal(s.said, "6 the run ends: enough");
    assert_string_equal(s.names, "loss val_loss test_loss ");
}

static void state_is_json(void **state)
{
    (void)state;
    int64_t steps;
    seen s = {.damaged = true};
    run(&s, NULL, 0, false, CLT_INVALID_ARGUMENT, &steps);
    assert_string_equal(clt_error_message(), "the state of policy own is not JSON");
}

/* A further run adds its epochs to the steps before. A resumed run has so many epochs in all. */
static void epochs_are_those_of_the_run(void **state)
{
    (void)state;
    char dir[300];
    clt_trainer_options options;
    clt_fit_options fit;
    clt_dataset *train = line(ROWS, 1);
    snprintf(dir, sizeof dir, "%s/further", scratch);
    for (int resumed = 0; resumed < 2; resumed++) {
        lab l = lab_on("pocl", NULL);
        clt_trainer_options_init(&options);
        options.batch = BATCH;
        lab_store(&l, slope(), 1);
        lab_trainer(&l, &options);
        clt_fit_options_init(&fit);
        fit.epochs = resumed ? 4 : 3;
        fit.checkpoint_dir = dir;
        fit.resume = resumed;
        ok(clt_fit(l.trainer, train, NULL, &fit));
        assert_int_equal(clt_trainer_steps(l.trainer), resumed ? 12 : 9);
        fit.checkpoint_dir = NULL;
        if (!resumed) {
            fit.epochs = 1;
            ok(clt_fit(l.trainer, train, NULL, &fit));
            assert_int_equal(clt_trainer_steps(l.trainer), 12);
            fit.epochs = 0;
            ok(clt_fit(l.trainer, train, NULL, &fit));
            assert_int_equal(clt_trainer_steps(l.trainer), 12);
        }
        lab_close(&l);
    }
    clt_dataset_free(train);
}

/* What a callback of a run tries. */
typedef struct intruder {
    lab l;
    clt_dataset *train;
    clt_fit_options *fit;
    clt_status nested, restored;
    int reports;
} intruder;

static void intrude(void *user, const clt_progress *progress)
{
    intruder *i = user;
    clt_position position;
    int64_t seed;
    (void)progress;
    i->reports++;
    i->nested = clt_fit(i->l.trainer, i->train, NULL, i->fit);
    i->restored = clt_trainer_restore(i->l.trainer, scratch, &position, &seed);
}

static void reports_make_no_steps(void **state)
{
    (void)state;
    clt_trainer_options options;
    clt_fit_options fit;
    intruder i = {.l = lab_on("pocl", NULL), .train = line(ROWS, 1), .fit = &fit};
    clt_trainer_options_init(&options);
    options.batch = BATCH;
    lab_store(&i.l, slope(), 1);
    lab_trainer(&i.l, &options);
    clt_fit_options_init(&fit);
    fit.epochs = 2;
    fit.on_epoch = intrude;
    fit.user = &i;
    ok(clt_fit(i.l.trainer, i.train, NULL, &fit));
    assert_int_equal(i.nested, CLT_STATE);
    assert_int_equal(i.restored, CLT_STATE);
    assert_int_equal(i.reports, 2);
    assert_int_equal(clt_trainer_steps(i.l.trainer), 6);

    /* A number of steps that no run has. */
    fit.on_epoch = NULL;
    clt_trainer_set_steps(i.l.trainer, -5);
    assert_int_equal(clt_fit(i.l.trainer, i.train, NULL, &fit), CLT_STATE);
    assert_non_null(strstr(clt_error_message(), "the trainer is at step -5"));
    lab_close(&i.l);
    clt_dataset_free(i.train);
}

static clt_status refused(const clt_fit_options *fit)
{
    clt_trainer_options options;
    lab l = lab_on("pocl", NULL);
    clt_trainer_options_init(&options);
    options.batch = BATCH;
    lab_store(&l, slope(), 1);
    lab_trainer(&l, &options);
    clt_dataset *train = line(ROWS, 1);
    const clt_status status = clt_fit(l.trainer, train, NULL, fit);
    clt_dataset_free(train);
    lab_close(&l);
    return status;
}

static void senseless_options(void **state)
{
    (void)state;
    clt_fit_options fit;
    clt_policy *best, *again;
    const clt_watched watched = {"val_loss", 0, 0};
    clt_fit_options_init(&fit);
    fit.validate_every = 3;
    assert_int_equal(refused(&fit), CLT_INVALID_ARGUMENT);
    assert_non_null(strstr(clt_error_message(), "needs clt_fit_options.validation"));
    clt_fit_options_init(&fit);
    ok(clt_policy_best(&watched, &best));
    ok(clt_policy_best(&watched, &again));
    clt_policy *const twice[] = {best, again};
    fit.policies = twice;
    fit.n_policies = 2;
    assert_int_equal(refused(&fit), CLT_INVALID_ARGUMENT);
    assert_non_null(strstr(clt_error_message(), "keep-best"));
    fit.n_policies = 1;
    fit.steps = 1;
    assert_int_equal(refused(&fit), CLT_INVALID_ARGUMENT);
    assert_non_null(strstr(clt_error_message(), "policy keep-best watches val_loss, which no "
                                                "evaluation of this run has: they have loss"));
    clt_policy_destroy(best);
    clt_policy_destroy(again);
    assert_int_equal(clt_policy_patience(&watched, 0, &best), CLT_INVALID_ARGUMENT);
    const clt_watched wrong = {"val_loss", 0, -1}, none = {"", 0, 0};
    assert_int_equal(clt_policy_patience(&wrong, 1, &best), CLT_INVALID_ARGUMENT);
    assert_int_equal(clt_policy_best(&none, &best), CLT_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {

        cmocka_unit_test(own_policy_goes_on),    cmocka_unit_test(own_policy_stops),
        cmocka_unit_test(state_is_json),         cmocka_unit_test(epochs_are_those_of_the_run),
        cmocka_unit_test(reports_make_no_steps), cmocka_unit_test(senseless_options),
    };
    return cmocka_run_group_tests(tests, open_runtime_and_scratch, close_runtime_and_scratch);
}
