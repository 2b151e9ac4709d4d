/* What a driver claims, tried out. */
#ifndef CLT_DEVICE_DISCOVER_PROBE_H
#define CLT_DEVICE_DISCOVER_PROBE_H

#include "device/core/device.h"

/* Clears caps.fp16 and info.fp16 if a kernel in half precision does not compile or computes
 * something else. Nothing is compiled for devices that do not claim it. */
void clt_probe_half(clt_device *device);

/* Narrows caps.vector_width and caps.vector_registers to those of the processor that a driver with
 * CLT_QUIRK_HOST_WIDTH was told to compile for. */
void clt_probe_width(clt_device *device);

#endif
