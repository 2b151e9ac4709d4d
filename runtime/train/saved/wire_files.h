/*
 * Residuals of 16 bits on the wire (step/wire.h) in checkpoints. They are tensors of the
 * optimizer's file: PARAMETER.wire.SENDER. A sender is deviceP (participant P of all ranks), or
 * rankR, nodeR or sumR: what rank R rounds for its node, for other nodes, and as the owner of sums;
 * or `parked`. The section "wire" of state.json has the type, the layout of devices and ranks, and
 * the senders.
 */
#ifndef CLT_TRAIN_SAVED_WIRE_FILES_H
#define CLT_TRAIN_SAVED_WIRE_FILES_H

#include "train/core/trainer.h"
#include <cltrain/checkpoint.h>

#define CLT_SECTION_WIRE "wire"

/* Tensors of residuals, and the section's text. All zero: there are none. */
typedef struct clt_wire_saved {
    char *section;
    clt_tensor *items;
    int count;
    char **names;  /* by item */
    float ***data; /* by sender: arrays by bucket; NULL: only the names are known */
    int n_senders;
} clt_wire_saved;

/* Gathers the residuals of all ranks on rank 0. Collective if there are several ranks and the wire
 * has 16 bits. */
clt_status clt_wire_collect(clt_trainer *trainer, clt_wire_saved *saved);

/* Lists the tensors that a checkpoint has, without data. Fails with MISMATCH if its type on the
 * wire is not this trainer's. */
clt_status clt_wire_expect(const clt_trainer *trainer, const clt_checkpoint *checkpoint,
                           clt_wire_saved *expected);

void clt_wire_saved_free(const clt_trainer *trainer, clt_wire_saved *saved);

/* Sets the residuals of this rank from a checkpoint. `together`: all ranks call it, and only rank 0
 * has a checkpoint. */
clt_status clt_wire_restore(clt_trainer *trainer, const clt_checkpoint *checkpoint, bool together);

#endif
