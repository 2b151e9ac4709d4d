/* Tests capabilities that a driver claims. */
#ifndef CLT_DEVICE_DISCOVER_PROBE_H
#define CLT_DEVICE_DISCOVER_PROBE_H

#include "device/core/device.h"

/* Clears caps.fp16 and info.fp16 if a test kernel in half precision does not compile or computes a
 * wrong result. Compiles nothing if the device does not claim half precision. */
void clt_probe_half(clt_device *device);

/* Reduces caps.vector_width and caps.vector_registers to those of the processor for which a driver
 * with CLT_QUIRK_HOST_WIDTH was told to compile. */
void clt_probe_width(clt_device *device);

#endif
