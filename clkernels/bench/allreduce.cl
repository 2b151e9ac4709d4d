/*
 * Kernels before and after an all-reduce that is timed
 * (runtime/train/planner/measure_all_reduce.c).
 *
 * kernel clt_allreduce_write(buffer, count, seed)
 *   Fills `count` floats with whole numbers below 1024 that depend on element and seed, so that
 *   sums over devices are exact. Work-item 0 first computes a chain of DELAY dependent operations,
 *   which gives the host time to enqueue the commands that follow.
 * kernel clt_allreduce_read(buffer, count, sample)
 *   One work-item copies SAMPLES elements, spread over the buffer, to `sample`.
 * kernel clt_allreduce_check(buffer, count, first, seeds, wrong)
 *   Checks the sums over devices with seeds first .. first + seeds - 1. Each work-item counts the
 *   wrong elements of its share and writes the number to wrong[its global id].
 *
 * Build options: CPU (0, 1), SAMPLES, DELAY.
 */
#define VALUE(i, seed) (float)(((int)(i) + (seed) * 37) & 1023)

/* Loops over the elements of a work-item: a contiguous range on CPUs; on GPUs every n-th element, n
 * being the number of work-items. */
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
    /* x tends to 2 and never exceeds it, but the compiler cannot know that and keeps the loop. */
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
