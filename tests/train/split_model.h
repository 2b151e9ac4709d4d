/* Models whose parameters are split over the places of tp, for tests of stores. */
#ifndef TESTS_TRAIN_SPLIT_MODEL_H
#define TESTS_TRAIN_SPLIT_MODEL_H

#include "train/lab.h"

/* Elements of the largest tensor, at least. */
enum { LARGEST = 128 };

/* Odd sizes: over 2 and 3 places the parts differ by one row of each block. */
static inline clt_graph *split_model(bool split)
{
    const clt_init uniform = {CLT_INIT_UNIFORM, 0.5, 0}, normal = {CLT_INIT_NORMAL, 1, 2};
    const int64_t table[] = {7, 6}, packed[] = {15, 7}, rows[] = {15}, columns[] = {5, 11},
                  kernel[] = {3, 5, 2, 2}, whole[] = {10};
    clt_graph *g;
    if (clt_graph_create(&g) != CLT_OK)
        return NULL;
    clt_parameter(g, "table", 2, table, normal);
    clt_parameter(g, "packed.weight", 2, packed, uniform);
    clt_parameter(g, "packed.bias", 1, rows, uniform);
    clt_parameter(g, "columns", 2, columns, normal);
    clt_parameter(g, "kernel", 4, kernel, uniform);
    clt_parameter(g, "still", 2, columns, uniform);
    clt_parameter(g, "whole", 1, whole, uniform);
    clt_state(g, "count", CLT_I32, 1, whole, (clt_init){CLT_INIT_CONSTANT, 3, 0});
    clt_freeze(g, "still", NULL);
    clt_param_group(g, "*.bias", 0.5, 0, NULL);
    if (split) {
        clt_shard(g, "table", CLT_AXIS_TENSOR, 0, 1, NULL);
        clt_shard(g, "packed.*", CLT_AXIS_TENSOR, 0, 3, NULL);
        clt_shard(g, "columns", CLT_AXIS_TENSOR, 1, 1, NULL);
        clt_shard(g, "kernel", CLT_AXIS_TENSOR, 1, 1, NULL);
        clt_shard(g, "still", CLT_AXIS_TENSOR, 0, 1, NULL);
    }
    return g;
}

/* Describes entry `index` of the store: its bytes, at most LARGEST floats; -1: failed. */
static inline int64_t size_of(const clt_store *store, int index, const char **name)
{
    clt_dtype dtype;
    int rank;
    int64_t dims[CLT_MAX_RANK], bytes;
    if (clt_store_describe(store, index, name, &dtype, &rank, dims, NULL) != CLT_OK)
        return -1;
    bytes = clt_dtype_size(dtype);
    for (int i = 0; i < rank; i++)
        bytes *= dims[i];
    return bytes <= LARGEST * (int)sizeof(float) ? bytes : -1;
}

/* A network that trains: the hidden layer is split by rows, and the next one by columns. */
enum { IN = 6, WIDE = 11, CLASSES = 5, COUNT = 12, TENSORS = 4 };

static const char *const names[] = {"a.weight", "a.bias", "b.weight", "b.bias"};
static const int sizes[] = {WIDE * IN, WIDE, CLASSES *WIDE, CLASSES};

static inline clt_graph *split_network(bool freezes)
{
    clt_graph *g = classifier(IN, WIDE, CLASSES);
    clt_shard(g, "a.*", CLT_AXIS_TENSOR, 0, 1, NULL);
    clt_shard(g, "b.weight", CLT_AXIS_TENSOR, 1, 1, NULL);
    clt_param_group(g, "*.bias", 0.5, 0, NULL);
    if (freezes)
        clt_freeze(g, "b.weight", NULL);
    return g;
}

#endif
