/*
 * The micro-batches of a step when several are in flight, as in a pipeline. With F in flight, of m:
 *
 *     forward of 0 .. F - 1;  backward of k and forward of k + F, for k = 0 .. m - F - 1;
 *     backward of m - F .. m - 1
 *
 * Stage s of p stages has F = p - s in 1F1B (Narayanan et al., "PipeDream", 2019) and F = m in
 * GPipe (Huang et al., 2019). Both run backward in the order of the micro-batches, so the gradients
 * are added in one order, and the bits are those of forward and backward of each micro-batch in
 * turn. What a
 * stage sends lies in the micro-batch's own memory. So the stage waits for the receiver only before
 * it uses this memory again, and at the end.
 */
#include "train/program/generate.h"

void clt_write_refeed(clt_program_writer *w, int micro)
{
    clt_write(w, (clt_instruction){.kind = CLT_DO_REFEED,
                                   .item = -1,
                                   .micro = micro,
                                   .version = CLT_VERSION_ANY,
                                   .peer = -1});
}

static void backward(clt_program_writer *w, int micro)
{
    if (w->in->in_flight > 1)
        clt_write_refeed(w, micro);
    clt_write_backward(w, micro, false);
}

/* Backward of a micro-batch makes room for forward of a further one, once other stages have what
 * was sent. */
static void turn(clt_program_writer *w, int micro)
{
    const int flight = w->in->in_flight;
    backward(w, micro);
    clt_write_sent(w, w->in->plan->n_nodes, micro);
    w->ahead = micro < 0 ? flight : 0;
    clt_write_forward(w, micro < 0 ? micro : micro + flight);
    w->ahead = 0;
}

void clt_write_flights(clt_program_writer *w)
{
    const int flight = w->in->in_flight;
    const bool more = w->in->rounds > flight;
    for (int k = 0; k < flight; k++)
        clt_write_forward(w, k);
    if (more) {
        turn(w, 0);
        w->out->loop_first = w->out->n;
        turn(w, CLT_MICRO_EACH);
        w->out->loop_end = w->out->n;
        w->out->behind = flight;
    }
    for (int k = 0; k < flight; k++) {
        w->ahead = more ? k - flight + 1 : 0;
        backward(w, more ? CLT_MICRO_LAST : k);
    }
    for (int k = 0; k < flight; k++) {
        w->ahead = more ? k - flight + 1 : 0;
        clt_write_sent(w, w->in->plan->n_nodes, more ? CLT_MICRO_LAST : k);
    }
    w->ahead = 0;
}

/* Adds up the gradients of parameters that several stages have, before devices along dp add up
 * theirs. */
void clt_write_tied(clt_program_writer *w, int last)
{
    const clt_step_program_input *in = w->in;
    const int own = clt_mesh_coordinate(&in->mesh, CLT_AXIS_PIPELINE, in->self);
    for (int i = 0; i < in->layout->n_slots; i++) {
        const clt_slot *slot = &in->layout->slots[i];
        if (!clt_slot_tied(slot) || !(slot->stages >> own & 1))
            continue;
        const int group = clt_group_tied(in, i);
        clt_write_collective(w, group, CLT_DO_START, CLT_ON_TIED, i, last, last, -1);
        clt_write_collective(w, group, CLT_DO_COMPLETE, CLT_ON_TIED, i, last, last, -1);
    }
}
