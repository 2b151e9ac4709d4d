/* Declarations that the generators of programs share. */
#ifndef CLT_TRAIN_PROGRAM_GENERATE_H
#define CLT_TRAIN_PROGRAM_GENERATE_H

#include "train/program/program.h"

typedef struct clt_program_writer {
    const clt_step_program_input *in;
    clt_step_program *out;
    clt_status status; /* the first failure; later instructions are dropped */
    clt_load load;
    int ahead; /* of the instructions that are added */
} clt_program_writer;

/* Whether a device has several micro-batches, or rounds without any. */
static inline bool clt_load_is_many(clt_load load)
{
    return load == CLT_LOAD_MANY || load == CLT_LOAD_EMPTY_MANY;
}

/* Adds an instruction. */
void clt_write(clt_program_writer *writer, clt_instruction instruction);

/* Adds START or COMPLETE of a collective. */
void clt_write_collective(clt_program_writer *writer, int group, clt_instruction_kind kind,
                          clt_operand on, int item, int micro, int version, int peer);

/* Adds an instruction for micro-batch `micro`, or for the whole device. */
void clt_write_plain(clt_program_writer *writer, clt_instruction_kind kind, int micro, int version);

/* Starts the reduction of a bucket of gradients, if devices divide the samples. */
void clt_write_start_gradient(clt_program_writer *writer, int bucket);

/* Add forward of a micro-batch; the inputs that it had, for backward; forward of the only one
 * again, on the inputs that it had; the gradients of its outputs; and backward. With `reduce`,
 * buckets are reduced as soon as they are ready. */
void clt_write_forward(clt_program_writer *writer, int micro);
void clt_write_refeed(clt_program_writer *writer, int micro);
void clt_write_forward_again(clt_program_writer *writer);
void clt_write_upstream(clt_program_writer *writer, int micro);
void clt_write_backward(clt_program_writer *writer, int micro, bool reduce);

/* Adds what a device without samples computes: states that do not depend on the batch. */
void clt_write_idle(clt_program_writer *writer);

/* Add a micro-batch of which only the weights of losses are used; one outside of training; and one
 * of an earlier step, node by node. */
void clt_write_weights(clt_program_writer *writer, int micro);
void clt_write_outside(clt_program_writer *writer, int micro);
void clt_write_diagnosis(clt_program_writer *writer, int micro);

/* Waits until the other stages have what nodes before `end` sent of a micro-batch. */
void clt_write_sent(clt_program_writer *writer, int end, int micro);

/* Adds all micro-batches of a step with in->in_flight. */
void clt_write_flights(clt_program_writer *writer);

/* Adds up the gradients of parameters that two stages have, before devices along dp add up theirs.
 * `last` is the last micro-batch. */
void clt_write_tied(clt_program_writer *writer, int last);

/* Adds the comparison of all devices' replicas. */
void clt_write_verify(clt_program_writer *writer);

/* Adds the copy of the replica of in->root to all devices. */
void clt_write_copy(clt_program_writer *writer);

#endif
