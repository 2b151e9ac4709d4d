/*
 * Trainers with zero 1: each device keeps the optimizer's state of its shard of each bucket and
 * updates that shard. Parameters and slots have the bits of a trainer without it. And the bytes
 * that zero 3 sends and keeps; test_tensor.c has its values.
 */
#include "train/sharded_state.h"

typedef struct setting {
    const char *devices;
    clt_optimizer optimizer;
    clt_dtype precision;
    int64_t bucket_bytes;
    int accumulate, zero;
} setting;

static clt_trainer_options options_of(const setting *s)
{
    clt_trainer_options o = usual_options(s->optimizer, s->precision, s->accumulate);
    o.zero = s->zero;
    return o;
}

static lab lab_of(const setting *s)
{
    const clt_store_options store = usual_store(s->bucket_bytes);
    const clt_trainer_options o = options_of(s);
    lab l = lab_on_kept(clt_test_devices(s->devices));
    l.graph = classifier(IN, WIDE, CLASSES);
    ok(clt_param_group(l.graph, "*.bias", 0.5, 0, NULL));
    ok(clt_store_create_with(l.graph, l.devices, l.n, &store, &l.store));
    lab_trainer(&l, &o);
    return l;
}

/* A shard of a bucket is its part of the bucket, aligned. */
static void check_slots(const lab *whole, const lab *sharded)
{
    const clt_replica *r = &whole->store->replicas[0];
    int64_t bytes = 0, lines = 0;
    for (int b = 0; b < r->layout->n_buckets; b++) {
        bytes += r->layout->buckets[b].state ? 0 : r->n_slots * r->layout->buckets[b].bytes;
        lines += r->n_slots;
    }
    const int64_t all = slot_bytes(r), own = slot_bytes(&sharded->store->replicas[0]);
    assert_true(all >= bytes);
    assert_true(own * sharded->n >= bytes);
    assert_true(own <= bytes / sharded->n + lines * CLT_TENSOR_ALIGN);
}

static const setting settings[] = {
    {"cpu/2", CLT_SGD, CLT_F32, 0, 1, 0},     {"cpu/2", CLT_MOMENTUM, CLT_F32, 0, 1, 0},
    {"cpu/2", CLT_ADAMW, CLT_F32, 512, 1, 0}, {"cpu/2,cpu@1", CLT_ADAM, CLT_F32, 0, 2, 0},
    {"cpu/2", CLT_ADAM, CLT_BF16, 512, 1, 0}, {"cpu/2", CLT_ADAMW, CLT_F16, 0, 3, 0}};

/* Slots that are set, and steps after them, are the same too. */
static void shards_give_the_same_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        setting sharded = settings[i];
        sharded.zero = 1;
        lab a = lab_of(&settings[i]), b = lab_of(&sharded);
        assert_true(b.trainer->sharded);
        train(&a, STEPS);
        train(&b, STEPS);
        compare(&a, &b, true);
        check_slots(&a, &b);
        set_slots(&a, &b);
        train(&a, 2);
        train(&b, 2);
        compare(&a, &b, true);
        lab_close(&a);
        lab_close(&b);
    }
}

/* --- ranks ------------------------------------------------------------------------------------ */

typedef struct plan {
    const char *devices;
    int zero;
    share share;
    float told[LARGEST]; /* a slot that rank 1 has set, after a broadcast */
} plan;

static void train_rank(rank *self)
{
    plan *p = self->argument;
    const setting s = {p->devices, CLT_ADAM, CLT_F32, 512, 1, p->zero};
    const size_t bytes = (size_t)sizes[0] * sizeof(float);
    lab l = {0};
    float set[LARGEST];
    for (int i = 0; i < sizes[0]; i++)
        set[i] = (float)i;
    if (train_share(self, &p->share, p->devices, usual_store(s.bucket_bytes), options_of(&s), &l)) {
        if (self->number == 1)
            HOLDS(self, clt_trainer_slot_set(l.trainer, 1, names[0], set, bytes) == CLT_OK);
        HOLDS(self, clt_trainer_broadcast(l.trainer, 1) == CLT_OK);
        HOLDS(self, clt_trainer_slot_get(l.trainer, 1, names[0], p->told, bytes) == CLT_OK);
        HOLDS(self, !l.trainer->whole); /* nothing stays on the host */
        HOLDS(self, clt_trainer_finish(l.trainer) == CLT_OK);
    }
    lab_close(&l);
}

/* Ranks with different numbers of devices give the same bits with and without shards, and every
 * rank can read all slots. */
static void shards_lie_on_ranks(void **state)
{
    static plan whole[3], sharded[3];
    static const int64_t counts[] = {7, 12, 5};
    static const char *const lists[] = {"cpu@1", "cpu/2", "cpu@1"};
    rank ranks[3];
    int64_t first = 0;
    (void)state;
    for (int r = 0; r < 3; r++) {
        whole[r] = (plan){.devices = lists[r], .share = {.first = first, .count = counts[r]}};
        sharded[r] = whole[r];
        sharded[r].zero = 1;
        first += counts[r];
    }
    assert_int_equal(first, MOST);
    run_ranks(ranks, 3, train_rank, whole, sizeof *whole);
    run_ranks(ranks, 3, train_rank, sharded, sizeof *sharded);
    for (int r = 0; r < 3; r++) {
        compare_shares(&whole[r].share, &sharded[r].share);
        for (int i = 0; i < sizes[0]; i++)
            assert_true(sharded[r].told[i] == (float)i && whole[r].told[i] == (float)i);
    }
}

/* --- zero 3 ----------------------------------------------------------------------------------- */

enum { VOCABULARY = 11, DEPTH = 8, LENGTH = 6 };

/* Two layers between the two uses of a tied table. */
static clt_graph *tied_model(void)
{
    const int64_t table[] = {VOCABULARY, DEPTH}, tokens[] = {CLT_BATCH, LENGTH};
    clt_value *sum, *weight;
    clt_graph *g;
    ok(clt_graph_create(&g));
    clt_value *wte = clt_parameter(g, "wte", 2, table, (clt_init){CLT_INIT_UNIFORM, 0.5, 0});
    clt_value *x = clt_embedding(clt_input(g, "tokens", CLT_I32, 2, tokens), wte, CLT_NO_PADDING);
    x = clt_relu(layer(g, x, "0.weight", "0.bias", DEPTH, WIDE));
    x = layer(g, x, "1.weight", "1.bias", WIDE, DEPTH);
    x = clt_reshape(clt_linear(x, wte, NULL), 2, (const int64_t[]){-LENGTH, VOCABULARY});
    clt_value *label = clt_input(g, "label", CLT_I32, 2, tokens);
    clt_cross_entropy(x, clt_reshape(label, 1, (const int64_t[]){-LENGTH}), NULL, &sum, &weight);
    clt_loss(g, "loss", sum, weight, 1);
    return g;
}

/* Sums the bytes of gradients and parameters that the first device sends, in rings. */
static clt_status (*started)(void *, int, const clt_collective *, cl_uint, const cl_event *,
                             clt_collective_request *);
static double sent;
static int devices;

static clt_status count_start(void *self, int device, const clt_collective *what, cl_uint n_wait,
                              const cl_event *wait, clt_collective_request *request)
{
    const double bytes = (double)what->count * clt_dtype_size(what->dtype) * (devices - 1);
    if (device == 0 && what->buffer && what->dtype != CLT_I32)
        sent += what->kind == CLT_COLLECTIVE_ALL_REDUCE ? 2 * bytes / devices : bytes;
    return started(self, device, what, n_wait, wait, request);
}

/* Returns the bytes that a device sends in a step, and those of its tensors. */
static double bytes_sent(const char *list, clt_dtype precision, int zero, int64_t *kept)
{
    static int32_t tokens[MOST * LENGTH];
    const double weight = MOST * LENGTH;
    const clt_feed text[] = {{"tokens", -1, CLT_HOST(tokens)}, {"label", -1, CLT_HOST(tokens)}};
    clt_store_options so;
    clt_trainer_options o;
    clt_step_batch batch = batch_of(text);
    for (int i = 0; i < MOST * LENGTH; i++)
        tokens[i] = i * 7 % VOCABULARY;
    lab l = lab_on_kept(list);
    clt_store_options_init(&so);
    so.zero = zero;
    l.graph = tied_model();
    ok(clt_store_create_with(l.graph, l.devices, l.n, &so, &l.store));
    clt_trainer_options_init(&o);
    o.optimizer = CLT_ADAMW;
    o.zero = zero;
    o.precision = precision;
    o.batch = MOST;
    lab_trainer(&l, &o);
    started = l.trainer->exchange.collectives.start;
    l.trainer->exchange.collectives.start = count_start;
    sent = 0;
    devices = l.n;
    batch.loss_weights = &weight; /* else forward runs twice */
    ok(clt_trainer_step(l.trainer, &batch, NULL));
    ok(clt_trainer_wait(l.trainer));
    const clt_replica *r = &l.store->replicas[0];
    const clt_plan *trains = l.trainer->training->devices[0].plan;
    for (int k = 0; k < trains->n_collectives; k++)
        assert_true(trains->collectives[k].whole); /* in place, so without staging */
    *kept = 0;
    for (int b = 0; b < r->layout->n_buckets; b++)
        *kept += r->layout->buckets[b].bytes;
    lab_close(&l);
    return sent;
}

/* Weights are gathered twice and gradients reduced once, which is half as much again as an
 * all-reduce. The tied table too: it stays from its last use in forward to its first in backward.
 * Biases, which backward does not read, are gathered once. In a run of 16 bits all of these have
 * 16 bits. */
static void shards_take_few_bytes(void **state)
{
    static const char *const lists[] = {"cpu@1,cpu@1", "cpu@1,cpu@1,cpu@1"};
    (void)state;
    for (int i = 0; i < 4; i++) {
        const clt_dtype precision = i < 2 ? CLT_F32 : CLT_BF16;
        int64_t whole, parts;
        const double plain = bytes_sent(lists[i % 2], precision, 0, &whole);
        const double zero = bytes_sent(lists[i % 2], precision, 3, &parts);
        const int n = i % 2 + 2, weights[] = {VOCABULARY * DEPTH, WIDE * DEPTH, WIDE * DEPTH};
        int floats = 2 * ((WIDE + n - 1) / n + (DEPTH + n - 1) / n); /* a shard's */
        for (int k = 0; k < 3; k++)
            floats += 3 * ((weights[k] + n - 1) / n);
        print_message("%s on %d devices: dp sends %.0f bytes, zero 3 %.0f\n",
                      clt_dtype_name(precision), n, plain, zero);
        assert_true(zero == clt_dtype_size(precision) * floats * (n - 1.0) && zero <= 1.5 * plain);
        assert_true(parts <= whole / n + 5 * CLT_TENSOR_ALIGN);
    }
}

/* Trains and keeps the parameters in `kept`. Or returns how far they are from those in `kept`,
 * relative to how far the steps moved them. */
static double trained_apart(clt_dtype precision, int accumulate, int zero, float kept[4][LARGEST],
                            bool compares)
{
    const setting s = {"cpu@1,cpu@1", CLT_SGD, precision, 512, accumulate, zero};
    float before[LARGEST], after[LARGEST];
    double apart = 0, moved = 0;
    clt_store_options so = usual_store(s.bucket_bytes);
    so.zero = zero;
    lab l = lab_on_kept(s.devices), start = lab_on_kept("cpu@1");
    l.graph = classifier(IN, WIDE, CLASSES);
    ok(clt_store_create_with(l.graph, l.devices, l.n, &so, &l.store));
    lab_store(&start, classifier(IN, WIDE, CLASSES), 4);
    const clt_trainer_options o = options_of(&s);
    lab_trainer(&l, &o);
    train(&l, STEPS);
    for (int i = 0; i < 4; i++) {
        const size_t bytes = (size_t)sizes[i] * sizeof *after;
        ok(clt_store_get(start.store, names[i], before, bytes));
        ok(clt_store_get(l.store, names[i], after, bytes));
        for (int j = 0; j < sizes[i]; j++) {
            moved = fmax(moved, fabs((double)after[j] - (double)before[j]));
            if (compares)
                apart = fmax(apart, fabs((double)after[j] - (double)kept[i][j]));
            else
                kept[i][j] = after[j];
        }
    }
    lab_close(&l);
    lab_close(&start);
    return apart / moved;
}

/* Layers read parameters that are rounded to 2^-9 of themselves in bf16, and to 2^-12 in f16. */
static void shards_of_16_bits_round_parameters(void **state)
{
    static float kept[4][LARGEST];
    (void)state;
    for (int i = 0; i < 4; i++) {
        const clt_dtype precision = i % 2 ? CLT_F16 : CLT_BF16;
        const int accumulate = 1 + i / 2;
        trained_apart(precision, accumulate, 0, kept, false);
        const double apart = trained_apart(precision, accumulate, 3, kept, true);
        print_message("%s, %d micro-batches: %.2g of the steps apart\n", clt_dtype_name(precision),
                      accumulate, apart);
        assert_true(apart > 0 && apart < (i % 2 ? 1e-3 : 2e-2));
    }
}

static void mistakes_of_zero_3_are_named(void **state)
{
    clt_store_options so;
    clt_trainer_options o;
    clt_trainer *trainer;
    (void)state;
    lab l = lab_on_kept("cpu@1");
    l.graph = classifier(IN, WIDE, CLASSES);
    clt_store_options_init(&so);
    so.zero = 3;
    assert_int_equal(clt_store_create_with(l.graph, l.devices, 1, &so, &l.store),
                     CLT_INVALID_ARGUMENT);
    assert_non_null(strstr(clt_error_message(), "there is one"));
    clt_device *two[] = {l.devices[0], l.devices[0]};
    so.parallel = "tp=2";
    assert_int_equal(clt_store_create_with(l.graph, two, 2, &so, &l.store), CLT_UNSUPPORTED);
    so.parallel = NULL;
    ok(clt_store_create_with(l.graph, two, 2, &so, &l.store));
    clt_trainer_options_init(&o);
    o.zero = 1;
    assert_int_equal(clt_trainer_create(l.graph, l.store, &o, &trainer), CLT_INVALID_ARGUMENT);
    assert_non_null(strstr(clt_error_message(), "the store was made with zero 3"));
    clt_store_destroy(l.store);
    so.zero = 0;
    ok(clt_store_create_with(l.graph, two, 2, &so, &l.store));
    o.zero = 3;
    assert_int_equal(clt_trainer_create(l.graph, l.store, &o, &trainer), CLT_INVALID_ARGUMENT);
    assert_non_null(strstr(clt_error_message(), "clt_store_options.zero"));
    lab_close(&l);
}

static void mistakes_are_named(void **state)
{
    static const setting one = {"cpu@1", CLT_MOMENTUM, CLT_F32, 0, 1, 1};
    clt_trainer *trainer;
    (void)state;
    lab l = lab_on_kept(clt_test_devices(one.devices));
    lab_store(&l, classifier(IN, WIDE, CLASSES), 4);
    clt_trainer_options o = options_of(&one);
    assert_int_equal(clt_trainer_create(l.graph, l.store, &o, &trainer), CLT_INVALID_ARGUMENT);
    assert_non_null(strstr(clt_error_message(), "zero 1 divides the optimizer's state"));
    o.zero = 2;
    assert_int_equal(clt_trainer_create(l.graph, l.store, &o, &trainer), CLT_INVALID_ARGUMENT);
    assert_non_null(strstr(clt_error_message(), "zero"));
    lab_close(&l);
}

static int set_up(void **state)
{
    make_samples(xs, labels, MOST, IN, CLASSES);
    return open_runtime(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(shards_give_the_same_bits),
                                       cmocka_unit_test(shards_lie_on_ranks),
                                       cmocka_unit_test(shards_take_few_bytes),
                                       cmocka_unit_test(shards_of_16_bits_round_parameters),
                                       cmocka_unit_test(mistakes_of_zero_3_are_named),
                                       cmocka_unit_test(mistakes_are_named)};
    return cmocka_run_group_tests(tests, set_up, close_runtime);
}
