/* A parameter that several nodes use: the rows of two embeddings and the weight of the last linear
 * layer. Gradients are compared with a reference in double on one device and on two. The gradients
 * must lie in the bucket. */
#include "plan/plan.h"
#include "train/lab.h"
#include "train/store/store.h"

enum { WORDS = 11, WIDTH = 6, LENGTH = 3, MOST = 7, TOKENS = MOST * LENGTH };

static int32_t words[TOKENS], kinds[TOKENS], labels[TOKENS];

/* `late`: the embeddings follow the product in the graph. */
static clt_graph *build(int late)
{
    const int64_t tokens[] = {CLT_BATCH, LENGTH}, rows[] = {-LENGTH, WORDS}, row[] = {-LENGTH};
    const int64_t table[] = {WORDS, WIDTH}, square[] = {WIDTH, WIDTH};
    const clt_init init = {CLT_INIT_UNIFORM, 0.8, 0};
    clt_value *sum = NULL, *weight = NULL, *x = NULL, *h = NULL;
    clt_graph *graph;
    ok(clt_graph_create(&graph));
    clt_value *word = clt_input(graph, "word", CLT_I32, 2, tokens);
    clt_value *kind = clt_input(graph, "kind", CLT_I32, 2, tokens);
    clt_value *label = clt_input(graph, "label", CLT_I32, 2, tokens);
    clt_value *w = clt_parameter(graph, "wte.weight", 2, table, init);
    clt_value *a = clt_parameter(graph, "a.weight", 2, square, init);
    for (int part = 0; part < 2; part++)
        if (part == late)
            x = clt_embedding(word, w, CLT_NO_PADDING);
        else
            h = late ? clt_linear(clt_linear(w, a, NULL), w, NULL) : NULL;
    x = clt_add(x, clt_embedding(kind, w, 2));
    clt_value *logits = clt_linear(clt_tanh(clt_linear(x, a, NULL)), w, NULL);
    if (h) /* W A^T W^T: a product before the embeddings */
        logits = clt_add(logits, clt_reduce_mean(h, (int[]){0}, 1, 0));
    clt_cross_entropy(clt_reshape(logits, 2, rows), clt_reshape(label, 1, row), NULL, &sum,
                      &weight);
    clt_loss(graph, "loss", sum, weight, 1);
    ok(clt_graph_status(graph));
    return graph;
}

/* --- the reference ---------------------------------------------------------------------------- */

static const double *word_row(const double *w, int32_t at)
{
    return w + (int64_t)at * WIDTH;
}

/* Computes x [WIDTH], tanh(A x) and the logits of a token. With `late`, adds the part that all
 * tokens share. */
static void run_token(const double *w, const double *a, int token, int late, double *x, double *h,
                      double *logits)
{
    for (int d = 0; d < WIDTH; d++)
        x[d] = word_row(w, words[token])[d] + word_row(w, kinds[token])[d];
    for (int o = 0; o < WIDTH; o++) {
        h[o] = 0;
        for (int d = 0; d < WIDTH; d++)
            h[o] += a[o * WIDTH + d] * x[d];
        h[o] = tanh(h[o]);
    }
    for (int v = 0; v < WORDS; v++) {
        logits[v] = 0;
        for (int d = 0; d < WIDTH; d++)
            logits[v] += word_row(w, v)[d] * h[d];
        for (int u = 0; late && u < WORDS; u++)
            for (int o = 0; o < WIDTH; o++)
                for (int d = 0; d < WIDTH; d++)
                    logits[v] += word_row(w, u)[d] * a[o * WIDTH + d] * word_row(w, v)[o] / WORDS;
    }
}

static double loss_of(const double *w, const double *a, int count, int late)
{
    double x[WIDTH], h[WIDTH], logits[WORDS], loss = 0;
    for (int t = 0; t < count * LENGTH; t++) {
        double sum = 0;
        run_token(w, a, t, late, x, h, logits);
        for (int v = 0; v < WORDS; v++)
            sum += exp(logits[v]);
        loss += log(sum) - logits[labels[t]];
    }
    return loss / (count * LENGTH);
}

/* Computes gradients by central differences of the loss in double, without any code of the library.
 * `kinds` gives the padding word no gradient, so that part is taken out by hand. */
static void reference(const double *w0, const double *a0, int count, int late, double *dw,
                      double *da)
{
    enum { BOTH = WORDS * WIDTH + WIDTH * WIDTH };
    const double step = 1e-5;
    double p[BOTH];
    memcpy(p, w0, WORDS * WIDTH * sizeof *p);
    memcpy(p + WORDS * WIDTH, a0, WIDTH * WIDTH * sizeof *p);
    for (int i = 0; i < BOTH; i++) {
        const double at = p[i];
        p[i] = at + step;
        const double up = loss_of(p, p + WORDS * WIDTH, count, late);
        p[i] = at - step;
        const double down = loss_of(p, p + WORDS * WIDTH, count, late);
        p[i] = at;
        *(i < WORDS * WIDTH ? &dw[i] : &da[i - WORDS * WIDTH]) = (up - down) / (2 * step);
    }
}

/* --- */

static void make_tokens(int padding)
{
    for (int i = 0; i < TOKENS; i++) {
        words[i] = (i * 5 + i / 4) % WORDS;
        kinds[i] = i % 5 + (padding ? 0 : 3); /* 2, the padding, only on request */
        labels[i] = (i * 7 + 3) % WORDS;
    }
}

static const clt_feed feeds[] = {
    {"word", -1, CLT_HOST(words)}, {"kind", -1, CLT_HOST(kinds)}, {"label", -1, CLT_HOST(labels)}};

/* Returns the allowed error of a gradient. For f32 this is its own error. In 16 bits these are the
 * errors of values, some of which are rounded a dozen times, and of sums that are rounded after
 * each addition. */
static double allowed(clt_dtype precision, const double *want, int count)
{
    double most = 0;
    for (int i = 0; i < count; i++)
        most = fmax(most, fabs(want[i]));
    return precision == CLT_F32 ? 2e-6 : (precision == CLT_F16 ? 0x1p-11 : 0x1p-8) * 4 * most;
}

static const clt_dtype types[] = {CLT_F32, CLT_BF16, CLT_F16};

static void gradient_on(const char *list, int late, int count, clt_dtype precision)
{
    float w[WORDS * WIDTH], a[WIDTH * WIDTH], got[WORDS * WIDTH];
    double w0[WORDS * WIDTH], a0[WIDTH * WIDTH], dw[WORDS * WIDTH], da[WIDTH * WIDTH];
    clt_trainer_options options;
    clt_trainer_options_init(&options);
    options.batch = MOST;
    options.poison = 1;
    options.precision = precision;
    lab l = lab_on_kept(clt_test_devices(list));
    lab_store(&l, build(late), 3);
    lab_trainer(&l, &options);
    ok(clt_store_get(l.store, "wte.weight", w, sizeof w));
    ok(clt_store_get(l.store, "a.weight", a, sizeof a));
    for (int i = 0; i < WORDS * WIDTH; i++)
        w0[i] = w[i];
    for (int i = 0; i < WIDTH * WIDTH; i++)
        a0[i] = a[i];
    make_tokens(0);
    reference(w0, a0, count, late, dw, da);
    const double most = allowed(precision, dw, WORDS * WIDTH);
    const double most_a = allowed(precision, da, WIDTH * WIDTH);
    clt_step_batch batch;
    clt_step_batch_init(&batch);
    batch.count = count;
    batch.feeds = feeds;
    batch.n_feeds = 3;
    ok(clt_trainer_forward(l.trainer, &batch));
    ok(clt_trainer_backward(l.trainer));
    ok(clt_trainer_reduce(l.trainer));
    for (int d = 0; d < l.n; d++) {
        ok(clt_trainer_gradient(l.trainer, d, "wte.weight", got, sizeof got));
        for (int i = 0; i < WORDS * WIDTH; i++)
            if (!(fabs((double)got[i] - dw[i]) <= most))
                fail_msg("%s, %s, device %d, late %d: gradient %d is %.9g, not %.9g", list,
                         clt_dtype_name(precision), d, late, i, (double)got[i], dw[i]);
        ok(clt_trainer_gradient(l.trainer, d, "a.weight", got, sizeof a));
        for (int i = 0; i < WIDTH * WIDTH; i++)
            assert_true(fabs((double)got[i] - da[i]) <= most_a);
    }
    lab_close(&l);
}

static void test_gradients(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) {
        gradient_on("cpu@1", i % 2, MOST, types[i / 2]);
        gradient_on("cpu/2", i % 2, MOST, types[i / 2]);
        gradient_on("cpu/2", i % 2, 1, types[i / 2]); /* one device has no samples */
    }
}

/* The same steps give the same bits on two devices. */
static void test_bits(void **state)
{
    float first[WORDS * WIDTH], again[WORDS * WIDTH];
    (void)state;
    make_tokens(1);
    for (int run = 0; run < 6; run++) {
        clt_trainer_options options;
        clt_trainer_options_init(&options);
        options.batch = MOST;
        options.accumulate = 2;
        options.precision = types[run / 3];
        lab l = lab_on_kept(clt_test_devices("cpu/2"));
        lab_store(&l, build(0), 3);
        lab_trainer(&l, &options);
        for (int i = 0; i < 5; i++) {
            clt_step_batch batch;
            clt_step_batch_init(&batch);
            batch.count = MOST;
            batch.feeds = feeds;
            batch.n_feeds = 3;
            ok(clt_trainer_step(l.trainer, &batch, NULL));
        }
        ok(clt_trainer_wait(l.trainer));
        ok(clt_store_check(l.store));
        ok(clt_store_get(l.store, "wte.weight", run % 3 ? again : first, sizeof first));
        if (run % 3)
            assert_memory_equal(first, again, sizeof first);
        lab_close(&l);
    }
}

/* All gradients of the tied weight are added up in its bucket. Only the sums of rows add to it, and
 * no node has another tensor of its size. */
static void test_places(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) {
        lab l = lab_on_kept(clt_test_devices("cpu@1"));
        lab_store(&l, build(i % 2), 3);
        clt_plan_options options = clt_plan_options_default(CLT_PLAN_TRAIN, MOST);
        clt_plan *plan;
        options.precision = types[i / 2];
        ok(clt_plan_create(l.graph, &l.store->layout, &l.store->replicas[0].device->caps, NULL,
                           &options, &plan));
        const clt_slot *slot = clt_buckets_find(&plan->buckets, "wte.weight");
        const clt_value *v = plan->gradients[slot - plan->buckets.slots];
        const clt_place place = plan->places[v->id];
        int sums = 0;
        assert_true(clt_plan_in_gradients(plan, v));
        for (; !strcmp(v->producer->op->name, "index_add"); v = v->producer->in[2], sums++)
            assert_memory_equal(&plan->places[v->id], &place, sizeof place);
        const clt_variant *first = plan->nodes[v->producer->id].variant;
        assert_int_equal(place.kind == CLT_PLACE_TOTAL,
                         types[i / 2] == CLT_F32 && first && (first->traits & CLT_ADDS));
        assert_int_equal(sums, 2);
        assert_memory_equal(&plan->places[v->id], &place, sizeof place);
        assert_int_equal(v->type.dtype, types[i / 2]);
        clt_plan_destroy(plan);
        lab_close(&l);
    }
}

/* A word outside the vocabulary stops the step, and the message names the node. */
static void test_no_word(void **state)
{
    clt_trainer_options options;
    clt_step_batch batch;
    clt_step_result result;
    clt_step_result_init(&result);
    float before[WORDS * WIDTH], after[WORDS * WIDTH];
    (void)state;
    clt_trainer_options_init(&options);
    options.batch = MOST;
    lab l = lab_on_kept(clt_test_devices("cpu@1"));
    lab_store(&l, build(0), 3);
    lab_trainer(&l, &options);
    ok(clt_store_get(l.store, "wte.weight", before, sizeof before));
    make_tokens(0);
    words[4] = WORDS;
    clt_step_batch_init(&batch);
    batch.count = MOST;
    batch.feeds = feeds;
    batch.n_feeds = 3;
    ok(clt_trainer_step(l.trainer, &batch, NULL));
    clt_step_result_init(&result);
    assert_int_equal(clt_trainer_result(l.trainer, 0, &result), CLT_NONFINITE);
    if (!strstr(clt_error_message(), "node embedding"))
        fail_msg("\"%s\" names no node embedding", clt_error_message());
    ok(clt_store_get(l.store, "wte.weight", after, sizeof after));
    assert_memory_equal(before, after, sizeof before);
    lab_close(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gradients),
                                       cmocka_unit_test(test_bits), cmocka_unit_test(test_places),
                                       cmocka_unit_test(test_no_word)};
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
