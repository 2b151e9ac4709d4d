/* Sections of checkpoints that belong to the host program, and states without epochs. */
#include "train/lab.h"
#include "train/lab_scratch.h"

enum { IN = 4, COUNT = 9 };

static float xs[COUNT * IN];
static int32_t labels[COUNT];
static const clt_feed feeds[] = {{"x", -1, CLT_HOST(xs)}, {"label", -1, CLT_HOST(labels)}};

static lab lab_open(void)
{
    clt_trainer_options options;
    clt_trainer_options_init(&options);
    options.optimizer = CLT_ADAM;
    options.batch = COUNT;
    lab l = lab_on_kept("0");
    lab_store(&l, classifier(IN, 6, 3), 4);
    lab_trainer(&l, &options);
    for (int i = 0; i < COUNT * IN; i++)
        xs[i] = (float)sin(i);
    for (int i = 0; i < COUNT; i++)
        labels[i] = i % 3;
    return l;
}

static void train(lab *l, int steps)
{
    const clt_step_batch batch = lab_batch(feeds, COUNT);
    for (int s = 0; s < steps; s++)
        ok(clt_trainer_step(l->trainer, &batch, NULL));
}

static void expect(const lab *l, const char *name, const char *want)
{
    const char *text = NULL;
    ok(clt_trainer_section(l->trainer, name, &text));
    assert_string_equal(text, want);
}

static void sections_come_back(void **state)
{
    (void)state;
    const char *const rng = "line 1\nline \"2\"\t\xc3\xa4 {\"not\": [json]}";
    char dir[4200];
    snprintf(dir, sizeof dir, "%s/run", scratch);
    lab a = lab_open();
    float want[6 * IN], have[6 * IN];
    const char *text = "untouched";
    train(&a, 3);
    ok(clt_trainer_set_section(a.trainer, "time", "0.5"));
    ok(clt_trainer_set_section(a.trainer, "random state", rng));
    ok(clt_trainer_set_section(a.trainer, "mesh", "a"));
    ok(clt_trainer_set_section(a.trainer, "empty", ""));
    ok(clt_trainer_set_section(a.trainer, "time", "0.75"));
    ok(clt_trainer_set_section(a.trainer, "mesh", NULL));
    ok(clt_trainer_set_section(a.trainer, "mesh", NULL)); /* is not there: nothing happens */
    ok(clt_trainer_save_state(a.trainer, dir, 2));

    lab b = lab_open();
    ok(clt_trainer_set_section(b.trainer, "old", "is replaced"));
    ok(clt_trainer_restore_state(b.trainer, dir));
    assert_int_equal(clt_trainer_steps(b.trainer), 3);
    expect(&b, "time", "0.75");
    expect(&b, "random state", rng);
    expect(&b, "empty", "");
    int names = 0;
    for (const char *name; (name = clt_trainer_section_name(b.trainer, names)); names++)
        ok(clt_trainer_section(b.trainer, name, &text));
    assert_int_equal(names, 3);
    assert_null(clt_trainer_section_name(b.trainer, -1));
    text = "untouched";
    assert_int_equal(clt_trainer_section(b.trainer, "old", &text), CLT_NOT_FOUND);
    assert_int_equal(clt_trainer_section(b.trainer, "mesh", &text), CLT_NOT_FOUND);
    assert_int_equal(clt_trainer_section(b.trainer, "tme", &text), CLT_NOT_FOUND);
    assert_non_null(strstr(clt_error_message(), "there is no section 'tme'; did you mean 'time'?"));
    assert_string_equal(text, "untouched");

    /* Both go on with the same bits, and the next checkpoint has the sections too. */
    train(&a, 2);
    train(&b, 2);
    ok(clt_store_get_array(a.store, "a.weight", &(clt_array)CLT_HOST(want)));
    ok(clt_store_get_array(b.store, "a.weight", &(clt_array)CLT_HOST(have)));
    assert_memory_equal(want, have, sizeof want);
    ok(clt_trainer_save_state(b.trainer, dir, 2));
    clt_checkpoint *checkpoint;
    ok(clt_checkpoint_open(dir, &checkpoint));
    assert_int_equal(clt_checkpoint_run(checkpoint)->step, 5);
    assert_int_equal(clt_checkpoint_run(checkpoint)->epoch, 0);
    assert_string_equal(clt_checkpoint_section(checkpoint, "host.time")->text, "0.75");
    clt_checkpoint_close(checkpoint);
    lab_close(&b);
    lab_close(&a);
}

static void wrong_names_are_refused(void **state)
{
    (void)state;
    char name[102];
    lab l = lab_open();
    memset(name, 'n', 101);
    name[101] = 0;
    assert_int_equal(clt_trainer_set_section(l.trainer, name, "x"), CLT_INVALID_ARGUMENT);
    assert_int_equal(clt_trainer_set_section(l.trainer, "", "x"), CLT_INVALID_ARGUMENT);
    assert_int_equal(clt_trainer_set_section(l.trainer, "x", "\xff"), CLT_INVALID_ARGUMENT);
    assert_non_null(strstr(clt_error_message(), "not UTF-8 in its text"));
    assert_int_equal(clt_trainer_set_section(l.trainer, "x\xff", "x"), CLT_INVALID_ARGUMENT);
    assert_int_equal(clt_trainer_set_section(l.trainer, NULL, "x"), CLT_INVALID_ARGUMENT);
    ok(clt_trainer_set_section(l.trainer, name + 1, "x"));
    expect(&l, name + 1, "x");
    lab_close(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sections_come_back),
        cmocka_unit_test(wrong_names_are_refused),
    };
    return cmocka_run_group_tests(tests, open_runtime_and_scratch, close_runtime_and_scratch);
}
