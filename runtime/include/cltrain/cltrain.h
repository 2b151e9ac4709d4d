/*
 * The whole public API that needs no other library's headers. Apart are <cltrain/opencl.h>, for
 * programs with OpenCL objects of their own, and <cltrain/comm.h>, collectives on OpenCL buffers.
 */
#ifndef CLTRAIN_CLTRAIN_H
#define CLTRAIN_CLTRAIN_H

#include <cltrain/checkpoint.h>
#include <cltrain/data.h>
#include <cltrain/device.h>
#include <cltrain/export.h>
#include <cltrain/fit.h>
#include <cltrain/graph.h>
#include <cltrain/heartbeat.h>
#include <cltrain/log.h>
#include <cltrain/operators.h>
#include <cltrain/ops.h>
#include <cltrain/ops_conv.h>
#include <cltrain/ops_collective.h>
#include <cltrain/ops_index.h>
#include <cltrain/ops_loss.h>
#include <cltrain/ops_attention.h>
#include <cltrain/ops_nn.h>
#include <cltrain/ops_norm.h>
#include <cltrain/ops_recurrent.h>
#include <cltrain/ops_tensor.h>
#include <cltrain/planner.h>
#include <cltrain/predict.h>
#include <cltrain/status.h>
#include <cltrain/store.h>
#include <cltrain/text.h>
#include <cltrain/tokenizer.h>
#include <cltrain/train.h>
#include <cltrain/types.h>
#include <cltrain/world.h>

#endif
