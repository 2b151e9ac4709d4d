/*
 * Saves of replicas in which each read of a device, and each write to the disk, fails in turn on
 * one of two ranks (threads). All ranks end with a message, none waits for ever, and the checkpoint
 * before stays. The program's definitions replace those of the OpenCL loader and of the C library.
 */
#include "train/world.h"

#include <dlfcn.h>
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"
#include "checkpoint/scratch.h"
#include <cltrain/checkpoint.h>
#include <cltrain/local.h>

enum { RANKS = 2, EACH = 2, REPLICAS = RANKS * EACH, SAMPLES = 32, IN = 12, CLASSES = 4 };
enum { EVERY = 2, STEPS = 4 };

typedef enum call { NONE, READ, WRITE } call;

/* The calls of a rank's thread until one fails. */
static _Thread_local int left;
static _Thread_local call failing;

/* Which save of which rank is disturbed. */
static struct plan {
    call call;
    int rank, number; /* the number of the call that fails, from 1 on */
} plan;

static float xs[SAMPLES * IN];
static int32_t labels[SAMPLES];
static bool resumes;

static bool fails(call which)
{
    return failing == which && left && !--left;
}

cl_int clEnqueueReadBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking, size_t offset,
                           size_t bytes, void *data, cl_uint n_wait, const cl_event *wait,
                           cl_event *event)
{
    cl_int (*next)(cl_command_queue, cl_mem, cl_bool, size_t, size_t, void *, cl_uint,
                   const cl_event *, cl_event *);
    if (fails(READ))
        return CL_OUT_OF_RESOURCES;
    *(void **)&next = dlsym(RTLD_NEXT, "clEnqueueReadBuffer");
    return next(queue, buffer, blocking, offset, bytes, data, n_wait, wait, event);
}

ssize_t write(int fd, const void *data, size_t bytes)
{
    if (fails(WRITE)) {
        errno = ENOSPC;
        return -1;
    }
    return (ssize_t)syscall(SYS_write, fd, data, bytes);
}

/* Syncs nothing, since no power cut comes. This makes the test fast. */
int fsync(int fd)
{
    (void)fd;
    return 0;
}

/* The last save fails: the first one has made the checkpoint of step EVERY. */
static void on_checkpoint(void *user)
{
    rank *self = user;
    if (++self->numbers[0] < STEPS / EVERY || self->number != plan.rank)
        return;
    failing = plan.call;
    left = plan.number;
}

typedef struct team {
    lab l;
    clt_store *stores[EACH];
    clt_trainer *trainers[EACH];
    clt_local *local;
    clt_dataset *data;
} team;

static clt_status open_team(rank *self, team *t)
{
    clt_trainer_options o;
    clt_local_options options;
    clt_trainer_options_init(&o);
    clt_local_options_init(&options);
    o.optimizer = CLT_MOMENTUM;
    o.batch = 2;
    options.every_steps = EVERY;
    options.outer = (clt_outer){CLT_OUTER_NESTEROV, 0.7, 0.9};
    options.wire = CLT_BF16;
    options.world = &self->world;
    options.comm_timeout = 60;
    t->l.graph = classifier(IN, 4, CLASSES);
    CLT_TRY(clt_devices_open(runtime, "pocl@1,pocl@1", NULL, &t->l.devices, &t->l.n));
    for (int i = 0; i < EACH; i++) {
        CLT_TRY(clt_store_create(t->l.graph, t->l.devices + i, 1, 1, &t->stores[i]));
        CLT_TRY(clt_trainer_create(t->l.graph, t->stores[i], &o, &t->trainers[i]));
    }
    CLT_TRY(clt_local_create(t->trainers, EACH, &options, &t->local));
    return lab_samples(SAMPLES, IN, xs, labels, CLASSES, &t->data);
}

static void close_team(team *t)
{
    clt_dataset_free(t->data);
    clt_local_destroy(t->local);
    for (int i = 0; i < EACH; i++) {
        clt_trainer_destroy(t->trainers[i]);
        clt_store_destroy(t->stores[i]);
    }
    lab_close(&t->l);
}

static void fit(rank *self)
{
    team t = {.local = NULL};
    clt_fit_options o;
    clt_fit_options_init(&o);
    o.batch = 2 * REPLICAS;
    o.steps = STEPS;
    o.checkpoint_dir = self->number ? "/nowhere" : scratch; /* only rank 0 needs it */
    o.checkpoint_every = EVERY;
    o.resume = resumes;
    o.on_checkpoint = on_checkpoint;
    o.user = self;
    failing = NONE;
    if (HOLDS(self, open_team(self, &t) == CLT_OK)) {
        self->status = clt_local_fit(t.local, t.data, NULL, &o);
        snprintf(self->message, sizeof self->message, "%s", clt_error_message());
        self->numbers[1] = left;
    }
    failing = NONE;
    close_team(&t);
}

static bool exists(int step)
{
    char path[300];
    snprintf(path, sizeof path, "%s/step-%08d", scratch, step);
    clt_checkpoint *checkpoint = NULL;
    const bool there = access(path, F_OK) == 0;
    if (there)
        assert_int_equal(clt_checkpoint_open(path, &checkpoint), CLT_OK);
    clt_checkpoint_close(checkpoint);
    return there;
}

static void clear(void)
{
    scratch_remove_tree(scratch);
    assert_int_equal(mkdir(scratch, 0700), 0);
}

/* Fails call after call, until a save has fewer calls. Returns how many there are. */
static int fail_each(call which, int number, clt_status status, const char *says)
{
    rank ranks[RANKS];
    char told[40];
    for (int n = 1;; n++) {
        clear();
        plan = (struct plan){which, number, n};
        run_ranks(ranks, RANKS, fit, NULL, 0);
        assert_true(exists(EVERY));
        if (ranks[number].numbers[1] > 0) { /* the call did not come */
            for (int r = 0; r < RANKS; r++)
                assert_int_equal(ranks[r].status, CLT_OK);
            assert_true(exists(STEPS));
            return n - 1;
        }
        assert_false(exists(STEPS));
        assert_int_equal(ranks[number].status, status);
        assert_non_null(strstr(ranks[number].message, says));
        assert_null(strchr(ranks[number].message, '\n'));
        assert_int_equal(ranks[1 - number].status, CLT_ABORTED);
        snprintf(told, sizeof told, "rank %d failed: ", number);
        assert_non_null(strstr(ranks[1 - number].message, told));
        assert_non_null(strstr(ranks[1 - number].message, says));
        assert_null(strchr(ranks[1 - number].message, '\n'));
    }
}

/* Momentum has a tensor for each of four parameters of each replica. */
static void a_device_that_cannot_be_read_ends_the_save(void **state)
{
    (void)state;
    assert_true(fail_each(READ, 1, CLT_OPENCL, "clEnqueueReadBuffer") >= 4 * EACH);
    assert_true(fail_each(READ, 0, CLT_OPENCL, "clEnqueueReadBuffer") >= 4 * (EACH - 1));
}

static void a_full_disk_ends_the_save(void **state)
{
    (void)state;
    assert_true(fail_each(WRITE, 0, CLT_IO, "No space left on device") >= 3);
}

/* What is left behind does not disturb the next run. */
static void a_run_goes_on_from_the_checkpoint_before(void **state)
{
    rank ranks[RANKS];
    size_t bytes;
    (void)state;
    clear();
    plan = (struct plan){NONE, 0, 0};
    run_ranks(ranks, RANKS, fit, NULL, 0);
    unsigned char *want = get_file(in_scratch("step-00000004/model.safetensors"), &bytes);
    clear();
    plan = (struct plan){READ, 1, 3};
    run_ranks(ranks, RANKS, fit, NULL, 0);
    assert_int_equal(ranks[0].status, CLT_ABORTED);
    plan = (struct plan){NONE, 0, 0};
    resumes = true;
    run_ranks(ranks, RANKS, fit, NULL, 0);
    resumes = false;
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(ranks[r].status, CLT_OK);
    unsigned char *got = get_file(in_scratch("step-00000004/model.safetensors"), &bytes);
    assert_memory_equal(got, want, bytes);
    free(got);
    free(want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_device_that_cannot_be_read_ends_the_save, scratch_make,
                                        scratch_remove),
        cmocka_unit_test_setup_teardown(a_full_disk_ends_the_save, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(a_run_goes_on_from_the_checkpoint_before, scratch_make,
                                        scratch_remove),
    };
    make_samples(xs, labels, SAMPLES, IN, CLASSES);
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
