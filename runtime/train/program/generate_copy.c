/* Writes the programs that compare replicas, and copy one to all devices. */
#include "train/program/generate.h"

static void on_checksums(clt_program_writer *w, clt_instruction_kind kind)
{
    clt_write(w,
              (clt_instruction){.kind = kind, .item = -1, .version = CLT_VERSION_NEW, .peer = -1});
}

void clt_write_verify(clt_program_writer *w)
{
    const int all = CLT_GROUP_ALL;
    on_checksums(w, CLT_DO_CHECKSUM);
    clt_write_collective(w, all, CLT_DO_START, CLT_ON_CHECKSUMS, -1, 0, CLT_VERSION_NEW, -1);
    clt_write_collective(w, all, CLT_DO_COMPLETE, CLT_ON_CHECKSUMS, -1, 0, CLT_VERSION_NEW, -1);
    on_checksums(w, CLT_DO_COMPARE);
}

static void copy_one(clt_program_writer *w, clt_axis axis, clt_operand on, int bucket, int slot)
{
    const int group = clt_group_along(w->in, axis);
    clt_instruction i = {.kind = CLT_DO_START,
                         .on = on,
                         .item = bucket,
                         .slot = slot,
                         .version = CLT_VERSION_OLD,
                         .group = group,
                         .peer = clt_mesh_coordinate(&w->in->mesh, axis, w->in->root)};
    clt_write(w, i);
    i.kind = CLT_DO_COMPLETE;
    clt_write(w, i);
}

static void copy_along(clt_program_writer *w, clt_axis axis)
{
    const clt_step_program_input *in = w->in;
    for (int b = 0; b < in->layout->n_buckets; b++)
        if (clt_input_copies_along(in, axis, b))
            copy_one(w, axis, CLT_ON_VALUES, b, 0);
    for (int k = 0; !in->sharded && k < in->n_slots; k++)
        for (int b = 0; b < in->layout->n_buckets; b++)
            if (!in->layout->buckets[b].state && clt_input_copies_along(in, axis, b))
                copy_one(w, axis, CLT_ON_SLOT, b, k);
}

/* Copies along one axis after the other, so that the replica reaches all devices. */
void clt_write_copy(clt_program_writer *w)
{
    for (int axis = 0; axis < CLT_AXES; axis++)
        copy_along(w, (clt_axis)axis);
    clt_write(w, (clt_instruction){
                     .kind = CLT_DO_FINISH, .item = -1, .version = CLT_VERSION_ANY, .peer = -1});
}
