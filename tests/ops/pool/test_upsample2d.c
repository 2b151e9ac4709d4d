#include "ops/pool/resample_cases.h"

/* A map's attribute. */
typedef struct up {
    clt_upsample_mode mode;
    double scale[2]; /* 0: the size is given */
    int align;
} up;

static void build(const op_case *c, clt_value *const *in, clt_value **out)
{
    const resample_map *m = c->attr;
    const up *u = m->attr;
    clt_upsample2d_options o;
    clt_upsample2d_options_init(&o);
    o.mode = u->mode;
    o.align_corners = u->align;
    for (int i = 0; i < 2; i++) {
        o.scale[i] = u->scale[i];
        o.size[i] = u->scale[i] > 0 ? 0 : (int)(i ? m->ow : m->oh);
    }
    out[0] = clt_upsample2d(in[0], &o);
}

static int64_t out_size(int64_t in, double scale, int64_t size)
{
    return scale > 0 ? (int64_t)floor((double)in * scale) : size;
}

/* Returns the taps of torch.nn.functional.interpolate. `sizes` belong to the map that has the
 * attribute. */
static int64_t sizes[2];

static ref_taps near(const void *attr, int axis, int64_t in, int64_t i)
{
    const up *u = attr;
    if (sizes[axis] == in)
        return (ref_taps){.count = 1, .at = {i}, .weight = {1}};
    const float step =
        u->scale[axis] > 0 ? (float)(1 / u->scale[axis]) : (float)in / (float)sizes[axis];
    const int64_t at = (int64_t)floorf((float)i * step);
    return (ref_taps){.count = 1, .at = {at < in ? at : in - 1}, .weight = {1}};
}

static ref_taps linear(const void *attr, int axis, int64_t in, int64_t i)
{
    const up *u = attr;
    double at;
    if (sizes[axis] == in) {
        at = (double)i;
    } else if (u->align) {
        at = sizes[axis] > 1 ? (double)i * (double)(in - 1) / (double)(sizes[axis] - 1) : 0;
    } else {
        const double r = u->scale[axis] > 0 ? 1 / u->scale[axis] : (double)in / (double)sizes[axis];
        at = ((double)i + 0.5) * r - 0.5;
        at = at < 0 ? 0 : at;
    }
    int64_t low = (int64_t)floor(at);
    low = low < in ? low : in - 1;
    const double part = at - (double)low < 1 ? at - (double)low : 1;
    const int64_t high = low + 1 < in ? low + 1 : low;
    return (ref_taps){.count = 2, .at = {low, high}, .weight = {1 - part, part}};
}

static op_test test = {"upsample2d", 1, 0, build, resample_forward, resample_backward, 0};

/* Checks all modes, to a size or by scales. */
static void check(int64_t n, int64_t c, int64_t h, int64_t w, int64_t oh, int64_t ow, double sy,
                  double sx)
{
    sizes[0] = out_size(h, sy, oh);
    sizes[1] = out_size(w, sx, ow);
    for (int kind = 0; kind < 3; kind++) {
        const up u = {kind ? CLT_UPSAMPLE_BILINEAR : CLT_UPSAMPLE_NEAREST, {sy, sx}, kind == 2};
        const resample_map m = {n, c, h, w, sizes[0], sizes[1], kind ? linear : near, &u};
        resample_check(&test, &m);
    }
}

static void test_shapes(void **state)
{
    (void)state;
    check(3, 2, 4, 5, 0, 0, 2, 2);
    check(1, 1, 1, 1, 0, 0, 3, 4);
    check(17, 1, 5, 7, 0, 0, 1.5, 2.7);
    /* A scale that changes nothing. */
    check(1, 1, 4, 9, 0, 0, 1.1, 2);
    /* Smaller results, which leave out some elements of the operand. */
    check(2, 2, 9, 40, 0, 0, 0.7, 0.5);
    check(1, 1, 70, 17, 140, 36, 0, 0);
    op_report(&test);
}

static void golden(op_golden *g)
{
    int size[2];
    up u = {.mode =
                op_golden_number(g, "nearest") != 0 ? CLT_UPSAMPLE_NEAREST : CLT_UPSAMPLE_BILINEAR};
    u.align = (int)op_golden_number(g, "align_corners");
    op_golden_pair(g, "size", size);
    op_golden_operand(g, "x", true);
    op_golden_results(g);
    for (int i = 0; i < 2; i++) {
        const json_t *scale = json_object_get(g->attributes, "scale");
        u.scale[i] = json_number_value(json_array_get(scale, (size_t)i));
        sizes[i] = out_size(g->c.in[0].dims[2 + i], u.scale[i], size[i]);
    }
    const int64_t *x = g->c.in[0].dims;
    const resample_map m = {g->c.batch,
                            x[1],
                            x[2],
                            x[3],
                            sizes[0],
                            sizes[1],
                            u.mode == CLT_UPSAMPLE_NEAREST ? near : linear,
                            &u};
    g->c.attr = &m;
    op_check(&test, &g->c, false);
}

static void test_goldens(void **state)
{
    (void)state;
    op_goldens("upsample2d", golden);
}

/* The gradient's own gradient, by a second autodiff, is an upsampling again. */
static void test_twice(void **state)
{
    clt_graph *g;
    clt_value *dx = NULL, *back = NULL, *x;
    (void)state;
    x = resample_input(&g, 4, (int64_t[]){CLT_BATCH, 2, 9, 11});
    clt_upsample2d_options o;
    clt_upsample2d_options_init(&o);
    o.size[0] = 4;
    o.size[1] = 3;
    clt_value *y = clt_upsample2d(x, &o);
    clt_value *dy = clt_graph_value(g, CLT_VALUE_INPUT, &y->type, "dy");
    OP_OK(clt_autodiff(g, &y, &dy, 1, &x, 1, &dx));
    clt_value *seed = clt_graph_value(g, CLT_VALUE_INPUT, &dx->type, "seed");
    OP_OK(clt_autodiff(g, &dx, &seed, 1, &dy, 1, &back));
    const clt_node *first = y->producer, *last = back->producer;
    assert_ptr_equal(first->op, last->op);
    /* It is the same map: tables with equally many elements, and the same numbers where the table
     * has any. */
    assert_true(clt_type_equal(&y->type, &back->type));
    const int *a = first->in[1]->data, *b = last->in[1]->data;
    for (int i = 0; i < 2 * (4 + 3); i++)
        assert_int_equal(a[i], b[i]);
    clt_graph_destroy(g);
}

static void refuse(clt_upsample2d_options o, int rank, const char *part)
{
    clt_graph *g;
    clt_value *x = resample_input(&g, rank, (int64_t[]){CLT_BATCH, 4, 5, 5});
    resample_refused(g, clt_upsample2d(x, &o), part);
}

static void test_errors(void **state)
{
    clt_upsample2d_options o, defaults;
    (void)state;
    clt_upsample2d_options_init(&defaults);
    refuse(defaults, 3, "f32[Bx4x5] must be [B, C, H, W]");
    o = defaults;
    o.scale[1] = 0.1;
    refuse(o, 4, "scale 2x0.1");
    o.scale[1] = NAN;
    refuse(o, 4, "scale 2xnan");
    o.scale[1] = -2;
    refuse(o, 4, "scale 2x-2");
    o.scale[1] = 1e30;
    refuse(o, 4, "scale 2x1e+30");
    o = defaults;
    o.size[0] = -1;
    refuse(o, 4, "size -1x0");
    o = defaults;
    o.align_corners = 1;
    refuse(o, 4, "align_corners");
    o = defaults;
    o.mode = (clt_upsample_mode)7;
    refuse(o, 4, "mode 7");
    o = defaults;
    o.size[0] = o.size[1] = 1 << 24;
    refuse(o, 4, "more than 2147483647 elements");
    o = defaults;
    o.struct_size = 3;
    refuse(o, 4, "struct_size");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes),
                                       cmocka_unit_test(test_goldens), cmocka_unit_test(test_twice),
                                       cmocka_unit_test(test_errors)};
    return cmocka_run_group_tests(tests, op_setup, op_teardown);
}
