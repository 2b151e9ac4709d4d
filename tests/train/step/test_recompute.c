/* Recomputed activations: results do not change by a bit, memory falls, and a limit recomputes only
 * as much as needed. */
#include "train/model_runs.h"

#include "train/setup/capacity.h"

static void set_up(clt_trainer_options *options, const kind *k)
{
    clt_trainer_options_init(options);
    options->optimizer = CLT_ADAM;
    options->lr = 0.002;
    options->batch = k->batch;
    options->seed = 5;
    options->poison = 1;
    options->separate = clt_test_oclgrind();
}

/* Results have the same bits, whatever is recomputed. */
static void compare(const kind *k, const char *list)
{
    clt_trainer_options options;
    set_up(&options, k);
    outcome plain = run(k, list, &options, 0);
    assert_int_equal(plain.plain, 0);
    int64_t least = 0;
    for (int how = 0; how < 5; how++) {
        static const char *const names[] = {"recompute", "recompute in parts", "within a limit",
                                            "every value by itself", "recompute and separate"};
        set_up(&options, k);
        options.recompute = how != 2 && how != 3;
        options.separate = options.separate || how >= 3;
        if (how == 2) { /* half of the possible saving */
            lab l = lab_on_kept(list);
            clt_plan_options limit =
                clt_capacity_options(&options, CLT_PLAN_TRAIN, (k->batch + l.n - 1) / l.n);
            lab_store(&l, build(k), 3);
            options.memory = (int64_t)1 << 40;
            ok(clt_capacity_limit(l.graph, l.store, &options, l.n, 0, &limit));
            options.memory -= limit.arena_limit - (plain.arena + least) / 2;
            lab_close(&l);
            if (clt_test_oclgrind())
                continue;
        }
        outcome other = run(k, list, &options, how == 1);
        same(k, list, names[how], &plain, &other);
        if (how != 3 && !other.plain)
            fail_msg("%s on %s, %s: nothing is computed again", k->model, list, names[how]);
        if (how < 3 && other.arena >= plain.arena && !clt_test_oclgrind())
            fail_msg("%s on %s, %s: %lld bytes of intermediates, %lld without", k->model, list,
                     names[how], (long long)other.arena, (long long)plain.arena);
        if (how == 2)
            assert_true(other.arena <= (plain.arena + least) / 2);
        least = how == 0 ? other.arena : least;
        free(other.bytes);
    }
    free(plain.bytes);
}

static void test_bits(void **state)
{
    static const kind kinds[] = {{"mlp:40,36,32,28,24", 1, 8, 0, MOST_BATCH},
                                 {"lenet", 1, 28, 0, MOST_BATCH},
                                 {"resnet18:width=4", 3, 16, 0, 8},
                                 {"gpt2:layers=3,heads=2,width=24,dropout=0.2", 0, 0, T, 6},
                                 {"lstm:hidden=20,layers=3", 0, 0, T, 6}};
    const kind small = {"mlp:12,11,10,9", 1, 4, 0, 5};
    (void)state;
    if (clt_test_oclgrind()) {
        compare(&small, clt_test_devices("cpu@1"));
        return;
    }
    for (int i = 0; i < (int)(sizeof kinds / sizeof *kinds); i++)
        compare(&kinds[i], clt_test_devices("cpu@1"));
}

/* On several devices, statistics from all-reduces of the graph are kept. */
static void test_several(void **state)
{
    static const kind kinds[] = {{"mlp:40,36,32,28,24", 1, 8, 0, MOST_BATCH},
                                 {"resnet18:sync,width=4", 3, 16, 0, 8},
                                 {"gpt2:layers=3,heads=2,width=24,dropout=0.2", 0, 0, T, 6}};
    (void)state;
    if (clt_test_oclgrind())
        skip();
    for (int i = 0; i < (int)(sizeof kinds / sizeof *kinds); i++)
        compare(&kinds[i], clt_test_devices("cpu/2"));
}

static void test_micro_batches(void **state)
{
    const kind k = {"gpt2:layers=2,heads=2,width=24,dropout=0.2", 0, 0, T, 6};
    clt_trainer_options options;
    (void)state;
    if (clt_test_oclgrind())
        skip();
    set_up(&options, &k);
    options.accumulate = 2;
    outcome plain = run(&k, clt_test_devices("cpu@1"), &options, 0);
    options.recompute = 1;
    outcome again = run(&k, clt_test_devices("cpu@1"), &options, 0);
    same(&k, "one device", "two micro-batches", &plain, &again);
    assert_in_range(again.plain, 1, INT64_MAX);
    free(plain.bytes);
    free(again.bytes);
}

/* Outputs of a training plan live until the end of forward, then the gradient of the loss
 * overwrites the logits. With separate buffers, CPU kernels and portable ones give the same
 * bits. */
static void test_in_place(void **state)
{
    const kind k = {"mlp:40,36", 1, 8, 0, MOST_BATCH};
    (void)state;
    if (clt_test_oclgrind())
        skip();
    for (int portable = 0; portable < 2; portable++) {
        outcome got[2];
        for (int separate = 0; separate < 2; separate++) {
            clt_trainer_options options;
            set_up(&options, &k);
            options.portable = portable;
            options.separate = separate;
            got[separate] = run(&k, clt_test_devices("cpu@1"), &options, 0);
        }
        same(&k, "one device", portable ? "portable" : "in place", &got[1], &got[0]);
        free(got[0].bytes);
        free(got[1].bytes);
    }
}

/* --- plans without devices -------------------------------------------------------------------- */

static const clt_caps cpu = {.name = "cpu",
                             .kind = CLT_KIND_CPU,
                             .compute_units = 2,
                             .vector_width = 16,
                             .memory_bytes = (int64_t)16 << 30,
                             .max_alloc_bytes = (int64_t)4 << 30,
                             .align_bytes = 128,
                             .local_bytes = 65536,
                             .max_work_group = 4096};

static clt_status plan_of(const kind *k, bool recompute, int64_t limit, clt_plan **plan)
{
    const clt_bucket_sizes sizes = clt_bucket_sizes_default();
    clt_plan_options options = clt_plan_options_default(CLT_PLAN_TRAIN, k->batch);
    clt_buckets buckets;
    clt_graph *g = build(k);
    options.early_outputs = true;
    options.recompute = recompute;
    options.arena_limit = limit;
    ok(clt_buckets_create(g, &sizes, &buckets));
    const clt_status status = clt_plan_create(g, &buckets, &cpu, NULL, &options, plan);
    clt_buckets_free(&buckets);
    clt_graph_destroy(g);
    return status;
}

/* Copies are in backward, before the nodes that read them. Differing reads include no collective
 * and no assigned value. No node is computed more than twice. */
static void check_copies(const clt_plan *plan)
{
    bool *copied = calloc((size_t)plan->n_nodes, sizeof *copied);
    assert_non_null(copied);
    for (int i = 0; i < plan->n_nodes; i++) {
        const clt_node *node = plan->nodes[i].node;
        for (int j = 0; j < node->n_in; j++)
            if (node->in[j] && node->in[j]->producer)
                assert_true(node->in[j]->producer->id < i);
        if (!node->recomputed)
            continue;
        assert_true(node->backward && i >= plan->n_forward && !node->op->collective);
        if (!node->origin)
            continue;
        assert_ptr_equal(node->op, node->origin->op);
        assert_false(copied[node->origin->id]);
        copied[node->origin->id] = true;
    }
    for (int i = 0; i < plan->graph->n_assigns; i++) {
        const clt_node *from = plan->graph->assigns[i].value->producer;
        assert_false(from && from->recomputed);
    }
    free(copied);
}

/* Compares numbers of the plans. `least`: intermediates fall at least to this part. */
static void test_memory(void **state)
{
    static const struct {
        kind k;
        double least;
    } cases[] = {{{"gpt2:nano", 0, 0, 64, 16}, 0.4},
                 {{"gpt2:layers=12,heads=4,width=64", 0, 0, 64, 4}, 0.25},
                 {{"resnet50", 3, 64, 0, 16}, 0.5},
                 {{"resnet18", 3, 32, 0, 32}, 0.5},
                 {{"vit-tiny", 3, 32, 0, 8}, 0.5},
                 {{"mlp:128,128,128,128,128,128,128,128,128,128,128,128", 1, 8, 0, 128}, 0.6}};
    (void)state;
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
        const kind *k = &cases[i].k;
        clt_plan *plain, *least, *within;
        ok(plan_of(k, false, 0, &plain));
        ok(plan_of(k, true, 0, &least));
        const int64_t bytes = clt_plan_arena_bytes(plain);
        const int64_t limit = (bytes + clt_plan_arena_bytes(least)) / 2;
        ok(plan_of(k, false, limit, &within));
        if ((double)clt_plan_arena_bytes(least) > cases[i].least * (double)bytes)
            fail_msg("%s: %lld bytes of %lld", k->model, (long long)clt_plan_arena_bytes(least),
                     (long long)bytes);
        assert_true(clt_plan_arena_bytes(within) <= limit);
        assert_true(least->n_nodes > within->n_nodes && within->n_nodes > plain->n_nodes);
        assert_int_equal(least->plain_bytes, bytes);
        for (int j = 0; j < 3; j++) {
            const clt_plan *plan = j == 0 ? plain : j == 1 ? least : within;
            check_copies(plan);
            /* The arena is little larger than the most bytes that are alive at once. */
            if ((double)clt_plan_arena_bytes(plan) > 1.05 * (double)plan->alive_bytes)
                fail_msg("%s: %lld bytes for %lld alive", k->model,
                         (long long)clt_plan_arena_bytes(plan), (long long)plan->alive_bytes);
        }
        clt_plan_destroy(plain);
        clt_plan_destroy(least);
        clt_plan_destroy(within);
    }
}

/* A limit that no plan meets is an error with the smallest possible memory. A limit that every plan
 * meets changes nothing. */
static void test_limits(void **state)
{
    const kind k = {"gpt2:nano", 0, 0, 64, 8};
    clt_plan *plain, *plan;
    (void)state;
    ok(plan_of(&k, false, 0, &plain));
    ok(plan_of(&k, false, clt_plan_arena_bytes(plain), &plan));
    assert_int_equal(plan->n_nodes, plain->n_nodes);
    assert_int_equal(plan->plain_bytes, 0);
    clt_plan_destroy(plan);
    for (int i = 0; i < plain->n_nodes; i++) {
        const clt_node *node = plain->nodes[i].node;
        if (!strcmp(node->op->name, "cross_entropy_grad"))
            assert_memory_equal(&plain->places[node->in[0]->id], &plain->places[node->out[0]->id],
                                sizeof(clt_place));
    }
    assert_int_equal(plan_of(&k, false, clt_plan_arena_bytes(plain) / 16, &plan),
                     CLT_OUT_OF_DEVICE_MEMORY);
    assert_non_null(strstr(clt_error_message(), "need at least"));
    clt_plan_destroy(plain);
}

/* Gradients and optimizer tensors count before they are allocated. */
static void test_store_counts(void **state)
{
    enum { IN = 256, OUT = 4096 }; /* 4 MiB of parameters */
    const int64_t in[] = {CLT_BATCH, IN};
    clt_value *sum = NULL, *weight = NULL;
    clt_trainer_options options;
    clt_graph *graph;
    (void)state;
    /* The memory of Oclgrind's device is not the host's, so parameters would count too. */
    if (clt_test_oclgrind())
        skip();
    clt_trainer_options_init(&options);
    options.batch = 1;
    options.optimizer = CLT_ADAM;
    ok(clt_graph_create(&graph));
    clt_value *x = clt_input(graph, "x", CLT_F32, 2, in);
    clt_value *y = layer(graph, x, "w", "b", IN, OUT);
    clt_mse(y, clt_scale(y, 0.5), &sum, &weight);
    clt_loss(graph, "loss", sum, weight, 1);
    lab l = lab_on(clt_test_devices("cpu@1"), NULL);
    lab_store(&l, graph, 3);
    l.devices[0]->caps.memory_bytes = (int64_t)11 << 20; /* without the parameters */
    assert_int_equal(clt_capacity_check(l.graph, l.store, &options, l.n, 1),
                     CLT_OUT_OF_DEVICE_MEMORY);
    assert_int_equal(clt_capacity_largest(l.graph, l.store, &options, l.n), 0);
    l.devices[0]->caps.memory_bytes = (int64_t)16 << 20;
    ok(clt_capacity_check(l.graph, l.store, &options, l.n, 1));
    lab_trainer(&l, &options);
    l.devices[0]->caps.memory_bytes = (int64_t)2 << 20; /* only a batch needs more */
    ok(clt_capacity_check(l.graph, l.store, &options, l.n, 1));
    lab_close(&l);
}

static void says(const char *text)
{
    if (!strstr(clt_error_message(), text))
        fail_msg("\"%s\" does not say \"%s\"", clt_error_message(), text);
}

/* Finds the largest batch for all memory of a device. The error for a larger batch names this
 * size. */
static void test_budget(void **state)
{
    const kind k = {"gpt2:layers=2,heads=2,width=32", 0, 0, T, 16};
    clt_trainer_options options;
    (void)state;
    if (clt_test_oclgrind())
        skip();
    set_up(&options, &k);
    lab l = lab_on_kept(clt_test_devices("cpu@1"));
    lab_store(&l, build(&k), 3);
    options.memory = (int64_t)3 << 20;
    const int64_t largest = clt_capacity_largest(l.graph, l.store, &options, l.n);
    options.memory *= 2;
    const int64_t more = clt_capacity_largest(l.graph, l.store, &options, l.n);
    assert_in_range(largest, 1, 100000);
    assert_true(more > 3 * largest / 2);
    options.memory /= 2;
    options.batch = largest;
    lab_trainer(&l, &options);
    clt_trainer_destroy(l.trainer);
    l.trainer = NULL;
    options.batch = 2 * largest + 2;
    assert_int_equal(clt_trainer_create(l.graph, l.store, &options, &l.trainer),
                     CLT_OUT_OF_DEVICE_MEMORY);
    says("needs at least");
    says("the memory allowed is 3.0 MiB");
    says("largest batch that fits is about");
    says("micro-batches (accumulate)");
    options.accumulate = 4;
    lab_trainer(&l, &options);
    clt_trainer_destroy(l.trainer);
    l.trainer = NULL;
    options.memory = 1000;
    assert_int_equal(clt_trainer_create(l.graph, l.store, &options, &l.trainer),
                     CLT_OUT_OF_DEVICE_MEMORY);
    says("parameters, gradients and optimizer");
    says("no batch fits");
    options.memory = -1;
    assert_int_equal(clt_trainer_create(l.graph, l.store, &options, &l.trainer),
                     CLT_INVALID_ARGUMENT);
    lab_close(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory),        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_in_place),      cmocka_unit_test(test_bits),
        cmocka_unit_test(test_micro_batches), cmocka_unit_test(test_several),
        cmocka_unit_test(test_budget),        cmocka_unit_test(test_store_counts)};
    make_data();
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
