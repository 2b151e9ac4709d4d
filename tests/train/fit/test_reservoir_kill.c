/* Processes that are killed with SIGKILL while they train on a reservoir and save. The last one
 * ends with the bits of a run without a break. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "train/fit/reservoir_lab.h"
#include "train/lab_scratch.h"

enum { STEPS = 60, CAPACITY = 30, PUSHED = 6, KILLS = 6 };

/* What the child tells: steps that are done, at last with the parameters. */
typedef struct news {
    int64_t step;
    learnt weights;
} news;

/* Ends the child, which must not return to the test. */
static void need(clt_status status)
{
    if (status == CLT_OK)
        return;
    fprintf(stderr, "%s\n", clt_error_message());
    _exit(1);
}

/* In the child: goes on from the last checkpoint, if there is one. */
static void train(const char *dir, int tell)
{
    static news n;
    clt_reservoir_options options = reservoir_options();
    clt_dataset *d;
    options.save = 1;
    need(clt_runtime_create(NULL, &runtime));
    lab l = lab_open("cpu@1");
    need(reservoir_make(CAPACITY, &options, &d));
    need(clt_trainer_set_reservoir(l.trainer, d, NULL));
    const clt_status restored = clt_trainer_restore_state(l.trainer, dir);
    need(restored == CLT_NOT_FOUND ? CLT_OK : restored);
    for (n.step = clt_trainer_steps(l.trainer); n.step < STEPS;) {
        need(push_made_up(d, n.step * PUSHED, PUSHED));
        need(clt_step_reservoir(l.trainer, 1, NULL));
        need(clt_trainer_save_state(l.trainer, dir, 2));
        n.step++;
        if (n.step == STEPS) {
            need(clt_store_get(l.store, "a.weight", n.weights.a, sizeof n.weights.a));
            need(clt_store_get(l.store, "b.weight", n.weights.b, sizeof n.weights.b));
        }
        if (write(tell, &n, sizeof n) != sizeof n)
            _exit(2);
    }
    _exit(0);
}

/* Runs a child, and kills it some microseconds after it has done `steps` steps; 0: never. Returns
 * what it told last. */
static news run(const char *dir, int steps, unsigned microseconds)
{
    int ends[2], how;
    news last = {.step = -1}, n;
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(ends[0]);
        train(dir, ends[1]);
    }
    close(ends[1]);
    for (int done = 1; read(ends[0], &n, sizeof n) == sizeof n; done++) {
        last = n;
        if (done != steps)
            continue;
        usleep(microseconds);
        assert_int_equal(kill(child, SIGKILL), 0);
    }
    close(ends[0]);
    assert_int_equal(waitpid(child, &how, 0), child);
    if (!steps)
        assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    return last;
}

static void killed_runs_end_with_the_same_bits(void **state)
{
    (void)state;
    char plain[4200], killed[4200];
    snprintf(plain, sizeof plain, "%s/plain", scratch);
    snprintf(killed, sizeof killed, "%s/killed", scratch);
    const news want = run(plain, 0, 0);
    assert_int_equal(want.step, STEPS);
    for (unsigned i = 0; i < KILLS; i++)
        run(killed, 6 + (int)i % 3, i * 797 % 5000);
    const news have = run(killed, 0, 0);
    assert_int_equal(have.step, STEPS);
    same_learnt(&want.weights, &have.weights);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(killed_runs_end_with_the_same_bits)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
