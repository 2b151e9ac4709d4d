/*
 * Bad input between steps: each call fails with one line that names what is wrong, and nothing is
 * lost. A trainer that saw all of them has the bits of one that saw none. Freed handles are in the
 * tests of the other languages: C cannot tell a freed pointer from another.
 */
#include <unistd.h>

#include "train/lab.h"
#include "device/core/device.h"
#include <cltrain/reservoir.h>

enum { IN = 5, HIDDEN = 7, CLASSES = 3, COUNT = 12 };

static float xs[COUNT * IN];
static int32_t labels[COUNT];

/* What the bad calls are made on. */
typedef struct scene {
    lab l;
    clt_dataset *reservoir;
    cl_mem small, foreign; /* too small; of another context */
    clt_device **others;
    int n_others;
    char csv[64];
} scene;

static clt_array x_array(void)
{
    static const int64_t shape[] = {COUNT, IN};
    clt_array a;
    ok(clt_array_of(&a, xs, CLT_F32, 2, shape));
    return a;
}

static clt_status step_with(const scene *s, clt_array x)
{
    const clt_feed feeds[] = {{"x", -1, x}, {"label", -1, CLT_HOST(labels)}};
    const clt_step_batch batch = lab_batch(feeds, COUNT);
    return clt_trainer_step(s->l.trainer, &batch, NULL);
}

static clt_status wrong_rank(const scene *s)
{
    clt_array x = x_array();
    x.rank = 1;
    x.shape[0] = COUNT * IN;
    x.strides[0] = sizeof(float);
    return step_with(s, x);
}

/* There are no complex or logical types. Other numbers are no types. */
static clt_status unknown_kind(const scene *s)
{
    clt_array x = x_array();
    x.dtype = (clt_dtype)17;
    return step_with(s, x);
}

static clt_status wrong_kind(const scene *s)
{
    clt_array x = x_array();
    x.dtype = CLT_I32;
    return step_with(s, x);
}

static clt_status wrong_stride(const scene *s)
{
    clt_array x = x_array();
    x.bytes = sizeof xs;
    x.strides[0] = (IN + 1) * sizeof(float);
    return step_with(s, x);
}

static clt_status stride_of_a_buffer(const scene *s)
{
    clt_array x = x_array();
    x.host = NULL;
    x.buffer = s->small;
    x.bytes = 0;
    x.strides[0] = 2 * IN * sizeof(float);
    return step_with(s, x);
}

static clt_status small_memory(const scene *s)
{
    clt_array x = x_array();
    x.bytes = sizeof xs - 1;
    return step_with(s, x);
}

static clt_status small_buffer(const scene *s)
{
    return step_with(s, (clt_array)CLT_BUFFER(s->small, 0));
}

static clt_status foreign_buffer(const scene *s)
{
    return step_with(s, (clt_array)CLT_BUFFER(s->foreign, 0));
}

static clt_status no_memory(const scene *s)
{
    return step_with(s, (clt_array){0});
}

static clt_status null_feed(const scene *s)
{
    return step_with(s, (clt_array)CLT_HOST(NULL));
}

static clt_status null_feed_with_a_shape(const scene *s)
{
    clt_array x = x_array();
    x.host = NULL;
    return step_with(s, x);
}

/* --- tensors without memory ------------------------------------------------------------------- */

enum { BIAS = HIDDEN * sizeof(float) };

static clt_status null_get(const scene *s)
{
    return clt_store_get(s->l.store, "a.bias", NULL, BIAS);
}

static clt_status null_set(const scene *s)
{
    return clt_store_set(s->l.store, "a.bias", NULL, BIAS);
}

static clt_status null_collect(const scene *s)
{
    return clt_store_collect(s->l.store, "a.bias", NULL, BIAS);
}

static clt_status null_array(const scene *s)
{
    const clt_array none = CLT_HOST(NULL);
    return clt_store_set_array(s->l.store, "a.bias", &none);
}

static clt_status null_gradient(const scene *s)
{
    return clt_trainer_gradient(s->l.trainer, 0, "a.bias", NULL, BIAS);
}

static clt_status null_set_gradient(const scene *s)
{
    return clt_trainer_set_gradient(s->l.trainer, 0, "a.bias", NULL, BIAS);
}

static clt_status null_slot(const scene *s)
{
    return clt_trainer_slot_get(s->l.trainer, 0, "a.bias", NULL, BIAS);
}

static clt_status null_set_slot(const scene *s)
{
    return clt_trainer_slot_set(s->l.trainer, 1, "a.bias", NULL, BIAS);
}

static clt_status null_copy(const scene *s)
{
    clt_tensor_copy copy;
    clt_tensor_copy_init(&copy);
    copy.name = "a.bias";
    copy.array = (clt_array)CLT_HOST(NULL);
    return clt_store_copy_in(s->l.store, &copy, NULL);
}

static clt_status nameless_feed(const scene *s)
{
    const clt_feed feeds[] = {{"x", -1, x_array()}, {NULL, -1, CLT_HOST(labels)}};
    return clt_step_arrays(s->l.trainer, feeds, 2, NULL);
}

static clt_status nameless_fetch(const scene *s)
{
    float y[COUNT * CLASSES];
    const clt_feed feeds[] = {{"x", -1, x_array()}};
    const clt_fetch fetches[] = {{NULL, -1, CLT_HOST(y)}};
    return clt_predict_arrays(s->l.trainer, feeds, 1, fetches, 1);
}

static clt_status two_feeds_of_a_name(const scene *s)
{
    const clt_feed feeds[] = {
        {"x", -1, x_array()}, {"label", -1, CLT_HOST(labels)}, {"x", -1, x_array()}};
    const clt_step_batch batch = {
        .struct_size = sizeof batch, .count = COUNT, .feeds = feeds, .n_feeds = 3};
    return clt_trainer_step(s->l.trainer, &batch, NULL);
}

static clt_status no_feeds(const scene *s)
{
    const clt_step_batch batch = {.struct_size = sizeof batch, .count = COUNT, .n_feeds = 2};
    return clt_trainer_step(s->l.trainer, &batch, NULL);
}

static clt_status device_below_all(const scene *s)
{
    const clt_feed feeds[] = {{"x", -2, x_array()}, {"label", -1, CLT_HOST(labels)}};
    const clt_step_batch batch = lab_batch(feeds, COUNT);
    return clt_trainer_step(s->l.trainer, &batch, NULL);
}

static clt_status save_nowhere(const scene *s)
{
    return clt_trainer_save_state(s->l.trainer, NULL, 1);
}

static clt_status restore_nothing(const scene *s)
{
    return clt_trainer_restore_state(s->l.trainer, NULL);
}

static clt_status load_nothing(const scene *s)
{
    return clt_store_load(s->l.store, NULL);
}

static clt_status save_to_no_file(const scene *s)
{
    return clt_store_save(s->l.store, NULL);
}

static clt_status unknown_feed(const scene *s)
{
    const clt_feed feeds[] = {{"z", -1, CLT_HOST(xs)}, {"label", -1, CLT_HOST(labels)}};
    const clt_step_batch batch = lab_batch(feeds, COUNT);
    return clt_trainer_step(s->l.trainer, &batch, NULL);
}

static clt_status small_gradient(const scene *s)
{
    float g[3] = {0};
    return clt_trainer_gradient(s->l.trainer, 0, "a.weight", g, sizeof g);
}

static clt_status unknown_section(const scene *s)
{
    const char *text = NULL;
    const clt_status status = clt_trainer_section(s->l.trainer, "tme", &text);
    assert_null(text);
    return status;
}

static clt_status push(const scene *s, clt_array x)
{
    static const int64_t shape[] = {COUNT};
    clt_array fields[2] = {x};
    ok(clt_array_of(&fields[1], labels, CLT_I32, 1, shape));
    return clt_dataset_push(s->reservoir, fields, 2, NULL);
}

static clt_status push_of_another_rank(const scene *s)
{
    clt_array x = x_array();
    x.rank = 1;
    return push(s, x);
}

static clt_status push_of_another_count(const scene *s)
{
    clt_array x = x_array();
    x.shape[0]--;
    return push(s, x);
}

static clt_status open_csv(const scene *s, const char *rows)
{
    char spec[80];
    clt_dataset *set = NULL;
    FILE *file = fopen(s->csv, "w");
    assert_true(file && fputs(rows, file) >= 0 && !fclose(file));
    snprintf(spec, sizeof spec, "csv:%s", s->csv);
    const clt_status status = clt_dataset_open(spec, NULL, &set);
    assert_null(set);
    return status;
}

static clt_status csv_without_a_number(const scene *s)
{
    return open_csv(s, "a,b,y\n1,2,3\n4,NaN,6\n7,8,9\n");
}

static clt_status csv_with_an_infinite_number(const scene *s)
{
    return open_csv(s, "a,b,y\n1,2,3\ninf,5,6\n7,8,9\n");
}

static clt_status csv_with_a_long_row(const scene *s)
{
    return open_csv(s, "a,b,y\n1,2,3\n4,5,6,7\n7,8,9\n");
}

static clt_status csv_with_a_short_row(const scene *s)
{
    return open_csv(s, "a,b,y\n1,2,3\n4,5,6\n7,8\n");
}

static const struct row {
    clt_status (*call)(const scene *);
    clt_status status;
    const char *text;
} rows[] = {
    {wrong_rank, CLT_INVALID_ARGUMENT, "feed x is f32 [60], and must be f32 [12, 5]"},
    {unknown_kind, CLT_INVALID_ARGUMENT, "feed x has the unknown element type 17"},
    {wrong_kind, CLT_INVALID_ARGUMENT, "feed x is i32 [12, 5], and must be f32 [12, 5]"},
    {wrong_stride, CLT_INVALID_ARGUMENT, "feed x has elements in bytes 0 to 283 of a memory of"},
    {stride_of_a_buffer, CLT_INVALID_ARGUMENT, "must be row-major without gaps"},
    {small_memory, CLT_INVALID_ARGUMENT, "feed x"},
    {small_buffer, CLT_INVALID_ARGUMENT, "feed x"},
    {foreign_buffer, CLT_INVALID_ARGUMENT, "context"},
    {no_memory, CLT_INVALID_ARGUMENT, "feed x"},
    {null_feed, CLT_INVALID_ARGUMENT, "feed x has neither host nor buffer"},
    {null_feed_with_a_shape, CLT_INVALID_ARGUMENT, "feed x has neither host nor buffer"},
    {null_get, CLT_INVALID_ARGUMENT, "tensor a.bias: its data is NULL"},
    {null_set, CLT_INVALID_ARGUMENT, "tensor a.bias: its data is NULL"},
    {null_collect, CLT_INVALID_ARGUMENT, "tensor a.bias: its data is NULL"},
    {null_array, CLT_INVALID_ARGUMENT, "the array for a.bias has neither host nor buffer"},
    {null_gradient, CLT_INVALID_ARGUMENT, "tensor a.bias: its data is NULL"},
    {null_set_gradient, CLT_INVALID_ARGUMENT, "tensor a.bias: its data is NULL"},
    {null_slot, CLT_INVALID_ARGUMENT, "tensor a.bias: its data is NULL"},
    {null_set_slot, CLT_INVALID_ARGUMENT, "tensor a.bias: its data is NULL"},
    {null_copy, CLT_INVALID_ARGUMENT, "a.bias"},
    {nameless_feed, CLT_INVALID_ARGUMENT, "feed 1 of the batch has no name"},
    {nameless_fetch, CLT_INVALID_ARGUMENT, "fetch 0 of the batch has no name"},
    {two_feeds_of_a_name, CLT_INVALID_ARGUMENT, "feeds 0 and 2 of the batch have the same name x"},
    {no_feeds, CLT_INVALID_ARGUMENT, "a batch of 2 feeds and 0 fetches"},
    {device_below_all, CLT_INVALID_ARGUMENT, "feed x is of device -2"},
    {save_nowhere, CLT_INVALID_ARGUMENT, "a checkpoint needs a path"},
    {restore_nothing, CLT_INVALID_ARGUMENT, "a checkpoint needs a path"},
    {load_nothing, CLT_INVALID_ARGUMENT, "a safetensors file needs a path"},
    {save_to_no_file, CLT_INVALID_ARGUMENT, "a safetensors file needs a path"},
    {unknown_feed, CLT_INVALID_ARGUMENT, "no feed for input x"},
    {small_gradient, CLT_INVALID_ARGUMENT, "a.weight"},
    {unknown_section, CLT_NOT_FOUND, "there is no section 'tme'; did you mean 'time'?"},
    {push_of_another_rank, CLT_INVALID_ARGUMENT, "x"},
    {push_of_another_count, CLT_INVALID_ARGUMENT, "label"},
    {csv_without_a_number, CLT_FORMAT, "line 3, column 2 ('b')"},
    {csv_with_an_infinite_number, CLT_FORMAT, "line 3, column 1 ('a')"},
    {csv_with_a_long_row, CLT_FORMAT, "line 3, column 4"},
    {csv_with_a_short_row, CLT_FORMAT, "line 4, column 3 ('y')"},
};
enum { ROWS = sizeof rows / sizeof *rows };

static scene open_scene(void)
{
    scene s = {.l = lab_on_kept(clt_test_devices("pocl"))};
    const int64_t width = IN;
    clt_trainer_options options;
    clt_trainer_options_init(&options);
    options.optimizer = CLT_ADAM;
    options.batch = COUNT;
    make_samples(xs, labels, COUNT, IN, CLASSES);
    lab_store(&s.l, classifier(IN, HIDDEN, CLASSES), 3);
    lab_trainer(&s.l, &options);
    ok(clt_trainer_set_section(s.l.trainer, "time", "1.5"));
    ok(clt_dataset_create_reservoir("live", COUNT, NULL, &s.reservoir));
    ok(clt_dataset_add_field(s.reservoir, "x", CLT_F32, 1, &width, NULL, CLT_DATA_BORROW, NULL));
    ok(clt_dataset_add_field(s.reservoir, "label", CLT_I32, 0, NULL, NULL, CLT_DATA_BORROW, NULL));
    ok(push(&s, x_array()));
    ok(clt_devices_open(runtime, clt_test_devices("pocl"), NULL, &s.others, &s.n_others));
    ok(clt_device_buffer_create(s.l.devices[0], sizeof xs - 4, CL_MEM_READ_WRITE, "a", &s.small));
    ok(clt_device_buffer_create(s.others[0], sizeof xs, CL_MEM_READ_WRITE, "b", &s.foreign));
    strcpy(s.csv, "/tmp/bad-input-XXXXXX");
    close(mkstemp(s.csv));
    return s;
}

static void close_scene(scene *s)
{
    clt_release_buffer(s->small);
    clt_release_buffer(s->foreign);
    clt_devices_close(s->others, s->n_others);
    lab_close(&s->l);
    clt_dataset_free(s->reservoir);
    unlink(s->csv);
}

static void bad(const scene *s, const struct row *row)
{
    const clt_status status = row->call(s);
    const char *message = clt_error_message();
    if (status != row->status || !strstr(message, row->text) || strchr(message, '\n'))
        fail_msg("row %d: %s: '%s' instead of %s with '%s'", (int)(row - rows),
                 clt_status_name(status), message, clt_status_name(row->status), row->text);
}

static void nothing_is_lost(void **state)
{
    (void)state;
    scene clean = open_scene(), other = open_scene();
    float x[HIDDEN * IN], y[HIDDEN * IN];
    double losses[2];
    for (int i = 0; i < ROWS; i++) {
        ok(step_with(&clean, x_array()));
        bad(&other, &rows[i]);
        ok(step_with(&other, x_array()));
    }
    assert_int_equal(clt_trainer_steps(other.l.trainer), ROWS);
    ok(clt_trainer_set_reservoir(clean.l.trainer, clean.reservoir, NULL));
    ok(clt_trainer_set_reservoir(other.l.trainer, other.reservoir, NULL));
    ok(clt_step_reservoir(clean.l.trainer, 3, &losses[0]));
    ok(clt_step_reservoir(other.l.trainer, 3, &losses[1]));
    assert_true(losses[0] == losses[1]);
    ok(clt_store_get(clean.l.store, "a.weight", x, sizeof x));
    ok(clt_store_get(other.l.store, "a.weight", y, sizeof y));
    assert_memory_equal(x, y, sizeof x);
    close_scene(&clean);
    close_scene(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_is_lost)};
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
