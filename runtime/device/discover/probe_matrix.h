/* Finds a device's matrix unit by running it: clkernels/core/gpu/matrix_probe.cl. */
#ifndef CLT_DEVICE_DISCOVER_PROBE_MATRIX_H
#define CLT_DEVICE_DISCOVER_PROBE_MATRIX_H

#include "device/core/device.h"

/* Sets caps.matrix and info.matrix_unit of a GPU to the unit whose products are exact in f32. A
 * unit that flushes subnormal numbers of f16 to zero is used for bf16 only. The vendor's name
 * decides which instructions are tried, not whether they are used. Leaves the device without a unit
 * if none compiles. */
void clt_probe_matrix(clt_device *device);

/* Returns whether the unit multiplies matrices of `type` (F16 or BF16) exactly on the device.
 * Writes the reason to `why` (`bytes` bytes) if not. */
bool clt_probe_matrix_exact(clt_device *device, clt_matrix_unit unit, clt_dtype type, char *why,
                            size_t bytes);

#endif
