/* The cases of `cltrain bench op`: operators with attributes and shapes, built by the schema. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cltrain/operators.h>

#include "bench/bench_op.h"

static const clt_init uniform = {CLT_INIT_UNIFORM, 1, 0};

/* i32 numbers below `range`, all equally likely. */
static clt_value *indices(clt_graph *g, int rank, const int64_t *dims, uint32_t range)
{
    int64_t count = 1;
    for (int k = 0; k < rank; k++)
        count *= dims[k];
    int32_t *numbers = calloc((size_t)count, sizeof *numbers);
    uint32_t state = 1;
    for (int64_t i = 0; numbers && i < count; i++) {
        state = state * 1664525u + 1013904223u;
        numbers[i] = (int32_t)((uint64_t)state * range >> 32);
    }
    clt_value *value = numbers ? clt_constant(g, CLT_I32, rank, dims, numbers) : NULL;
    free(numbers);
    return value;
}

/* --- operands -----------------------------------------------------------------------------------
 */

/* Reads the next shape of `shapes`: "Bx16x8x8", "4x64<50257" (indices below 50257) or "u8:Bx1024".
 * Returns the text behind it. */
static const char *next_shape(const char *shapes, int64_t *dims, int *rank, uint32_t *range,
                              int *bytes)
{
    *rank = 0;
    *range = 0;
    *bytes = !strncmp(shapes, "u8:", 3);
    for (const char *at = shapes + (*bytes ? 3 : 0);; at++) {
        char *end;
        if (*at == 'B') {
            dims[(*rank)++] = CLT_BATCH;
            at++;
        } else {
            dims[(*rank)++] = strtoll(at, &end, 10);
            at = end;
        }
        if (*at == '<') {
            *range = (uint32_t)strtoul(at + 1, &end, 10);
            at = end;
        }
        if (*at != 'x')
            return *at == ' ' ? at + 1 : at;
    }
}

/* Writes shapes for the required operands, one size for each letter of the schema. */
static void usual_shapes(const clt_operator *op, char *text, size_t room)
{
    clt_operand_schema one;
    size_t used = 0;
    for (int i = 0; clt_operator_operand(op, i, &one) && (!one.optional || one.once); i++) {
        if (i)
            used += (size_t)snprintf(text + used, room - used, " ");
        for (const char *d = one.dims; *d; d++) {
            const char *const size = *d == '*'                ? (d == one.dims ? "Bx1024" : "1024")
                                     : *d == 'b' || *d == 'p' ? "B"
                                     : strchr("hw", *d)       ? "8"
                                     : strchr("ij", *d)       ? "3"
                                     : strchr("dlst", *d)     ? "64"
                                     : *d == '1'              ? "1"
                                                              : "16";
            used +=
                (size_t)snprintf(text + used, room - used, "%s%s", d == one.dims ? "" : "x", size);
        }
        if (!strcmp(one.type, "i32"))
            used += (size_t)snprintf(text + used, room - used, "<16");
    }
}

/* Makes an operand: an input if its shape depends on the batch, else a parameter. In a training
 * case the first operand gets a gradient. */
static clt_value *operand(clt_graph *g, const clt_operand_schema *o, int number, int training,
                          const char **shapes)
{
    int64_t dims[CLT_MAX_RANK];
    const int64_t one = 1;
    int rank, bytes;
    uint32_t range;
    char name[40];
    snprintf(name, sizeof name, "%s%d", o->name, number);
    *shapes = next_shape(*shapes, dims, &rank, &range, &bytes);
    const int batched = dims[0] < 0;
    const clt_dtype dtype = bytes || !strcmp(o->type, "u8") ? CLT_U8
                            : !strcmp(o->type, "i32")       ? CLT_I32
                                                            : CLT_F32;
    if (dtype == CLT_I32 && !batched)
        return indices(g, rank, dims, range);
    if (dtype == CLT_F32 && !batched)
        return clt_parameter(g, name, rank, dims, uniform);
    clt_value *x = clt_input(g, name, dtype, rank, dims);
    return training && number == 0 && dtype == CLT_F32
               ? clt_mul(x, clt_parameter(g, "scale", 1, &one, uniform))
               : x;
}

clt_value *bench_op_build(clt_graph *g, const case_row *row)
{
    const clt_operator *op = clt_operator_find(row->op);
    clt_value *in[CLT_MAX_OPERANDS], *results[CLT_MAX_RESULTS];
    clt_operand_schema one;
    char usual[256];
    int count = 0;
    if (!row->shapes)
        usual_shapes(op, usual, sizeof usual);
    for (const char *shapes = row->shapes ? row->shapes : usual;
         *shapes && count < CLT_MAX_OPERANDS; count++) {
        clt_operand_schema next;
        if (clt_operator_operand(op, count, &next))
            one = next; /* without a next operand, the last one repeats */
        in[count] = operand(g, &one, count, row->training, &shapes);
    }
    if (clt_apply_text(g, row->op, in, count, row->attributes, results) != CLT_OK)
        return NULL;
    if (clt_operator_result(op, 0, &one) && !strcmp(one.name, "sum")) {
        clt_loss(g, "loss", results[0], results[1], 1);
        return NULL;
    }
    return row->relu ? clt_relu(results[0]) : results[0];
}

/* --- several operators -------------------------------------------------------------------------
 */

static clt_value *matrix(clt_graph *g, const char *name)
{
    const int64_t dims[2] = {CLT_BATCH, COLUMNS};
    return clt_input(g, name, CLT_F32, 2, dims);
}

static clt_value *build_chain(clt_graph *g)
{
    const int64_t columns = COLUMNS;
    clt_value *bias = clt_parameter(g, "bias", 1, &columns, uniform);
    return clt_mul(clt_gelu_tanh(clt_add(matrix(g, "x"), bias)), matrix(g, "y"));
}

/* Batch norm behind a convolution, as in a ResNet. It takes the layout of the convolution. */
static clt_value *build_batch_norm_conv(clt_graph *g)
{
    const int64_t channels = 16, kernel[4] = {16, 16, 1, 1}, dims[4] = {CLT_BATCH, 16, 8, 8};
    clt_value *w = clt_parameter(g, "weight", 1, &channels, uniform);
    clt_value *b = clt_parameter(g, "bias", 1, &channels, uniform);
    clt_value *x = clt_conv2d(clt_input(g, "x", CLT_F32, 4, dims),
                              clt_parameter(g, "kernel", 4, kernel, uniform), NULL, NULL);
    return clt_relu(clt_batch_norm(x, w, b, NULL, NULL, NULL, NULL));
}

static clt_value *build_where(clt_graph *g)
{
    clt_value *x = matrix(g, "x"), *y = matrix(g, "y");
    return clt_where(clt_lt(x, y), x, y);
}

static clt_value *build_chunk(clt_graph *g)
{
    const int64_t one = 1;
    clt_value *parts[2];
    clt_value *x = clt_mul(matrix(g, "x"), clt_parameter(g, "scale", 1, &one, uniform));
    if (clt_chunk(x, 2, 1, parts) != CLT_OK)
        return NULL;
    return clt_swiglu(parts[0], parts[1]);
}

#define MATRIX "Bx1024"
#define IMAGES "Bx16x8x8"
#define RECURRENT(GATES) "64x32x256 " GATES "x256 " GATES "x256 " GATES " " GATES

const case_row bench_op_cases[] = {
    {"relu", .op = "relu"},
    {"add", .op = "add"},
    {"chain", .build = build_chain},
    {"softmax", .op = "softmax", .attributes = "axis=1", .training = 1},
    {"softmax_channels", .op = "softmax", .attributes = "axis=1", .shapes = IMAGES, .training = 1},
    {"cross_entropy", .op = "cross_entropy", .shapes = MATRIX " B", .training = 1},
    {"layer_norm", .op = "layer_norm", .shapes = MATRIX " 1024 1024", .training = 1},
    {"rms_norm", .op = "rms_norm", .shapes = MATRIX " 1024", .training = 1},
    {"batch_norm", .op = "batch_norm", .shapes = IMAGES " 16 16", .training = 1, .relu = 1},
    {"batch_norm_conv", .training = 1, .build = build_batch_norm_conv},
    {"max_pool2d", .op = "max_pool2d", .training = 1},
    {"avg_pool2d", .op = "avg_pool2d", .training = 1},
    {"global_avg_pool2d", .op = "adaptive_avg_pool2d", .training = 1},
    {"upsample_nearest", .op = "upsample2d", .shapes = "Bx4x8x8", .training = 1},
    {"upsample_bilinear", .op = "upsample2d", .attributes = "bilinear=true", .shapes = "Bx4x8x8",
     .training = 1},
    /* Eight volumes, whatever the batch, and a step up of a U-Net. */
    {"conv3d", .op = "conv3d", .attributes = "padding=1", .shapes = "8x16x16x16x16 16x16x3x3x3",
     .training = 1},
    {"conv_transpose2d", .op = "conv_transpose2d", .attributes = "stride=2",
     .shapes = "8x64x32x32 64x32x2x2", .training = 1},
    {"sum_rows", .op = "reduce_sum", .attributes = "axes=1"},
    {"sum_columns", .op = "reduce_sum", .attributes = "axes=0"},
    {"sum_all", .op = "reduce_sum"},
    {"mean_rows", .op = "reduce_mean", .attributes = "axes=1", .training = 1},
    {"mean_columns", .op = "reduce_mean", .attributes = "axes=0"},
    /* The channel axis stays, as in batch norm: axes on both sides of it are reduced. */
    {"mean_channels", .op = "reduce_mean", .attributes = "axes=0,2,3", .shapes = IMAGES},
    {"max_rows", .op = "reduce_max", .attributes = "axes=1", .training = 1},
    {"max_columns", .op = "reduce_max", .attributes = "axes=0", .training = 1},
    {"max_all", .op = "reduce_max"},
    {"mse", .op = "mse", .training = 1},
    {"dropout", .op = "dropout", .training = 1},
    {"concat", .op = "concat", .attributes = "axis=1", .shapes = MATRIX " " MATRIX, .training = 1},
    {"pad", .op = "pad", .attributes = "before=0,0,1,1 after=0,0,1,1", .shapes = IMAGES,
     .training = 1},
    {"slice", .op = "slice", .attributes = "start=0,128 stop=end,896", .training = 1},
    {"slice_steps", .op = "slice", .attributes = "step=1,2", .training = 1},
    {"cast_f16", .op = "cast", .attributes = "to=f16"},
    {"cast_bf16", .op = "cast", .attributes = "to=bf16"},
    /* The bytes of a data set. */
    {"cast_u8", .op = "cast", .attributes = "to=f32", .shapes = "u8:" MATRIX},
    {"transpose", .op = "transpose", .attributes = "permutation=1,0", .shapes = "16384x1024"},
    /* The tokens of GPT-2: 4 sequences of 64. */
    {"embedding", .op = "embedding", .shapes = "4x64<50257 50257x768", .training = 1},
    {"gather", .op = "gather", .attributes = "axis=1", .shapes = "16384x1024 16384x256<1024",
     .training = 1},
    /* 64 sequences of 32 steps, 256 numbers in and out. */
    {"lstm", .op = "lstm", .shapes = RECURRENT("1024"), .training = 1},
    {"gru", .op = "gru", .shapes = RECURRENT("768"), .training = 1},
    {"silu", .op = "silu", .training = 1},
    {"swiglu", .op = "swiglu"},
    {"exp", .op = "exp"},
    {"log", .op = "log"},
    {"pow", .op = "pow_scalar", .attributes = "exponent=2.5"},
    {"where", .build = build_where},
    {"chunk", .training = 1, .build = build_chunk},
    {"bce_with_logits", .op = "bce_with_logits", .training = 1},
    {"sgd", .training = 1, .optimizer = CLT_SGD},
    {"momentum", .training = 1, .optimizer = CLT_MOMENTUM},
    {"adam", .training = 1, .optimizer = CLT_ADAM},
};

const int bench_op_case_count = sizeof bench_op_cases / sizeof *bench_op_cases;
