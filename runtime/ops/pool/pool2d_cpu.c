/* Launches of clkernels/pool/cpu/pool2d.cl. Chooses how planes are divided and which part of a
 * plane fits the tile. */
#include "ops/core/ops.h"
#include "ops/pool/pool2d.h"

/* TILE: floats of the tile, half of a small first-level cache. */
enum { TILE = 4096, MOST_TAPS = 25, MOST_GATHERED = 16, MOST_STRIDE = 8, MOST_SIZE = 1 << 30 };
/* The number of work-items for each compute unit, and the fewest rows of a work-item. */
enum { ITEMS_A_UNIT = 4, LEAST_ROWS = 8, LEAST_COLUMNS = 3 };

typedef struct division {
    int width;  /* floats of a vector */
    int direct; /* read the plane without copying it to a tile */
    int separate;
    int64_t chunk, rows; /* of a tile: columns of windows; rows of y or of dx */
} division;

static int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

static bool is_max(const clt_node *node)
{
    return node->op == &clt_op_max_pool2d || node->op == &clt_op_max_pool2d_grad;
}

static bool is_gradient(const clt_node *node)
{
    return node->op == &clt_op_max_pool2d_grad || node->op == &clt_op_avg_pool2d_grad;
}

static int64_t span(const clt_pool2d_attr *a, int axis)
{
    return (int64_t)(a->kernel[axis] - 1) * a->dilation[axis] + 1;
}

/* Whether vectors of windows read no element outside the plane. */
static bool lies_inside(const clt_pool2d_attr *a, const int64_t out[2], int width)
{
    const int64_t shift = (span(a, 1) - 1) / a->stride[1];
    return !a->padding[0] && !a->padding[1] && out[1] >= width &&
           (out[0] - 1) * a->stride[0] + span(a, 0) <= a->in[0] &&
           (out[1] + shift) * a->stride[1] <= a->in[1];
}

static bool runs_direct(const clt_pool2d_attr *a, const int64_t out[2], int width, bool gradient)
{
    const int sx = a->stride[1];
    if (!lies_inside(a, out, width))
        return false;
    if (!gradient)
        return a->kernel[0] <= a->stride[0];
    return a->kernel[0] == a->stride[0] && a->kernel[1] == sx && a->dilation[0] == 1 &&
           a->dilation[1] == 1 && (sx == 1 || sx == 2 || sx == 4);
}

/* Rows of y or dx that a tile with `columns` of windows can hold; 0 if it cannot hold one row. */
static int64_t rows_of(const clt_pool2d_attr *a, int64_t columns, int width, bool gradient)
{
    const int64_t sx = a->stride[1], sy = a->stride[0], shift = (span(a, 1) - 1) / sx;
    const int64_t windows = round_up(columns, width) + (gradient ? round_up(shift, width) : 0);
    const int64_t most = TILE / round_up(sx * (windows + shift), width);
    if (most < span(a, 0))
        return 0;
    const int64_t tall = (most - span(a, 0)) / sy + 1; /* rows of windows */
    if (!gradient)
        return tall;
    /* Rows of dx: only those whose windows are all in the tile. */
    const int64_t held = tall < TILE / windows ? tall : TILE / windows;
    const int64_t rows = (held - 1) * sy - span(a, 0) + 2;
    return rows < most ? rows : most;
}

/* Returns false if no tile can hold a single vector. */
static bool divide(const clt_node *node, const clt_target *target, division *d)
{
    const clt_pool2d_attr *a = node->attr;
    const bool gradient = is_gradient(node);
    const int64_t out[2] = {clt_pool2d_size(a, 0, a->in[0]), clt_pool2d_size(a, 1, a->in[1])};
    const int64_t columns = gradient ? (a->in[1] - 1 + a->padding[1]) / a->stride[1] + 1 : out[1];
    int width = target->caps->vector_width < 4 ? 4 : target->caps->vector_width;
    while (width > 16 || (width > 4 && width > out[1]))
        width /= 2;
    *d = (division){
        .width = width, .chunk = columns, .direct = runs_direct(a, out, width, gradient)};
    d->separate = !gradient && a->kernel[0] > a->stride[0] && a->kernel[0] * a->kernel[1] > 9;
    const int64_t whole = gradient ? a->in[0] : out[0];
    const int64_t wanted = whole < LEAST_ROWS ? whole : LEAST_ROWS;
    while ((d->rows = rows_of(a, d->chunk, width, gradient)) < wanted && d->chunk > width)
        d->chunk = round_up(d->chunk / 2, width);
    return d->rows > 0;
}

bool clt_pool2d_cpu_accepts(const clt_node *node, const clt_target *target, char *why)
{
    const clt_pool2d_attr *a = node->attr;
    division d;
    if (!clt_all_plain(node))
        return clt_decline(why, "values are batch-blocked");
    if (!clt_caps_is_cpu(target->caps))
        return clt_decline(why, "made for CPUs");
    if ((int64_t)a->kernel[0] * a->kernel[1] > MOST_TAPS)
        return clt_decline(why, "windows of more than %d elements", MOST_TAPS);
    if (a->stride[1] > MOST_STRIDE)
        return clt_decline(why, "stride above %d", MOST_STRIDE);
    if (a->in[0] > MOST_SIZE || a->in[1] > MOST_SIZE || a->stride[0] > MOST_SIZE)
        return clt_decline(why, "images or strides above %d", MOST_SIZE);
    if (a->stride[1] != 1 && a->stride[1] != 2 && a->stride[1] != 4 &&
        a->kernel[0] * a->kernel[1] > MOST_GATHERED)
        return clt_decline(why, "stride %d with windows of more than %d elements", a->stride[1],
                           MOST_GATHERED);
    if (clt_pool2d_size(a, 1, a->in[1]) < LEAST_COLUMNS)
        return clt_decline(why, "rows of fewer than %d windows", LEAST_COLUMNS);
    return divide(node, target, &d) || clt_decline(why, "windows do not fit a tile");
}

void clt_pool2d_cpu(const clt_node *node, const clt_target *target, clt_program *program)
{
    const clt_pool2d_attr *a = node->attr;
    const bool gradient = is_gradient(node);
    division d;
    divide(node, target, &d);
    clt_launch_begin(program, "pool/cpu/pool2d.cl", gradient ? "pool2d_grad" : "pool2d",
                     "-DVW=%d -DMAX=%d -DKH=%d -DKW=%d -DSY=%d -DSX=%d -DDIL_Y=%d -DDIL_X=%d "
                     "-DDIRECT=%d -DSEPARATE=%d -DTILE=%d -DWINDOWS=%d",
                     d.width, is_max(node), a->kernel[0], a->kernel[1], a->stride[0], a->stride[1],
                     a->dilation[0], a->dilation[1], d.direct, d.separate, TILE, TILE);
    const int64_t out[2] = {clt_pool2d_size(a, 0, a->in[0]), clt_pool2d_size(a, 1, a->in[1])};
    const int64_t rows = gradient && !d.direct ? a->in[0] : out[0];
    const clt_extent planes = clt_extent_dim(clt_dims_product(&node->out[0]->type, 0, 2));
    const int64_t most = clt_extent_at(planes, target->max_batch);
    const int64_t wanted = (int64_t)ITEMS_A_UNIT * target->caps->compute_units;
    const int64_t share = most / wanted > 1 ? most / wanted : 1;
    int64_t bands = most < wanted && most ? (wanted + most - 1) / most : 1;
    bands = bands < rows / LEAST_ROWS ? bands : rows / LEAST_ROWS;
    const int64_t band = bands > 1 ? (rows + bands - 1) / bands : rows;
    clt_args_in(program, node->n_in);
    CLT_ARGS(program, CLT_OUT(0), CLT_INT(planes));
    const int64_t numbers[] = {
        a->in[0], a->in[1], out[0],  out[1], a->padding[0], a->padding[1], a->count_include_pad,
        share,    band,     d.chunk, d.rows};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        CLT_ARGS(program, CLT_FIXED(numbers[i]));
    clt_range3(program, clt_extent_ceil(planes, share, 1), clt_fixed((rows + band - 1) / band),
               clt_fixed(1), 1, 1, 1);
}
