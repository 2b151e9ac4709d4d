/* The optimizers: rows for each value of clt_optimizer in <cltrain/train.h>. */
#ifndef CLT_EXEC_UPDATE_OPTIMIZER_H
#define CLT_EXEC_UPDATE_OPTIMIZER_H

#include "exec/replica.h"
#include <cltrain/train.h>

/* What of clt_trainer_options decides how an optimizer updates. */
typedef struct clt_optimizer_rule {
    clt_optimizer kind;
    double momentum, beta1, beta2, epsilon, weight_decay, alpha, lr_decay;
    double initial; /* value of new slots */
    bool decoupled; /* decay acts on the weight itself, not on the gradient */
    bool centered;
    bool matches_rms; /* muon: CLT_MUON_MATCH_RMS_ADAMW */
    double rate;      /* multiplies the learning rate of the kernel; not of muon's matrices */
} clt_optimizer_rule;

/* Values of clt_trainer_options: the momentum that stands for the optimizer's usual one, and the
 * usual rate of the parameters that muon leaves to AdamW. */
#define CLT_USUAL_MOMENTUM (-1.0)
#define CLT_USUAL_ADAMW_LR 3e-4

/* Returns the momentum that the options ask for. */
double clt_optimizer_momentum(const clt_trainer_options *options);

/* Most numbers that a kernel gets behind the common arguments and its slots. */
enum { CLT_MAX_OPTIMIZER_NUMBERS = 8 };

typedef struct clt_optimizer_row {
    clt_optimizer kind;
    bool momentum, centered; /* of rmsprop: for which rules the row is */
    const char *name;        /* with what tells the rows of a kind apart */
    const char *kernel;      /* in train/portable/update.cl and train/gpu/update.cl */
    int n_slots;             /* tensors kept for each parameter */
    const char *slots[CLT_MAX_OPTIMIZER_SLOTS]; /* PyTorch's names of these tensors */
    bool decouples;                             /* decay always acts on the weight */
    /* Writes the kernel's numbers in step t = 1, 2, ... and returns how many they are. If losses
     * are `scaled`, the kernel subtracts skipped steps from t itself, and gets numbers that do not
     * depend on it. */
    int (*numbers)(const clt_optimizer_rule *rule, double t, bool scaled, double *numbers);
} clt_optimizer_row;

clt_optimizer_rule clt_optimizer_rule_of(const clt_trainer_options *options);

/* Return the row of a rule; NULL if there is no such optimizer. */
const clt_optimizer_row *clt_optimizer_find(const clt_optimizer_rule *rule);
const clt_optimizer_row *clt_optimizer_of(const clt_trainer_options *options);

/* Whether two optimizers keep the same tensors, so that trainers can share them. */
bool clt_optimizer_keeps_same(const clt_optimizer_row *a, const clt_optimizer_row *b);

/* Writes the names of the tensors, separated by commas. */
void clt_optimizer_keeps(const clt_optimizer_row *row, char *text, size_t bytes);

#endif
