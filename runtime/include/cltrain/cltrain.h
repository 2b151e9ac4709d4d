/*
 * The whole public API that needs no other library's headers. Apart are <cltrain/opencl.h>, for
 * programs with OpenCL objects of their own, and <cltrain/comm.h>, collectives on OpenCL buffers.
 */
#ifndef CLTRAIN_CLTRAIN_H
#define CLTRAIN_CLTRAIN_H

#include <cltrain/array.h>
#include <cltrain/async.h>
#include <cltrain/checkpoint.h>
#include <cltrain/data.h>
#include <cltrain/device.h>
#include <cltrain/export.h>
#include <cltrain/events.h>
#include <cltrain/fit.h>
#include <cltrain/gradients.h>
#include <cltrain/graph.h>
#include <cltrain/heartbeat.h>
#include <cltrain/local.h>
#include <cltrain/log.h>
#include <cltrain/lora.h>
#include <cltrain/metrics.h>
#include <cltrain/operators.h>
#include <cltrain/ops.h>
#include <cltrain/ops/conv.h>
#include <cltrain/ops/collective.h>
#include <cltrain/ops/index.h>
#include <cltrain/ops/loss.h>
#include <cltrain/ops/attention.h>
#include <cltrain/ops/nn.h>
#include <cltrain/ops/norm.h>
#include <cltrain/ops/recurrent.h>
#include <cltrain/ops/tensor.h>
#include <cltrain/planner.h>
#include <cltrain/policy.h>
#include <cltrain/predict.h>
#include <cltrain/reservoir.h>
#include <cltrain/split.h>
#include <cltrain/status.h>
#include <cltrain/store.h>
#include <cltrain/text.h>
#include <cltrain/tokenizer.h>
#include <cltrain/train.h>
#include <cltrain/types.h>
#include <cltrain/world.h>

#endif
