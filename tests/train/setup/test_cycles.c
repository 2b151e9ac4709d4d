/*
 * Programs that make and destroy everything again and again: 1,000 cycles of a runtime, a device, a
 * store, a trainer, a reservoir and a predictor, with a step and a prediction each. Afterwards no
 * allocation and no OpenCL object is left. The process has grown no more than by the same OpenCL
 * calls without the library (support/replay.h). CLT_TEST_CYCLES sets the number of cycles. With
 * CLT_TEST_VALGRIND the calls are not replayed, because valgrind's memory is not the program's.
 */
#include <malloc.h>
#include <unistd.h>

#include "base/alloc.h"
#include "device/core/cl.h"
#include "support/replay.h"
#include "train/lab.h"
#include <cltrain/models.h>
#include <cltrain/reservoir.h>

/* Sanitizers keep freed memory, so that the process grows. They find leaks by themselves. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

/* What the driver and malloc differ by from run to run. A block lost in each cycle is more. */
enum { NOISE = 512 * 1024, MALLOC_NOISE = 128 * 1024 };

enum { IN = 3, HIDDEN = 5, BATCH = 8, CAPACITY = 32 };

static int cycles(void)
{
    const char *text = getenv("CLT_TEST_CYCLES");
    return text ? atoi(text) : SANITIZED ? 20 : 1000;
}

static int64_t resident_bytes(void)
{
    long long size, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lld %lld", &size, &resident), 2);
    fclose(file);
    return resident * sysconf(_SC_PAGESIZE);
}

static clt_dataset *make_reservoir(const float *xs, const float *ys)
{
    const int64_t width = IN, one = 1, x_shape[] = {BATCH, IN}, y_shape[] = {BATCH, 1};
    clt_dataset *set;
    clt_array fields[2];
    ok(clt_dataset_create_reservoir("live", CAPACITY, NULL, &set));
    ok(clt_dataset_add_field(set, "x", CLT_F32, 1, &width, NULL, CLT_DATA_BORROW, NULL));
    ok(clt_dataset_add_field(set, "y", CLT_F32, 1, &one, NULL, CLT_DATA_BORROW, NULL));
    ok(clt_array_of(&fields[0], (void *)(uintptr_t)xs, CLT_F32, 2, x_shape));
    ok(clt_array_of(&fields[1], (void *)(uintptr_t)ys, CLT_F32, 2, y_shape));
    ok(clt_dataset_push(set, fields, 2, NULL));
    return set;
}

static void step_and_predict(lab *l)
{
    static const float xs[BATCH * IN] = {0.5f, -1, 2, 1, 0.25f}, ys[BATCH] = {1, -1, 2};
    float guess[BATCH];
    double loss = 0;
    clt_predictor *predictor;
    clt_predictor_options options;
    clt_dataset *set = make_reservoir(xs, ys);
    ok(clt_trainer_set_reservoir(l->trainer, set, NULL));
    ok(clt_step_reservoir(l->trainer, 1, &loss));
    assert_true(isfinite(loss) && loss > 0);
    clt_predictor_options_init(&options);
    options.batch = BATCH;
    const clt_feed feed = {"x", -1, CLT_HOST(xs)};
    const clt_fetch fetch = {"prediction", -1, CLT_HOST(guess)};
    clt_step_batch batch;
    clt_step_batch_init(&batch);
    batch.count = BATCH;
    batch.feeds = &feed;
    batch.n_feeds = 1;
    batch.fetches = &fetch;
    batch.n_fetches = 1;
    ok(clt_predictor_create(l->graph, l->store, &options, &predictor));
    ok(clt_predictor_run(predictor, &batch, NULL));
    ok(clt_predictor_wait(predictor));
    assert_true(isfinite(guess[0]) && guess[0] != 0);
    clt_predictor_destroy(predictor);
    clt_trainer_destroy(l->trainer);
    l->trainer = NULL;
    clt_dataset_free(set);
}

static void cycle(void)
{
    const int64_t hidden = HIDDEN;
    clt_graph *graph;
    clt_trainer_options options;
    clt_trainer_options_init(&options);
    options.optimizer = CLT_ADAM;
    options.batch = BATCH;
    ok(clt_runtime_create(NULL, &runtime));
    lab l = lab_on(clt_test_devices("pocl"), NULL);
    ok(clt_mlp_regressor(IN, &hidden, 1, 1, "tanh", &graph));
    lab_store(&l, graph, 1);
    lab_trainer(&l, &options);
    step_and_predict(&l);
    lab_close(&l);
    clt_runtime_destroy(runtime);
    assert_int_equal(clt_alloc_live(), 0);
    assert_int_equal(clt_device_object_live(CLT_OBJECT_KINDS), 0);
}

/* Memory of the process: what the system gave it, and what malloc has given out. */
typedef struct memory {
    int64_t resident, allocated;
} memory;

static memory memory_now(void)
{
    malloc_trim(0);
    const struct mallinfo2 info = mallinfo2();
    return (memory){resident_bytes(), (int64_t)(info.uordblks + info.hblkhd)};
}

/* Returns by how many bytes the process grew after the first tenth of the cycles, which fill pools
 * and caches. */
static memory growth(void (*one)(void))
{
    memory before = {0}, after;
    const int n = cycles();
    for (int i = 0; i < n; i++) {
        if (i == n / 10)
            before = memory_now();
        one();
    }
    after = memory_now();
    return (memory){after.resident - before.resident, after.allocated - before.allocated};
}

/* The driver may give back memory of earlier cycles meanwhile. */
static int64_t more_of(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void no_growth(void **state)
{
    (void)state;
    cycle(); /* compiles the kernels */
    if (getenv("CLT_TEST_VALGRIND")) {
        growth(cycle);
        printf("%d cycles under valgrind: nothing is left, and nothing was replayed\n", cycles());
        return;
    }
    replay_record(true);
    cycle();
    replay_record(false);
    assert_true(replay.n_launches > 3);
    const memory ours = growth(cycle), bare = growth(replay_once);
    printf("%d cycles of %d objects and %d launches: resident memory grew by %lld KiB, of bare "
           "OpenCL by %lld KiB; malloc's by %lld bytes, of bare OpenCL by %lld bytes\n",
           cycles(), replay.n_objects, replay.n_launches, (long long)ours.resident / 1024,
           (long long)bare.resident / 1024, (long long)ours.allocated, (long long)bare.allocated);
    if (SANITIZED)
        return;
    assert_true(ours.resident <= more_of(bare.resident, 0) + NOISE);
    assert_true(ours.allocated <= more_of(bare.allocated, 0) + MALLOC_NOISE);
}

int main(void)
{
    mallopt(M_ARENA_MAX, 1); /* pages of the arenas of ended threads would count as growth */
    mallopt(M_MMAP_THRESHOLD, 1 << 17);
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_growth)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
