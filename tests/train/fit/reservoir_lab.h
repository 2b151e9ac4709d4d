/* A classifier, and reservoirs that feed it. */
#ifndef TESTS_TRAIN_FIT_RESERVOIR_LAB_H
#define TESTS_TRAIN_FIT_RESERVOIR_LAB_H

#include "train/lab.h"
#include <cltrain/reservoir.h>

enum { IN = 6, HIDDEN = 9, CLASSES = 4, BATCH = 10 };

static inline clt_trainer_options trainer_options(void)
{
    clt_trainer_options o;
    clt_trainer_options_init(&o);
    o.optimizer = CLT_ADAM;
    o.lr = 0.02;
    o.batch = BATCH;
    o.seed = 11;
    o.poison = 1;
    return o;
}

static inline lab lab_open(const char *list)
{
    const clt_trainer_options options = trainer_options();
    lab l = lab_on_kept(list);
    lab_store(&l, classifier(IN, HIDDEN, CLASSES), 4);
    lab_trainer(&l, &options);
    return l;
}

static inline clt_reservoir_options reservoir_options(void)
{
    clt_reservoir_options o;
    clt_reservoir_options_init(&o);
    o.seed = 5;
    return o;
}

/* Ranks that are threads call this too, so it asserts nothing. */
static inline clt_status reservoir_make(int64_t capacity, const clt_reservoir_options *options,
                                        clt_dataset **d)
{
    const int64_t shape[] = {IN};
    int label;
    clt_status status = clt_dataset_create_reservoir("live", capacity, options, d);
    if (status == CLT_OK)
        status = clt_dataset_add_field(*d, "x", CLT_F32, 1, shape, NULL, CLT_DATA_BORROW, NULL);
    if (status == CLT_OK)
        status =
            clt_dataset_add_field(*d, "label", CLT_I32, 0, NULL, NULL, CLT_DATA_BORROW, &label);
    return status == CLT_OK ? clt_dataset_set_classes(*d, label, CLASSES) : status;
}

static inline clt_dataset *reservoir_open(int64_t capacity, const clt_reservoir_options *options)
{
    clt_dataset *d;
    ok(reservoir_make(capacity, options, &d));
    return d;
}

static inline float made_up(int64_t id, int k)
{
    return (float)((id * 37 + k * 11) % 101 - 50) / 40;
}

/* Pushes the samples with numbers [first, first + count), at most 64. Their class follows from the
 * first number. */
static inline clt_status push_made_up(clt_dataset *d, int64_t first, int64_t count)
{
    float x[64][IN];
    int32_t labels[64];
    double weights[64];
    const int64_t shape[] = {count, IN};
    clt_array fields[2];
    for (int64_t i = 0; i < count; i++) {
        for (int k = 0; k < IN; k++)
            x[i][k] = made_up(first + i, k);
        labels[i] = (int32_t)((first + i) * 5 % CLASSES);
        weights[i] = 1 + (double)((first + i) % 3);
    }
    clt_status status = clt_array_of(&fields[0], x, CLT_F32, 2, shape);
    if (status == CLT_OK)
        status = clt_array_of(&fields[1], labels, CLT_I32, 1, shape);
    if (status != CLT_OK)
        return status;
    status = clt_dataset_push(d, fields, 2, NULL);
    return status == CLT_INVALID_ARGUMENT && strstr(clt_error_message(), "by weight")
               ? clt_dataset_push(d, fields, 2, weights)
               : status;
}

/* What a run has learnt. */
typedef struct learnt {
    float a[HIDDEN * IN], b[CLASSES * HIDDEN];
} learnt;

static inline learnt read_learnt(const lab *l)
{
    learnt w;
    ok(clt_store_get(l->store, "a.weight", w.a, sizeof w.a));
    ok(clt_store_get(l->store, "b.weight", w.b, sizeof w.b));
    return w;
}

static inline void same_learnt(const learnt *a, const learnt *b)
{
    assert_memory_equal(a->a, b->a, sizeof a->a);
    assert_memory_equal(a->b, b->b, sizeof a->b);
}

static inline clt_reservoir_stats stats_of(clt_dataset *d)
{
    clt_reservoir_stats s;
    clt_reservoir_stats_init(&s);
    ok(clt_dataset_reservoir_stats(d, &s));
    return s;
}

static inline void same_stats(clt_dataset *a, clt_dataset *b)
{
    const clt_reservoir_stats x = stats_of(a), y = stats_of(b);
    assert_memory_equal(&x, &y, sizeof x);
}

#endif
