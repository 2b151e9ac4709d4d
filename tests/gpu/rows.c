/* Sums, maxima, softmax and losses. */
#include "gpu/plans.h"
#include "ops/loss/correct_parts.h"
#include "ops/loss/cross_entropy_parts.h"

/* Sums over rows, columns, images and everything, of sizes that float4 fits or not. */
void plan_reductions(const clt_caps *caps)
{
    static const struct {
        int64_t dims[4];
        int n_axes, axes[3];
    } shapes[] = {
        {{CLT_BATCH, 1, 1, 1024}, 1, {3}}, {{CLT_BATCH, 64, 12, 12}, 3, {0, 2, 3}},
        {{CLT_BATCH, 1, 1, 1000}, 1, {0}}, {{CLT_BATCH, 64, 7, 7}, 2, {2, 3}},
        {{4096, 1, 33, 3}, 1, {0}},        {{CLT_BATCH, 3, 31, 31}, 0, {0}},
    };
    for (size_t i = 0; i < (with_tiles ? sizeof shapes / sizeof *shapes : 3); i++)
        for (int max = 0; max < (with_tiles || i != 1 ? 2 : 1); max++) {
            clt_graph *g;
            OK(clt_graph_create(&g));
            clt_value *x = clt_input(g, "x0", CLT_F32, 4, shapes[i].dims);
            clt_value *y =
                (max ? clt_reduce_max : clt_reduce_mean)(x, shapes[i].axes, shapes[i].n_axes, 1);
            plan_layer(g, y, &x, 1, caps);
        }
}

/* Maxima and sums of everything by the portable kernels. Another kernel reduces their partial
 * results. */
void plan_portable_parts(const clt_caps *caps)
{
    for (int sum = 0; sum < 2; sum++) {
        clt_graph *g;
        OK(clt_graph_create(&g));
        clt_value *x = clt_input(g, "x0", CLT_F32, 2, (int64_t[]){CLT_BATCH, 4096});
        asked = sum ? "sum=portable" : "max=portable";
        plan_layer(g, (sum ? clt_reduce_sum : clt_reduce_max)(x, NULL, 0, 0), &x, 0, caps);
        asked = NULL;
    }
}

/* Cross entropy and the metric of half of the classes. */
static void plan_divided_classes(const clt_caps *caps)
{
    static const int64_t shapes[][3] = {
        {CLT_BATCH, 25129, 1}, {CLT_BATCH, 512, 1}, {CLT_BATCH, 9, 64}};
    for (size_t i = 0; i < (with_tiles ? sizeof shapes / sizeof *shapes : 1); i++) {
        const int64_t *dims = shapes[i], one = 1;
        const clt_cross_entropy_parts_attr attr = {
            {.label_smoothing = 0.1, .ignore_index = -100}, 0, 2 * (int)dims[1]};
        const int axis = 1;
        clt_graph *g;
        OK(clt_graph_create(&g));
        clt_value *x = clt_input(g, "x0", CLT_F32, 3, dims);
        clt_value *labels = clt_input(g, "labels", CLT_I32, 2, (int64_t[]){dims[0], dims[2]});
        clt_value *upstream = clt_input(g, "upstream", CLT_F32, 1, &one);
        clt_value *largest = clt_reduce_max(x, &axis, 1, 0);
        clt_value *parts = clt_emit1(&clt_op_cross_entropy_parts, &attr, 3, x, labels, largest);
        clt_value *sum = clt_emit1(&clt_op_cross_entropy_of_parts, &attr, 2, parts, labels);
        clt_value *dx = clt_emit1(&clt_op_cross_entropy_parts_grad, &attr, 5, x, labels, largest,
                                  parts, upstream);
        const clt_correct_parts_attr of = {{5, -100}, 0, 2 * (int)dims[1]};
        clt_value *target = clt_emit1(&clt_op_correct_target, &of, 2, x, labels);
        clt_value *before = clt_emit1(&clt_op_correct_before, &of, 3, x, labels, target);
        sum = clt_add(sum, clt_emit1(&clt_op_correct_of_parts, &of, 2, before, labels));
        plan_layer(g, clt_mul(dx, sum), &x, 0, caps);
    }
}

/* Softmax, cross entropy and the metric, over rows that are short, long, and not contiguous. */
void plan_rows(const clt_caps *caps)
{
    static const int64_t shapes[][3] = {
        {CLT_BATCH, 1000, 1}, {CLT_BATCH, 21, 64}, {CLT_BATCH, 50257, 1}, {CLT_BATCH, 32768, 1}};
    for (size_t i = 0; i < (with_tiles ? sizeof shapes / sizeof *shapes : 2); i++)
        for (int kind = 0; kind < (with_tiles || !i ? 4 : 2); kind++) {
            clt_graph *g;
            OK(clt_graph_create(&g));
            clt_value *x = clt_input(g, "x0", CLT_F32, 3, shapes[i]), *y = NULL, *weight;
            clt_value *labels =
                clt_input(g, "labels", CLT_I32, 2, (int64_t[]){shapes[i][0], shapes[i][2]});
            if (kind < 2)
                y = (kind ? clt_log_softmax : clt_softmax)(x, 1);
            else if (kind == 2)
                OK(clt_cross_entropy(x, labels, NULL, &y, &weight));
            else
                OK(clt_correct(x, labels, 5, -100, &y, &weight));
            plan_layer(g, y, &x, kind < 3, caps);
        }
    for (int i = 0; i < 1 + with_tiles; i++) {
        clt_graph *g;
        clt_value *x[2], *y = NULL, *weight;
        OK(clt_graph_create(&g));
        x[0] = clt_input(g, "x0", CLT_F32, 2, (int64_t[]){CLT_BATCH, i ? 1023 : 1024});
        x[1] = clt_input(g, "x1", CLT_F32, 2, (int64_t[]){CLT_BATCH, i ? 1023 : 1024});
        OK(clt_mse(x[0], x[1], &y, &weight));
        plan_layer(g, y, x, 2, caps);
    }
    plan_divided_classes(caps);
}

/* The variants that need sub-groups, which the vendor's drivers may not have. */
void plan_subgroups(const clt_caps *caps)
{
    if (!caps->subgroups)
        return;
    asked = "softmax=rows_gpu_subgroups,softmax_grad=rows_gpu_subgroups,"
            "log_softmax=rows_gpu_subgroups,log_softmax_grad=rows_gpu_subgroups,"
            "cross_entropy=rows_gpu_subgroups,cross_entropy_grad=rows_gpu_subgroups";
    plan_rows(caps);
    asked = NULL;
}
