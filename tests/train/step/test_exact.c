/*
 * The networks that meshes train without rounding, on one device of each vendor: losses, outputs
 * and parameters have the bits of the same steps in double, which this test's headers compute
 * without the runtime. Other tests then compare meshes with one device.
 */
#include "train/split_steps.h"

#include "train/hybrid_networks.h"

enum { TEXT = 200 };

static void free_run(trained *run)
{
    for (int i = 0; i < run->n; i++)
        free(run->data[i]);
}

/* Returns the bits of the widest sum. */
static int expect_double(const setting *s, const char *name)
{
    char text[TEXT];
    int bits;
    trained run = train(s, true);
    if (!equals_double(s, &run, &bits, text, sizeof text))
        fail_msg("%s on %s, %d steps: %s", name, s->devices, steps_of(s), text);
    free_run(&run);
    return bits;
}

static void one_device_computes_what_double_does(void **state)
{
    const bool intel = strstr(clt_test_devices(""), "intel");
    (void)state;
    for (int i = 0; i < LONGEST; i++)
        for (int vendor = 0; vendor < (intel ? 2 : 1); vendor++) {
            setting s = {.build = longest[i].build, .devices = vendor ? "intel" : "pocl@1"};
            expect_double(&s, longest[i].name);
            s.optimizer = CLT_MOMENTUM;
            s.accumulate = 2;
            s = longer(s);
            assert_int_equal(expect_double(&s, longest[i].name), longest[i].bits);
        }
}

/* A step more than `longest` needs more bits than f32 has. */
static void steps_are_as_many_as_f32_holds(void **state)
{
    (void)state;
    for (int i = 0; i < LONGEST; i++) {
        clt_graph *graph;
        const setting s = longer((setting){.build = longest[i].build});
        exact_training t = open_double(&s, &graph);
        for (int k = 0; k < s.steps + 1; k++)
            exact_step(&t, rate_of(&s, graph), MOMENTUM);
        if (t.bits <= F32_BITS && t.loss_bits <= F32_BITS)
            fail_msg("%s can train %d steps", longest[i].name, s.steps + 1);
        exact_close(&t);
        clt_graph_destroy(graph);
    }
}

/* --- gradients by differences ----------------------------------------------------------------- */

/* Returns the loss with another value of one cell. Choices stay as they are. */
static double loss_with(exact_training *t, int64_t cell, double value)
{
    const clt_mean *loss = &t->g.graph->losses[0];
    const int64_t all = t->g.tape.n_cells;
    tape copy = {.n_cells = all};
    copy.cells = malloc((size_t)all * sizeof *copy.cells);
    memcpy(copy.cells, t->g.tape.cells, (size_t)all * sizeof *copy.cells);
    for (int64_t k = 0; k < t->g.tape.n_terms; k++)
        copy.cells[t->g.tape.terms[k].to] = (tape_cell){0};
    exact_set(&copy.cells[cell].number, value);
    for (int64_t k = 0; k < t->g.tape.n_terms; k++) {
        const tape_term *term = &t->g.tape.terms[k];
        exact_add(&copy.cells[term->to].number,
                  term->factor * tape_value(&copy, term->a) * tape_value(&copy, term->b));
    }
    const double result = copy.cells[t->g.first[loss->sum->id]].number.value /
                          copy.cells[t->g.first[loss->weight->id]].number.value;
    tape_free(&copy);
    return result;
}

/* With fixed choices the loss is a parabola in each weight, so central differences are exact. */
static void gradients_are_differences(void **state)
{
    (void)state;
    for (int i = 0; i < LONGEST; i++) {
        clt_graph *graph;
        int different = 0;
        const setting s = {.build = longest[i].build};
        exact_training t = open_double(&s, &graph);
        exact_forward(&t);
        exact_backward(&t);
        for (int v = 0; v < graph->n_values; v++) {
            const exact_array a = array_of(&t.g, graph->values[v]);
            for (int64_t k = a.first;
                 graph->values[v]->kind == CLT_VALUE_PARAMETER && k < a.first + a.count; k++) {
                const double w = tape_value(&t.g.tape, k);
                const double slope = (loss_with(&t, k, w + 1) - loss_with(&t, k, w - 1)) / 2;
                if (slope != t.g.tape.cells[k].gradient.value)
                    fail_msg("%s: gradient %d of %s is %.17g, and differences give %.17g",
                             longest[i].name, (int)(k - a.first), graph->values[v]->name,
                             t.g.tape.cells[k].gradient.value, slope);
                different += slope != 0;
            }
        }
        assert_true(different > 8);
        exact_close(&t);
        clt_graph_destroy(graph);
    }
}

/* --- the comparison fails ----------------------------------------------------------------------
 */

static void refuse(const setting *s, const trained *run, const char *wanted)
{
    char text[TEXT] = "";
    int bits;
    if (equals_double(s, run, &bits, text, sizeof text) || !strstr(text, wanted))
        fail_msg("'%s' has no '%s'", text, wanted);
}

static void a_wrong_number_is_found(void **state)
{
    char text[TEXT];
    int bits;
    const setting s = longer((setting){
        .build = two_layers, .devices = "pocl@1", .optimizer = CLT_MOMENTUM, .accumulate = 2});
    (void)state;
    trained run = train(&s, true);
    assert_true(equals_double(&s, &run, &bits, text, sizeof text));
    for (int i = 0; i < run.n; i++) {
        float *last = &run.data[i][run.count[i] - 1];
        const float right = *last;
        *last = nextafterf(right, INFINITY);
        refuse(&s, &run, run.names[i]);
        *last = right;
    }
    run.losses[1] = nextafter(run.losses[1], INFINITY);
    refuse(&s, &run, "the loss of step 1");
    free_run(&run);
}

static void without_relu(clt_graph *g)
{
    clt_value *h =
        clt_linear(input(g, "x", 5), parameter(g, "a.weight", 7, 5), parameter(g, "a.bias", 7, 0));
    loss(g, clt_linear(h, parameter(g, "b.weight", 4, 7), parameter(g, "b.bias", 4, 0)), 4);
}

/* The device trains by another rule than the reference. */
static void a_wrong_rule_is_found(void **state)
{
    const setting right = longer((setting){
        .build = two_layers, .devices = "pocl@1", .optimizer = CLT_MOMENTUM, .accumulate = 2});
    setting wrong[] = {right, right, right, right};
    (void)state;
    wrong[0].optimizer = CLT_SGD;
    wrong[1].optimizer = CLT_NESTEROV;
    wrong[2].lr = 1;
    wrong[3].build = without_relu;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        trained run = train(&wrong[i], true);
        refuse(&right, &run, " is ");
        free_run(&run);
    }
}

/* The loss divides by 20. */
static void fifths(clt_graph *g)
{
    loss(g, clt_linear(input(g, "x", 5), parameter(g, "a", 5, 5), NULL), 5);
}

/* Numbers that f32 rounds: a second step with large gradients, and a mean over five. */
static void rounding_is_found(void **state)
{
    const setting settings[] = {{.build = blocks, .devices = "pocl@1", .steps = 2},
                                {.build = fifths, .devices = "pocl@1"}};
    (void)state;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        trained run = train(&settings[i], true);
        refuse(&settings[i], &run, " is ");
        free_run(&run);
    }
}

/* --- bits ------------------------------------------------------------------------------------- */

static void bits_are_those_of_all_partial_sums(void **state)
{
    exact_sum sum = {0};
    (void)state;
    assert_int_equal(exact_bits(&sum), 0);
    exact_add(&sum, 0x1p20);
    assert_int_equal(exact_bits(&sum), 0); /* one bit wherever it is: 1 times 2^20 */
    exact_add(&sum, 3);
    assert_int_equal(exact_bits(&sum), 21);
    exact_add(&sum, -0x1p20); /* the sum is 3, but partial sums are longer */
    assert_int_equal(exact_bits(&sum), 22);
    assert_true(sum.value == 3);
    exact_add(&sum, -0x1p-4);
    assert_int_equal(exact_bits(&sum), 26);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_device_computes_what_double_does),
                                       cmocka_unit_test(steps_are_as_many_as_f32_holds),
                                       cmocka_unit_test(gradients_are_differences),
                                       cmocka_unit_test(a_wrong_number_is_found),
                                       cmocka_unit_test(a_wrong_rule_is_found),
                                       cmocka_unit_test(rounding_is_found),
                                       cmocka_unit_test(bits_are_those_of_all_partial_sums)};
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
