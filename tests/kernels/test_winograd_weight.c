/* clkernels/conv/batch_blocked/winograd_weight_grad.cl against sums in double. */
#include "kernels/lab.h"
#include "kernels/reference_conv.h"

static lab l;

typedef struct weight_case {
    int n, ci, ih, iw, co, p[2];
    int tc, to, tiles, block, groups; /* register tile, tiles of a strip, vectors, work-groups */
    int bias;
} weight_case;

/* Cases: whole tiles and tails in all directions, strips of several images, some of them with fewer
 * images than a vector, more work-groups than strips, several blocks of output channels. */
static const weight_case cases[] = {
    {.n = 8,
     .ci = 12,
     .ih = 8,
     .iw = 8,
     .co = 16,
     .p = {1, 1},
     .tc = 6,
     .to = 2,
     .tiles = 4,
     .block = 2,
     .groups = 1,
     .bias = 1},
    {.n = 9,
     .ci = 19,
     .ih = 9,
     .iw = 7,
     .co = 65,
     .p = {0, 1},
     .tc = 6,
     .to = 4,
     .tiles = 3,
     .block = 4,
     .groups = 3,
     .bias = 1},
    {.n = 17,
     .ci = 24,
     .ih = 5,
     .iw = 10,
     .co = 33,
     .p = {2, 0},
     .tc = 8,
     .to = 3,
     .tiles = 8,
     .block = 3,
     .groups = 2},
    {.n = 3,
     .ci = 65,
     .ih = 5,
     .iw = 5,
     .co = 130,
     .p = {1, 2},
     .tc = 4,
     .to = 3,
     .tiles = 4,
     .block = 9,
     .groups = 2,
     .bias = 1},
    {.n = 1,
     .ci = 1,
     .ih = 5,
     .iw = 5,
     .co = 1,
     .p = {0, 0},
     .tc = 5,
     .to = 4,
     .tiles = 2,
     .block = 4,
     .groups = 5,
     .bias = 1},
    {.n = 33,
     .ci = 7,
     .ih = 13,
     .iw = 14,
     .co = 18,
     .p = {2, 2},
     .tc = 8,
     .to = 2,
     .tiles = 16,
     .block = 2,
     .groups = 4,
     .bias = 1},
    {.n = 2,
     .ci = 18,
     .ih = 7,
     .iw = 6,
     .co = 40,
     .p = {0, 0},
     .tc = 1,
     .to = 8,
     .tiles = 1,
     .block = 8,
     .groups = 3},
};

/* The layers of ResNet-18 that the variant accepts, for images of 32 x 32, of one image and of
 * several. */
static const weight_case resnet18[] = {
    {.n = 1, .ci = 64, .ih = 32, .iw = 32, .co = 64, .p = {1, 1}, .tc = 6, .to = 2, .tiles = 4},
    {.n = 9, .ci = 64, .ih = 32, .iw = 32, .co = 64, .p = {1, 1}, .tc = 6, .to = 2, .tiles = 4},
    {.n = 1, .ci = 128, .ih = 16, .iw = 16, .co = 128, .p = {1, 1}, .tc = 6, .to = 2, .tiles = 4},
    {.n = 9, .ci = 128, .ih = 16, .iw = 16, .co = 128, .p = {1, 1}, .tc = 6, .to = 2, .tiles = 4},
    {.n = 1, .ci = 256, .ih = 8, .iw = 8, .co = 256, .p = {1, 1}, .tc = 6, .to = 2, .tiles = 4},
    {.n = 9, .ci = 256, .ih = 8, .iw = 8, .co = 256, .p = {1, 1}, .tc = 6, .to = 2, .tiles = 4},
};

/* Returns the floats of a work-group's scratch memory: AREA in the kernel file. */
static long area_of(const weight_case *c)
{
    const long blocks = c->block / c->to, c_blocks = (long)up(c->ci, c->tc);
    return 36L * l.lanes *
           (c_blocks * ((c->tc * c->tiles) | 1) + blocks * ((c->tiles * l.lanes * c->to) | 1) +
            blocks * c_blocks * ((c->tc * c->to) | 1));
}

/* With `most` > 0, the error is at most so many times that of a plain sequence of f32 sums. */
static void check(const weight_case *c, double most)
{
    const conv_case shape = {.n = c->n,
                             .groups = 1,
                             .ci = c->ci,
                             .ih = c->ih,
                             .iw = c->iw,
                             .co = c->co,
                             .k = {3, 3},
                             .s = {1, 1},
                             .p = {c->p[0], c->p[1]},
                             .d = {1, 1}};
    l.n = c->n;
    const int oh = conv_out(&shape, 0), ow = conv_out(&shape, 1);
    const int vectors = (int)up(c->co, l.lanes), o_groups = (int)up(vectors, c->block);
    const long in = (long)c->ci * c->ih * c->iw, out = (long)c->co * oh * ow;
    const long weights = (long)c->co * c->ci * 9, part = (c->ci * 9L + 1) * vectors * l.lanes;
    float *x = lab_randoms(c->n * in, 1), *g = lab_randoms(c->n * out, 2);
    float *got = lab_randoms(weights + c->co, 3);
    double *sum = calloc((size_t)(weights + c->co), sizeof *sum);
    double *magnitude = calloc((size_t)(weights + c->co), sizeof *magnitude);
    float *plain = most > 0 ? calloc((size_t)weights, sizeof *plain) : NULL;
    conv_each(&shape, conv_add, &(conv_sums){x, g, sum, magnitude, 2, plain});
    for (long i = 0; i < c->n * out; i++) {
        sum[weights + i / (oh * ow) % c->co] += (double)g[i];
        magnitude[weights + i / (oh * ow) % c->co] += fabs((double)g[i]);
    }
    lab_buffer dx = lab_put(&l, x, in), dg = lab_put(&l, g, out);
    lab_buffer area = lab_make(&l, c->groups * o_groups * area_of(c), 4);
    lab_buffer parts = lab_make(&l, c->groups * part, 4);
    lab_buffer dw = lab_make(&l, weights, 4), db = lab_make(&l, c->co, 4);
    const char *file = "conv/batch_blocked/winograd_weight_grad.cl";
    cl_kernel k = lab_kernel(&l, file, "clt_batch_blocked_winograd_weight_grad",
                             "-DPY=%d -DPX=%d -DBIAS=%d -DTC=%d -DTO=%d -DCTAIL=%d -DOTAIL=%d "
                             "-DBLOCK=%d -DTILES=%d",
                             c->p[0], c->p[1], c->bias, c->tc, c->to, c->ci % c->tc,
                             vectors % c->to, c->block, c->tiles);
    lab_run(&l, k, (size_t)c->groups, (size_t)o_groups, 1, "bbbbiiiiiii", &dx, &dg, &area, &parts,
            c->n, c->ci, c->ih, c->iw, c->co, oh, ow);
    k = lab_kernel(&l, file, "clt_batch_blocked_winograd_weight_sum", "-DBIAS=%d", c->bias);
    lab_run(&l, k, (size_t)vectors, up(c->ci, 16), 1, "bbbiii", &parts, &dw, &db, c->groups, c->ci,
            c->co);
    lab_read(&l, &dw, got);
    const long used = c->bias ? weights + c->co : weights;
    if (c->bias)
        lab_read(&l, &db, got + weights);
    const double worst = lab_compare("Winograd weight gradient", got, sum, magnitude, used,
                                     c->n ? (long)c->n * oh * ow : 1);
    print_message("Winograd weight gradient %dx%dx%d to %d: %.3f of the limit\n", c->ci, c->ih,
                  c->iw, c->co, worst);
    if (plain) {
        const double ratio = conv_error_ratio(got, plain, sum, weights);
        print_message("error: %.2f times that of plain f32 sums\n", ratio);
        assert_true(ratio <= most);
    }
    free(plain);
    /* Check the guards. */
    const long room = area.count > parts.count ? area.count : parts.count;
    float *all = malloc((size_t)room * sizeof *all);
    lab_read(&l, &area, all);
    lab_read(&l, &parts, all);
    lab_free(&dx), lab_free(&dg), lab_free(&area), lab_free(&parts), lab_free(&dw), lab_free(&db);
    free(x), free(g), free(got), free(sum), free(magnitude), free(all);
}

static void test_weight_gradient(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check(&cases[i], 0.0);
}

static void test_errors(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof resnet18 / sizeof *resnet18; i++) {
        weight_case c = resnet18[i];
        c.block = (int)up((int)up(c.co, l.lanes), c.to) * c.to;
        c.groups = 2;
        check(&c, 4.0);
    }
}

static void test_no_image(void **state)
{
    weight_case empty = cases[0];
    (void)state;
    empty.n = 0;
    check(&empty, 0.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weight_gradient),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_no_image),
    };
    lab_open(&l);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    lab_close(&l);
    return failed;
}
