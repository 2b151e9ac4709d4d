/*
 * Gradients and the optimizer's tensors in the caller's memory: of the host, also with strides and
 * of other types (<cltrain/array.h>), or OpenCL buffers. Gradients are there between the parts of a
 * step (<cltrain/train.h>), and in clt_fit_options.on_gradients.
 */
#ifndef CLTRAIN_GRADIENTS_H
#define CLTRAIN_GRADIENTS_H

#include <cltrain/train.h>

CLT_BEGIN_DECLS

/* Reads a parameter's gradient from device `device` after backward, reduce or a step; waits. If
 * devices are of different kinds, the sum over devices is read from the device that updates the
 * parameter. Errors also: STATE (no backward since the last forward, since the trainer was made or
 * since a checkpoint was restored), UNSUPPORTED if that device belongs to another rank. */
CLT_API clt_status clt_trainer_gradient(clt_trainer *trainer, int device, const char *name,
                                        void *data, size_t bytes);

/*
 * Sets a parameter's gradient on device `device`, or with -1 on all devices of this rank, from the
 * `bytes` of the whole tensor in f32. Call it after backward, before clt_trainer_apply. A device of
 * a mesh with tp, or with zero 3, takes its part, and so do the devices that have the other parts.
 *
 * - Before clt_trainer_reduce, a gradient is the device's own term of the sum over all devices.
 * - After clt_trainer_reduce, or if clt_trainer_reduced follows, it is the sum itself. Set it on
 *   all devices of all ranks: update, norm, clipping, guard and loss scaling then use it.
 * - With a precision of 16 bits, gradients are rounded to the nearest. Give them without the loss
 *   scale of f16. A gradient that was read and is set again has the same bits.
 * - A parameter that no loss depends on is updated in this step on all devices of this rank if the
 *   gradient of one is set. Of several ranks, all set its gradient, or none does: otherwise
 *   clt_trainer_reduce, or clt_trainer_apply if it measures what was set, fails on all ranks with
 *   MISMATCH, which names the parameter and two ranks. Nothing is updated then.
 * - To add up micro-batches, run forward and backward for each, with loss_weights of the whole
 *   batch, read the gradients, and set their sum after the last backward.
 *
 * Errors: STATE (backward has not run), NOT_FOUND (suggests the nearest name), INVALID_ARGUMENT (a
 * device that is not there, a frozen parameter or state, another size), those of the device.
 */
CLT_API clt_status clt_trainer_set_gradient(clt_trainer *trainer, int device, const char *name,
                                            const void *data, size_t bytes);

/* Get and set a parameter's gradient likewise, in an array of the host with gaps or of f64
 * (<cltrain/array.h>), or in a buffer of a device that has all of the gradient. Errors also: those
 * of clt_trainer_copy_out with a buffer. */
CLT_API clt_status clt_trainer_gradient_array(clt_trainer *trainer, int device, const char *name,
                                              const clt_array *to);
CLT_API clt_status clt_trainer_set_gradient_array(clt_trainer *trainer, int device,
                                                  const char *name, const clt_array *from);

/*
 * Reads the gradient of an input that clt_input_gradient has marked, for the last batch. Call it
 * after clt_trainer_backward, _backward_from, _gradients or _step. It waits for the devices.
 *
 * - device -1: `to` gets the gradients of all samples of this rank's batch. Device d: those of the
 *   device's samples. Of an input without a batch dimension it gets the sum over these samples. The
 *   caller adds up over ranks.
 * - to: memory of the host, also with strides or of f64, or a buffer of the device; as in a
 *   clt_fetch. It is filled when the call returns.
 * - The gradient is that of the objective of the global batch. Losses are divided by their weights
 *   over all ranks and devices; the gradients of outputs count as they are. So without losses it is
 *   the product of the caller's vector and the Jacobian. With f16 it is without the loss scale.
 *
 * A vector-Jacobian product needs no update: call clt_trainer_forward, clt_trainer_backward_from
 * and this function, then clt_trainer_forward of the next batch. For further vectors call only
 * clt_trainer_backward_from again. A full Jacobian is cheaper as one batch with a copy of the
 * sample for each row.
 *
 * Errors: NOT_FOUND (no such input, or not marked), STATE (no backward since the last forward),
 * INVALID_ARGUMENT (the array or device does not fit), UNSUPPORTED (another stage of a pipeline, on
 * another device or rank, has the gradient), those of devices.
 */
CLT_API clt_status clt_trainer_input_gradient(clt_trainer *trainer, int device, const char *name,
                                              const clt_array *to);

/* Access the optimizer's tensors. A slot has a name ("momentum_buffer", or "exp_avg", "exp_avg_sq";
 * NULL past the last), and a tensor for each parameter, as for clt_store_get and clt_store_set. All
 * ranks call slot_get together in the cases in which they call clt_trainer_save. */
CLT_API const char *clt_trainer_slot_name(const clt_trainer *trainer, int slot);
CLT_API clt_status clt_trainer_slot_get(clt_trainer *trainer, int slot, const char *name,
                                        void *data, size_t bytes);
CLT_API clt_status clt_trainer_slot_set(clt_trainer *trainer, int slot, const char *name,
                                        const void *data, size_t bytes);

/* The same in an array of the host with gaps or of f64 (<cltrain/array.h>), or in a buffer of the
 * first device's context. The tensor of a buffer is read from the first device and written to all
 * devices of this rank, which must have all of it. Errors also: INVALID_ARGUMENT (the array), those
 * of clt_trainer_copy_out with a buffer. */
CLT_API clt_status clt_trainer_slot_get_array(clt_trainer *trainer, int slot, const char *name,
                                              const clt_array *to);
CLT_API clt_status clt_trainer_slot_set_array(clt_trainer *trainer, int slot, const char *name,
                                              const clt_array *from);

/* Copy a gradient or an optimizer's tensor from a device, or to it, as clt_store_copy_out and _in
 * do. Gradients in 16 bits are converted on the device, without the loss scale of f16. When and
 * where to write gradients is as for clt_trainer_set_gradient, and rows or elements that are not
 * written stay. UNSUPPORTED also: the device has a shard of the tensor (zero, offload, devices of
 * several kinds). */
CLT_API clt_status clt_trainer_copy_out(clt_trainer *trainer, const clt_tensor_copy *copy,
                                        struct _cl_event **event);
CLT_API clt_status clt_trainer_copy_in(clt_trainer *trainer, const clt_tensor_copy *copy,
                                       struct _cl_event **event);

CLT_END_DECLS

#endif
