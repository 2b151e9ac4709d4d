/* Training and restoring while other threads push and draw. Run it under ThreadSanitizer. */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "train/fit/reservoir_lab.h"
#include "train/lab_scratch.h"

enum { PUSHERS = 8, STEPS = 60, CAPACITY = 200 };

/* A run of clt_fit on a thread. */
typedef struct training {
    lab l;
    clt_dataset *d;
    clt_fit_options options;
    pthread_t thread;
    clt_status status;
    char message[512];
    _Atomic int asked, stop;
    _Atomic bool done;
    double waited;
} training;

static int should_stop(void *user)
{
    training *t = user;
    t->asked++;
    return t->stop;
}

static void on_step(void *user, const clt_progress *progress)
{
    ((training *)user)->waited = progress->wait_seconds;
}

static void *train(void *user)
{
    training *t = user;
    t->status = clt_fit(t->l.trainer, t->d, NULL, &t->options);
    snprintf(t->message, sizeof t->message, "%s", t->status == CLT_OK ? "" : clt_error_message());
    t->done = true;
    return NULL;
}

static void start(training *t, clt_dataset *d, int64_t steps, const char *dir)
{
    t->l = lab_open("cpu@1");
    t->d = d;
    clt_fit_options_init(&t->options);
    t->options.steps = steps;
    t->options.should_stop = should_stop;
    t->options.on_step = on_step;
    t->options.user = t;
    t->options.checkpoint_dir = dir;
    t->options.checkpoint_every = dir ? 10 : 0;
    assert_int_equal(pthread_create(&t->thread, NULL, train, t), 0);
}

static void end(training *t, clt_status want)
{
    pthread_join(t->thread, NULL);
    if (t->status != want)
        fail_msg("%s: %s", clt_status_name(t->status), t->message);
    lab_close(&t->l);
}

typedef struct pusher {
    const training *t;
    clt_dataset *d;
    int64_t first, pushed;
    clt_status status;
    pthread_t thread;
} pusher;

static void *push_until_done(void *user)
{
    pusher *p = user;
    while (!p->t->done && p->status == CLT_OK) {
        p->status = push_made_up(p->d, p->first + p->pushed, 5);
        p->pushed += 5;
        usleep(200);
    }
    return NULL;
}

/* Pushes as many samples as there is room for: no older one may stay. */
static void check_newest(clt_dataset *d)
{
    float x[BATCH][IN] = {{0}};
    int32_t labels[BATCH] = {0};
    const int64_t shape[] = {BATCH, IN};
    clt_array to[2];
    int64_t drawn;
    ok(clt_array_of(&to[0], x, CLT_F32, 2, shape));
    ok(clt_array_of(&to[1], labels, CLT_I32, 1, shape));
    for (int i = 0; i < CAPACITY; i++)
        ok(push_made_up(d, 7, 1));
    for (int step = 0; step < 50; step++) {
        ok(clt_dataset_draw(d, 1, step, 0, BATCH, to, 2, &drawn));
        for (int i = 0; i < BATCH; i++)
            for (int k = 0; k < IN; k++)
                assert_true(x[i][k] == made_up(7, k));
    }
}

/* Training waits for the first samples, and takes them from eight threads. Checkpoints with samples
 * are written meanwhile. */
static void eight_threads_push(void **state)
{
    (void)state;
    for (int policy = 0; policy < 3; policy++) {
        char dir[4200];
        training t = {.done = false};
        pusher p[PUSHERS];
        clt_reservoir_options options = reservoir_options();
        options.policy = (clt_reservoir_policy)policy;
        options.least = 50;
        options.save = 1;
        snprintf(dir, sizeof dir, "%s/live%d", scratch, policy);
        clt_dataset *d = reservoir_open(CAPACITY, &options);
        start(&t, d, STEPS, dir);
        while (t.asked < 3) /* it waits, and asks whether to stop */
            usleep(1000);
        ok(push_made_up(d, 0, 49)); /* one less than `least` */
        const int asked = t.asked;
        while (t.asked < asked + 3)
            usleep(1000);
        assert_int_equal(clt_trainer_steps(t.l.trainer), 0);
        for (int i = 0; i < PUSHERS; i++) {
            p[i] = (pusher){.t = &t, .d = d, .first = 1000000 * (i + 1)};
            assert_int_equal(pthread_create(&p[i].thread, NULL, push_until_done, &p[i]), 0);
        }
        int64_t pushed = 49;
        for (int i = 0; i < PUSHERS; i++) {
            pthread_join(p[i].thread, NULL);
            assert_int_equal(p[i].status, CLT_OK);
            pushed += p[i].pushed;
        }
        end(&t, CLT_OK);
        assert_true(t.waited > 0);
        const clt_reservoir_stats s = stats_of(d);
        assert_int_equal(s.seen, pushed);
        assert_int_equal(s.seen, s.kept + s.replaced + s.declined + s.dropped);
        print_message("%lld pushed: %lld kept, %lld replaced, %lld declined, %lld dropped\n",
                      (long long)s.seen, (long long)s.kept, (long long)s.replaced,
                      (long long)s.declined, (long long)s.dropped);
        clt_dataset_free(d);

        /* What was saved during pushes can be restored. */
        d = reservoir_open(CAPACITY, &options);
        lab l = lab_open("cpu@1");
        ok(clt_trainer_set_reservoir(l.trainer, d, NULL));
        ok(clt_trainer_restore_state(l.trainer, dir));
        assert_int_equal(clt_trainer_steps(l.trainer), STEPS);
        const clt_reservoir_stats restored = stats_of(d);
        assert_true(restored.kept >= 50);
        assert_int_equal(restored.seen,
                         restored.kept + restored.replaced + restored.declined + restored.dropped);
        ok(push_made_up(d, 0, 60));
        if (options.policy == CLT_RESERVOIR_NEWEST)
            check_newest(d);
        ok(clt_step_reservoir(l.trainer, 2, NULL));
        ok(clt_trainer_wait(l.trainer));
        lab_close(&l);
        clt_dataset_free(d);
    }
}

/* --- restoring meanwhile ---------------------------------------------------------------------- */

typedef struct user {
    clt_dataset *d;
    int number;
    _Atomic bool *done;
    clt_status status;
    pthread_t thread;
} user;

static void *push_or_draw(void *of)
{
    user *u = of;
    float x[BATCH][IN] = {{0}};
    int32_t labels[BATCH] = {0};
    clt_array to[2];
    const int64_t shape[] = {BATCH, IN};
    int64_t drawn;
    u->status = clt_array_of(&to[0], x, CLT_F32, 2, shape);
    if (u->status == CLT_OK)
        u->status = clt_array_of(&to[1], labels, CLT_I32, 1, shape);
    for (int64_t i = 0; !*u->done && u->status == CLT_OK; i++)
        u->status = u->number % 2 ? push_made_up(u->d, 1000000 * u->number + i * 5, 5)
                                  : clt_dataset_draw(u->d, 1, i, 0, BATCH, to, 2, &drawn);
    return NULL;
}

/* A restore replaces all samples, whoever reads or pushes some at that moment. */
static void others_push_and_draw_during_a_restore(void **state)
{
    (void)state;
    for (int policy = 0; policy < 3; policy++) {
        char dir[4200];
        user users[PUSHERS];
        _Atomic bool done = false;
        clt_reservoir_options options = reservoir_options();
        options.policy = (clt_reservoir_policy)policy;
        options.spare = PUSHERS;
        options.save = 1;
        snprintf(dir, sizeof dir, "%s/meanwhile%d", scratch, policy);
        clt_dataset *d = reservoir_open(CAPACITY, &options);
        lab l = lab_open("cpu@1");
        ok(clt_trainer_set_reservoir(l.trainer, d, NULL));
        for (int i = 0; i < 5; i++)
            ok(push_made_up(d, 50 * i, 50));
        ok(clt_trainer_save_state(l.trainer, dir, 0));
        for (int i = 0; i < PUSHERS; i++) {
            users[i] = (user){.d = d, .number = i, .done = &done};
            assert_int_equal(pthread_create(&users[i].thread, NULL, push_or_draw, &users[i]), 0);
        }
        for (int i = 0; i < 100; i++)
            ok(clt_trainer_restore_state(l.trainer, dir));
        done = true;
        for (int i = 0; i < PUSHERS; i++) {
            pthread_join(users[i].thread, NULL);
            assert_int_equal(users[i].status, CLT_OK);
        }
        const clt_reservoir_stats s = stats_of(d);
        assert_int_equal(s.seen, s.kept + s.replaced + s.declined + s.dropped);
        assert_int_equal(s.kept, CAPACITY);
        lab_close(&l);
        clt_dataset_free(d);
    }
}

/* A run that waits can be stopped, and saves. */
static void waiting_ends_with_a_stop(void **state)
{
    (void)state;
    char dir[4200];
    training t = {.done = false};
    clt_dataset *d = reservoir_open(CAPACITY, NULL);
    clt_checkpoint *checkpoint;
    snprintf(dir, sizeof dir, "%s/stopped", scratch);
    start(&t, d, STEPS, dir);
    while (t.asked < 2)
        usleep(1000);
    t.stop = 1;
    end(&t, CLT_STOPPED);
    ok(clt_checkpoint_open(dir, &checkpoint));
    assert_int_equal(clt_checkpoint_run(checkpoint)->step, 0);
    clt_checkpoint_close(checkpoint);
    clt_dataset_free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eight_threads_push),
        cmocka_unit_test(others_push_and_draw_during_a_restore),
        cmocka_unit_test(waiting_ends_with_a_stop),
    };
    return cmocka_run_group_tests(tests, open_runtime_and_scratch, close_runtime_and_scratch);
}
