/* Tile sizes and launches of clkernels/matmul/cpu/gemm.cl. */
#include "ops/matmul/gemm_cpu.h"

#include <stdio.h>

#include "ops/core/nn.h"

/* DEPTH_PACKED: with 16 registers, for a transposed A. The copies of its rows then serve more
 * columns. */
enum {
    DEPTH = 400,
    DEPTH_PACKED = 256,
    LEAST_DEPTH = 16,
    MOST_DEPTH = 512,
    PANELS_WANTED = 2,
    MOST_PACKED_ROWS = 48,
    LEAST_ROWS_AHEAD = 32, /* as in clkernels/matmul/cpu/gemm.cl */
    MOST_ROWS_AHEAD = 1000
};

/* Tiles for 32 and for 16 registers, which hold the accumulators, a row's vectors of B and one
 * value of A. The last tiles are for results with few rows or columns: 8 accumulators hide the
 * latency of the multiplications. */
static const clt_gemm_tile tiles_32[] = {{8, 3},  {6, 4}, {12, 2}, {14, 2},
                                         {24, 1}, {8, 2}, {16, 1}, {8, 1}};
static const clt_gemm_tile tiles_16[] = {{6, 2}, {4, 3}, {12, 1}, {8, 1}, {4, 2}};

const clt_gemm_tile *clt_gemm_cpu_tiles(const clt_caps *caps, int *count)
{
    const bool many = caps->vector_registers >= 32;
    *count = many ? (int)(sizeof tiles_32 / sizeof *tiles_32)
                  : (int)(sizeof tiles_16 / sizeof *tiles_16);
    return many ? tiles_32 : tiles_16;
}

/* How many columns of B fit into the half of local memory that is for B. */
static int64_t columns_of_depth(const clt_caps *caps, int64_t depth)
{
    return caps->local_bytes / 2 / (depth * (int64_t)sizeof(float));
}

/* The largest depth for which local memory suffices. One half must hold a few panels of B. The
 * other half must hold the rows of A, with a cache line of padding for each panel. */
static int64_t depth_for(const clt_target *target, bool trans_a)
{
    const int64_t of_b = PANELS_WANTED * 4 * (int64_t)target->caps->vector_width;
    const int64_t wanted = of_b > MOST_PACKED_ROWS + 16 ? of_b : MOST_PACKED_ROWS + 16;
    int64_t depth = trans_a && target->caps->vector_registers < 32 ? DEPTH_PACKED : DEPTH;
    while (depth > LEAST_DEPTH && columns_of_depth(target->caps, depth) < wanted)
        depth /= 2;
    const int64_t most = columns_of_depth(target->caps, MOST_DEPTH) >= wanted ? MOST_DEPTH : depth;
    return clt_tile_number(target, "KB", LEAST_DEPTH, most, depth);
}

bool clt_gemm_cpu_accepts(const clt_node *node, const clt_target *target, char *why)
{
    const clt_caps *caps = target->caps;
    if (!clt_accepts_cpu_vectors(node, target, why))
        return false;
    if (columns_of_depth(caps, depth_for(target, false)) < 4 * caps->vector_width)
        return clt_decline(why, "%lld bytes of local memory", (long long)caps->local_bytes);
    return true;
}

/* Other tiles, depths and packing choices. The work-groups are divided anew for each. */
bool clt_gemm_cpu_choices(const clt_node *node, const clt_target *target, int index, char *text)
{
    static const char *const choices[] = {"KB=256,TILE=0,TM=512,TN=768",
                                          "TILE=0",
                                          "TILE=1",
                                          "TILE=2",
                                          "TILE=3",
                                          "PB=0",
                                          "PB=1",
                                          "PA=0",
                                          "PA=1",
                                          "PA=0,PB=0",
                                          "PA=1,PB=1",
                                          "PA=1,PB=0",
                                          "G=6",
                                          "G=16",
                                          "G=32",
                                          "KB=256",
                                          "KB=256,TILE=1",
                                          "KB=400",
                                          "KB=512"};
    (void)node;
    (void)target;
    if (index >= (int)(sizeof choices / sizeof *choices))
        return false;
    snprintf(text, CLT_TILE_TEXT, "%s", choices[index]);
    return true;
}

int64_t clt_gemm_size(int64_t dim, const clt_target *target)
{
    const int64_t size = clt_dim(dim, target->max_batch);
    return size > 0 ? size : 1;
}

/* Whether rows evict each other from a cache's sets: at multiples of `distance` bytes they do. */
static bool evicts(int64_t row, int64_t distance)
{
    return row * (int64_t)sizeof(float) % distance == 0;
}

static clt_gemm_work work_of(const clt_gemm *gemm, const clt_target *target, int64_t slices,
                             int64_t most_depth)
{
    /* LARGE_A, LARGE_B: more floats than fit into a core's caches. The others: sizes from which a
     * matrix is read so often that copying it is worth its cost. */
    enum { BAD_FOR_A = 2048, BAD_FOR_A_16 = 512, BAD_FOR_B = 4096, MOST_COLUMNS = 512 };
    enum { FEW_ROWS = 16, MANY_ROWS = 32, MANY_COLUMNS = 128 };
    enum { LARGE_A = 1 << 20, LARGE_B = 1 << 18 };
    const clt_caps *caps = target->caps;
    const int64_t share = (clt_gemm_size(gemm->k, target) + slices - 1) / slices;
    clt_gemm_work w = {.pairs = clt_gemm_size(gemm->pairs, target) * slices,
                       .m = clt_gemm_size(gemm->m, target),
                       .n = clt_gemm_size(gemm->n, target),
                       .k = slices > 1 ? (share + 15) / 16 * 16 : share,
                       .trans_b = gemm->trans_b,
                       .width = caps->vector_width,
                       .units = caps->compute_units,
                       .registers = caps->vector_registers,
                       .least_groups = clt_tile_number(target, "G", 1, 1024, 1)};
    const int64_t passes = (w.k + most_depth - 1) / most_depth;
    w.depth = (w.k + passes - 1) / passes;
    w.room = columns_of_depth(caps, w.depth);
    const int64_t lda = clt_dim(gemm->lda, target->max_batch);
    const int64_t ldb = clt_dim(gemm->ldb, target->max_batch);
    /* 16-bit operands are widened to floats while they are copied. */
    const bool a_half = clt_is_half(gemm->a_type), b_half = clt_is_half(gemm->b_type);
    /* The first caches of processors with 16 registers are small: there, rows that are read in
     * place evict each other at most sizes, which took up to twice as long. For few columns they
     * are not read often enough to be worth a copy. */
    const bool few = caps->vector_registers < 32;
    const bool a_badly = few ? w.n >= MANY_COLUMNS || evicts(lda, BAD_FOR_A_16)
                             : w.m * w.k > LARGE_A || evicts(lda, BAD_FOR_A);
    /* Rows of B that are not whole vectors are unaligned. */
    const bool b_badly = (few && w.m >= FEW_ROWS) || ldb % caps->vector_width ||
                         evicts(ldb, BAD_FOR_B) || (w.m >= MANY_ROWS && w.k * w.n > LARGE_B);
    w.pack_a = gemm->trans_a && (a_half || clt_tile_number(target, "PA", 0, 1, a_badly));
    w.pack_b = gemm->trans_b || b_half || clt_tile_number(target, "PB", 0, 1, b_badly);
    /* Each half of the room must hold a panel of the widest tile. */
    w.ahead = w.pack_b && !gemm->trans_b && !w.pack_a && w.m >= LEAST_ROWS_AHEAD &&
              w.m <= MOST_ROWS_AHEAD && w.room / 2 >= 4 * caps->vector_width;
    /* Stages of columns follow each other, so a work-group may have all columns, rounded up to a
     * panel. Otherwise all must fit: as many as were requested, or a number that was best for most
     * shapes. */
    const int64_t asked = clt_tile_number(target, "TN", 1, w.room, 0);
    const int64_t most = w.room < MOST_COLUMNS ? w.room : MOST_COLUMNS;
    w.most_columns = w.ahead ? w.n + 4 * caps->vector_width : asked > most ? asked : most;
    return w;
}

static clt_gemm_division divide(const clt_gemm_work *work, const clt_target *target,
                                clt_gemm_tile *tile)
{
    int count;
    const clt_gemm_tile *tiles = clt_gemm_cpu_tiles(target->caps, &count);
    const int asked = (int)clt_tile_number(target, "TILE", 0, count - 1, -1);
    /* No more than all rows: rounded up, the number must fit an int. */
    const int64_t rows = clt_tile_number(target, "TM", 1, INT32_MAX, 0);
    const clt_gemm_division d = clt_gemm_divide(
        work, tiles + (asked < 0 ? 0 : asked), asked < 0 ? count : 1,
        rows < work->m ? rows : work->m, clt_tile_number(target, "TN", 1, work->most_columns, 0));
    *tile = tiles[asked < 0 ? d.tile : asked];
    return d;
}

/* How many panels of op(A) are copied together: as many as fill whole cache lines of 16 floats, two
 * at least, if there is room. Local memory holds two such blocks. */
static int panels_of_lines(int rows, const clt_caps *caps, int64_t depth)
{
    enum { LINE = 16 };
    const int64_t room = caps->local_bytes / 4 / (depth * (int64_t)sizeof(float)) - 1; /* padding */
    const int64_t most = room < MOST_PACKED_ROWS ? room : MOST_PACKED_ROWS;
    int count = 1;
    while ((count * rows % LINE || count * rows < 2 * LINE) && (count + 1) * rows <= most)
        count++;
    return count;
}

double clt_gemm_cpu_cost(const clt_gemm *gemm, const clt_target *target, int64_t slices)
{
    const clt_gemm_work work = work_of(gemm, target, slices, depth_for(target, gemm->trans_a));
    clt_gemm_tile tile;
    return divide(&work, target, &tile).cost;
}

void clt_gemm_cpu(const clt_gemm *gemm, const clt_target *target, clt_program *program)
{
    clt_gemm_cpu_slices(gemm, target, 1, -1, program);
}

/* Adds the scratch block `part` of gemm.cl: a tile for each work-group and, if K is divided, the
 * partial sums. */
static int part_block(const clt_gemm_work *work, const clt_gemm_division *d, clt_gemm_tile tile,
                      clt_program *program)
{
    const int64_t groups = work->pairs * ((work->m + d->rows - 1) / d->rows) *
                           ((work->n + d->columns - 1) / d->columns);
    const int64_t sums = work->k > work->depth ? work->pairs * work->m * work->n : 0;
    const int64_t tiles = groups * tile.rows * tile.vectors * work->width;
    return clt_scratch_add(program, clt_fixed((sums + tiles) * (int64_t)sizeof(float)));
}

void clt_gemm_cpu_slices(const clt_gemm *gemm, const clt_target *target, int64_t slices, int block,
                         clt_program *program)
{
    static const char *const kernels[2][2] = {{"gemm_nn", "gemm_nt"}, {"gemm_tn", "gemm_tt"}};
    const clt_epilogue none = {CLT_ACTIVATION_NONE, 0};
    const int64_t most_depth = depth_for(target, gemm->trans_a);
    const clt_gemm_work work = work_of(gemm, target, slices, most_depth);
    clt_gemm_tile tile;
    const clt_gemm_division d = divide(&work, target, &tile);
    const bool narrows = block < 0 && clt_is_half(gemm->out_type);
    const int part = narrows ? part_block(&work, &d, tile, program) : -1;
    char types[CLT_GEMM_OPTIONS];
    clt_launch_begin(
        program, "matmul/cpu/gemm.cl", kernels[gemm->trans_a][gemm->trans_b],
        "-DVW=%d -DMR=%d -DNV=%d -DKB=%d -DB_FLOATS=%d -DNA=%d -DPACK_A=%d -DPACK_B=%d%s%s",
        work.width, tile.rows, tile.vectors, (int)most_depth,
        (int)columns_of_depth(target->caps, 1),
        panels_of_lines(tile.rows, target->caps, most_depth), work.pack_a, work.pack_b,
        clt_gemm_tail(&work, tile, work.n) ? " -DTAIL=1" : "",
        clt_gemm_options(gemm, block < 0, types));
    clt_launch_packed(program);
    CLT_ARGS(program, CLT_IN(gemm->a), CLT_IN(gemm->b),
             CLT_IN(gemm->bias >= 0 ? gemm->bias : gemm->b));
    if (block >= 0)
        CLT_ARGS(program, CLT_SCRATCH(block));
    else
        CLT_ARGS(program, CLT_OUT(gemm->out));
    CLT_ARGS(
        program, CLT_INT(clt_extent_dim(gemm->m)), CLT_INT(clt_extent_dim(gemm->n)),
        CLT_INT(clt_extent_dim(gemm->k)), CLT_INT(clt_extent_dim(gemm->lda)),
        CLT_INT(clt_extent_dim(gemm->ldb)), CLT_LONG(clt_extent_dim(gemm->a_step)),
        CLT_LONG(clt_extent_dim(gemm->b_step)), CLT_FIXED(d.rows), CLT_FIXED(d.columns),
        CLT_FIXED(work.depth), CLT_FIXED(slices), block < 0 ? CLT_RUN(CLT_RUN_ADDS) : CLT_FIXED(0),
        CLT_FIXED(block < 0 && gemm->bias >= 0), CLT_EPILOGUE(block < 0 ? &gemm->epilogue : &none));
    if (narrows)
        CLT_ARGS(program, CLT_SCRATCH(part));
    program->adds_parts = program->adds_parts || (block < 0 && work.k > work.depth);
    clt_extent layers = clt_extent_dim(gemm->pairs);
    layers.mul *= slices;
    clt_range3(program, clt_extent_ceil(clt_extent_dim(gemm->n), d.columns, 1),
               clt_extent_ceil(clt_extent_dim(gemm->m), d.rows, 1), layers, 1, 1, 1);
}
