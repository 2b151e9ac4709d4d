/* Tile sizes and launches of clkernels/cpu/gemm.cl. */
#include "ops/gemm.h"

#include <stdio.h>
#include <string.h>

#include "ops/nn.h"

/* Accumulators of MR x NV vectors leave registers for NV vectors of B and one of A. */
typedef struct tile {
    int rows, vectors, depth, panels; /* MR, NV, KB, NP */
    int panel;                        /* columns of a panel: NR */
} tile;

static tile tile_for(const clt_target *target)
{
    enum { COLUMNS = 128, LEAST_DEPTH = 16 };
    const clt_caps *caps = target->caps;
    tile t = caps->vector_registers >= 32 ? (tile){.rows = 8, .vectors = 3, .depth = 256}
                                          : (tile){.rows = 6, .vectors = 2, .depth = 256};
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
    if (tile_for(target).panels < 1)
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

/* Rows and columns of a work-group: as large as caches like them, but smaller until every compute
 * unit has a few; then all of about one size. */
static void group_size(int64_t m, int64_t n, bool trans_a, const tile *t, const clt_target *target,
                       int64_t *rows, int64_t *columns)
{
    enum { MOST_ROWS = 264, FEW_ROWS = 72, GROUPS_A_UNIT = 4 };
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
        /* A strip of a transposed A is copied for all columns of a group: rows go first. */
        if (trans_a && r > FEW_ROWS)
            r = round_up(r / 2, t->rows);
        else if (c > 2 * t->panel)
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

/* Work-groups of other sizes than group_size chooses, and other depths. */
bool clt_gemm_tiles(const clt_node *node, const clt_variant *variant, const clt_target *target,
                    int index, char *text)
{
    (void)node;
    if (strcmp(variant->name, "gemm_cpu"))
        return false;
    static const int16_t sizes[][3] = {{32, 1, 256},  {64, 1, 256},  {128, 1, 256}, {32, 2, 256},
                                       {64, 2, 256},  {128, 2, 256}, {256, 2, 256}, {64, 2, 512},
                                       {128, 1, 512}, {256, 1, 128}};
    if (index >= (int)(sizeof sizes / sizeof *sizes))
        return false;
    snprintf(text, CLT_TILE_TEXT, "TM=%d,TN=%d,KB=%d", sizes[index][0],
             sizes[index][1] * tile_for(target).panel, sizes[index][2]);
    return true;
}

void clt_gemm_cpu(const clt_gemm *gemm, const clt_target *target, clt_program *program)
{
    static const char *const kernels[2][2] = {{"gemm_nn", "gemm_nt"}, {"gemm_tn", "gemm_tt"}};
    const tile t = tile_for(target);
    int64_t m = clt_dim(gemm->m, target->max_batch), n = clt_dim(gemm->n, target->max_batch);
    int64_t rows, columns;
    group_size(m > 0 ? m : 1, n > 0 ? n : 1, gemm->trans_a, &t, target, &rows, &columns);
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
