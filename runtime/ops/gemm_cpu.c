/* Tile sizes and launches of clkernels/cpu/gemm.cl. */
#include "ops/gemm.h"

#include <stdio.h>
#include <string.h>

#include "ops/gemm_gpu.h"
#include "ops/nn.h"

/* Accumulators of MR x NV vectors leave registers for NV vectors of B and one of A. */
typedef struct tile {
    int rows, vectors, depth, panels; /* MR, NV, KB, NP */
    int panel;                        /* columns of a panel: NR */
} tile;

/* Register tiles, as rows x vectors, for 32 and for 16 registers. */
static const int tiles_32[][2] = {{8, 3}, {6, 4}, {12, 2}, {14, 2}, {24, 1}};
static const int tiles_16[][2] = {{6, 2}, {4, 3}, {12, 1}};

/* Instructions of an m x n product in such tiles for each element of K: a multiplication a vector,
 * and a part of one a load. Rows and columns beyond the edge cost as much as others. */
static double tile_cost(const int shape[2], int64_t width, int64_t m, int64_t n)
{
    const int64_t rows = (m + shape[0] - 1) / shape[0];
    const int64_t panels = (n + shape[1] * width - 1) / (shape[1] * width);
    return (double)(rows * panels) * (shape[0] * shape[1] + 0.25 * (shape[0] + shape[1]));
}

static tile tile_for(const clt_target *target, int64_t m, int64_t n)
{
    enum { COLUMNS = 256, LEAST_DEPTH = 16 };
    const clt_caps *caps = target->caps;
    const bool many = caps->vector_registers >= 32;
    const int(*shapes)[2] = many ? tiles_32 : tiles_16;
    const int count = many ? (int)(sizeof tiles_32 / sizeof *tiles_32)
                           : (int)(sizeof tiles_16 / sizeof *tiles_16);
    int best = 0;
    for (int i = 1; i < count; i++)
        if (tile_cost(shapes[i], caps->vector_width, m, n) <
            tile_cost(shapes[best], caps->vector_width, m, n))
            best = i;
    best = (int)clt_tile_number(target, "TILE", 0, count - 1, best);
    tile t = {.rows = shapes[best][0], .vectors = shapes[best][1], .depth = 256};
    t.depth = (int)clt_tile_number(target, "KB", LEAST_DEPTH, 4096, t.depth);
    t.panel = t.vectors * caps->vector_width;
    /* The panels may take half of the local memory. */
    const int64_t room = caps->local_bytes / 2 / (t.panel * (int64_t)sizeof(float));
    while (t.depth > LEAST_DEPTH && t.depth > room)
        t.depth /= 2;
    t.panels = (int)(room / t.depth);
    if (t.panels > COLUMNS / t.panel)
        t.panels = COLUMNS / t.panel;
    return t;
}

bool clt_gemm_cpu_accepts(const clt_node *node, const clt_target *target, char *why)
{
    const clt_caps *caps = target->caps;
    if (!clt_all_plain(node))
        return clt_decline(why, "values lie in lanes");
    if (!clt_caps_is_cpu(caps))
        return clt_decline(why, "made for CPUs");
    if (caps->vector_width != 4 && caps->vector_width != 8 && caps->vector_width != 16)
        return clt_decline(why, "vectors of %d floats", caps->vector_width);
    if (tile_for(target, 1, 1).panels < 1)
        return clt_decline(why, "%lld bytes of local memory", (long long)caps->local_bytes);
    return true;
}

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int64_t round_up(int64_t a, int64_t b)
{
    return ceil_div(a, b) * b;
}

/* Whether so many groups of one size keep all units busy, but for a tenth of the time. */
static bool even(int64_t groups, int64_t units)
{
    return groups >= units && 10 * ceil_div(groups, units) * units <= 11 * groups;
}

/* Rows and columns of a work-group: as large as caches like them, but smaller until every compute
 * unit has a few or just as many as others; then all of about one size. */
static void group_size(int64_t m, int64_t n, const tile *t, const clt_target *target, int64_t *rows,
                       int64_t *columns)
{
    enum { MOST_ROWS = 264, GROUPS_A_UNIT = 4 };
    const int64_t wanted = (int64_t)GROUPS_A_UNIT * target->caps->compute_units;
    const int64_t most_columns = t->panels * (int64_t)t->panel;
    *rows = clt_tile_number(target, "TM", 1, INT32_MAX, 0);
    *columns = clt_tile_number(target, "TN", 1, most_columns, 0);
    if (*rows && *columns) {
        *rows = round_up(*rows, t->rows);
        *columns = round_up(*columns, t->panel);
        return;
    }
    int64_t r = round_up(m < MOST_ROWS ? m : MOST_ROWS, t->rows);
    int64_t c = round_up(n, t->panel);
    if (c > most_columns)
        c = most_columns;
    while (ceil_div(m, r) * ceil_div(n, c) < wanted) {
        /* Every group copies its part of B: with few rows that is much of the work. */
        if (even(ceil_div(m, r) * ceil_div(n, c), target->caps->compute_units))
            break;
        if (c > 2 * t->panel)
            c = round_up(c / 2, t->panel);
        else if (r > 4 * t->rows)
            r = round_up(r / 2, t->rows);
        else if (c > t->panel)
            c = t->panel;
        else if (r > t->rows)
            r = round_up(r / 2, t->rows);
        else
            break;
    }
    *rows = round_up(ceil_div(m, ceil_div(m, r)), t->rows);
    *columns = round_up(ceil_div(n, ceil_div(n, c)), t->panel);
}

/* Other register tiles and depths, with work-groups of the size that group_size chooses or larger
 * and smaller ones. */
bool clt_gemm_tiles(const clt_node *node, const clt_variant *variant, const clt_target *target,
                    int index, char *text)
{
    static const int16_t choices[][4] = {/* TILE, TM, TN, KB; TM 0: group_size's */
                                         {0, 0, 0, 256},     {1, 0, 0, 256},   {2, 0, 0, 256},
                                         {0, 0, 0, 512},     {0, 64, 96, 256}, {0, 128, 96, 256},
                                         {0, 256, 192, 256}, {1, 60, 64, 256}, {1, 120, 64, 256}};
    (void)node;
    if (!strcmp(variant->name, "gemm_gpu"))
        return clt_gpu_tiles(target, index, text);
    if (strcmp(variant->name, "gemm_cpu") || index >= (int)(sizeof choices / sizeof *choices))
        return false;
    const int16_t *c = choices[index];
    int used = snprintf(text, CLT_TILE_TEXT, "TILE=%d,KB=%d", c[0], c[3]);
    if (c[1])
        snprintf(text + used, (size_t)(CLT_TILE_TEXT - used), ",TM=%d,TN=%d", c[1], c[2]);
    return true;
}

void clt_gemm_cpu(const clt_gemm *gemm, const clt_target *target, clt_program *program)
{
    static const char *const kernels[2][2] = {{"gemm_nn", "gemm_nt"}, {"gemm_tn", "gemm_tt"}};
    int64_t m = clt_dim(gemm->m, target->max_batch), n = clt_dim(gemm->n, target->max_batch);
    const tile t = tile_for(target, m, n);
    int64_t rows, columns;
    group_size(m > 0 ? m : 1, n > 0 ? n : 1, &t, target, &rows, &columns);
    clt_launch_begin(program, "cpu/gemm.cl", kernels[gemm->trans_a][gemm->trans_b],
                     "-DVW=%d -DMR=%d -DNV=%d -DKB=%d -DNP=%d", target->caps->vector_width, t.rows,
                     t.vectors, t.depth, t.panels);
    clt_arg_in(program, gemm->a);
    clt_arg_in(program, gemm->b);
    clt_arg_in(program, gemm->bias >= 0 ? gemm->bias : gemm->b);
    clt_arg_out(program, gemm->out);
    clt_arg_int(program, clt_extent_dim(gemm->m));
    clt_arg_int(program, clt_extent_dim(gemm->n));
    clt_arg_int(program, clt_extent_dim(gemm->k));
    clt_arg_int(program, clt_extent_dim(gemm->lda));
    clt_arg_int(program, clt_extent_dim(gemm->ldb));
    clt_arg_int(program, clt_fixed(rows));
    clt_arg_int(program, clt_fixed(columns));
    clt_arg_int(program, clt_fixed(gemm->bias >= 0));
    clt_arg_epilogue(program, &gemm->epilogue);
    clt_range3(program, clt_extent_ceil(clt_extent_dim(gemm->n), columns, 1),
               clt_extent_ceil(clt_extent_dim(gemm->m), rows, 1), clt_fixed(1), 1, 1, 1);
}
