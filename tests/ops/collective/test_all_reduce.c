/*
 * The sum over devices as an operator: which operands it accepts, its result on one device, and how
 * plans leave room for the host. tests/train/step/test_collective.c has steps of several devices.
 */
#include "ops/harness/harness.h"

/* --- one device ------------------------------------------------------------------------------ */

/* y = all_reduce(x summed over the batch). */
static void build_sum(const op_case *c, clt_value *const *in, clt_value **out)
{
    const int axis = 0;
    (void)c;
    out[0] = clt_all_reduce(clt_reduce_sum(in[0], &axis, 1, 0));
}

static void sum_forward(const op_case *c, int64_t n, double *const *x, double *const *y,
                        double *const *bound)
{
    const int64_t width = c->in[0].dims[1];
    for (int64_t j = 0; j < width; j++) {
        double sum = 0, terms = 0;
        for (int64_t i = 0; i < n; i++) {
            sum += x[0][i * width + j];
            terms += fabs(x[0][i * width + j]);
        }
        y[0][j] = sum;
        if (bound)
            bound[0][j] = sqrt((double)n) * terms;
    }
}

static void sum_backward(const op_case *c, int64_t n, double *const *x, double *const *dy,
                         double *const *dx, double *const *bound)
{
    const int64_t width = c->in[0].dims[1];
    (void)x;
    for (int64_t i = 0; i < n * width; i++) {
        dx[0][i] = dy[0][i % width];
        bound[0][i] = fabs(dx[0][i]);
    }
}

/* y = all_reduce(x) of an input. */
static void build_itself(const op_case *c, clt_value *const *in, clt_value **out)
{
    (void)c;
    out[0] = clt_all_reduce(in[0]);
}

static void itself_forward(const op_case *c, int64_t n, double *const *x, double *const *y,
                           double *const *bound)
{
    for (int64_t i = 0; i < op_count(c, 0, n); i++) {
        y[0][i] = x[0][i];
        if (bound)
            bound[0][i] = fabs(x[0][i]);
    }
}

static void itself_backward(const op_case *c, int64_t n, double *const *x, double *const *dy,
                            double *const *dx, double *const *bound)
{
    (void)x;
    for (int64_t i = 0; i < op_count(c, 0, n); i++) {
        dx[0][i] = dy[0][i];
        bound[0][i] = fabs(dx[0][i]);
    }
}

static void alone_it_is_the_operand(void **state)
{
    op_test sum = {.op = "all_reduce of a sum",
                   .n_out = 1,
                   .build = build_sum,
                   .forward = sum_forward,
                   .backward = sum_backward};
    op_test itself = {.op = "all_reduce",
                      .n_out = 1,
                      .build = build_itself,
                      .forward = itself_forward,
                      .backward = itself_backward};
    op_case rows = {.text = "7 columns", .n_in = 1, .batch = 5};
    op_case tensor = {.text = "3x5", .n_in = 1, .batch = 2};
    (void)state;
    rows.in[0] = (op_operand){.rank = 2, .dims = {CLT_BATCH, 7}, .gradient = true};
    tensor.in[0] = (op_operand){.rank = 2, .dims = {3, 5}, .gradient = true};
    op_check(&sum, &rows, true);
    op_check(&itself, &tensor, true);
}

static void wrong_operands_are_named(void **state)
{
    const int64_t batch[] = {CLT_BATCH, 3}, fixed[] = {4};
    clt_graph *g;
    (void)state;
    OP_OK(clt_graph_create(&g));
    assert_null(clt_all_reduce(clt_input(g, "x", CLT_F32, 2, batch)));
    assert_int_equal(clt_graph_status(g), CLT_SHAPE);
    assert_non_null(strstr(clt_error_message(), "f32[Bx3]"));
    assert_non_null(strstr(clt_error_message(), "reduce it over the batch first"));
    clt_graph_destroy(g);
    OP_OK(clt_graph_create(&g));
    assert_null(clt_all_reduce(clt_input(g, "x", CLT_I32, 1, fixed)));
    assert_int_equal(clt_graph_status(g), CLT_UNSUPPORTED);
    assert_non_null(strstr(clt_error_message(), "i32[4]"));
    assert_null(clt_all_reduce(NULL));
    clt_graph_destroy(g);
}

/* --- several devices -------------------------------------------------------------------------- */

enum { IMAGES = 6, WIDTH = 4 };

/* A plan on one device, for which the test plays the host. The pretended other device has the same
 * numbers. */
typedef struct pretence {
    clt_graph *graph;
    clt_buckets buckets;
    clt_plan *plan;
    clt_replica replica;
    clt_arena arena;
    clt_exec *exec;
    clt_view inputs[4];
    clt_run run;
} pretence;

static void read_value(const pretence *p, const clt_value *value, float *numbers)
{
    clt_view view;
    OP_OK(clt_exec_locate(p->exec, &p->run, value, &view));
    assert_int_equal(
        clEnqueueReadBuffer(op_devices[0]->queue, view.buffer, CL_TRUE, (size_t)view.offset,
                            (size_t)clt_type_elements(&value->type, 0) * 4, numbers, 0, NULL, NULL),
        CL_SUCCESS);
}

static void write_value(const pretence *p, const clt_value *value, const float *numbers)
{
    clt_view view;
    OP_OK(clt_exec_locate(p->exec, &p->run, value, &view));
    assert_int_equal(clEnqueueWriteBuffer(
                         op_devices[0]->queue, view.buffer, CL_TRUE, (size_t)view.offset,
                         (size_t)clt_type_elements(&value->type, 0) * 4, numbers, 0, NULL, NULL),
                     CL_SUCCESS);
}

/* Overwrites the result when the collective begins, which is allowed unless the result is in the
 * operand's place. */
static void begin(const pretence *p, const clt_node *node)
{
    float wrong[64];
    clt_view from, to;
    OP_OK(clt_exec_locate(p->exec, &p->run, node->in[0], &from));
    OP_OK(clt_exec_locate(p->exec, &p->run, node->out[0], &to));
    for (int i = 0; i < 64; i++)
        wrong[i] = -1e9f;
    if (from.buffer != to.buffer || from.offset != to.offset)
        write_value(p, node->out[0], wrong);
}

/* Reads the operand when the collective completes, which must still be possible. */
static void complete(const pretence *p, const clt_node *node)
{
    float numbers[64];
    read_value(p, node->in[0], numbers);
    for (int64_t i = 0; i < clt_type_elements(&node->out[0]->type, 0); i++)
        numbers[i] *= 2;
    write_value(p, node->out[0], numbers);
}

static void check_object(const clt_plan *plan, const clt_plan_collective *c, const clt_value *v)
{
    const clt_place at = plan->places[v->id];
    for (int i = c->node + 1; at.kind == CLT_PLACE_ARENA && i < c->needed; i++) {
        const clt_node *node = plan->nodes[i].node;
        for (int j = 0; j < node->n_in + node->n_out; j++) {
            const clt_value *other = j < node->n_in ? node->in[j] : node->out[j - node->n_in];
            if (c->whole || clt_value_root(other) != clt_value_root(v))
                assert_true(plan->places[other->id].kind != CLT_PLACE_ARENA ||
                            plan->places[other->id].index != at.index);
        }
        for (int j = 0; j < plan->nodes[i].program.n_scratch; j++)
            assert_int_not_equal(plan->nodes[i].scratch[j].index, at.index);
    }
}

/* While a collective is under way, nodes use no part of the buffer objects of its operand and
 * result; but they may read an operand that stays as it is. */
static void check_objects(const clt_plan *plan)
{
    for (int k = 0; k < plan->n_collectives; k++) {
        const clt_plan_collective *c = &plan->collectives[k];
        const clt_node *node = plan->nodes[c->node].node;
        const clt_place *in = &plan->places[node->in[0]->id],
                        *out = &plan->places[node->out[0]->id];
        check_object(plan, c, node->in[0]);
        check_object(plan, c, node->out[0]);
        assert_int_equal(c->whole, in->kind == CLT_PLACE_ARENA && out->kind == CLT_PLACE_ARENA &&
                                       in->index == out->index);
    }
}

static void run_pretence(pretence *p)
{
    const clt_plan *plan = p->plan;
    int begun = 0, completed = 0;
    check_objects(plan);
    for (int i = 0; i < plan->n_segments; i++) {
        const clt_segment *s = &plan->segments[i];
        assert_int_equal(s->first, i ? s[-1].end : 0);
        for (; completed < begun && plan->collectives[completed].needed <= s->first; completed++)
            complete(p, plan->nodes[plan->collectives[completed].node].node);
        OP_OK(clt_exec_enqueue(p->exec, &p->run, s->first, s->end, 0, NULL));
        if (s->begins < 0)
            continue;
        assert_int_equal(s->begins, begun++);
        assert_int_equal(plan->collectives[s->begins].node, s->end - 1);
        begin(p, plan->nodes[s->end - 1].node);
    }
    for (; completed < begun; completed++)
        complete(p, plan->nodes[plan->collectives[completed].node].node);
    assert_int_equal(begun, plan->n_collectives);
    op_record_compared(plan);
}

static pretence open_pretence(clt_graph *graph, clt_plan_mode mode, bool separate)
{
    pretence p = {.graph = graph};
    const clt_bucket_sizes sizes = clt_bucket_sizes_default();
    clt_plan_options options = clt_plan_options_default(mode, IMAGES);
    options.several = true;
    options.separate = separate;
    OP_OK(clt_graph_status(graph));
    OP_OK(clt_buckets_create(graph, &sizes, &p.buckets));
    OP_OK(clt_plan_create(graph, &p.buckets, &op_devices[0]->caps, NULL, &options, &p.plan));
    op_build_programs(p.plan);
    return p;
}

static void bind_pretence(pretence *p)
{
    OP_OK(clt_replica_create(op_devices[0], &p->buckets, &p->replica));
    clt_arena_init(&p->arena, op_devices[0]);
    OP_OK(clt_exec_create(op_devices[0], p->plan, &p->replica, &p->arena, &p->exec));
}

static void close_pretence(pretence *p)
{
    clt_exec_destroy(p->exec);
    clt_arena_destroy(&p->arena);
    clt_replica_destroy(&p->replica);
    clt_plan_destroy(p->plan);
    clt_buckets_free(&p->buckets);
    clt_graph_destroy(p->graph);
}

/* s = sum of x; a = S s; b = S (3 s) begins before a is complete; y = tanh(a) + 3 s, z = b * a. */
static clt_graph *two_at_once(void)
{
    const int64_t dims[] = {CLT_BATCH, WIDTH};
    const int axis = 0;
    clt_graph *g;
    OP_OK(clt_graph_create(&g));
    clt_value *s = clt_reduce_sum(clt_input(g, "x", CLT_F32, 2, dims), &axis, 1, 0);
    clt_value *a = clt_all_reduce(s), *u = clt_scale(s, 3), *b = clt_all_reduce(u);
    clt_output(clt_add(clt_tanh(a), u), "y");
    clt_output(clt_mul(b, a), "z");
    return g;
}

static void the_host_has_room_between_segments(void **state)
{
    double x[IMAGES * WIDTH];
    (void)state;
    if (clt_test_oclgrind()) /* Oclgrind later takes poisoned memory for uninitialised */
        skip();
    for (int i = 0; i < IMAGES * WIDTH; i++)
        x[i] = (double)((i * 37) % 101 - 50) / 64;
    for (int separate = 0; separate < 2; separate++) {
        pretence p = open_pretence(two_at_once(), CLT_PLAN_PREDICT, separate);
        assert_int_equal(p.plan->n_collectives, 2);
        assert_true(p.plan->collectives[0].needed > p.plan->collectives[1].node);
        assert_non_null(strstr(p.plan->collectives[0].label, "(all_reduce of f32[4])"));
        bind_pretence(&p);
        for (int64_t n = IMAGES; n >= 0; n -= IMAGES / 2) {
            float y[WIDTH], z[WIDTH];
            p.inputs[0].buffer = op_upload(p.plan->inputs[0], x, n, 0);
            p.run = (clt_run){.count = n, .inputs = p.inputs};
            OP_OK(clt_arena_poison(&p.arena, p.plan, 0));
            run_pretence(&p);
            OP_OK(clt_device_finish(op_devices[0]));
            read_value(&p, clt_graph_find(p.plan->graph, "y"), y);
            read_value(&p, clt_graph_find(p.plan->graph, "z"), z);
            for (int j = 0; j < WIDTH; j++) {
                double s = 0;
                for (int64_t i = 0; i < n; i++)
                    s += x[i * WIDTH + j];
                assert_true(fabs((double)y[j] - (tanh(2 * s) + 3 * s)) < 1e-5);
                assert_true(fabs((double)z[j] - 12 * s * s) < 1e-5 * (1 + 12 * s * s));
            }
            clt_release_buffer(p.inputs[0].buffer);
        }
        close_pretence(&p);
    }
}

/* u = 3 s and v = tanh(s) for s, the sum of x; y = S u + v. Nothing reads u again, so the host sums
 * in its place while v is computed. */
static void the_host_sums_in_place_meanwhile(void **state)
{
    const int64_t dims[] = {CLT_BATCH, WIDTH};
    const int axis = 0;
    double x[IMAGES * WIDTH];
    float y[WIDTH];
    clt_graph *g;
    (void)state;
    if (clt_test_oclgrind())
        skip();
    for (int i = 0; i < IMAGES * WIDTH; i++)
        x[i] = (double)(i % 11 - 5) / 64;
    OP_OK(clt_graph_create(&g));
    clt_value *s = clt_reduce_sum(clt_input(g, "x", CLT_F32, 2, dims), &axis, 1, 0);
    clt_value *sum = clt_all_reduce(clt_scale(s, 3)), *v = clt_tanh(s);
    clt_output(clt_add(sum, v), "y");
    pretence p = open_pretence(g, CLT_PLAN_PREDICT, false);
    const clt_plan_collective *c = &p.plan->collectives[0];
    assert_true(c->whole && c->needed > c->node + 1);
    bind_pretence(&p);
    p.inputs[0].buffer = op_upload(p.plan->inputs[0], x, IMAGES, 0);
    p.run = (clt_run){.count = IMAGES, .inputs = p.inputs};
    OP_OK(clt_arena_poison(&p.arena, p.plan, 0));
    run_pretence(&p);
    OP_OK(clt_device_finish(op_devices[0]));
    read_value(&p, clt_graph_find(p.plan->graph, "y"), y);
    for (int j = 0; j < WIDTH; j++) {
        double total = 0;
        for (int i = 0; i < IMAGES; i++)
            total += x[i * WIDTH + j];
        assert_true(fabs((double)y[j] - (6 * total + tanh(total))) < 1e-5);
    }
    clt_release_buffer(p.inputs[0].buffer);
    close_pretence(&p);
}

/* The gradient is an all-reduce too, behind the forward pass. The gradient of an all-reduced
 * parameter has its place in a bucket, to which only a node may write. */
static void gradients_are_all_reduced(void **state)
{
    const int64_t dims[] = {WIDTH}, x_dims[] = {CLT_BATCH, WIDTH};
    clt_value *sum = NULL, *weight = NULL;
    clt_graph *g;
    int behind = 0;
    (void)state;
    OP_OK(clt_graph_create(&g));
    clt_value *x = clt_input(g, "x", CLT_F32, 2, x_dims);
    clt_value *p = clt_parameter(g, "p", 1, dims, (clt_init){0});
    clt_mse(clt_mul(x, clt_all_reduce(p)), x, &sum, &weight);
    clt_loss(g, "loss", sum, weight, 1);
    pretence t = open_pretence(g, CLT_PLAN_TRAIN, false);
    const clt_plan *plan = t.plan;
    assert_int_equal(plan->n_collectives, 2);
    for (int k = 0; k < 2; k++) {
        const int node = plan->collectives[k].node, needed = plan->collectives[k].needed;
        assert_true(node < needed);
        assert_true((node < plan->n_forward) == (needed <= plan->n_forward));
        behind += node >= plan->n_forward;
    }
    assert_int_equal(behind, 1);
    assert_non_null(plan->gradients[0]);
    assert_true(!plan->gradients[0]->producer->op->collective);
    assert_true(plan->gradients[0]->producer->id >= plan->collectives[1].needed);
    /* The bucket is ready after all of this. */
    assert_int_equal(plan->segments[plan->n_segments - 1].end_ready, 1);
    close_pretence(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alone_it_is_the_operand),
        cmocka_unit_test(wrong_operands_are_named),
        cmocka_unit_test(the_host_has_room_between_segments),
        cmocka_unit_test(the_host_sums_in_place_meanwhile),
        cmocka_unit_test(gradients_are_all_reduced),
    };
    return cmocka_run_group_tests(tests, op_setup, op_teardown);
}
