/* Averages of the parameters over the steps of training, and their exchange with the parameters.
 * The status of a step is that of train/update.clh: its first number is 1 if the step is committed.
 * number[0] counts the steps that are in the averages. */
#pragma OPENCL FP_CONTRACT OFF

/* `weight` 0: the mean of all steps; else the weight of this step. The first step is copied. */
kernel void average(global const float *status, global const int *number,
                    global const float *values, global float *averages, int first, int count,
                    float weight)
{
    const int i = (int)get_global_id(0);
    if (i >= count || status[0] != 1.0f)
        return;
    const int n = number[0];
    const float value = values[first + i], old = averages[first + i], step = value - old;
    averages[first + i] = n == 0        ? value
                          : weight > 0 ? old + weight * step
                                       : old + step / (float)(n + 1);
}

/* Other types than f32 are copied. */
kernel void follow(global const float *status, global const uint *values, global uint *averages,
                   int first, int count)
{
    const int i = (int)get_global_id(0);
    if (i < count && status[0] == 1.0f)
        averages[first + i] = values[first + i];
}

kernel void counted(global const float *status, global int *number)
{
    if (get_global_id(0) == 0 && status[0] == 1.0f)
        number[0]++;
}

kernel void exchange(global uint *values, global uint *averages, int count)
{
    const int i = (int)get_global_id(0);
    if (i >= count)
        return;
    const uint kept = values[i];
    values[i] = averages[i];
    averages[i] = kept;
}
