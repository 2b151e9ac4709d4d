#include "exec/update/optimizer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/str.h"

/* --- numbers of kernels ----------------------------------------------------------------------- */

static int no_numbers(const clt_optimizer_rule *r, double t, bool scaled, double *n)
{
    (void)r, (void)t, (void)scaled, (void)n;
    return 0;
}

static int of_momentum(const clt_optimizer_rule *r, double t, bool scaled, double *n)
{
    (void)t, (void)scaled;
    n[0] = r->momentum;
    n[1] = r->kind == CLT_NESTEROV;
    return 2;
}

static int of_adam(const clt_optimizer_rule *r, double t, bool scaled, double *n)
{
    n[0] = 1 - r->beta1;
    n[1] = r->beta2;
    n[2] = 1 - r->beta2;
    n[3] = r->epsilon;
    n[4] = scaled ? log(r->beta1) : 1 - pow(r->beta1, t);
    n[5] = scaled ? log(r->beta2) : sqrt(1 - pow(r->beta2, t));
    n[6] = t;
    return 7;
}

static int of_rmsprop(const clt_optimizer_rule *r, double t, bool scaled, double *n)
{
    (void)t, (void)scaled;
    n[0] = r->alpha;
    n[1] = 1 - r->alpha;
    n[2] = r->epsilon;
    n[3] = r->momentum;
    return r->momentum > 0 ? 4 : 3;
}

static int of_adagrad(const clt_optimizer_rule *r, double t, bool scaled, double *n)
{
    n[0] = r->epsilon;
    n[1] = scaled ? r->lr_decay : 1 + (t - 1) * r->lr_decay;
    n[2] = t;
    return 3;
}

static int of_lion(const clt_optimizer_rule *r, double t, bool scaled, double *n)
{
    (void)t, (void)scaled;
    n[0] = r->beta1;
    n[1] = 1 - r->beta1;
    n[2] = r->beta2;
    n[3] = 1 - r->beta2;
    return 4;
}

/* --- rows ------------------------------------------------------------------------------------- */

#define VELOCITY "momentum_buffer"
static const clt_optimizer_row rows[] = {
    {CLT_SGD, 0, 0, "sgd", "sgd", 0, {NULL}, false, no_numbers},
    {CLT_MOMENTUM, 0, 0, "momentum", "momentum", 1, {VELOCITY}, false, of_momentum},
    {CLT_NESTEROV, 0, 0, "nesterov", "momentum", 1, {VELOCITY}, false, of_momentum},
    {CLT_ADAM, 0, 0, "adam", "adam", 2, {"exp_avg", "exp_avg_sq"}, false, of_adam},
    {CLT_ADAMW, 0, 0, "adamw", "adam", 2, {"exp_avg", "exp_avg_sq"}, true, of_adam},
    {CLT_RMSPROP, false, false, "rmsprop", "rmsprop", 1, {"square_avg"}, false, of_rmsprop},
    {CLT_RMSPROP,
     true,
     false,
     "rmsprop with momentum",
     "rmsprop_momentum",
     2,
     {"square_avg", VELOCITY},
     false,
     of_rmsprop},
    {CLT_RMSPROP,
     false,
     true,
     "centered rmsprop",
     "rmsprop_centered",
     2,
     {"square_avg", "grad_avg"},
     false,
     of_rmsprop},
    {CLT_RMSPROP,
     true,
     true,
     "centered rmsprop with momentum",
     "rmsprop_centered_momentum",
     3,
     {"square_avg", "grad_avg", VELOCITY},
     false,
     of_rmsprop},
    {CLT_ADAGRAD, 0, 0, "adagrad", "adagrad", 1, {"sum"}, false, of_adagrad},
    {CLT_LION, 0, 0, "lion", "lion", 1, {"exp_avg"}, true, of_lion},
    /* Kernel and numbers are those of parameters that AdamW updates. */
    {CLT_MUON, 0, 0, "muon", "adam", 2, {"exp_avg", "exp_avg_sq"}, true, of_adam},
};

enum { ROWS = sizeof rows / sizeof *rows };

/* The kinds' names, and their usual numbers. Those of lion and muon are the papers', all others
 * PyTorch's. */
typedef struct kind {
    const char *name;
    double lr, momentum, beta1, beta2, epsilon;
} kind;

static const kind kinds[] = {
    [CLT_SGD] = {"sgd", 0.1, 0.9, 0.9, 0.999, 1e-8},
    [CLT_MOMENTUM] = {"momentum", 0.1, 0.9, 0.9, 0.999, 1e-8},
    [CLT_NESTEROV] = {"nesterov", 0.1, 0.9, 0.9, 0.999, 1e-8},
    [CLT_ADAM] = {"adam", 0.001, 0.9, 0.9, 0.999, 1e-8},
    [CLT_ADAMW] = {"adamw", 0.001, 0.9, 0.9, 0.999, 1e-8},
    [CLT_RMSPROP] = {"rmsprop", 0.01, 0, 0.9, 0.999, 1e-8},
    [CLT_ADAGRAD] = {"adagrad", 0.01, 0.9, 0.9, 0.999, 1e-10},
    [CLT_LION] = {"lion", 0.0001, 0.9, 0.9, 0.99, 1e-8},
    [CLT_MUON] = {"muon", 0.02, 0.95, 0.9, 0.95, 1e-10},
};

enum { KINDS = sizeof kinds / sizeof *kinds };

static const kind *find_kind(clt_optimizer optimizer)
{
    return (int)optimizer >= 0 && (int)optimizer < KINDS ? &kinds[optimizer] : NULL;
}

double clt_optimizer_momentum(const clt_trainer_options *o)
{
    const kind *k = find_kind(o->optimizer);
    return o->momentum == CLT_USUAL_MOMENTUM && k ? k->momentum : o->momentum;
}

clt_optimizer_rule clt_optimizer_rule_of(const clt_trainer_options *o)
{
    return (clt_optimizer_rule){.kind = o->optimizer,
                                .momentum = clt_optimizer_momentum(o),
                                .beta1 = o->beta1,
                                .beta2 = o->beta2,
                                .epsilon = o->epsilon,
                                .weight_decay = o->weight_decay,
                                .alpha = o->alpha,
                                .lr_decay = o->lr_decay,
                                .initial = o->optimizer == CLT_ADAGRAD ? o->initial_accumulator : 0,
                                .decoupled = o->decoupled != 0,
                                .centered = o->centered != 0,
                                .matches_rms = o->muon_scale == CLT_MUON_MATCH_RMS_ADAMW,
                                .rate = o->optimizer == CLT_MUON && o->lr > 0 ? o->adamw_lr / o->lr
                                                                              : 1};
}

const clt_optimizer_row *clt_optimizer_find(const clt_optimizer_rule *rule)
{
    const bool varies = rule->kind == CLT_RMSPROP;
    for (int i = 0; i < ROWS; i++)
        if (rows[i].kind == rule->kind && (!varies || (rows[i].momentum == (rule->momentum > 0) &&
                                                       rows[i].centered == rule->centered)))
            return &rows[i];
    return NULL;
}

const clt_optimizer_row *clt_optimizer_of(const clt_trainer_options *options)
{
    const clt_optimizer_rule rule = clt_optimizer_rule_of(options);
    return clt_optimizer_find(&rule);
}

bool clt_optimizer_keeps_same(const clt_optimizer_row *a, const clt_optimizer_row *b)
{
    bool same = a->n_slots == b->n_slots;
    for (int i = 0; i < a->n_slots && same; i++)
        same = !strcmp(a->slots[i], b->slots[i]);
    return same;
}

void clt_optimizer_keeps(const clt_optimizer_row *row, char *text, size_t bytes)
{
    size_t used = 0;
    *text = '\0';
    for (int i = 0; i < row->n_slots && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", i ? ", " : "", row->slots[i]);
}

/* --- the public functions --------------------------------------------------------------------- */

const char *clt_optimizer_name(clt_optimizer optimizer)
{
    const kind *k = find_kind(optimizer);
    return k ? k->name : "?";
}

clt_status clt_optimizer_defaults(clt_optimizer optimizer, clt_trainer_options *o)
{
    const kind *k = find_kind(optimizer);
    if (!k)
        return clt_fail(CLT_INVALID_ARGUMENT, "optimizer %d does not exist", (int)optimizer);
    o->optimizer = optimizer;
    o->lr = k->lr;
    o->momentum = k->momentum;
    o->beta1 = k->beta1;
    o->beta2 = k->beta2;
    o->epsilon = k->epsilon;
    o->alpha = 0.99;
    o->centered = 0;
    o->lr_decay = o->initial_accumulator = 0;
    o->muon_scale = CLT_MUON_ORIGINAL;
    o->adamw_lr = CLT_USUAL_ADAMW_LR;
    return CLT_OK;
}

clt_status clt_optimizer_parse(const char *text, clt_optimizer *optimizer)
{
    const char *names[KINDS];
    clt_str all = {0};
    for (int i = 0; i < KINDS; i++) {
        names[i] = kinds[i].name;
        clt_str_add(&all, "%s%s", i ? ", " : "", names[i]);
        if (!strcmp(text, names[i])) {
            *optimizer = (clt_optimizer)i;
            clt_str_free(&all);
            return CLT_OK;
        }
    }
    const char *near = clt_nearest(text, names, KINDS);
    const clt_status status =
        clt_fail(CLT_NOT_FOUND, "optimizer '%s' is none of %s%s%s%s", text, clt_str_text(&all),
                 near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
    clt_str_free(&all);
    return status;
}
