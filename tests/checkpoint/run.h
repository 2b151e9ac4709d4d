/* A small run whose tensors depend only on its step, so any checkpoint of it can be checked. */
#ifndef TESTS_CHECKPOINT_RUN_H
#define TESTS_CHECKPOINT_RUN_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cltrain/checkpoint.h>

enum { RUN_WEIGHTS = 96, RUN_SLOTS = 160 };

static inline float run_value(int64_t step, int index)
{
    return (float)((step * 131 + index * 7) % 10007);
}

/* Describes the run at a step. The tensors are valid until the next call. */
static inline void run_describe(clt_checkpoint_desc *desc, int64_t step)
{
    static float weights[RUN_WEIGHTS], slots[RUN_SLOTS];
    static clt_tensor model, optimizer;
    for (int i = 0; i < RUN_WEIGHTS; i++)
        weights[i] = run_value(step, i);
    for (int i = 0; i < RUN_SLOTS; i++)
        slots[i] = run_value(step + 1, i);
    assert_int_equal(clt_tensor_init(&model, "fc.weight", CLT_FILE_F32, 2,
                                     (int64_t[]){8, RUN_WEIGHTS / 8}, weights),
                     CLT_OK);
    assert_int_equal(clt_tensor_init(&optimizer, "fc.weight.exp_avg", CLT_FILE_F32, 1,
                                     (int64_t[]){RUN_SLOTS}, slots),
                     CLT_OK);
    clt_checkpoint_desc_init(desc);
    desc->run.step = step;
    desc->model = &model;
    desc->model_count = 1;
    desc->optimizer = &optimizer;
    desc->optimizer_count = 1;
}

static inline void run_save(const char *dir, int64_t step, int64_t keep)
{
    clt_checkpoint_desc desc;
    run_describe(&desc, step);
    desc.keep = keep;
    assert_int_equal(clt_checkpoint_save(dir, &desc), CLT_OK);
}

/* Checks that the checkpoint is that of this step, in every element. */
static inline void run_check(const clt_checkpoint *c, int64_t step)
{
    const clt_tensor *tensor;
    assert_int_equal(clt_checkpoint_run(c)->step, step);
    assert_int_equal(clt_tensors_find(clt_checkpoint_model(c), "fc.weight", &tensor), CLT_OK);
    for (int i = 0; i < RUN_WEIGHTS; i++)
        assert_true(((const float *)tensor->data)[i] == run_value(step, i));
    assert_int_equal(clt_tensors_find(clt_checkpoint_optimizer(c), "fc.weight.exp_avg", &tensor),
                     CLT_OK);
    for (int i = 0; i < RUN_SLOTS; i++)
        assert_true(((const float *)tensor->data)[i] == run_value(step + 1, i));
}

static inline int run_compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Returns the sorted names in a folder, with a space after each. Valid until the next call. */
static inline const char *run_list(const char *dir)
{
    static char text[2048];
    char *names[64];
    int count = 0;
    DIR *folder = opendir(dir);
    assert_non_null(folder);
    struct dirent *entry;
    while ((entry = readdir(folder)) && count < 64)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            names[count++] = strdup(entry->d_name);
    closedir(folder);
    qsort(names, (size_t)count, sizeof *names, run_compare);
    text[0] = '\0';
    for (int i = 0; i < count; i++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s ", names[i]);
        free(names[i]);
    }
    return text;
}

#endif
