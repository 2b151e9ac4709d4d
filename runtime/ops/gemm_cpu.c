/* Tile sizes and launches of clkernels/cpu/gemm.cl. */
#include "ops/gemm.h"
#include "ops/nn.h"

/* Accumulators of MR x NV vectors leave registers for NV vectors of B and one of A. */
typedef struct tile {
    int rows, vectors, depth; /* MR, NV, KB */
} tile;

static tile tile_for(const clt_caps *caps)
{
    tile t = caps->vector_registers >= 32 ? (tile){8, 3, 256} : (tile){6, 2, 256};
    /* The panel may take half of the local memory. */
    while (t.depth > 16 && t.depth * t.vectors * caps->vector_width * (int64_t)sizeof(float) * 2 >
                               caps->local_bytes)
        t.depth /= 2;
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
    if (tile_for(caps).depth <= 16)
        return clt_decline(why, "%lld bytes of local memory", (long long)caps->local_bytes);
    return true;
}

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Rows and columns of a work-group: as large as caches like them, but smaller until every compute
 * unit has a few. */
static void group_size(int64_t m, int64_t n, const tile *t, const clt_target *target, int64_t *rows,
                       int64_t *columns)
{
    enum { MOST_ROWS = 264, PANELS = 2, GROUPS_A_UNIT = 4 };
    const int64_t panel = t->vectors * target->caps->vector_width;
    const int64_t wanted = (int64_t)GROUPS_A_UNIT * target->caps->compute_units;
    int64_t parts = ceil_div(m, MOST_ROWS);
    *columns = PANELS * panel;
    if (parts * ceil_div(n, *columns) < wanted)
        *columns = panel;
    while (parts * ceil_div(n, *columns) < wanted && ceil_div(m, parts) > 2 * t->rows)
        parts++;
    *rows = ceil_div(ceil_div(m, parts), t->rows) * t->rows;
}

void clt_gemm_cpu(const clt_gemm *gemm, const clt_target *target, clt_program *program)
{
    static const char *const kernels[2][2] = {{"gemm_nn", "gemm_nt"}, {"gemm_tn", "gemm_tt"}};
    const tile t = tile_for(target->caps);
    int64_t m = clt_dim(gemm->m, target->max_batch), n = clt_dim(gemm->n, target->max_batch);
    int64_t rows, columns;
    group_size(m > 0 ? m : 1, n > 0 ? n : 1, &t, target, &rows, &columns);
    clt_launch_begin(program, "cpu/gemm.cl", kernels[gemm->trans_a][gemm->trans_b],
                     "-DVW=%d -DMR=%d -DNV=%d -DKB=%d", target->caps->vector_width, t.rows,
                     t.vectors, t.depth);
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
