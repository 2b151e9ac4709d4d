/* Launches of clkernels/attention/gpu/attention_matrix.cl. */
#include "ops/attention/attention.h"
#include "ops/core/matrix_unit.h"
#include "ops/core/nn.h"

enum { COLUMNS = 32, PADDING = 8, TYPE = 2, LEAST_ROWS = 16, MOST_ROWS = 64 };

/* Lanes that share a row of fragments: UNIT_SHARERS. */
static int sharers(const clt_caps *caps)
{
    return caps->matrix.kind == CLT_MATRIX_WMMA ? 16 : 4;
}

static int64_t local_bytes(const clt_attention_shape *s, int rows, bool grad, const clt_caps *caps)
{
    const clt_matrix_shape u = clt_matrix_shape_of(caps);
    const int64_t wide = COLUMNS * (s->size + PADDING), high = s->size * (COLUMNS + PADDING);
    const int64_t own = (grad ? 2 : 1) * rows * (s->size + PADDING);
    const int64_t numbers = own + (wide > high ? wide : high) + rows * (COLUMNS + PADDING);
    const int64_t floats =
        rows * sharers(caps) + (caps->matrix.emulated ? rows / u.m * 2 * u.k * (u.m + u.n) : 0);
    return numbers * TYPE + floats * (int64_t)sizeof(float);
}

static int threads_of(int rows, const clt_caps *caps)
{
    const clt_matrix_shape u = clt_matrix_shape_of(caps);
    return rows / u.m * u.lanes;
}

/* Rows of a work-group: as many as fit local memory. */
static int rows_for(const clt_attention_shape *s, bool grad, const clt_caps *caps)
{
    enum { ASIDE = 1024 };
    int rows = MOST_ROWS;
    while (rows >= LEAST_ROWS && (local_bytes(s, rows, grad, caps) + ASIDE > caps->local_bytes ||
                                  threads_of(rows, caps) > caps->max_work_group))
        rows /= 2;
    return rows >= LEAST_ROWS ? rows : 0;
}

/* The 16-bit type that q, k and v have, and dout too; F32 if there is none. */
static clt_dtype type_of(const clt_node *node, const clt_attention_shape *s)
{
    const clt_dtype type = node->in[s->q.operand]->type.dtype;
    const bool forward = node->op == &clt_op_attention;
    return forward || node->in[s->out.operand]->type.dtype == type ? type : CLT_F32;
}

bool clt_attention_matrix_accepts(const clt_node *node, const clt_target *target, char *why)
{
    enum { LEAST = 32, MOST_SIZE_RDNA = 64 };
    const clt_attention_shape s = clt_attention_shape_of(node);
    const clt_caps *caps = target->caps;
    const bool grad = node->op != &clt_op_attention;
    if (!clt_matrix_accepts(node, type_of(node, &s), target, why) ||
        !clt_attention_gpu_accepts(node, target, why))
        return false;
    /* Both halves of an RDNA warp hold copies, which leaves registers for fewer sums. */
    if (caps->matrix.kind == CLT_MATRIX_WMMA && s.size > MOST_SIZE_RDNA)
        return clt_decline(why, "heads of %lld elements need too many registers",
                           (long long)s.size);
    if (((const clt_attention_attr *)node->attr)->dropout > 0)
        return clt_decline(why, "dropout: its random numbers need too many registers");
    if (!rows_for(&s, grad, caps))
        return clt_decline(why, "work-groups of %d with %lld bytes of local memory",
                           caps->max_work_group, (long long)caps->local_bytes);
    const bool asked = clt_matrix_is_asked_for(
        node, target, grad ? clt_attention_grad_matrix : clt_attention_matrix);
    if ((s.rows < LEAST || s.keys < LEAST) && !asked)
        return clt_decline(why, "%lld rows and %lld keys: less than %d", (long long)s.rows,
                           (long long)s.keys, LEAST);
    return true;
}

/* Begins a launch of work-groups of `rows` rows. */
static void begin(clt_program *p, const clt_node *node, const clt_target *target,
                  const clt_attention_shape *s, const char *kernel, int rows, bool grad)
{
    char types[CLT_ATTENTION_OPTIONS], unit[CLT_MATRIX_OPTIONS];
    clt_launch_begin(p, "attention/gpu/attention_matrix.cl", kernel, "%s%s -DD=%d -DROWS=%d%s",
                     grad ? "-DGRADIENT " : "",
                     clt_matrix_options(target->caps, type_of(node, s), unit), (int)s->size, rows,
                     clt_attention_types(node, s, types));
    clt_arg_attention_operands(p, node, s);
}

/* Sets the range: work-groups of `rows` rows out of `count`, for each of `heads` heads. */
static void range(clt_program *p, const clt_attention_shape *s, const clt_target *target, int rows,
                  int64_t count, int64_t heads)
{
    const int threads = threads_of(rows, target->caps);
    clt_range3(p, clt_fixed((count + rows - 1) / rows * threads), clt_fixed(heads),
               clt_attention_images(s, 1), threads, 1, 1);
}

void clt_attention_matrix(const clt_node *node, const clt_target *target, clt_program *p)
{
    const clt_attention_shape s = clt_attention_shape_of(node);
    const int rows = rows_for(&s, false, target->caps);
    begin(p, node, target, &s, "attention_matrix", rows, false);
    CLT_ARGS(p, CLT_ATTENTION_OUT(&s.out), CLT_OUT(s.log_sum), CLT_ATTENTION_SIZES(&s));
    clt_arg_attention_drop(p, node, &s);
    range(p, &s, target, rows, s.rows, s.heads);
}

void clt_attention_grad_matrix(const clt_node *node, const clt_target *target, clt_program *p)
{
    const clt_attention_shape s = clt_attention_shape_of(node);
    const int rows = rows_for(&s, true, target->caps);
    const int delta = clt_attention_delta_gpu(node, target, p);
    for (int of_keys = 0; of_keys < 2; of_keys++) {
        begin(p, node, target, &s, of_keys ? "attention_dkv_matrix" : "attention_dq_matrix", rows,
              true);
        CLT_ARGS(p, CLT_ATTENTION_IN(&s.out), CLT_IN(s.log_sum), CLT_SCRATCH(delta),
                 CLT_ATTENTION_OUT(of_keys ? &s.dk : &s.dq));
        if (of_keys)
            CLT_ARGS(p, CLT_ATTENTION_OUT(&s.dv));
        CLT_ARGS(p, CLT_ATTENTION_SIZES(&s));
        clt_arg_attention_drop(p, node, &s);
        range(p, &s, target, rows, of_keys ? s.keys : s.rows, of_keys ? s.kv_heads : s.heads);
    }
}
