/* Tiles and launches of `dots` and `rows` of clkernels/matmul/cpu/dot.cl. */
#include <stdio.h>

#include "ops/matmul/gemm_cpu.h"
#include "ops/core/nn.h"

#define COST_OF_STEP 1.2    /* a multiplication with its overhead */
#define COST_OF_LOAD 1.0    /* a vector from a cache */
#define COST_OF_LANES 10.0  /* adding up a vector's lanes */
#define COST_OF_TILE 60.0   /* overhead of a tile's loop */
#define COST_OF_SCALAR 4.0  /* a multiplication in the columns beyond whole vectors */
#define COST_OF_CACHE 2.0   /* 32 bytes from a core's cache */
#define COST_OF_MEMORY 7.0  /* 32 bytes from memory, as long streams */
#define COST_OF_PIECES 14.0 /* the same if a work-group reads a part of each row */

enum {
    MOST_ROWS = 4,   /* rows of the result that `rows` accepts */
    SUMS = 4096,     /* floats that `rows` keeps in local memory */
    LONG = 1 << 20,  /* elements of K in one pass if no operand is read twice */
    LARGE = 1 << 18, /* elements of B that do not fit into a core's cache */
    SHORT = 1024,    /* the same if operands are read again */
    GROUPS_A_UNIT = 4,
};

/* Accumulators of `dots`: for 32 and for 16 registers. */
typedef struct dot_tile {
    int rows, columns, unroll;
} dot_tile;

static const dot_tile tiles_32[] = {{4, 5, 1}, {4, 4, 1}, {3, 6, 1}, {2, 8, 1}, {1, 8, 1},
                                    {2, 4, 1}, {2, 2, 2}, {1, 4, 2}, {1, 2, 4}, {1, 1, 8},
                                    {6, 3, 1}, {8, 2, 1}, {5, 4, 1}, {4, 2, 1}};
static const dot_tile tiles_16[] = {{3, 3, 1}, {2, 4, 1}, {1, 6, 1}, {2, 2, 2}, {1, 4, 2},
                                    {1, 2, 4}, {1, 1, 8}, {4, 2, 1}, {5, 2, 1}};

/* The product as the kernels compute it. A result of one column is computed as its transpose, a
 * row. */
typedef struct view {
    clt_gemm gemm;
    int64_t a_row, a_column; /* strides of A along its rows and along K */
    bool along_k; /* both operands are contiguous along K: kernel `dots`; otherwise `rows` */
    int bias_step;
} view;

typedef struct choice {
    dot_tile tile;
    int64_t depth, rows, columns, slices; /* of one pass; of a work-group; slices of K */
    double cost;
} choice;

static view view_of(const clt_gemm *gemm)
{
    view v = {.gemm = *gemm, .bias_step = 1};
    clt_gemm *g = &v.gemm;
    v.a_row = gemm->trans_a ? 1 : gemm->lda;
    v.a_column = gemm->trans_a ? gemm->lda : 1;
    if (gemm->n == 1 && gemm->m != 1) {
        g->m = 1;
        g->n = gemm->m;
        g->a = gemm->b;
        g->b = gemm->a;
        g->a_type = gemm->b_type;
        g->b_type = gemm->a_type;
        g->a_step = gemm->b_step;
        g->b_step = gemm->a_step;
        g->ldb = gemm->lda;
        g->trans_b = !gemm->trans_a;
        v.a_row = gemm->trans_b ? gemm->ldb : 1;
        v.a_column = gemm->trans_b ? 1 : gemm->ldb;
        v.bias_step = 0;
    }
    /* A matrix of one column is contiguous along K. */
    v.along_k = v.a_column == 1 && (g->trans_b || (g->n == 1 && g->ldb == 1));
    return v;
}

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int64_t round_up(int64_t a, int64_t b)
{
    return ceil_div(a, b) * b;
}

static double cost_of_dots(const choice *c, int64_t share, int width)
{
    const dot_tile t = c->tile;
    const double cells = COST_OF_STEP * t.rows * t.columns,
                 loads = COST_OF_LOAD * (t.rows + t.columns);
    const double tiles = (double)(ceil_div(c->rows, t.rows) * ceil_div(c->columns, t.columns));
    const double passes = (double)ceil_div(share, c->depth),
                 vectors = (double)ceil_div(share, width);
    return tiles * (vectors * (cells > loads ? cells : loads) +
                    passes * (COST_OF_TILE + COST_OF_LANES * cells)) +
           COST_OF_CACHE * vectors * (double)(c->rows + c->columns);
}

static double cost_of_rows(const choice *c, int64_t share, int width, double of_bytes)
{
    const double memory = of_bytes * width / 8;
    const double vectors = (double)(c->columns / width), rest = (double)(c->columns % width);
    const int rows = c->tile.rows, together = c->tile.unroll;
    return (double)share * (vectors * (memory + rows + 2.0 * rows / together) +
                            COST_OF_SCALAR * rest * rows + COST_OF_TILE / together);
}

/* Estimated cost of the product with the work-groups of `c`, if a large B is in memory or, as the
 * estimates of other variants assume, in a cache. */
static double cost(const view *v, const clt_target *target, const choice *c, bool in_memory)
{
    const clt_gemm *g = &v->gemm;
    const int width = target->caps->vector_width;
    const int64_t share = round_up(ceil_div(clt_gemm_size(g->k, target), c->slices), width);
    const int64_t groups = c->slices * clt_gemm_size(g->pairs, target) *
                           ceil_div(clt_gemm_size(g->m, target), c->rows) *
                           ceil_div(clt_gemm_size(g->n, target), c->columns);
    const int64_t n = clt_gemm_size(g->n, target), k = clt_gemm_size(g->k, target);
    const double of_large = c->columns < n ? COST_OF_PIECES : COST_OF_MEMORY;
    const double of_floats = in_memory && n * k > LARGE ? of_large : COST_OF_CACHE;
    const double of_bytes = clt_is_half(g->b_type) ? of_floats / 2 : of_floats;
    const double one = CLT_COST_OF_GROUP + (v->along_k ? cost_of_dots(c, share, width)
                                                       : cost_of_rows(c, share, width, of_bytes));
    const int64_t units = target->caps->compute_units;
    double all = (double)ceil_div(groups, units) * one + (groups > 1 ? CLT_COST_OF_WAKING : 0);
    /* For few work-groups it may be faster that one unit computes all of them. */
    if (all > (double)groups * one)
        all = (double)groups * one;
    return all + clt_gemm_sum_cost(g, target, c->slices);
}

/* Finds the best numbers of work-groups and slices for a tile. Replaces *best if it costs more. */
static void try_tile(const view *v, const clt_target *target, dot_tile tile, choice *best)
{
    const int64_t m = clt_gemm_size(v->gemm.m, target), n = clt_gemm_size(v->gemm.n, target);
    const int64_t pairs = clt_gemm_size(v->gemm.pairs, target);
    const int64_t most_groups = GROUPS_A_UNIT * (int64_t)target->caps->compute_units;
    const int64_t most_slices = clt_gemm_most_slices(&v->gemm, target);
    const int64_t asked = clt_tile_number(target, "S", 1, most_slices > 1 ? most_slices : 1, 0);
    const int64_t column = v->along_k ? tile.columns : 4 * (int64_t)target->caps->vector_width;
    const int64_t bands = ceil_div(m, tile.rows), panels = ceil_div(n, column);
    for (int64_t s = 1; s == 1 || s <= most_slices; s = clt_gemm_next_slices(s))
        for (int64_t down = 1; down <= bands; down = clt_gemm_next_slices(down))
            for (int64_t across = 1; across <= panels; across = clt_gemm_next_slices(across)) {
                const bool again = m > tile.rows || n > tile.columns;
                choice c = {.tile = tile,
                            .depth = again && m > tile.rows ? SHORT : LONG,
                            .rows = ceil_div(bands, down) * tile.rows,
                            .columns = ceil_div(panels, across) * column,
                            .slices = asked ? asked : s};
                if (c.columns > n)
                    c.columns = n;
                /* Always allow one work-group for each pair, and the requested number of slices. */
                if (c.slices * down * across * pairs > most_groups &&
                    down * across * (asked ? 1 : s) > 1)
                    break;
                c.cost = cost(v, target, &c, true);
                if (!best->slices || c.cost < best->cost)
                    *best = c;
            }
}

static const dot_tile *dot_tiles(const clt_target *target, int *count)
{
    const bool many = target->caps->vector_registers >= 32;
    *count = many ? (int)(sizeof tiles_32 / sizeof *tiles_32)
                  : (int)(sizeof tiles_16 / sizeof *tiles_16);
    return many ? tiles_32 : tiles_16;
}

static choice choose(const view *v, const clt_target *target)
{
    choice best = {.slices = 0};
    if (v->along_k) {
        int count;
        const dot_tile *tiles = dot_tiles(target, &count);
        const int64_t asked = clt_tile_number(target, "DOT", 0, count - 1, -1);
        for (int i = 0; i < count; i++)
            if (asked < 0 || i == asked)
                try_tile(v, target, tiles[i], &best);
        return best;
    }
    const int rows = (int)clt_gemm_size(v->gemm.m, target);
    const bool many = target->caps->vector_registers >= 32;
    const dot_tile tile = {rows, 1, (many ? 16 : 8) / (rows > 2 ? 4 : 2)};
    try_tile(v, target, tile, &best);
    return best;
}

bool clt_gemm_dot_accepts(const clt_gemm *gemm, const clt_node *node, const clt_target *target,
                          char *why)
{
    const view v = view_of(gemm);
    clt_target plain = *target;
    plain.tile = NULL;
    if (!clt_gemm_cpu_accepts(node, target, why))
        return false;
    if (!v.along_k && v.gemm.trans_b)
        return clt_decline(why, "A is not contiguous along K");
    const int64_t m = clt_gemm_size(v.gemm.m, target);
    if (!v.along_k && m > MOST_ROWS)
        return clt_decline(why, "B is not contiguous along K, and the result has %lld rows",
                           (long long)m);
    if (!v.along_k && (gemm->bias >= 0 || gemm->epilogue.activation != CLT_ACTIVATION_NONE))
        return clt_decline(why, "B lies across K, and there is a bias or an activation");
    const choice c = choose(&v, &plain);
    if (cost(&v, &plain, &c, false) >= clt_gemm_tiled_cost(gemm, &plain))
        return clt_decline(why, "tiles that are copied promise to be faster");
    return true;
}

bool clt_gemm_dot_tiles(const clt_node *node, const clt_target *target, int index, char *text)
{
    (void)node;
    enum { SPLITS = 4 };
    int count;
    dot_tiles(target, &count);
    if (index >= SPLITS + count)
        return false;
    if (index < SPLITS)
        snprintf(text, CLT_TILE_TEXT, "S=%d", 1 << index);
    else
        snprintf(text, CLT_TILE_TEXT, "DOT=%d", index - SPLITS);
    return true;
}

static void begin_launch(const view *v, const choice *c, const clt_target *target,
                         clt_program *program)
{
    const int width = target->caps->vector_width;
    char types[CLT_GEMM_OPTIONS];
    clt_gemm_options(&v->gemm, false, types);
    if (v->along_k)
        clt_launch_begin(program, "matmul/cpu/dot.cl", "dots",
                         "-DVW=%d -DMR=%d -DNR=%d -DUK=%d -DKB=%d%s", width, c->tile.rows,
                         c->tile.columns, c->tile.unroll, (int)c->depth, types);
    else
        clt_launch_begin(program, "matmul/cpu/dot.cl", "rows", "-DVW=%d -DMR=%d -DKR=%d -DNB=%d%s",
                         width, c->tile.rows, c->tile.unroll, SUMS / c->tile.rows / width * width,
                         types);
}

void clt_gemm_dot(const clt_gemm *gemm, const clt_target *target, clt_program *program)
{
    const clt_epilogue none = {CLT_ACTIVATION_NONE, 0};
    const view v = view_of(gemm);
    const choice c = choose(&v, target);
    const clt_gemm *g = &v.gemm;
    /* The kernels add in floats. For a result in 16 bits the sums go to scratch memory first, and
     * the last kernel rounds them. */
    const bool split = c.slices > 1 || clt_is_half(gemm->out_type);
    const int block = split ? clt_gemm_sum_block(gemm, target, c.slices, program) : -1;
    begin_launch(&v, &c, target, program);
    clt_launch_packed(program);
    CLT_ARGS(program, CLT_IN(g->a), CLT_IN(g->b), CLT_IN(gemm->bias >= 0 ? gemm->bias : gemm->b));
    if (split)
        CLT_ARGS(program, CLT_SCRATCH(block));
    else
        CLT_ARGS(program, CLT_OUT(gemm->out));
    CLT_ARGS(program, CLT_INT(clt_extent_dim(g->m)), CLT_INT(clt_extent_dim(g->n)),
             CLT_INT(clt_extent_dim(g->k)), CLT_INT(clt_extent_dim(v.a_row)),
             CLT_INT(clt_extent_dim(v.a_column)), CLT_INT(clt_extent_dim(g->ldb)),
             CLT_LONG(clt_extent_dim(g->a_step)), CLT_LONG(clt_extent_dim(g->b_step)),
             CLT_FIXED(c.rows), CLT_FIXED(c.columns), CLT_FIXED(c.slices),
             CLT_FIXED(!split && gemm->bias >= 0), CLT_FIXED(v.bias_step),
             CLT_EPILOGUE(split ? &none : &gemm->epilogue));
    clt_extent layers = clt_extent_dim(g->pairs);
    layers.mul *= c.slices;
    clt_range3(program, clt_extent_ceil(clt_extent_dim(g->n), c.columns, 1),
               clt_extent_ceil(clt_extent_dim(g->m), c.rows, 1), layers, 1, 1, 1);
    if (split)
        clt_gemm_sum(gemm, target, c.slices, block, program);
}
