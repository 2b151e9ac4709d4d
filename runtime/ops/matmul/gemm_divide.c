/* Chooses register tiles and work-groups of a product on CPUs by estimating their time. */
#include "base/hash.h"
#include "ops/matmul/gemm_cpu.h"

/* More costs like those of gemm_cpu.h, fitted to the rates of products of 128 to 2048 rows. */
#define COST_OF_LOAD 0.15     /* loading an operand of a register tile, with 32 registers */
#define COST_OF_SPILLS 1.25   /* beyond MOST_ROWS rows there are too few registers */
#define COST_OF_STORE 4.0     /* a vector of the result, loaded, added and stored */
#define COST_OF_TILE 60.0     /* overhead of a tile's loop */
#define COST_OF_COPY 1.0      /* copying an element of B into a panel */
#define COST_OF_TRANSPOSE 1.0 /* the same with a transposed B */
#define COST_AHEAD 0.35       /* part of these costs if tiles before copy it */
#define COST_OF_ROW 0.5       /* first read of an element of A by a work-group, without packing */
#define COST_OF_GATHERING 1.6 /* the same with packing into panels, from rows far apart */
#define COST_OF_MISSING_GROUP 1e15 /* more than any product costs: a last resort */

/* With 16 registers, which processors with vectors of 256 bits have: one operand is loaded for each
 * multiplication or two, and loads take as long as multiplications. */
#define COST_OF_CELL_16 0.63
#define COST_OF_LOAD_16 0.7
#define COST_OF_FULL_16 1.09 /* a tile that needs all registers has none to load ahead into */

enum { MOST_UNITS = 256, MOST_ROWS = 12 };

static int64_t round_up(int64_t a, int64_t b)
{
    return clt_ceil_div(a, b) * b;
}

/* Cost of one element of K in a register tile. */
static double cost_of_step(const clt_gemm_work *w, clt_gemm_tile t)
{
    const double cells = t.rows * t.vectors, loads = t.rows + t.vectors;
    const bool spills = t.rows > MOST_ROWS && t.vectors > 1;
    if (w->registers != 16)
        return (cells + COST_OF_LOAD * loads) * (spills ? COST_OF_SPILLS : 1);
    const bool full = t.rows * t.vectors + t.vectors + 1 == 16;
    return (COST_OF_CELL_16 * cells + COST_OF_LOAD_16 * loads) * (full ? COST_OF_FULL_16 : 1);
}

/* Fewer accumulators do not hide the latency of the multiplications. */
enum { LEAST_CELLS = 8 };

/* Cost of a register tile for all of K. */
static double cost_of_tile(const clt_gemm_work *w, clt_gemm_tile t)
{
    const double passes = (double)clt_ceil_div(w->k, w->depth), cells = t.rows * t.vectors;
    const double waits = cells < LEAST_CELLS ? LEAST_CELLS / cells : 1;
    return (double)w->k * cost_of_step(w, t) * waits +
           passes * (COST_OF_STORE * cells + COST_OF_TILE);
}

int64_t clt_gemm_tail(const clt_gemm_work *w, clt_gemm_tile t, int64_t columns)
{
    return clt_ceil_div(columns, w->width) % t.vectors;
}

/* Whether a work-group's columns are computed in several stages, of which each but the first is
 * copied by the tiles of the one before (gemm.cl). */
static bool in_stages(const clt_gemm_work *w, int64_t columns)
{
    return w->ahead && (w->k > w->depth || columns > w->room);
}

/* Cost of copying a work-group's columns of B. The tiles of few rows have not the time to fetch all
 * that they copy. */
static double cost_of_copies(const clt_gemm_work *w, int64_t rows, int64_t columns)
{
    enum { ENOUGH_ROWS = 96 };
    const double all = (double)w->k * (double)columns, one = (double)w->depth * (double)w->room / 2;
    const double later = in_stages(w, columns) && all > one ? all - one : 0;
    const double hidden =
        (1 - COST_AHEAD) * (double)(rows < ENOUGH_ROWS ? rows : ENOUGH_ROWS) / ENOUGH_ROWS;
    return (w->trans_b ? COST_OF_TRANSPOSE : COST_OF_COPY) * (all - hidden * later);
}

/* How often a work-group reads its rows of A from memory: for each chunk of columns, if the caches
 * do not keep them for so long. Local memory is about a core's cache, and half of it is for B. */
static int64_t reads_of_a(const clt_gemm_work *w, int64_t rows, int64_t columns)
{
    return in_stages(w, columns) && rows > w->room ? clt_ceil_div(2 * columns, w->room) : 1;
}

/* Cost of a work-group with so many rows and columns of the result. */
static double cost_of_group(const clt_gemm_work *w, clt_gemm_tile t, int64_t rows, int64_t columns)
{
    const int64_t panels = clt_ceil_div(columns, t.vectors * (int64_t)w->width);
    const int64_t tail = clt_gemm_tail(w, t, columns);
    const double bands = (double)clt_ceil_div(rows, t.rows), k = (double)w->k;
    double cost = bands * ((double)(panels - (tail > 0)) * cost_of_tile(w, t) +
                           (double)tail * cost_of_tile(w, (clt_gemm_tile){t.rows, 1}));
    const int64_t padded = panels * t.vectors * w->width;
    cost += w->pack_b ? cost_of_copies(w, rows, padded) : CLT_COST_OF_READING * k * (double)padded;
    cost += (w->pack_a ? COST_OF_GATHERING : COST_OF_ROW) * k * (double)rows *
            (double)reads_of_a(w, rows, padded);
    return cost + CLT_COST_OF_GROUP;
}

/* Time until the last unit is done. It models dynamic scheduling as in PoCL and Intel's runtime: an
 * idle thread takes a share of the remaining work-groups. */
static double makespan(const clt_gemm_work *w, clt_gemm_tile t, int64_t rows, int64_t columns)
{
    const int units = w->units < MOST_UNITS ? w->units : MOST_UNITS;
    const int64_t down = clt_ceil_div(w->m, rows), across = clt_ceil_div(w->n, columns);
    const int64_t last_rows = w->m - (down - 1) * rows;
    const int64_t last_columns = w->n - (across - 1) * columns;
    const double cost[2][2] = {
        {cost_of_group(w, t, rows, columns), cost_of_group(w, t, rows, last_columns)},
        {cost_of_group(w, t, last_rows, columns), cost_of_group(w, t, last_rows, last_columns)}};
    double busy[MOST_UNITS], longest = 0;
    for (int u = 0; u < units; u++)
        busy[u] = u ? CLT_COST_OF_WAKING : 0;
    const int64_t a_pair = down * across, groups = a_pair * w->pairs;
    for (int64_t next = 0; next < groups;) {
        int idle = 0;
        for (int u = 1; u < units; u++)
            if (busy[u] < busy[idle])
                idle = u;
        for (int64_t take = clt_ceil_div(groups - next, units); take > 0; take--, next++) {
            const int64_t y = next % a_pair / across, x = next % across;
            busy[idle] += cost[y == down - 1][x == across - 1];
        }
        longest = busy[idle] > longest ? busy[idle] : longest;
    }
    return longest;
}

/* The next number of work-groups along one side to try: 1, 2, 3, 4, 6, 8, 12, ... */
static int64_t next_count(int64_t count)
{
    int64_t power = 1;
    while (2 * power <= count)
        power *= 2;
    return count < power + power / 2 ? power + power / 2 : 2 * power;
}

static clt_gemm_division divide(const clt_gemm_work *w, const clt_gemm_tile *tiles, int count,
                                int64_t rows, int64_t columns)
{
    /* More work-groups than this do not balance the load better. */
    const int64_t most_groups = 64 * (int64_t)w->units;
    clt_gemm_division best = {.cost = -1};
    for (int i = 0; i < count; i++) {
        const int64_t panel = tiles[i].vectors * (int64_t)w->width;
        const int64_t bands = clt_ceil_div(w->m, tiles[i].rows), panels = clt_ceil_div(w->n, panel);
        const int64_t room = w->most_columns / panel > 0 ? w->most_columns / panel : 1;
        for (int64_t down = 1; down <= bands; down = next_count(down)) {
            for (int64_t across = clt_ceil_div(panels, room); across <= panels;
                 across = next_count(across)) {
                clt_gemm_division d = {.tile = i,
                                       .rows = clt_ceil_div(bands, down) * tiles[i].rows,
                                       .columns = clt_ceil_div(panels, across) * panel};
                if (rows)
                    d.rows = round_up(rows, tiles[i].rows);
                if (columns)
                    d.columns = clt_ceil_div(columns, panel) < room ? round_up(columns, panel)
                                                                    : room * panel;
                const int64_t groups =
                    clt_ceil_div(w->m, d.rows) * clt_ceil_div(w->n, d.columns) * w->pairs;
                if (best.cost >= 0 && groups > most_groups && down * across > 1 &&
                    across > clt_ceil_div(panels, room))
                    break;
                d.cost = makespan(w, tiles[i], d.rows, d.columns);
                if (groups < w->least_groups)
                    d.cost += COST_OF_MISSING_GROUP * (double)(w->least_groups - groups);
                if (best.cost < 0 || d.cost < best.cost)
                    best = d;
                if (columns)
                    break;
            }
            if (rows || (down > 1 && down * clt_ceil_div(panels, room) * w->pairs > most_groups))
                break;
        }
    }
    return best;
}

/* Layers of a model often have equal products, and a plan asks for each several times. */
clt_gemm_division clt_gemm_divide(const clt_gemm_work *w, const clt_gemm_tile *tiles, int count,
                                  int64_t rows, int64_t columns)
{
    enum { REMEMBERED = 64 };
    static _Thread_local struct {
        uint64_t key;
        clt_gemm_division division;
    } memory[REMEMBERED];
    const int64_t numbers[] = {
        w->pairs,  w->m,      w->n,         w->k,     w->depth,        w->trans_b,
        w->pack_a, w->pack_b, w->width,     w->units, w->most_columns, w->least_groups,
        rows,      columns,   w->registers, w->room,  w->ahead};
    const uint64_t hash =
        clt_hash(tiles, (size_t)count * sizeof *tiles, clt_hash(numbers, sizeof numbers, 0));
    const uint64_t key = hash ? hash : 1;
    const size_t at = key % REMEMBERED;
    if (memory[at].key != key) {
        memory[at].division = divide(w, tiles, count, rows, columns);
        memory[at].key = key;
    }
    return memory[at].division;
}
