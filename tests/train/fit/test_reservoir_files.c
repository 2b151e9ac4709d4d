/* Checkpoints with the samples of reservoirs: a resumed run has the bits of one without a break. */
#include <sys/stat.h>
#include <unistd.h>

#include "train/fit/reservoir_lab.h"
#include "train/lab_scratch.h"

enum { HALF = 7, STEPS = 2 * HALF, CAPACITY = 30, PUSHED = 6 };

static void folder(char path[4200], const char *name)
{
    snprintf(path, 4200, "%s/%s", scratch, name);
}

static clt_dataset *saved_reservoir(clt_reservoir_policy policy)
{
    clt_reservoir_options options = reservoir_options();
    options.policy = policy;
    options.save = 1;
    return reservoir_open(CAPACITY, &options);
}

/* --- a loop of one's own ---------------------------------------------------------------------- */

/* Makes steps [from, to), and saves after each second one if `dir` is given. */
static void go(const lab *l, clt_dataset *d, int from, int to, const char *dir)
{
    for (int s = from; s < to; s++) {
        ok(push_made_up(d, s * PUSHED, PUSHED));
        ok(clt_step_reservoir(l->trainer, 1, NULL));
        if (dir && (s + 1 - from) % 2 == 0)
            ok(clt_trainer_save_state(l->trainer, dir, 2));
    }
    ok(clt_trainer_wait(l->trainer));
}

static bool exists(const char *dir, const char *name)
{
    char path[4400];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return access(path, F_OK) == 0;
}

static void loops_resume_with_the_same_bits(void **state)
{
    (void)state;
    static const char *const names[] = {"loop0", "loop1", "loop2"};
    for (int policy = 0; policy < 3; policy++) {
        char dir[4200];
        folder(dir, names[policy]);
        clt_dataset *a = saved_reservoir((clt_reservoir_policy)policy);
        lab l = lab_open("cpu@1");
        ok(clt_trainer_set_reservoir(l.trainer, a, NULL));
        go(&l, a, 0, STEPS, dir);
        go(&l, a, STEPS, 2 * STEPS, NULL);
        const learnt want = read_learnt(&l);
        lab_close(&l);
        /* Two checkpoints are kept, with their samples. */
        assert_true(exists(dir, "reservoirs/rank-0/step-00000014"));
        assert_true(exists(dir, "reservoirs/rank-0/step-00000012"));
        assert_false(exists(dir, "reservoirs/rank-0/step-00000010"));
        assert_true(exists(dir, "step-00000012"));
        assert_false(exists(dir, "step-00000010"));

        /* Both checkpoints lead to the same end. */
        for (int k = 0; k < 2; k++) {
            char path[4400];
            snprintf(path, sizeof path, "%s%s", dir, k ? "/step-00000012" : "");
            clt_dataset *b = saved_reservoir((clt_reservoir_policy)policy);
            l = lab_open("cpu@1");
            ok(clt_trainer_set_reservoir(l.trainer, b, NULL));
            ok(push_made_up(b, 500, 20)); /* is replaced */
            ok(clt_trainer_restore_state(l.trainer, path));
            const int from = (int)clt_trainer_steps(l.trainer);
            assert_int_equal(from, k ? STEPS - 2 : STEPS);
            assert_int_equal(stats_of(b).seen, from * PUSHED);
            go(&l, b, from, 2 * STEPS, NULL);
            const learnt have = read_learnt(&l);
            same_learnt(&want, &have);
            same_stats(a, b);
            lab_close(&l);
            clt_dataset_free(b);
        }
        clt_dataset_free(a);
    }
}

/* --- clt_fit ---------------------------------------------------------------------------------- */

typedef struct pushing {
    clt_dataset *d;
    int64_t step; /* that is done */
    int64_t stop; /* after this step; 0: never */
} pushing;

static int push_after_step(void *user)
{
    pushing *p = user;
    p->step++;
    ok(push_made_up(p->d, p->step * PUSHED, PUSHED));
    return p->step == p->stop;
}

static clt_fit_options fit_options(const char *dir, pushing *p)
{
    clt_fit_options o;
    clt_fit_options_init(&o);
    o.steps = STEPS;
    o.seed = 3;
    o.checkpoint_dir = dir;
    o.resume = 1;
    o.should_stop = push_after_step;
    o.user = p;
    return o;
}

static void fits_resume_with_the_same_bits(void **state)
{
    (void)state;
    static const char *const names[] = {"fit0", "fit1", "fit2"};
    for (int policy = 0; policy < 3; policy++) {
        char dir[4200];
        folder(dir, names[policy]);
        pushing p = {.d = saved_reservoir((clt_reservoir_policy)policy)};
        clt_fit_options o = fit_options(NULL, &p);
        lab l = lab_open("cpu@1");
        ok(push_made_up(p.d, 0, PUSHED));
        ok(clt_fit(l.trainer, p.d, NULL, &o));
        const learnt want = read_learnt(&l);
        lab_close(&l);

        pushing q = {.d = saved_reservoir((clt_reservoir_policy)policy), .stop = HALF};
        o = fit_options(dir, &q);
        l = lab_open("cpu@1");
        ok(push_made_up(q.d, 0, PUSHED));
        assert_int_equal(clt_fit(l.trainer, q.d, NULL, &o), CLT_STOPPED);
        lab_close(&l);
        clt_dataset_free(q.d);

        pushing r = {.d = saved_reservoir((clt_reservoir_policy)policy), .step = HALF};
        o = fit_options(dir, &r);
        l = lab_open("cpu@1");
        ok(clt_fit(l.trainer, r.d, NULL, &o));
        const learnt have = read_learnt(&l);
        same_learnt(&want, &have);
        same_stats(p.d, r.d);
        lab_close(&l);
        clt_dataset_free(r.d);
        clt_dataset_free(p.d);
    }
}

/* The best checkpoint and its samples stay. */
static clt_status keep_step_2(void *user, clt_policy_run *run, const clt_evaluation *evaluation)
{
    (void)user;
    if (evaluation->step == 2)
        clt_policy_keep(run, NULL);
    return CLT_OK;
}

static void samples_of_the_best_checkpoint_stay(void **state)
{
    (void)state;
    char dir[4200], best[4300];
    float xs[8 * IN];
    int32_t labels[8];
    clt_policy policy, *const policies[] = {&policy};
    pushing p = {.d = saved_reservoir(CLT_RESERVOIR_UNIFORM)};
    clt_dataset *validation;
    folder(dir, "best_run");
    clt_fit_options o = fit_options(dir, &p);
    clt_policy_init(&policy);
    policy.name = "second";
    policy.evaluated = keep_step_2;
    make_samples(xs, labels, 8, IN, CLASSES);
    ok(lab_samples(8, IN, xs, labels, CLASSES, &validation));
    o.validation = validation;
    o.validate_every = 2;
    o.policies = policies;
    o.n_policies = 1;
    o.checkpoint_every = 2;
    o.keep = 2;
    lab l = lab_open("cpu@1");
    ok(push_made_up(p.d, 0, PUSHED));
    ok(clt_fit(l.trainer, p.d, NULL, &o));
    assert_true(exists(dir, "reservoirs/rank-0/step-00000002"));
    assert_true(exists(dir, "step-00000002"));
    for (int step = 4; step < STEPS - 2; step += 2) {
        char name[64];
        snprintf(name, sizeof name, "reservoirs/rank-0/step-%08d", step);
        assert_false(exists(dir, name));
    }
    lab_close(&l);
    clt_dataset_free(p.d);

    snprintf(best, sizeof best, "%s/best", dir);
    clt_dataset *d = saved_reservoir(CLT_RESERVOIR_UNIFORM);
    l = lab_open("cpu@1");
    ok(clt_trainer_set_reservoir(l.trainer, d, NULL));
    ok(clt_trainer_restore_state(l.trainer, best));
    assert_int_equal(clt_trainer_steps(l.trainer), 2);
    assert_int_equal(stats_of(d).seen, 2 * PUSHED);
    lab_close(&l);
    clt_dataset_free(d);
    clt_dataset_free(validation);
}

/* --- what cannot be restored ------------------------------------------------------------------ */

static void refused(clt_dataset *d, const char *dir, clt_status want, const char *words)
{
    lab l = lab_open("cpu@1");
    const learnt before = read_learnt(&l);
    ok(clt_trainer_set_reservoir(l.trainer, d, NULL));
    assert_int_equal(clt_trainer_restore_state(l.trainer, dir), want);
    if (!strstr(clt_error_message(), words))
        fail_msg("'%s' lacks '%s'", clt_error_message(), words);
    assert_null(strchr(clt_error_message(), '\n'));
    const learnt after = read_learnt(&l); /* nothing has changed */
    same_learnt(&before, &after);
    assert_int_equal(clt_trainer_steps(l.trainer), 0);
    assert_int_equal(stats_of(d).seen, 0);
    lab_close(&l);
    clt_dataset_free(d);
}

/* Changes a byte of a file, counted from its end if it is negative. Twice restores it. */
static void damage(const char *path, long at)
{
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, at < 0 ? SEEK_END : SEEK_SET), 0);
    const int c = fgetc(f);
    assert_int_equal(fseek(f, at, at < 0 ? SEEK_END : SEEK_SET), 0);
    fputc(c ^ 1, f);
    fclose(f);
}

/* Returns where the samples begin in a file, and where its counters do. */
static long samples_at(const char *path, long *counters)
{
    char header[4096];
    uint64_t length;
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fread(&length, sizeof length, 1, f), 1);
    assert_true(length < sizeof header);
    assert_int_equal(fread(header, length, 1, f), 1);
    header[length] = 0;
    const char *text = strstr(header, "\"counters\":\"");
    assert_non_null(text);
    *counters = (long)sizeof length + (long)(text - header) + (long)strlen("\"counters\":\"");
    fclose(f);
    return (long)(sizeof length + length);
}

static void other_reservoirs_are_refused(void **state)
{
    (void)state;
    char dir[4200], file[4400];
    clt_reservoir_options options = reservoir_options();
    folder(dir, "other");
    clt_dataset *d = saved_reservoir(CLT_RESERVOIR_UNIFORM);
    lab l = lab_open("cpu@1");
    ok(clt_trainer_set_reservoir(l.trainer, d, NULL));
    go(&l, d, 0, 2, dir);
    lab_close(&l);
    clt_dataset_free(d);

    refused(saved_reservoir(CLT_RESERVOIR_NEWEST), dir, CLT_MISMATCH,
            "a reservoir for 30 samples, uniform, x f32 [6], label i32 []; 'live' is for 30 "
            "samples, newest");
    options.save = 1;
    refused(reservoir_open(CAPACITY + 1, &options), dir, CLT_MISMATCH, "'live' is for 31 samples");

    /* Without `save` the samples stay where they are. */
    options.save = 0;
    d = reservoir_open(CAPACITY, &options);
    l = lab_open("cpu@1");
    ok(clt_trainer_set_reservoir(l.trainer, d, NULL));
    ok(clt_trainer_restore_state(l.trainer, dir));
    assert_int_equal(clt_trainer_steps(l.trainer), 2);
    assert_int_equal(stats_of(d).seen, 0);
    /* A checkpoint without samples leaves the reservoir as it is. */
    ok(push_made_up(d, 0, 3));
    char plain[4200];
    folder(plain, "plain");
    ok(clt_trainer_save_state(l.trainer, plain, 0));
    assert_false(exists(plain, "reservoirs"));
    lab_close(&l);
    clt_dataset_free(d);
    d = saved_reservoir(CLT_RESERVOIR_UNIFORM);
    ok(push_made_up(d, 0, 3));
    l = lab_open("cpu@1");
    ok(clt_trainer_set_reservoir(l.trainer, d, NULL));
    ok(clt_trainer_restore_state(l.trainer, plain));
    assert_int_equal(stats_of(d).kept, 3);
    lab_close(&l);
    clt_dataset_free(d);

    snprintf(file, sizeof file, "%s/reservoirs/rank-0/step-00000002", dir);
    long counters;
    const long samples = samples_at(file, &counters);
    damage(file, counters);
    refused(saved_reservoir(CLT_RESERVOIR_UNIFORM), dir, CLT_FORMAT, "is damaged: its counters");
    damage(file, counters);
    for (long byte = 0; byte < 24; byte += 8) { /* index, number, key */
        damage(file, samples + byte);
        refused(saved_reservoir(CLT_RESERVOIR_UNIFORM), dir, CLT_FORMAT, "is damaged: a sample");
        damage(file, samples + byte);
    }
    damage(file, -3);
    refused(saved_reservoir(CLT_RESERVOIR_UNIFORM), dir, CLT_FORMAT, "is damaged: a sample");
    assert_int_equal(truncate(file, 1000), 0);
    refused(saved_reservoir(CLT_RESERVOIR_UNIFORM), dir, CLT_FORMAT, "step-00000002");
    unlink(file);
    refused(saved_reservoir(CLT_RESERVOIR_UNIFORM), dir, CLT_NOT_FOUND, "rank-0/step-00000002");
}

/* An empty reservoir is saved and restored too, and large samples take several tensors. */
static void all_sizes_are_saved(void **state)
{
    (void)state;
    enum { WIDE = 5 << 20, N = 3 };
    static float x[N][WIDE], back[WIDE];
    const int64_t shape[] = {WIDE}, all[] = {N, WIDE}, one[] = {1, WIDE};
    char dir[4200];
    clt_reservoir_options options = reservoir_options();
    clt_dataset *d[2];
    clt_array field, to;
    options.save = 1;
    options.policy = CLT_RESERVOIR_NEWEST;
    for (int64_t i = 0; i < N * WIDE; i++)
        x[i / WIDE][i % WIDE] = (float)i;
    ok(clt_array_of(&field, x, CLT_F32, 2, all));
    ok(clt_array_of(&to, back, CLT_F32, 2, one));
    for (int k = 0; k < 2; k++) {
        ok(clt_dataset_create_reservoir("wide", 4, &options, &d[k]));
        ok(clt_dataset_add_field(d[k], "x", CLT_F32, 1, shape, NULL, CLT_DATA_BORROW, NULL));
    }
    folder(dir, "sizes");
    /* A trainer whose graph has no other input than x. */
    clt_graph *graph[2];
    lab l[2];
    for (int k = 0; k < 2; k++) {
        const int64_t dims[] = {CLT_BATCH, WIDE}, weight[] = {1, 1};
        clt_trainer_options o = trainer_options();
        clt_value *sum = NULL, *count = NULL;
        o.batch = 1;
        ok(clt_graph_create(&graph[k]));
        clt_value *in = clt_input(graph[k], "x", CLT_F32, 2, dims);
        const clt_init init = {CLT_INIT_UNIFORM, 0.1, 0};
        clt_value *y = clt_mul(in, clt_parameter(graph[k], "w", 2, weight, init));
        clt_mse(y, in, &sum, &count);
        clt_loss(graph[k], "loss", sum, count, 1);
        l[k] = lab_on_kept("cpu@1");
        lab_store(&l[k], graph[k], 1);
        lab_trainer(&l[k], &o);
        ok(clt_trainer_set_reservoir(l[k].trainer, d[k], NULL));
    }
    ok(clt_trainer_save_state(l[0].trainer, dir, 0)); /* empty */
    ok(clt_trainer_restore_state(l[1].trainer, dir));
    assert_int_equal(stats_of(d[1]).seen, 0);
    ok(clt_dataset_push(d[0], &field, 1, NULL));
    ok(clt_step_reservoir(l[0].trainer, 1, NULL));
    ok(clt_trainer_save_state(l[0].trainer, dir, 0));
    ok(clt_trainer_restore_state(l[1].trainer, dir));
    same_stats(d[0], d[1]);
    for (int64_t step = 0; step < 6; step++) {
        int64_t drawn;
        static float other[WIDE];
        ok(clt_dataset_draw(d[1], 1, step, 0, 1, &to, 1, &drawn));
        to.host = other;
        ok(clt_dataset_draw(d[0], 1, step, 0, 1, &to, 1, &drawn));
        to.host = back;
        assert_memory_equal(back, other, sizeof back);
    }
    for (int k = 0; k < 2; k++) {
        lab_close(&l[k]);
        clt_dataset_free(d[k]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loops_resume_with_the_same_bits),
        cmocka_unit_test(fits_resume_with_the_same_bits),
        cmocka_unit_test(samples_of_the_best_checkpoint_stay),
        cmocka_unit_test(other_reservoirs_are_refused),
        cmocka_unit_test(all_sizes_are_saved),
    };
    return cmocka_run_group_tests(tests, open_runtime_and_scratch, close_runtime_and_scratch);
}
