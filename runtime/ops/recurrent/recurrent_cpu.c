/* Launches of clkernels/recurrent/cpu/recurrent.cl. */
#include "ops/recurrent/recurrent.h"

/* Accumulators of a tile, for 32 and for 16 vector registers. */
enum { TILE_32 = 24, TILE_16 = 12 };

typedef struct tile {
    int rows, vectors;
} tile;

static int tile_room(const clt_target *target)
{
    return target->caps->vector_registers >= 32 ? TILE_32 : TILE_16;
}

/* A panel holds the gates of a vector of units. */
static tile forward_tile(const clt_recurrent_shape *s, const clt_target *target)
{
    /* With 16 registers, 3 rows of 4 vectors would leave no register for an element of a row. */
    const int rows = tile_room(target) / s->gates;
    return (tile){rows == 3 ? 2 : rows, s->gates};
}

/* The number of vectors that leaves the fewest unused units. With few rows, a tile would read its
 * panel too often. */
static tile backward_tile(const clt_recurrent_shape *s, const clt_target *target)
{
    enum { MOST = 4 };
    const int width = target->caps->vector_width, units = (s->hidden + width - 1) / width;
    int best = 1, least = 0;
    for (int v = tile_room(target) >= TILE_32 ? MOST : MOST - 1; v >= 1; v--) {
        const int all = (units + v - 1) / v * v;
        if (!least || all < least) {
            best = v;
            least = all;
        }
    }
    return (tile){tile_room(target) / best, best};
}

/* Samples of a work-group: an equal share for each compute unit, but no more than MOST, so that
 * their states stay in its cache. */
static int64_t share_of(const clt_recurrent_shape *s, const clt_target *target)
{
    enum { MOST = 48 };
    const int64_t units = target->caps->compute_units, batch = clt_dim(s->batch, target->max_batch);
    const int64_t rounds = (batch + units * MOST - 1) / (units * MOST);
    const int64_t groups = units * (rounds > 0 ? rounds : 1);
    const int64_t share = (batch + groups - 1) / groups;
    return share > 0 ? share : 1;
}

static int64_t pitch(int64_t n, const tile *t, const clt_target *target)
{
    const int64_t panel = (int64_t)t->vectors * target->caps->vector_width;
    return (n + panel - 1) / panel * panel + 16;
}

bool clt_recurrent_cpu_accepts(const clt_node *node, const clt_target *target, char *why)
{
    return clt_accepts_cpu_vectors(node, target, why);
}

static void begin(clt_program *p, const char *kernel, const clt_recurrent_shape *s, const tile *t,
                  const clt_target *target, bool forward)
{
    clt_launch_begin(p, "recurrent/cpu/recurrent.cl", kernel,
                     "-DFORWARD=%d -DGATES=%d -DVW=%d -DMR=%d -DNV=%d", forward, s->gates,
                     target->caps->vector_width, t->rows, t->vectors);
}

/* Packs the weights into panels in a scratch block and returns its index. */
static int pack(const clt_recurrent_shape *s, const tile *t, const clt_target *target,
                clt_program *p, bool forward)
{
    const int64_t columns = (int64_t)(forward ? 1 : t->vectors) * target->caps->vector_width;
    const int64_t panels = (s->hidden + columns - 1) / columns;
    const int64_t floats = panels * columns * s->gates * s->hidden;
    const int block = clt_scratch_add(p, clt_fixed(floats * (int64_t)sizeof(float)));
    begin(p, forward ? "pack_gates" : "pack_units", s, t, target, forward);
    CLT_ARGS(p, CLT_IN(forward ? CLT_RNN_W : CLT_RNN_GRAD_W), CLT_SCRATCH(block),
             CLT_FIXED(s->hidden));
    clt_range3(p, clt_fixed(panels), clt_fixed(s->gates), clt_fixed(1), 1, 1, 1);
    return block;
}

/* Adds scratch memory for `floats` of each sample, for whole work-groups. */
static int states(const clt_recurrent_shape *s, int64_t share, int64_t floats,
                  const clt_target *target, clt_program *p)
{
    const int64_t batch = clt_dim(s->batch, target->max_batch);
    const int64_t samples = (batch + share - 1) / share * share;
    return clt_scratch_add(p, clt_fixed((samples ? samples : 1) * floats * (int64_t)sizeof(float)));
}

static void finish(const clt_recurrent_shape *s, int64_t share, clt_program *p)
{
    CLT_ARGS(p, CLT_INT(clt_extent_dim(s->batch)), CLT_FIXED(s->steps), CLT_FIXED(s->hidden),
             CLT_FIXED(s->flags), CLT_FIXED(share));
    clt_range1(p, clt_extent_ceil(clt_extent_dim(s->batch), share, 1), 1);
}

void clt_recurrent_cpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    const clt_recurrent_shape s = clt_recurrent_shape_of(node);
    const tile t = forward_tile(&s, target);
    const int64_t share = share_of(&s, target);
    const int panels = pack(&s, &t, target, p, true);
    const int block = states(&s, share, 2 * pitch(s.hidden, &t, target), target, p);
    begin(p, "recurrent", &s, &t, target, true);
    CLT_ARGS(p, CLT_IN(CLT_RNN_X), CLT_SCRATCH(panels));
    for (int i = CLT_RNN_BIAS; i <= CLT_RNN_LENGTHS; i++)
        clt_recurrent_arg_in(node, i, p);
    for (int i = 0; i < node->n_out; i++)
        CLT_ARGS(p, CLT_OUT(i));
    CLT_ARGS(p, CLT_SCRATCH(block));
    finish(&s, share, p);
}

void clt_recurrent_grad_cpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    const clt_recurrent_shape s = clt_recurrent_shape_of(node);
    const tile t = backward_tile(&s, target);
    const int64_t share = share_of(&s, target);
    const int panels = pack(&s, &t, target, p, false);
    const int64_t floats =
        2 * pitch(s.hidden, &t, target) + pitch((int64_t)s.gates * s.hidden, &t, target);
    const int block = states(&s, share, floats, target, p);
    begin(p, "recurrent_grad", &s, &t, target, false);
    CLT_ARGS(p, CLT_SCRATCH(panels));
    for (int i = CLT_RNN_GRAD_SAVED; i <= CLT_RNN_GRAD_LENGTHS; i++)
        clt_recurrent_arg_in(node, i, p);
    for (int i = 0; i < node->n_out; i++)
        CLT_ARGS(p, CLT_OUT(i));
    CLT_ARGS(p, CLT_SCRATCH(block));
    finish(&s, share, p);
}
