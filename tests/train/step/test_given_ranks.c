/* Ranks that reduce their gradients themselves: they train as one process, and are told if they set
 * unlike sums. */
#include "train/step/given.h"

#include "train/world.h"

/* --- ranks -------------------------------------------------------------------------------------
 */

enum { RANKS = 2, ALL = WIDE * IN + WIDE + CLASSES * WIDE + CLASSES };

typedef struct part {
    double clip;
    bool unlike; /* rank 1 sets other gradients */
    float values[ALL];
    clt_step_result result;
} part;

static const int first_of[] = {0, WIDE *IN, WIDE *IN + WIDE, WIDE *IN + WIDE + CLASSES *WIDE};

/* Sums the gradients of both ranks through the world, and sets the sum. */
static bool reduce_between(rank *self, clt_trainer *trainer, bool unlike)
{
    float mine[ALL], all[RANKS][ALL], sum[ALL];
    for (int i = 0; i < TENSORS; i++)
        if (!HOLDS(self, clt_trainer_gradient(trainer, 0, names[i], mine + first_of[i],
                                              bytes_of(i)) == CLT_OK))
            return false;
    if (!HOLDS(self, self->world.gather(self, mine, sizeof mine, all) == CLT_OK))
        return false;
    for (int k = 0; k < ALL; k++)
        sum[k] = all[0][k] + all[1][k] + (unlike && self->number && k == 5 ? 1 : 0);
    for (int i = 0; i < TENSORS; i++)
        if (!HOLDS(self, clt_trainer_set_gradient(trainer, 0, names[i], sum + first_of[i],
                                                  bytes_of(i)) == CLT_OK))
            return false;
    return HOLDS(self, clt_trainer_reduced(trainer) == CLT_OK);
}

static void train_rank(rank *self)
{
    part *p = self->argument;
    const setting s = {"cpu", NULL, CLT_MOMENTUM, CLT_F32, 0, p->clip, 0, 0};
    clt_trainer_options o = options_of(&s);
    const int64_t count = self->number ? COUNT - 5 : 5;
    const clt_feed own[] = {{"x", -1, CLT_HOST(xs + (self->number ? 5 * IN : 0))},
                            {"label", -1, CLT_HOST(labels + (self->number ? 5 : 0))}};
    clt_step_batch batch = batch_of(count);
    lab l = {0};
    batch.feeds = own;
    o.batch = 2 * COUNT; /* each rank has room for half of it */
    o.world = &self->world;
    o.comm_timeout = 60;
    l.graph = split_network(false);
    bool good = HOLDS(self, clt_devices_open(runtime, clt_test_devices(s.devices), NULL, &l.devices,
                                             &l.n) == CLT_OK) &&
                HOLDS(self, clt_store_create(l.graph, l.devices, 1, 3, &l.store) == CLT_OK) &&
                HOLDS(self, clt_trainer_create(l.graph, l.store, &o, &l.trainer) == CLT_OK);
    for (int k = 0; good && k < STEPS; k++) {
        good = HOLDS(self, clt_trainer_forward(l.trainer, &batch) == CLT_OK) &&
               HOLDS(self, clt_trainer_backward(l.trainer) == CLT_OK) &&
               reduce_between(self, l.trainer, p->unlike);
        if (good && p->unlike) {
            self->status = clt_trainer_apply(l.trainer, NULL);
            snprintf(self->message, sizeof self->message, "%s", clt_error_message());
            break;
        }
        good = good && HOLDS(self, clt_trainer_apply(l.trainer, NULL) == CLT_OK);
    }
    clt_step_result_init(&p->result);
    if (good && !p->unlike)
        HOLDS(self, clt_trainer_result(l.trainer, STEPS - 1, &p->result) == CLT_OK);
    for (int i = 0; good && i < TENSORS; i++)
        HOLDS(self,
              clt_store_get(l.store, names[i], p->values + first_of[i], bytes_of(i)) == CLT_OK);
    clt_trainer_destroy(l.trainer);
    clt_store_destroy(l.store);
    clt_graph_destroy(l.graph);
    clt_devices_close(l.devices, l.n);
}

/* Ranks that add up their gradients themselves train as one process. */
static void between_ranks(void **state)
{
    (void)state;
    rank ranks[RANKS];
    if (clt_test_oclgrind()) /* it fails if threads use it at the same time */
        return;
    for (int clips = 0; clips < 2; clips++) {
        part parts[RANKS] = {{.clip = clips * 0.125}, {.clip = clips * 0.125}};
        const setting s = {"cpu", NULL, CLT_MOMENTUM, CLT_F32, 0, clips * 0.125, 0, 0};
        float p[MOST];
        lab l = lab_of(&s);
        for (int k = 0; k < STEPS; k++) {
            backward(&l, COUNT);
            end(&l);
        }
        run_ranks(ranks, RANKS, train_rank, parts, sizeof *parts);
        assert_memory_equal(parts[0].values, parts[1].values, sizeof parts->values);
        assert_true(parts[0].result.norm == parts[1].result.norm && parts[0].result.finite);
        assert_true(fabs(parts[0].result.norm - last(&l).norm) <= 1e-5 * last(&l).norm);
        for (int i = 0; i < TENSORS; i++) {
            ok(clt_store_get(l.store, names[i], p, bytes_of(i)));
            for (int k = 0; k < sizes[i]; k++)
                assert_true(fabsf(parts[0].values[first_of[i] + k] - p[k]) <= 1e-5f);
        }
        lab_close(&l);
    }
}

static void unlike_ranks(void **state)
{
    (void)state;
    rank ranks[RANKS];
    part parts[RANKS] = {{.unlike = true}, {.unlike = true}};
    if (clt_test_oclgrind())
        return;
    run_ranks(ranks, RANKS, train_rank, parts, sizeof *parts);
    assert_memory_equal(parts[0].values, parts[1].values, sizeof parts->values);
    for (int r = 0; r < RANKS; r++) {
        assert_true(ranks[r].status == CLT_MISMATCH || ranks[r].status == CLT_ABORTED);
        assert_non_null(strstr(ranks[r].message, "set the same reduced gradients on all"));
    }
}

/* --- parameters that no loss depends on -------------------------------------------------------
 */

enum { NUMBERS = 7 };

typedef struct alone {
    int zero;     /* of the trainer */
    bool reduces; /* the trainer reduces, else this test */
    bool sets[2]; /* whether the rank sets p, and q */
    float factor; /* of what it sets: zeros are a gradient too */
    float values[2][NUMBERS];
} alone;

/* A step of two parameters without a loss, which fails; then one that sets neither. */
static void step_alone(rank *self)
{
    alone *a = self->argument;
    const int64_t dims[] = {NUMBERS};
    const clt_step_batch batch = {.struct_size = sizeof batch};
    clt_trainer_options o;
    lab l = {0};
    clt_trainer_options_init(&o);
    o.optimizer = CLT_MOMENTUM;
    o.weight_decay = 0.25;
    o.batch = RANKS * 2;
    o.world = &self->world;
    o.comm_timeout = 60;
    o.zero = a->zero;
    bool good = HOLDS(self, clt_graph_create(&l.graph) == CLT_OK);
    for (int i = 0; good && i < 2; i++)
        clt_parameter(l.graph, i ? "q" : "p", 1, dims, (clt_init){CLT_INIT_NORMAL, 1, 0});
    good = good &&
           HOLDS(self, clt_devices_open(runtime, "pocl/2", NULL, &l.devices, &l.n) == CLT_OK) &&
           HOLDS(self, clt_store_create(l.graph, l.devices, l.n, 1, &l.store) == CLT_OK) &&
           HOLDS(self, clt_trainer_create(l.graph, l.store, &o, &l.trainer) == CLT_OK);
    for (int step = 0; good && step < 2; step++) {
        good = HOLDS(self, clt_trainer_forward(l.trainer, &batch) == CLT_OK) &&
               HOLDS(self, clt_trainer_backward(l.trainer) == CLT_OK);
        for (int i = 0; good && !step && i < 2; i++) {
            float g[NUMBERS];
            for (int k = 0; k < NUMBERS; k++)
                g[k] = a->factor * (float)(k + 1);
            good = !a->sets[i] || HOLDS(self, clt_trainer_set_gradient(l.trainer, -1, i ? "q" : "p",
                                                                       g, sizeof g) == CLT_OK);
        }
        clt_status status = !good        ? CLT_INTERNAL
                            : a->reduces ? clt_trainer_reduce(l.trainer)
                                         : clt_trainer_reduced(l.trainer);
        if (status == CLT_OK)
            status = clt_trainer_apply(l.trainer, NULL);
        if (!step) {
            self->status = status;
            snprintf(self->message, sizeof self->message, "%s", clt_error_message());
        } else {
            HOLDS(self, status == CLT_OK);
        }
    }
    for (int i = 0; good && i < 2; i++)
        HOLDS(self,
              clt_store_get(l.store, i ? "q" : "p", a->values[i], sizeof a->values[i]) == CLT_OK);
    lab_close(&l);
}

/* Only some ranks set a gradient, which may be zeros. All are told, and no rank updates. */
static void set_on_some_ranks(void **state)
{
    (void)state;
    rank ranks[RANKS];
    if (clt_test_oclgrind())
        return;
    for (int i = 0; i < 12; i++) {
        const bool same = i % 3 == 2, first = i % 3 == 0;
        alone parts[RANKS];
        for (int r = 0; r < RANKS; r++)
            parts[r] =
                (alone){i / 6, i / 3 % 2, {same, same || r == !first}, (float)(i % 2), {{0}}};
        run_ranks(ranks, RANKS, step_alone, parts, sizeof *parts);
        assert_memory_equal(parts[0].values, parts[1].values, sizeof parts->values);
        for (int r = 0; r < RANKS; r++) {
            assert_int_equal(ranks[r].status, same ? CLT_OK : CLT_MISMATCH);
            if (!same && !strstr(ranks[r].message,
                                 first ? "no loss depends on q, and rank 0 has set its gradient, "
                                         "but rank 1 has not"
                                       : "no loss depends on q, and rank 1 has set its gradient, "
                                         "but rank 0 has not"))
                fail_msg("rank %d: %s", r, ranks[r].message);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(between_ranks),
                                       cmocka_unit_test(unlike_ranks),
                                       cmocka_unit_test(set_on_some_ranks)};
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
