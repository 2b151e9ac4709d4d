/* Devices whose kernels are those of GPUs. */
#ifndef TESTS_TRAIN_LAB_AS_H
#define TESTS_TRAIN_LAB_AS_H

#include "train/lab.h"

#include "device/core/device.h"

/* Opens devices only: as lab_on_kept or, if `as_gpu`, new ones that take the kernels of GPUs. */
static inline lab lab_as(const char *list, bool as_gpu)
{
    lab l = as_gpu ? lab_on(list, NULL) : lab_on_kept(list);
    for (int d = 0; as_gpu && d < l.n; d++)
        l.devices[d]->caps.kind = CLT_KIND_GPU;
    return l;
}

#endif
