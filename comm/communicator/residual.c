/* Error feedback: what the roundings of a rank leave over, in two versions. */
#include "comm/core/residual.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "comm/communicator/internal.h"

static clt_status make(clt_comm_residual *r, clt_comm_rounding rounding)
{
    for (int v = 0; v < 2; v++)
        if (!r->of[rounding][v]) {
            r->of[rounding][v] = clt_calloc((size_t)r->count + 1, sizeof(float));
            CLT_TRY_MEMORY(r->of[rounding][v]);
        }
    return CLT_OK;
}

clt_status clt_comm_residual_create(const clt_comm *comm, int64_t count, clt_comm_residual **out)
{
    if (count < 0)
        return clt_fail(CLT_INVALID_ARGUMENT, "comm: a residual of %lld elements is not possible",
                        (long long)count);
    clt_comm_residual *r = CLT_NEW(clt_comm_residual);
    CLT_TRY_MEMORY(r);
    r->comm = comm;
    r->count = count;
    r->does[CLT_COMM_ROUNDS_RANK] = comm->node != NULL;
    r->does[CLT_COMM_ROUNDS_NODE] = comm->cluster && comm->leads;
    r->does[CLT_COMM_ROUNDS_SUM] = !comm->cluster || comm->leads;
    r->copies = comm->node && !comm->cluster && comm->first > 0;
    clt_status status = CLT_OK;
    if (r->does[CLT_COMM_ROUNDS_RANK] && comm->count > 1)
        status = make(r, CLT_COMM_ROUNDS_RANK);
    if (r->does[CLT_COMM_ROUNDS_NODE] && (comm->node || comm->count > 1))
        CLT_NEXT(status, make(r, CLT_COMM_ROUNDS_NODE));
    if (r->does[CLT_COMM_ROUNDS_SUM])
        CLT_NEXT(status, make(r, CLT_COMM_ROUNDS_SUM));
    if (status != CLT_OK)
        clt_comm_residual_destroy(r);
    else
        *out = r;
    return status;
}

void clt_comm_residual_destroy(clt_comm_residual *r)
{
    for (int i = 0; r && i < CLT_COMM_ROUNDINGS; i++)
        CLT_FREE(r->of[i][0], r->of[i][1]);
    clt_free(r);
}

void clt_comm_residual_accept(clt_comm_residual *r)
{
    if (r->written)
        r->now = 1 - r->now;
    r->written = false;
}

clt_rounding clt_residual_use(const clt_comm_residual *r, clt_comm_rounding rounding, int64_t first,
                              double scale)
{
    float *const *of = r->of[rounding];
    return of[0] ? (clt_rounding){of[r->now] + first, of[1 - r->now] + first, (float)scale}
                 : (clt_rounding){0};
}

int clt_comm_residual_has(const clt_comm_residual *r, clt_comm_rounding rounding)
{
    return !r->of[rounding][0] ? 0 : rounding == CLT_COMM_ROUNDS_SUM && r->copies ? 2 : 1;
}

void clt_comm_residual_get(const clt_comm_residual *r, clt_comm_rounding rounding, float *data)
{
    const float *of = r->of[rounding][r->now];
    if (of)
        memcpy(data, of, (size_t)r->count * sizeof *data);
    else
        memset(data, 0, (size_t)r->count * sizeof *data);
}

clt_status clt_comm_residual_set(clt_comm_residual *r, clt_comm_rounding rounding,
                                 const float *data)
{
    static const char *const names[] = {"the sums of a rank's devices", "the sums of a node",
                                        "the results"};
    if (!r->does[rounding])
        return clt_fail(CLT_UNSUPPORTED,
                        "comm: this rank does not round %s: give the residual to "
                        "another rounding",
                        names[rounding]);
    CLT_TRY(make(r, rounding));
    r->written = false;
    memcpy(r->of[rounding][r->now], data, (size_t)r->count * sizeof *data);
    return CLT_OK;
}
