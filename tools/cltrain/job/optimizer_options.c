/* --optimizer, --lr, and the options that some optimizers have. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "job/job.h"
#include "text/message.h"

#define OF(optimizer) (1U << (optimizer))
enum {
    WITH_MOMENTUM = OF(CLT_MOMENTUM) | OF(CLT_NESTEROV) | OF(CLT_RMSPROP) | OF(CLT_MUON),
    WITH_BETAS = OF(CLT_ADAM) | OF(CLT_ADAMW) | OF(CLT_LION) | OF(CLT_MUON),
    WITH_EPSILON = OF(CLT_ADAM) | OF(CLT_ADAMW) | OF(CLT_RMSPROP) | OF(CLT_ADAGRAD) | OF(CLT_MUON)
};

/* A number that belongs to some optimizers. */
typedef struct number_row {
    const char *option;
    size_t given; /* its place in settings; NaN: not given */
    size_t place; /* in clt_trainer_options */
    unsigned optimizers;
    double least, below;
    const char *range;
} number_row;

#define ROW(option, given, place, optimizers, least, below, range)                                 \
    {                                                                                              \
        option, offsetof(settings, given), offsetof(clt_trainer_options, place), optimizers,       \
            least, below, range                                                                    \
    }
static const number_row rows[] = {
    ROW("momentum", momentum, momentum, WITH_MOMENTUM, 0, 1, "must be below 1"),
    ROW("eps", eps, epsilon, WITH_EPSILON, 1e-45, INFINITY, "must be above 0"),
    ROW("alpha", alpha, alpha, OF(CLT_RMSPROP), 0, 1, "must be below 1"),
    ROW("lr-decay", lr_decay, lr_decay, OF(CLT_ADAGRAD), 0, INFINITY, "must be at least 0"),
    ROW("initial-accumulator", initial_accumulator, initial_accumulator, OF(CLT_ADAGRAD), 0,
        INFINITY, "must be at least 0"),
    ROW("adamw-lr", adamw_lr, adamw_lr, OF(CLT_MUON), 0, INFINITY, "must be at least 0"),
};
enum { ROWS = sizeof rows / sizeof *rows };

/* Fails if the optimizer has no such option. The message lists those that have it. */
static int check_belongs(const clt_trainer_options *o, const char *option, const char *value,
                         unsigned optimizers)
{
    char names[200] = "";
    size_t used = 0;
    if (OF(o->optimizer) & optimizers)
        return 0;
    unsigned left = optimizers;
    for (int i = 0; left; i++) {
        if (!(left & OF(i)))
            continue;
        left &= ~OF(i);
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s",
                                 !used  ? ""
                                 : left ? ", "
                                        : " and ",
                                 clt_optimizer_name((clt_optimizer)i));
    }
    return usage_error("--%s%s%s: is for --optimizer %s, not %s", option, *value ? " " : "", value,
                       names, clt_optimizer_name(o->optimizer));
}

static int read_number(const settings *s, const number_row *row, clt_trainer_options *o)
{
    const double value = *(const double *)((const char *)s + row->given);
    char text[40];
    if (isnan(value))
        return 0;
    snprintf(text, sizeof text, "%g", value);
    TRY(check_belongs(o, row->option, text, row->optimizers));
    if (!(value >= row->least && value < row->below))
        return usage_error("--%s %s: %s", row->option, text, row->range);
    *(double *)((char *)o + row->place) = value;
    return 0;
}

static int read_betas(const char *text, clt_trainer_options *o)
{
    char *end = NULL;
    if (!text)
        return 0;
    TRY(check_belongs(o, "betas", text, WITH_BETAS));
    o->beta1 = strtod(text, &end);
    const int first = end != text && *end == ',';
    const char *second = first ? end + 1 : text;
    o->beta2 = first ? strtod(second, &end) : NAN;
    if (!first || end == second || *end || !(o->beta1 >= 0 && o->beta1 < 1) ||
        !(o->beta2 >= 0 && o->beta2 < 1))
        return usage_error("--betas %s: must be two numbers of at least 0 and below 1, as "
                           "0.9,0.999",
                           text);
    return 0;
}

static int read_muon(const settings *s, clt_trainer_options *o)
{
    static const char *const scales[] = {
        [CLT_MUON_ORIGINAL] = "original", [CLT_MUON_MATCH_RMS_ADAMW] = "match_rms_adamw"};
    if (s->muon_adamw) {
        TRY(check_belongs(o, "muon-adamw", s->muon_adamw, OF(CLT_MUON)));
        o->muon_adamw = s->muon_adamw;
    }
    if (!s->muon_scale)
        return 0;
    TRY(check_belongs(o, "muon-scale", s->muon_scale, OF(CLT_MUON)));
    for (int i = 0; i < (int)(sizeof scales / sizeof *scales); i++)
        if (!strcmp(s->muon_scale, scales[i])) {
            o->muon_scale = (clt_muon_scale)i;
            return 0;
        }
    return usage_error("--muon-scale %s: must be original or match_rms_adamw", s->muon_scale);
}

int read_optimizer(const settings *s, clt_trainer_options *o)
{
    clt_optimizer optimizer = CLT_SGD;
    if (s->optimizer)
        TRY(name_failure(clt_optimizer_parse(s->optimizer, &optimizer)));
    TRY(name_failure(clt_optimizer_defaults(optimizer, o)));
    if (!isnan(s->lr))
        o->lr = s->lr;
    for (int i = 0; i < ROWS; i++)
        TRY(read_number(s, &rows[i], o));
    if (s->centered) {
        TRY(check_belongs(o, "centered", "", OF(CLT_RMSPROP)));
        o->centered = 1;
    }
    TRY(read_betas(s->betas, o));
    return read_muon(s, o);
}
