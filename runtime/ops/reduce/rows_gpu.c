#include "ops/reduce/rows_gpu.h"

#include "ops/core/group_gpu.h"
#include "ops/core/nn.h"

enum { LONGEST_KEPT = 4, LONGEST_KEPT_SCALARS = 8 };

static int64_t inner_of(const clt_type *x, int axis)
{
    return clt_dims_product(x, axis + 1, x->rank);
}

bool clt_rows_gpu_accepts(const clt_node *node, const clt_target *target, int axis, char *why)
{
    enum { MOST = 1 << 30 };
    const clt_type *x = &node->in[0]->type;
    if (!clt_gpu_group_accepts(node, target, why))
        return false;
    if (clt_type_elements(x, target->max_batch) / x->dims[axis] > MOST || x->dims[axis] > MOST)
        return clt_decline(why, "more than %d vectors or elements of one", MOST);
    return true;
}

bool clt_rows_gpu_subgroups_accepts(const clt_node *node, const clt_target *target, int axis,
                                    char *why)
{
    if (!clt_rows_gpu_accepts(node, target, axis, why))
        return false;
    if (!target->caps->subgroups)
        return clt_decline(why, "the device reports no sub-groups");
    const clt_rows_gpu r = clt_rows_gpu_of(node, target, axis);
    if (r.width != r.group)
        return clt_decline(why, "vectors of %lld elements share a work-group", (long long)r.length);
    return true;
}

clt_rows_gpu clt_rows_gpu_contiguous(clt_extent rows, int64_t length)
{
    clt_rows_gpu r = {.v = length % 4 ? 1 : 4,
                      .group = CLT_GPU_LEAST_GROUP,
                      .rows = rows,
                      .distance = clt_fixed(1),
                      .length = length};
    const int most = r.v == 4 ? LONGEST_KEPT : LONGEST_KEPT_SCALARS;
    r.width = clt_gpu_power((length + 4 * r.v - 1) / (4 * r.v), 4, CLT_GPU_GROUP);
    if (r.group < r.width)
        r.group = r.width;
    const int64_t each = (length + (int64_t)r.width * r.v - 1) / ((int64_t)r.width * r.v);
    r.keep = each <= most ? (int)each : 0;
    return r;
}

clt_rows_gpu clt_rows_gpu_of(const clt_node *node, const clt_target *target, int axis)
{
    const clt_type *x = &node->in[0]->type;
    const int64_t inner = inner_of(x, axis);
    clt_type rows = *x;
    (void)target;
    rows.dims[axis] = 1;
    if (inner == 1)
        return clt_rows_gpu_contiguous(clt_extent_elements(&rows), x->dims[axis]);
    return (clt_rows_gpu){.v = 1,
                          .width = 1,
                          .group = CLT_GPU_LEAST_GROUP,
                          .inner = 1,
                          .rows = clt_extent_elements(&rows),
                          .distance = clt_extent_dim(inner),
                          .length = x->dims[axis]};
}

void clt_rows_gpu_begin(clt_program *program, const clt_rows_gpu *r, const char *file,
                        const char *kernel, const char *more)
{
    /* OpenCL C has functions of sub-groups from version 2.0 on. */
    clt_launch_begin(program, file, kernel, "%s%s-DV=%d -DWIDTH=%d -DGROUP=%d -DKEEP=%d -DINNER=%d",
                     r->subgroups ? "-cl-std=CL2.0 -DSUBGROUPS " : "", more, r->v, r->width,
                     r->group, r->keep, r->inner);
}

void clt_rows_gpu_args(clt_program *program, const clt_rows_gpu *r)
{
    CLT_ARGS(program, CLT_INT(r->rows), CLT_FIXED(r->length), CLT_INT(r->distance));
}

void clt_rows_gpu_range(clt_program *program, const clt_rows_gpu *r)
{
    clt_range1(program, clt_extent_ceil(r->rows, r->group / r->width, r->group), r->group);
}

int64_t clt_rows_gpu_parts(const clt_rows_gpu *r, const clt_target *target)
{
    enum { MOST = 1024 };
    const int64_t rows = clt_extent_at(r->rows, target->max_batch), each = r->group / r->width;
    const int64_t blocks = (rows + each - 1) / each, wanted = 2 * clt_gpu_groups(target);
    const int64_t parts = blocks < wanted ? blocks : wanted;
    return parts < 1 ? 1 : parts < MOST ? parts : MOST;
}
