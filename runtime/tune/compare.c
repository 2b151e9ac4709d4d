#include "tune/compare.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "ops/core/ops.h"

/* Largest difference of a right result, relative to its largest element. Variants add the same
 * terms in other orders. */
static const double TOLERANCE = 1e-4;

/* Of so many elements of a mask, one may differ. */
enum { MASK_ROUNDING = 1000 };

/* Outputs hold this before they are written: a signalling NaN, which no arithmetic gives. */
static const cl_uint UNWRITTEN = 0x7fa00000u;
static const cl_uchar UNWRITTEN_BYTE = 0xa7;

void clt_outcome_drop(clt_outcome *outcome)
{
    for (int o = 0; o < CLT_MAX_OUTPUTS; o++)
        clt_free(outcome->values[o]);
    *outcome = (clt_outcome){{NULL}, {0}, {0}, {0}};
}

int clt_outcome_rows(const clt_node *node)
{
    return node->op == &clt_op_batch_norm_moments ? 3 : 1;
}

/* --- arrays ---------------------------------------------------------------------------------- */

/* The largest magnitude and the largest difference of the pairs in which both values are finite. */
typedef struct spread {
    double largest, difference;
} spread;

/* Returns false if the pair differs in a way that rounding does not explain. */
static bool add_pair(spread *s, double a, double b, bool same_bits, bool unwritten)
{
    if (!isfinite(a) || !isfinite(b))
        return same_bits || (isnan(a) && isnan(b) && !unwritten);
    s->largest = fmax(s->largest, fmax(fabs(a), fabs(b)));
    s->difference = fmax(s->difference, fabs(a - b));
    return true;
}

/* Whether rounding in the sum of element i explains the difference. */
static bool explained(const char *magnitudes, int64_t i, double share, double difference)
{
    float magnitude;
    if (!magnitudes)
        return false;
    memcpy(&magnitude, magnitudes + 4 * i, sizeof magnitude);
    return isfinite(magnitude) && fabs(difference) <= share * (double)magnitude;
}

static bool equal_floats(const char *a, const char *b, const char *magnitudes, double share,
                         int64_t count)
{
    spread s = {0, 0};
    for (int64_t i = 0; i < count; i++) {
        uint32_t x, y;
        float xf, yf;
        memcpy(&x, a + 4 * i, sizeof x);
        memcpy(&y, b + 4 * i, sizeof y);
        memcpy(&xf, &x, sizeof xf);
        memcpy(&yf, &y, sizeof yf);
        if (explained(magnitudes, i, share, (double)xf - (double)yf))
            continue;
        if (!add_pair(&s, (double)xf, (double)yf, x == y, x == UNWRITTEN || y == UNWRITTEN))
            return false;
    }
    return s.difference <= TOLERANCE * s.largest;
}

static bool equal_doubles(const char *a, const char *b, int64_t count)
{
    const uint64_t unwritten = (uint64_t)UNWRITTEN << 32 | UNWRITTEN;
    spread s = {0, 0};
    for (int64_t i = 0; i < count; i++) {
        uint64_t x, y;
        double xd, yd;
        memcpy(&x, a + 8 * i, sizeof x);
        memcpy(&y, b + 8 * i, sizeof y);
        memcpy(&xd, &x, sizeof xd);
        memcpy(&yd, &y, sizeof yd);
        if (!add_pair(&s, xd, yd, x == y, x == unwritten || y == unwritten))
            return false;
    }
    return s.difference <= TOLERANCE * s.largest;
}

static bool equal_masks(const unsigned char *a, const unsigned char *b, int64_t count)
{
    int64_t others = 0;
    for (int64_t i = 0; i < count; i++) {
        if (a[i] == b[i])
            continue;
        others++;
        if (a[i] == UNWRITTEN_BYTE || b[i] == UNWRITTEN_BYTE)
            return false;
    }
    return others <= count / MASK_ROUNDING;
}

bool clt_values_equal(clt_dtype dtype, const void *a, const void *b, int64_t count)
{
    switch (dtype) {
    case CLT_F32:
        return equal_floats(a, b, NULL, 0, count);
    case CLT_F64:
        return equal_doubles(a, b, count);
    case CLT_U8:
        return equal_masks(a, b, count);
    case CLT_I32:
    case CLT_I64: /* no operator has it */
    case CLT_F16:
    case CLT_BF16:
        break;
    }
    return !memcmp(a, b, (size_t)count * (size_t)clt_dtype_size(dtype));
}

bool clt_sums_equal(const float *a, const float *b, const float *magnitudes, double share,
                    int64_t count)
{
    return equal_floats((const char *)a, (const char *)b, (const char *)magnitudes, share, count);
}

bool clt_outcome_equal(const clt_outcome *a, const clt_outcome *b, const clt_outcome *magnitudes,
                       double share)
{
    for (int o = 0; o < CLT_MAX_OUTPUTS; o++) {
        if (!a->values[o] && !b->values[o])
            continue;
        if (!a->values[o] || !b->values[o] || a->count[o] != b->count[o] ||
            a->dtype[o] != b->dtype[o])
            return false;
        const bool summed = magnitudes && magnitudes->values[o] && a->dtype[o] == CLT_F32 &&
                            magnitudes->count[o] == a->count[o];
        const int rows = a->rows[o] > 1 ? a->rows[o] : 1;
        const int64_t count = a->count[o] / rows;
        for (int row = 0; row < rows; row++) {
            const int64_t at = row * count * clt_dtype_size(a->dtype[o]);
            const char *x = a->values[o] + at, *y = b->values[o] + at;
            if (summed ? !equal_floats(x, y, magnitudes->values[o] + at, share, count)
                       : !clt_values_equal(a->dtype[o], x, y, count))
                return false;
        }
    }
    return true;
}

void clt_batch_blocked_to_plain(const char *from, int64_t count, int64_t rest, int lanes, int bytes,
                                char *to)
{
    for (int64_t n = 0; n < count; n++) {
        const char *image = from + (n / lanes * rest * lanes + n % lanes) * bytes;
        for (int64_t i = 0; i < rest; i++, to += bytes)
            memcpy(to, image + i * lanes * bytes, (size_t)bytes);
    }
}

bool clt_outcome_wanted(const clt_plan *plan, const clt_value *output)
{
    const clt_place_kind kind = plan->places[output->id].kind;
    if (kind != CLT_PLACE_ARENA)
        return kind != CLT_PLACE_NONE;
    bool wanted = output->output;
    for (int i = 0; i < plan->n_nodes && !wanted; i++)
        for (int j = 0; j < plan->nodes[i].node->n_in; j++)
            wanted |= plan->nodes[i].node->in[j] == output;
    for (int i = 0; i < plan->graph->n_assigns; i++)
        wanted |= plan->graph->assigns[i].value == output;
    return wanted;
}

/* --- nodes ----------------------------------------------------------------------------------- */

static clt_status fill(clt_lab *lab, cl_mem buffer, int64_t offset, int64_t bytes, bool words)
{
    if (bytes <= 0 || !buffer)
        return CLT_OK;
    CLT_CL(clEnqueueFillBuffer(lab->device->queue, buffer,
                               words ? (const void *)&UNWRITTEN : &UNWRITTEN_BYTE,
                               words ? sizeof UNWRITTEN : sizeof UNWRITTEN_BYTE, (size_t)offset,
                               (size_t)(words ? bytes / 4 * 4 : bytes), 0, NULL, NULL),
           "clEnqueueFillBuffer", lab->device);
    return CLT_OK;
}

static clt_status poison(clt_lab *lab, const clt_plan_node *pn)
{
    const clt_plan_options *o = &lab->plan->options;
    for (int i = 0; i < pn->node->n_out; i++) {
        const clt_value *out = pn->node->out[i];
        const int bytes = clt_dtype_size(out->type.dtype);
        clt_view view;
        if (clt_exec_locate(lab->exec, &lab->run, out, &view) != CLT_OK)
            continue;
        CLT_TRY(fill(lab, view.buffer, view.offset,
                     clt_value_stored(out, o->max_batch, o->lanes) * bytes, bytes % 4 == 0));
    }
    for (int i = 0; i < pn->program.n_scratch; i++)
        if (pn->scratch[i].kind == CLT_PLACE_ARENA)
            CLT_TRY(fill(lab, lab->arena.slabs[pn->scratch[i].index], pn->scratch[i].offset,
                         clt_extent_at(pn->program.scratch[i], o->max_batch), true));
    return CLT_OK;
}

static clt_status read_output(clt_lab *lab, const clt_value *out, bool plain, char **values,
                              int64_t *count)
{
    const int bytes = clt_dtype_size(out->type.dtype), lanes = lab->plan->options.lanes;
    const bool in_batch_blocked = out->layout == CLT_LAYOUT_BATCH_BLOCKED;
    int64_t batch = lab->run.count;
    clt_view view;
    CLT_TRY(clt_exec_locate(lab->exec, &lab->run, out, &view));
    if (in_batch_blocked && !plain && batch > lanes)
        batch -= batch % lanes;
    const int64_t stored = clt_value_stored(out, batch, lanes);
    char *lying = clt_alloc((size_t)stored * (size_t)bytes + 16);
    *values = lying;
    *count = stored;
    CLT_TRY_MEMORY(lying);
    CLT_TRY(clt_replica_read(&lab->replica, view.buffer, view.offset, stored * bytes, lying));
    if (!in_batch_blocked || !plain)
        return CLT_OK;
    const int64_t rest = clt_type_coefficient(&out->type);
    *count = batch * rest;
    *values = clt_alloc((size_t)*count * (size_t)bytes + 16);
    if (*values)
        clt_batch_blocked_to_plain(lying, batch, rest, lanes, bytes, *values);
    clt_free(lying);
    return *values ? CLT_OK : CLT_OUT_OF_MEMORY;
}

clt_status clt_outcome_read(clt_lab *lab, int index, bool plain, clt_outcome *outcome)
{
    const clt_plan_node *pn = &lab->plan->nodes[index];
    *outcome = (clt_outcome){{NULL}, {0}, {0}, {0}};
    CLT_TRY(poison(lab, pn));
    CLT_TRY(clt_exec_enqueue(lab->exec, &lab->run, index, index + 1, 0, NULL));
    for (int o = 0; o < pn->node->n_out; o++) {
        outcome->dtype[o] = pn->node->out[o]->type.dtype;
        outcome->rows[o] = clt_outcome_rows(pn->node);
        if (clt_outcome_wanted(lab->plan, pn->node->out[o]))
            CLT_TRY(
                read_output(lab, pn->node->out[o], plain, &outcome->values[o], &outcome->count[o]));
    }
    return CLT_OK;
}
