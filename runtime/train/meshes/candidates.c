#include "train/meshes/candidates.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/vec.h"

/* From the axis that varies slowest to the one that varies fastest. */
static const clt_axis order[CLT_AXES] = {CLT_AXIS_PIPELINE, CLT_AXIS_DATA, CLT_AXIS_SPACE,
                                         CLT_AXIS_TIME, CLT_AXIS_TENSOR};

/* Micro-batches of a pipeline: its stages times 1, 2, 4 and 8. */
enum { MOST_TIMES = 8 };

typedef struct lister {
    const clt_candidate_limits *limits;
    clt_candidate *list;
    int count, room;
} lister;

void clt_candidate_mesh(const clt_candidate *c, char text[CLT_CANDIDATE_TEXT])
{
    int length = 0;
    text[0] = '\0';
    for (int i = 0; i < CLT_AXES; i++) {
        const clt_axis a = order[i];
        if (c->size[a] == 1)
            continue;
        length += snprintf(text + length, (size_t)(CLT_CANDIDATE_TEXT - length), "%s%s=%d%s",
                           length ? "," : "", clt_axis_name(a), c->size[a],
                           a == CLT_AXIS_TENSOR && c->sequence ? ":sequence" : "");
    }
    if (!length)
        snprintf(text, CLT_CANDIDATE_TEXT, "dp=1");
}

int clt_candidate_devices(const clt_candidate *c)
{
    int product = 1;
    for (int a = 0; a < CLT_AXES; a++)
        product *= c->size[a];
    return product;
}

static clt_status add(lister *l, const clt_candidate *c)
{
    const clt_candidate_limits *limits = l->limits;
    const int dp = c->size[CLT_AXIS_DATA] * (c->local ? c->local : 1);
    if ((int64_t)dp * c->accumulate > limits->batch)
        return CLT_OK;
    CLT_TRY(CLT_PUSH(l->list, l->count, l->room, *c));
    /* What --wire is built for. */
    if (!limits->halves || dp == 1 || c->zero == 3 || c->size[CLT_AXIS_TENSOR] > 1 ||
        c->size[CLT_AXIS_PIPELINE] > 1)
        return CLT_OK;
    clt_candidate half = *c;
    half.half = true;
    return CLT_PUSH(l->list, l->count, l->room, half);
}

/* Adds the mesh with each way to keep the optimizer's state and the parameters. */
static clt_status with_zero(lister *l, clt_candidate c)
{
    const int samples = c.size[CLT_AXIS_DATA] * c.size[CLT_AXIS_SPACE] * c.size[CLT_AXIS_TIME];
    CLT_TRY(add(l, &c));
    if (samples == 1)
        return CLT_OK;
    c.zero = 1;
    CLT_TRY(add(l, &c));
    c.zero = 3;
    return c.size[CLT_AXIS_DATA] == clt_candidate_devices(&c) ? add(l, &c) : CLT_OK;
}

static clt_status with_micro_batches(lister *l, clt_candidate c)
{
    const int stages = c.size[CLT_AXIS_PIPELINE], asked = l->limits->accumulate;
    c.accumulate = asked;
    if (stages == 1 || asked > 1)
        return asked >= stages ? with_zero(l, c) : CLT_OK;
    for (int times = 1; times <= MOST_TIMES; times *= 2) {
        c.accumulate = times * stages;
        CLT_TRY(with_zero(l, c));
    }
    return CLT_OK;
}

static clt_status with_sequence(lister *l, clt_candidate c)
{
    CLT_TRY(with_micro_batches(l, c));
    c.sequence = true;
    return c.size[CLT_AXIS_TENSOR] > 1 && l->limits->sequences ? with_micro_batches(l, c) : CLT_OK;
}

/* Divides `rest` devices over the axes from number `i` on. */
static clt_status divide(lister *l, clt_candidate *c, int i, int rest)
{
    const clt_axis a = i < CLT_AXES ? order[i] : CLT_AXIS_DATA;
    if (i == CLT_AXES)
        return rest == 1 ? with_sequence(l, *c) : CLT_OK;
    for (int places = 1; places <= rest && places <= l->limits->most[a]; places++) {
        const bool *allowed = l->limits->allowed[a];
        if (rest % places || (allowed && !allowed[places]))
            continue;
        c->size[a] = places;
        CLT_TRY(divide(l, c, i + 1, rest / places));
    }
    c->size[a] = 1;
    return CLT_OK;
}

/* Replicas that train apart divide samples alone. */
static clt_status list_local(lister *l)
{
    const int n = l->limits->devices;
    for (int local = 2; l->limits->shares && local <= n; local++) {
        clt_candidate c = {
            .size = {1, 1, 1, 1, 1}, .local = local, .accumulate = l->limits->accumulate};
        c.size[CLT_AXIS_DATA] = n / local;
        if (n % local == 0)
            CLT_TRY(add(l, &c));
    }
    return CLT_OK;
}

clt_status clt_candidates_list(const clt_candidate_limits *limits, clt_candidate **list, int *count)
{
    lister l = {.limits = limits};
    clt_candidate c = {.size = {1, 1, 1, 1, 1}};
    clt_status status = divide(&l, &c, 0, limits->devices);
    CLT_NEXT(status, list_local(&l));
    if (status != CLT_OK) {
        clt_free(l.list);
        return status;
    }
    *list = l.list;
    *count = l.count;
    return CLT_OK;
}
