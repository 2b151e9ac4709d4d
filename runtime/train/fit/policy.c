/* The policies that the library has, each an instance of clt_policy. */
#include <cltrain/policy.h>

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "train/fit/policies.h"

CLT_STRUCT_INIT(clt_policy, .name = NULL)
CLT_STRUCT_INIT(clt_plateau, .factor = 0.1, .patience = 10, .threshold = 1e-4, .epsilon = 1e-8)

double clt_evaluation_value(const clt_evaluation *e, const char *name, int *found)
{
    for (int i = 0; i < e->count; i++)
        if (!strcmp(e->names[i], name)) {
            if (found)
                *found = 1;
            return e->values[i];
        }
    if (found)
        *found = 0;
    return NAN;
}

clt_status clt_metric_direction(const char *metric, int *larger)
{
    static const char *const smaller_ones[] = {"loss", "error", "mae", "mse", "rmse", "perplexity"};
    static const char *const larger_ones[] = {"accuracy", "precision", "recall", "f1",   "auc",
                                              "r2",       "iou",       "dice",   "top1", "top2",
                                              "top3",     "top4",      "top5"};
    const size_t length = strlen(metric);
    for (int k = 0; k < 2; k++) {
        const char *const *words = k ? larger_ones : smaller_ones;
        const size_t count = k ? sizeof larger_ones / sizeof *larger_ones
                               : sizeof smaller_ones / sizeof *smaller_ones;
        for (size_t i = 0; i < count; i++) {
            const size_t word = strlen(words[i]);
            const bool ends = length >= word && !strcmp(metric + length - word, words[i]);
            if (!ends || (length > word && metric[length - word - 1] != '_'))
                continue;
            *larger = k;
            return CLT_OK;
        }
    }
    return clt_fail(CLT_NOT_FOUND,
                    "it is not known whether a larger '%.100s' is better: say min:%.100s or "
                    "max:%.100s, or set clt_watched.larger",
                    metric, metric, metric);
}

/* The state of a policy that watches a metric. */
typedef struct watcher {
    clt_policy policy; /* the first member: a policy of this file is a watcher */
    char *metric;
    int larger;
    double least;
    int64_t evaluations; /* patience */
    clt_plateau plateau;
    double best; /* NaN: none yet */
    int64_t best_step, bad, cooldown, reductions;
    /* Plateau: the base rate of the run, what earlier plateaus made of it, and the rate now */
    double base, scale, rate;
} watcher;

static clt_status plateau_begin(void *user, clt_policy_run *run, const char *state);

/* --- state ----------------------------------------------------------------------------------- */

static char *save(void *user)
{
    const watcher *w = user;
    json_t *json = json_pack("{s:s, s:I, s:I, s:I, s:I}", "metric", w->metric, "best_step",
                             (json_int_t)w->best_step, "bad", (json_int_t)w->bad, "cooldown",
                             (json_int_t)w->cooldown, "reductions", (json_int_t)w->reductions);
    if (json && isfinite(w->best))
        json_object_set_new(json, "best", json_real(w->best));
    if (json && w->policy.begin == plateau_begin)
        json_object_update_new(json, json_pack("{s:f, s:f, s:f, s:f, s:f}", "base", w->base,
                                               "scale", w->scale, "rate", w->rate, "factor",
                                               w->plateau.factor, "minimum", w->plateau.minimum));
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    return text;
}

static int64_t integer(const json_t *json, const char *name)
{
    return (int64_t)json_integer_value(json_object_get(json, name));
}

/* A state of another metric says nothing about this one. */
static void load(watcher *w, const char *state)
{
    w->best = NAN;
    w->best_step = w->bad = w->cooldown = w->reductions = 0;
    json_t *json = state ? json_loads(state, 0, NULL) : NULL;
    const char *metric = json_string_value(json_object_get(json, "metric"));
    const json_t *best = json_object_get(json, "best");
    if (metric && strcmp(metric, w->metric))
        clt_log(CLT_LOG_WARN,
                "policy %s watched %s before and watches %s now: it begins anew, without a best "
                "value",
                w->policy.name, metric, w->metric);
    else if (json) {
        w->best = json_is_number(best) ? json_number_value(best) : NAN;
        w->best_step = integer(json, "best_step");
        w->bad = integer(json, "bad");
        w->cooldown = integer(json, "cooldown");
    }
    w->reductions = integer(json, "reductions");
    json_decref(json);
}

/* Whether an evaluation has the watched metric, as *value. */
static bool has_value(const watcher *w, const clt_evaluation *e, double *value)
{
    int found;
    *value = clt_evaluation_value(e, w->metric, &found);
    return found;
}

static clt_status check(const watcher *w, const clt_policy_run *run)
{
    return clt_policies_check_metric(run, w->policy.name, w->metric);
}

/* --- keep the best --------------------------------------------------------------------------- */

static clt_status best_begin(void *user, clt_policy_run *run, const char *state)
{
    load(user, state);
    return check(user, run);
}

/* Whether a value is better than the best by more than w->least. A first number is always better;
 * one that is not finite never is. */
static bool improves(const watcher *w, double value)
{
    if (!isfinite(value))
        return false;
    return isnan(w->best) || (w->larger ? value > w->best + w->least : value < w->best - w->least);
}

static clt_status best_evaluated(void *user, clt_policy_run *run, const clt_evaluation *e)
{
    watcher *w = user;
    char why[256];
    double value;
    if (!has_value(w, e, &value) || !improves(w, value))
        return CLT_OK;
    w->best = value;
    w->best_step = e->step;
    snprintf(why, sizeof why, "%.200s %.4f is the best so far", w->metric, value);
    clt_policy_keep(run, why);
    return CLT_OK;
}

void clt_policy_tell_best(const clt_policy *policy)
{
    const watcher *w = policy->begin == best_begin ? policy->user : NULL;
    if (w && isnan(w->best))
        clt_log(CLT_LOG_WARN,
                "policy %s: no evaluation had a finite number as %s, so there is no best "
                "checkpoint",
                policy->name, w->metric);
}

/* --- patience -------------------------------------------------------------------------------- */

static void stop_if_due(const watcher *w, clt_policy_run *run)
{
    char why[400];
    if (w->bad < w->evaluations)
        return;
    char by[48] = "";
    if (w->least > 0)
        snprintf(by, sizeof by, " by more than %g", w->least);
    char since[80] = "";
    if (isfinite(w->best))
        snprintf(since, sizeof since, ", since %.4f at step %lld", w->best,
                 (long long)w->best_step);
    snprintf(why, sizeof why, "%.200s has %s%s for %lld evaluation%s%s", w->metric,
             *since ? "not improved" : "been no finite number", by, (long long)w->bad,
             w->bad == 1 ? "" : "s", since);
    clt_policy_stop(run, why);
}

static clt_status patience_begin(void *user, clt_policy_run *run, const char *state)
{
    load(user, state);
    stop_if_due(user, run);
    return check(user, run);
}

static clt_status patience_evaluated(void *user, clt_policy_run *run, const clt_evaluation *e)
{
    watcher *w = user;
    double value;
    if (!has_value(w, e, &value))
        return CLT_OK;
    if (improves(w, value)) {
        w->best = value;
        w->best_step = e->step;
        w->bad = 0;
    } else {
        w->bad++;
    }
    stop_if_due(w, run);
    return CLT_OK;
}

/* --- plateau --------------------------------------------------------------------------------- */

static double reduced(const watcher *w, double lr)
{
    return fmax(lr * w->plateau.factor, w->plateau.minimum);
}

static double real(const json_t *json, const char *name)
{
    return json_number_value(json_object_get(json, name));
}

/* Whether a state is of a plateau with another factor or minimum. A minimum that was scaled as the
 * base rate was (--global-batch scaled) is the same. */
static bool is_other_plateau(const watcher *w, const json_t *json)
{
    const double before = real(json, "minimum") * w->base, now = w->plateau.minimum;
    const double scaled = now * real(json, "base");
    return real(json, "factor") != w->plateau.factor ||
           (real(json, "minimum") != now && fabs(before - scaled) > 1e-9 * fabs(before));
}

/* Reads what the state says of the rate. The reductions of another plateau stay as they are, and
 * this one goes on from there. */
static void load_rate(watcher *w, const char *state)
{
    json_t *json = state ? json_loads(state, 0, NULL) : NULL;
    const double base = real(json, "base");
    const bool known = json_object_get(json, "factor") != NULL;
    w->scale = known ? real(json, "scale") : 1;
    if (known && is_other_plateau(w, json)) {
        w->scale = base > 0 ? real(json, "rate") / base : 1;
        if (w->reductions)
            clt_log(CLT_LOG_WARN,
                    "policy plateau had the factor %g and the minimum %g before, and has %g and %g "
                    "now: the rate stays at %g until the next reduction",
                    real(json, "factor"), real(json, "minimum"), w->plateau.factor,
                    w->plateau.minimum, w->base * w->scale);
        w->reductions = 0;
    }
    json_decref(json);
}

/* The rate follows from the run's own base rate, which may be another one after a resume
 * (--global-batch scaled). */
static clt_status plateau_begin(void *user, clt_policy_run *run, const char *state)
{
    watcher *w = user;
    load(w, state);
    w->base = clt_policy_lr(run);
    CLT_TRY(check(w, run));
    load_rate(w, state);
    w->rate = w->base * w->scale;
    for (int64_t i = 0; i < w->reductions; i++)
        w->rate = reduced(w, w->rate);
    return w->rate != w->base ? clt_policy_set_lr(run, w->rate, NULL) : CLT_OK;
}

static bool above_threshold(const watcher *w, double value)
{
    if (isnan(w->best))
        return isfinite(value);
    return w->larger ? value > w->best * (w->plateau.threshold + 1)
                     : value < w->best * (1 - w->plateau.threshold);
}

static clt_status plateau_evaluated(void *user, clt_policy_run *run, const clt_evaluation *e)
{
    watcher *w = user;
    char why[400];
    double value;
    if (!has_value(w, e, &value))
        return CLT_OK;
    if (above_threshold(w, value)) {
        w->best = value;
        w->best_step = e->step;
        w->bad = 0;
    } else {
        w->bad++;
    }
    if (w->cooldown > 0) {
        w->cooldown--;
        w->bad = 0;
    }
    if (w->bad <= w->plateau.patience)
        return CLT_OK;
    const double lr = clt_policy_lr(run), next = reduced(w, lr);
    snprintf(why, sizeof why, "%.200s has not improved for %lld evaluation%s", w->metric,
             (long long)w->bad, w->bad == 1 ? "" : "s");
    w->cooldown = w->plateau.cooldown;
    w->bad = 0;
    if (!(lr - next > w->plateau.epsilon))
        return CLT_OK;
    w->reductions++;
    w->rate = next;
    return clt_policy_set_lr(run, next, why);
}

/* --- making ---------------------------------------------------------------------------------- */

void clt_policy_destroy(clt_policy *policy)
{
    if (policy && policy->destroy)
        policy->destroy(policy->user);
}

static void destroy(void *user)
{
    watcher *w = user;
    CLT_FREE(w->metric, w);
}

static clt_status make(const clt_watched *watch, const char *name, watcher **out)
{
    if (!watch || !watch->metric || !*watch->metric || !out)
        return clt_fail(CLT_INVALID_ARGUMENT, "policy %s needs a metric and a place for the result",
                        name);
    if (!(watch->least >= 0) || !isfinite(watch->least))
        return clt_fail(
            CLT_INVALID_ARGUMENT,
            "policy %s: the least improvement is %g: it must be finite and not negative", name,
            watch->least);
    watcher *w = CLT_NEW(watcher);
    CLT_TRY_MEMORY(w);
    w->metric = clt_strdup(watch->metric);
    if (!w->metric) {
        clt_free(w);
        return CLT_OUT_OF_MEMORY;
    }
    clt_policy_init(&w->policy);
    w->policy.name = name;
    w->policy.user = w;
    w->policy.save = save;
    w->policy.destroy = destroy;
    w->larger = watch->larger != 0;
    w->best = NAN;
    *out = w;
    return CLT_OK;
}

clt_status clt_policy_best(const clt_watched *watch, clt_policy **out)
{
    watcher *w = NULL;
    CLT_TRY(make(watch, "keep-best", &w));
    w->policy.begin = best_begin;
    w->policy.evaluated = best_evaluated;
    *out = &w->policy;
    return CLT_OK;
}

clt_status clt_policy_patience(const clt_watched *watch, int64_t evaluations, clt_policy **out)
{
    watcher *w = NULL;
    if (evaluations < 1)
        return clt_fail(CLT_INVALID_ARGUMENT, "a patience of %lld evaluations: must be at least 1",
                        (long long)evaluations);
    CLT_TRY(make(watch, "patience", &w));
    w->policy.begin = patience_begin;
    w->policy.evaluated = patience_evaluated;
    w->least = watch->least;
    w->evaluations = evaluations;
    *out = &w->policy;
    return CLT_OK;
}

static clt_status check_plateau(const clt_plateau *p)
{
    CLT_TRY(CLT_CHECK_STRUCT(p, clt_plateau));
    if (!(p->factor > 0 && p->factor < 1) || p->patience < 0 || p->cooldown < 0 ||
        !(p->minimum >= 0) || !(p->threshold >= 0) || !(p->epsilon >= 0))
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "a plateau with factor %g, patience %lld, cooldown %lld, minimum %g, "
                        "threshold %g and epsilon %g: the factor must be between 0 and 1, the "
                        "others not negative",
                        p->factor, (long long)p->patience, (long long)p->cooldown, p->minimum,
                        p->threshold, p->epsilon);
    return CLT_OK;
}

clt_status clt_policy_plateau(const clt_watched *watch, const clt_plateau *plateau,
                              clt_policy **out)
{
    watcher *w = NULL;
    CLT_TRY(check_plateau(plateau));
    CLT_TRY(make(watch, "plateau", &w));
    w->policy.begin = plateau_begin;
    w->policy.evaluated = plateau_evaluated;
    w->plateau = *plateau;
    *out = &w->policy;
    return CLT_OK;
}

clt_status clt_plateau_parse(const char *text, clt_plateau *plateau)
{
    clt_plateau p;
    long long patience = 0;
    int used = 0;
    clt_plateau_init(&p);
    const int read =
        sscanf(text, "plateau:%lf:%lld%n:%lf%n", &p.factor, &patience, &used, &p.minimum, &used);
    p.patience = patience;
    if (read < 2 || text[used] || check_plateau(&p) != CLT_OK)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "schedule '%s' is not plateau:FACTOR:PATIENCE[:MIN] (a factor between 0 "
                        "and 1, a number of evaluations, a rate that is not negative)",
                        text);
    *plateau = p;
    return CLT_OK;
}
