/*
 * clt_fit with parameters that are split over ranks, which are threads here: all ranks save and
 * resume together, and rank 0 reads and writes the files. Any other mesh goes on from them.
 */
#include "train/ranks/split_rank.h"

enum { MOST_DEVICES = 4, SLOTS = 2 };

/* A run of clt_fit on a rank, and what it gives. */
typedef struct run {
    const char *parallel;
    int devices;
    int64_t steps;
    const char *folder; /* NULL: no checkpoints */
    int resume, zero;
    float tensors[TENSORS][LARGEST], slots[SLOTS][TENSORS][LARGEST];
    int64_t done;
} run;

static clt_status make_trainer(const run *r, const clt_world *world, lab *l)
{
    CLT_TRY(clt_devices_open(runtime, clt_test_devices("pocl@1"), NULL, &l->devices, &l->n));
    return make_split_trainer(r->parallel, r->zero, COUNT, r->devices, world, l);
}

static clt_status train(run *r, lab *l, clt_dataset *set)
{
    clt_fit_options fit;
    clt_fit_options_init(&fit);
    fit.steps = r->steps;
    fit.shuffle = 0;
    fit.checkpoint_dir = r->folder;
    fit.checkpoint_every = 1;
    fit.resume = r->resume;
    fit.keep = 0;
    CLT_TRY(clt_fit(l->trainer, set, NULL, &fit));
    r->done = clt_trainer_steps(l->trainer);
    for (int i = 0; i < TENSORS; i++) {
        const size_t bytes = (size_t)sizes[i] * sizeof(float);
        CLT_TRY(clt_store_collect(l->store, names[i], r->tensors[i], bytes));
        for (int k = 0; k < SLOTS; k++)
            CLT_TRY(clt_trainer_slot_get(l->trainer, k, names[i], r->slots[k][i], bytes));
    }
    CLT_TRY(clt_store_check(l->store));
    return clt_trainer_finish(l->trainer);
}

static void fit_rank(rank *self)
{
    run *r = self->argument;
    lab l = {0};
    clt_dataset *set = NULL;
    if (HOLDS(self, make_data(&set) == CLT_OK) &&
        HOLDS(self, make_trainer(r, &self->world, &l) == CLT_OK)) {
        self->status = train(r, &l, set);
        snprintf(self->message, sizeof self->message, "%s", clt_error_message());
    }
    lab_close(&l);
    clt_dataset_free(set);
}

/* Runs on ranks with so many devices each. All succeed and have the same tensors. */
static run fit_on(const char *parallel, int n, const int *devices, int64_t steps,
                  const char *folder, bool resume, int zero)
{
    static run runs[RANKS_MOST];
    rank ranks[RANKS_MOST];
    for (int r = 0; r < n; r++)
        runs[r] = (run){.parallel = parallel,
                        .devices = devices[r],
                        .steps = steps,
                        .folder = folder,
                        .resume = resume,
                        .zero = zero};
    run_ranks(ranks, n, fit_rank, runs, sizeof *runs);
    for (int r = 0; r < n; r++) {
        if (ranks[r].status != CLT_OK)
            fail_msg("rank %d: %s", r, ranks[r].message);
        assert_int_equal(runs[r].done, steps);
        assert_memory_equal(runs[r].tensors, runs[0].tensors, sizeof runs[0].tensors);
        assert_memory_equal(runs[r].slots, runs[0].slots, sizeof runs[0].slots);
    }
    return runs[0];
}

static void same_bits(const run *a, const run *b)
{
    assert_memory_equal(a->tensors, b->tensors, sizeof a->tensors);
    assert_memory_equal(a->slots, b->slots, sizeof a->slots);
}

static void close_to(const run *a, const run *b)
{
    for (int i = 0; i < TENSORS; i++)
        for (int e = 0; e < sizes[i]; e++)
            assert_float_equal(a->tensors[i][e], b->tensors[i][e], 1e-5);
}

static const int one[] = {1}, two[] = {2}, each[] = {1, 1, 1}, pairs[] = {2, 2}, three[] = {3},
                 four[] = {4};

static void ranks_save_and_resume_together(void **state)
{
    (void)state;
    static const struct {
        const char *parallel;
        int ranks;
        const int *devices, *together; /* the same mesh on one rank */
        int zero;
    } cases[] = {{"tp=2", 2, each, two, 0},        {"tp=2,dp=2", 2, pairs, four, 0},
                 {"tp=2,dp=2", 2, pairs, four, 1}, {"dp=2,tp=2", 2, pairs, four, 1},
                 {NULL, 2, each, two, 3},          {"dp=3", 3, each, three, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char folder[64];
        snprintf(folder, sizeof folder, "run-%zu", i);
        char *dir = strdup(in_scratch(folder));
        const char *p = cases[i].parallel;
        const int n = cases[i].ranks;
        const int zero = cases[i].zero;
        const run whole = fit_on(p, n, cases[i].devices, 4, NULL, false, zero);
        const run alone = fit_on(p, 1, cases[i].together, 4, NULL, false, zero);
        const run single = fit_on(NULL, 1, one, 4, NULL, false, 0);
        same_bits(&whole, &alone);
        close_to(&whole, &single);
        fit_on(p, n, cases[i].devices, 2, dir, false, zero);
        const run resumed = fit_on(p, n, cases[i].devices, 4, dir, true, zero);
        same_bits(&whole, &resumed);
        /* All others go on from the checkpoint of the ranks. */
        scratch_remove_tree(in_scratch("copy"));
        fit_on(p, n, cases[i].devices, 2, in_scratch("copy"), false, zero);
        const run elsewhere = fit_on(NULL, 1, one, 4, in_scratch("copy"), true, 0);
        close_to(&whole, &elsewhere);
        free(dir);
    }
}

/* Rank 0 finds no checkpoint, so all begin. */
static void an_empty_folder_begins_a_run(void **state)
{
    (void)state;
    const run begun = fit_on("tp=2", 2, each, 1, in_scratch("new"), true, 0);
    const run plain = fit_on("tp=2", 2, each, 1, NULL, false, 0);
    same_bits(&begun, &plain);
}

static void damage_fails_on_all_ranks(void **state)
{
    static run runs[2];
    rank ranks[2];
    (void)state;
    char *dir = strdup(in_scratch("damaged")), file[300];
    fit_on("tp=2", 2, each, 1, dir, false, 0);
    snprintf(file, sizeof file, "%s/step-00000001/optimizer.safetensors", dir);
    assert_int_equal(truncate(file, 100), 0);
    for (int r = 0; r < 2; r++)
        runs[r] = (run){.parallel = "tp=2", .devices = 1, .steps = 2, .folder = dir, .resume = 1};
    run_ranks(ranks, 2, fit_rank, runs, sizeof *runs);
    assert_int_equal(ranks[0].status, CLT_FORMAT);
    assert_int_equal(ranks[1].status, CLT_ABORTED);
    assert_non_null(strstr(ranks[1].message, "optimizer.safetensors"));
    free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranks_save_and_resume_together),
                                       cmocka_unit_test(an_empty_folder_begins_a_run),
                                       cmocka_unit_test(damage_fails_on_all_ranks)};
    return cmocka_run_group_tests(tests, open_all, close_all);
}
