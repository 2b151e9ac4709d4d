/*
 * What stands before and behind an all-reduce that is timed.
 *
 * kernel clt_allreduce_write(buffer, count, seed)
 *   Fills `count` floats with whole numbers below 1024, by element and seed. Before, it computes for
 *   some hundred microseconds, in which the host enqueues what follows.
 * kernel clt_allreduce_read(buffer, count, sample)
 *   One work-item reads SAMPLES elements spread over the buffer and writes them to `sample`.
 * kernel clt_allreduce_check(buffer, count, first, seeds, wrong)
 *   Each work-item counts in `wrong` the elements of its share that are not the sum of what
 *   clt_allreduce_write gives for `seeds` seeds from `first` on.
 *
 * Build options: CPU (0, 1), SAMPLES, DELAY (dependent operations).
 */
#define VALUE(i, seed) (float)(((int)(i) + (seed) * 37) & 1023)

/* The elements of a work-item: a range on CPUs, every so many-th one on GPUs. */
#if CPU
#define EACH(i, count)                                                                             \
    const long share_ = ((count) + get_global_size(0) - 1) / get_global_size(0);                   \
    const long first_ = (long)get_global_id(0) * share_;                                           \
    const long end_ = min(first_ + share_, count);                                                 \
    for (long i = first_; i < end_; i++)
#else
#define EACH(i, count) for (long i = get_global_id(0); i < (count); i += get_global_size(0))
#endif

kernel void clt_allreduce_write(global float *buffer, long count, int seed)
{
    float x = get_global_id(0) ? 0.0f : 1.0f;
    for (int i = 0; x > 0.0f && i < DELAY; i++)
        x = fma(x, 0.5f, 1.0f);
    seed += x > 2.0f;
    EACH(i, count)
    buffer[i] = VALUE(i, seed);
}

kernel void clt_allreduce_read(global const float *buffer, long count, global float *sample)
{
    for (int k = 0; k < SAMPLES; k++)
        sample[k] = buffer[(count - 1) * k / (SAMPLES - 1)];
}

kernel void clt_allreduce_check(global const float *buffer, long count, int first, int seeds,
                                global int *wrong)
{
    int different = 0;
    EACH(i, count)
    {
        float sum = 0;
        for (int k = 0; k < seeds; k++)
            sum += VALUE(i, first + k);
        different += buffer[i] != sum;
    }
    wrong[get_global_id(0)] = different;
}
