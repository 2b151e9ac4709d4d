/* Tiles and build options of kernels that use matrix units. */
#include "ops/core/matrix_unit.h"

#include <stdio.h>

#include "ops/core/nn.h"

clt_matrix_shape clt_matrix_shape_of(const clt_caps *caps)
{
    static const clt_matrix_shape shapes[] = {[CLT_MATRIX_MMA] = {32, 16, 8, 16},
                                              [CLT_MATRIX_MFMA] = {64, 16, 16, 16},
                                              [CLT_MATRIX_WMMA] = {32, 16, 16, 16}};
    return shapes[caps->matrix.kind];
}

bool clt_matrix_accepts(const clt_node *node, clt_dtype type, const clt_target *target, char *why)
{
    const clt_caps *caps = target->caps;
    if (!clt_all_plain(node))
        return clt_decline(why, "values are batch-blocked");
    if (clt_caps_is_cpu(caps))
        return clt_decline(why, "made for GPUs");
    if (!clt_is_half(type))
        return clt_decline(why, "matrix units multiply f16 and bf16, and all operands are f32");
    if (caps->matrix.kind == CLT_MATRIX_NONE ||
        !(type == CLT_F16 ? caps->matrix.f16 : caps->matrix.bf16))
        return clt_decline(why, "a probe found no matrix unit for %s", clt_dtype_name(type));
    return true;
}

bool clt_matrix_is_asked_for(const clt_node *node, const clt_target *target,
                             void (*emit)(const clt_node *, const clt_target *, clt_program *))
{
    const clt_variant *wanted = clt_variant_wanted(node->op, target->variants);
    return wanted && wanted->emit == emit;
}

const char *clt_matrix_options(const clt_caps *caps, clt_dtype type, char *text)
{
    static const char *const names[] = {"", "MMA", "MFMA", "WMMA"};
    snprintf(text, CLT_MATRIX_OPTIONS, "-DUNIT_%s -DUNIT_T=%s%s", names[caps->matrix.kind],
             clt_storage_name(type), caps->matrix.emulated ? " -DUNIT_EMULATED" : "");
    return text;
}

/* Large tiles read less memory. Small tiles keep the device busy in small products. Warps of 64
 * lanes fit work-groups of 256 up to four times. */
static const clt_matrix_tile tiles[] = {
    {128, 128, 32, 2, 4}, {128, 128, 32, 2, 2}, {128, 128, 16, 2, 2},
    {128, 64, 32, 2, 2},  {64, 128, 32, 2, 2},  {64, 64, 32, 2, 2},
    {64, 32, 32, 2, 1},   {32, 64, 32, 1, 2},   {32, 32, 32, 1, 1},
};
enum { TILES = sizeof tiles / sizeof *tiles };

int clt_matrix_tile_threads(const clt_matrix_tile *t, const clt_caps *caps)
{
    return t->down * t->across * clt_matrix_shape_of(caps).lanes;
}

static int64_t local_bytes(const clt_matrix_tile *t, const clt_caps *caps)
{
    enum { PADDING = 8, TYPE = 2 };
    const clt_matrix_shape s = clt_matrix_shape_of(caps);
    const int64_t scratch =
        (int64_t)t->down * t->across * 2 * s.k * (s.m + s.n) * (int64_t)sizeof(float);
    return (int64_t)2 * (t->rows + t->columns) * (t->depth + PADDING) * TYPE +
           (caps->matrix.emulated ? scratch : 0);
}

/* The sums of a warp: more of them need fewer loads of fragments from local memory. */
static int64_t own_sums(const clt_matrix_tile *t)
{
    return (int64_t)t->rows * t->columns / (t->down * t->across);
}

/* Whether work-items have registers for their sums and for what they load. Both halves of an RDNA
 * warp hold copies of A and B. Single elements need a register each, and their places others. */
static bool registers_suffice(const clt_matrix_tile *t, const clt_caps *caps,
                              clt_matrix_loads loads)
{
    const bool wmma = caps->matrix.kind == CLT_MATRIX_WMMA;
    if (wmma && own_sums(t) > (loads == CLT_LOADS_GATHERED ? 1024 : 2048))
        return false;
    if (wmma && loads == CLT_LOADS_SINGLE)
        return (t->rows + t->columns) * t->depth / clt_matrix_tile_threads(t, caps) < 64;
    return wmma || loads == CLT_LOADS_VECTORS || own_sums(t) < 4096;
}

static bool tile_fits(const clt_matrix_tile *t, const clt_caps *caps, clt_matrix_loads loads)
{
    enum { ASIDE = 1024, ENTRY = 16 }; /* ASIDE: local memory that the driver uses besides */
    return registers_suffice(t, caps, loads) &&
           clt_matrix_tile_threads(t, caps) <= caps->max_work_group &&
           local_bytes(t, caps) + (loads == CLT_LOADS_GATHERED ? 2 * t->depth * ENTRY : 0) +
                   ASIDE <=
               caps->local_bytes;
}

bool clt_matrix_tile_exists(const clt_caps *caps, clt_matrix_loads loads)
{
    for (int i = 0; i < TILES; i++)
        if (tile_fits(&tiles[i], caps, loads))
            return true;
    return false;
}

/* What a tile reaches of the best tile's rate, judged by its loads. On AMD, groups that need more
 * than half of the local memory have no neighbour on their compute unit to hide its latency. */
static double speed_of(const clt_matrix_tile *t, const clt_caps *caps)
{
    double speed = (double)t->rows * t->columns / (t->rows + t->columns) / 64;
    speed = speed > 0.9 ? 1 : 0.45 + 0.5 * speed;
    if (own_sums(t) < 2048)
        speed *= 0.85;
    if (2 * local_bytes(t, caps) > caps->local_bytes && caps->matrix.kind != CLT_MATRIX_MMA)
        speed *= 0.7;
    return speed;
}

/*
 * Estimated time, in multiplications of all the device's matrix units. It includes what tiles
 * compute beyond the result's edge, and how much of the device is idle. A compute unit needs
 * THREADS work-items to hide its latencies. Slices are written and read again and cost one more
 * launch; both take as long as so many multiplications.
 */
static double cost(const clt_matrix_tile *t, int64_t slices, int64_t m, int64_t n, int64_t k,
                   int64_t batches, const clt_caps *caps)
{
    enum { THREADS = 256, SLICE = 400, LAUNCH = 2400000 };
    const double units = caps->compute_units > 0 ? caps->compute_units : 1;
    const int64_t groups = clt_ceil_div(m, t->rows) * clt_ceil_div(n, t->columns) * batches;
    const double threads = (double)(groups * slices * clt_matrix_tile_threads(t, caps));
    const double busy = threads / (THREADS * units);
    const double work = (double)(groups * t->rows * t->columns) *
                        (double)(clt_ceil_div(k, slices * t->depth) * slices * t->depth);
    double all = work / speed_of(t, caps) / (busy < 1 ? busy : 1);
    if (slices > 1)
        all += (double)(batches * slices * m * n) * SLICE + LAUNCH * units;
    return all;
}

clt_matrix_choice clt_matrix_choose(int64_t m, int64_t n, int64_t k, int64_t batches,
                                    clt_matrix_loads loads, const clt_target *target)
{
    enum { MOST_SLICES = 64, LEAST_DEPTH = 128 };
    const int64_t tile = clt_tile_number(target, "TILE", 1, TILES, 0);
    const int64_t wanted = clt_tile_number(target, "S", 1, MOST_SLICES, 0);
    clt_matrix_choice best = {.slices = 0};
    double least = 0;
    for (int pass = 0; pass < 2 && !best.slices; pass++)
        for (int i = 0; i < TILES; i++) {
            const clt_matrix_tile *t = &tiles[i];
            if (!tile_fits(t, target->caps, loads) || (!pass && tile && tile != i + 1))
                continue;
            for (int64_t s = 1; s <= MOST_SLICES && (s == 1 || k / s >= LEAST_DEPTH); s *= 2) {
                const double c = cost(t, s, m, n, k, batches, target->caps);
                if ((!pass && wanted && s != wanted) || (best.slices && c >= least))
                    continue;
                best = (clt_matrix_choice){*t, s};
                least = c;
            }
        }
    return best;
}

static bool write_tile(const clt_target *target, clt_matrix_loads loads, int index, char *text)
{
    static const int slices[] = {1, 4, 16};
    int fitting = 0;
    for (int i = 0; i < TILES; i++) {
        if (!tile_fits(&tiles[i], target->caps, loads))
            continue;
        for (int s = 0; s < 3; s++)
            if (fitting++ == index) {
                snprintf(text, CLT_TILE_TEXT, "TILE=%d,S=%d", i + 1, slices[s]);
                return true;
            }
    }
    return false;
}

bool clt_matrix_tiles(const clt_node *node, const clt_target *target, int index, char *text)
{
    (void)node;
    return write_tile(target, CLT_LOADS_VECTORS, index, text);
}

bool clt_matrix_gather_tiles(const clt_node *node, const clt_target *target, int index, char *text)
{
    (void)node;
    return write_tile(target, CLT_LOADS_GATHERED, index, text);
}

const char *clt_matrix_tile_options(const clt_matrix_tile *t, char *text)
{
    snprintf(text, CLT_MATRIX_TILE_OPTIONS, "-DTM=%d -DTN=%d -DTK=%d -DDOWN=%d -DACROSS=%d",
             t->rows, t->columns, t->depth, t->down, t->across);
    return text;
}
