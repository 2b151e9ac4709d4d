#include "train/fit/policies.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/str.h"
#include "train/fit/fit.h"

/* --- what policies call ----------------------------------------------------------------------- */

clt_trainer *clt_policy_trainer(const clt_policy_run *run)
{
    return run->fit->trainer;
}

static void say(const clt_policy_run *run, const char *what, const char *why)
{
    const clt_fit_run *f = run->fit;
    char text[600];
    snprintf(text, sizeof text, "%s%s%s", what, *what && why ? ": " : "", why ? why : "");
    if (*text && f->options->on_policy)
        f->options->on_policy(f->options->user, f->trainer->steps, text);
}

void clt_policy_stop(clt_policy_run *run, const char *why)
{
    if (!run->stop)
        say(run, "the run ends", why);
    run->stop = true;
}

void clt_policy_keep(clt_policy_run *run, const char *why)
{
    if (!run->keep)
        say(run, "", why);
    run->keep = true;
    run->best = run->fit->trainer->steps;
}

double clt_policy_lr(const clt_policy_run *run)
{
    return run->fit->trainer->options.lr;
}

clt_status clt_policy_set_lr(clt_policy_run *run, double lr, const char *why)
{
    char what[64];
    CLT_TRY(clt_trainer_set_lr(run->fit->trainer, lr));
    snprintf(what, sizeof what, "learning rate %g", lr);
    if (why)
        say(run, what, why);
    return CLT_OK;
}

/* --- options ---------------------------------------------------------------------------------- */

clt_status clt_policies_check(const clt_fit_options *o)
{
    if (o->validate_every < 0)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "clt_fit_options.validate_every %lld: must not be negative",
                        (long long)o->validate_every);
    if (o->validate_every && !o->validation)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "clt_fit_options.validate_every needs clt_fit_options.validation");
    for (int i = 0; i < o->n_policies; i++) {
        const clt_policy *p = o->policies[i];
        CLT_TRY(CLT_CHECK_STRUCT(p, clt_policy));
        if (!p->name || !*p->name)
            return clt_fail(CLT_INVALID_ARGUMENT, "policy %d of clt_fit_options has no name", i);
        for (int k = 0; k < i; k++)
            if (!strcmp(p->name, o->policies[k]->name))
                return clt_fail(CLT_INVALID_ARGUMENT,
                                "two policies of clt_fit_options have the name %s: their states "
                                "need different ones",
                                p->name);
    }
    return CLT_OK;
}

uint64_t clt_policies_hash(const clt_fit_options *o, uint64_t hash)
{
    const int64_t numbers[] = {o->validation ? clt_dataset_count(o->validation) : 0,
                               o->validate_every, o->n_policies};
    hash = clt_hash(numbers, sizeof numbers, hash);
    for (int i = 0; i < o->n_policies; i++)
        hash = clt_hash_text(o->policies[i]->name, hash);
    return hash;
}

/* Adds the names of a set's metrics to a text, and finds whether `metric` is one of them. */
static bool list_metrics(const clt_graph *graph, const char *prefix, const char *metric,
                         clt_str *text)
{
    const int losses = clt_graph_loss_count(graph), metrics = clt_graph_metric_count(graph);
    bool found = false;
    for (int i = -1; i < losses + metrics; i++) { /* -1: the sum of losses */
        const char *own = i < 0        ? "loss"
                          : i < losses ? clt_graph_loss_name(graph, i)
                                       : clt_graph_metric_name(graph, i - losses);
        if (i >= 0 && i < losses && (losses == 1 || !strcmp(own, "loss")))
            continue;
        clt_str_add(text, ", %s%s", prefix, own);
        const size_t length = strlen(prefix);
        found = found || (!strncmp(metric, prefix, length) && !strcmp(metric + length, own));
    }
    return found;
}

clt_status clt_policies_check_metric(const clt_policy_run *run, const char *policy,
                                     const char *metric)
{
    const clt_fit_run *f = run->fit;
    const bool val = f->options->validation != NULL, test = f->test != NULL;
    const bool averages = f->trainer->options.average.kind != CLT_AVERAGE_NONE;
    const struct {
        const char *prefix;
        bool there;
    } sets[] = {{"val_", val},
                {"test_", test},
                {"average_val_", val && averages},
                {"average_test_", test && averages}};
    bool found = !strcmp(metric, "loss");
    clt_str names = {0};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        if (sets[i].there && list_metrics(f->trainer->graph, sets[i].prefix, metric, &names))
            found = true;
    const clt_status status =
        found ? CLT_OK
              : clt_fail(CLT_INVALID_ARGUMENT,
                         "policy %s watches %s, which no evaluation of this run has: they have "
                         "loss%s%s",
                         policy, metric, names.failed ? "" : clt_str_text(&names),
                         val ? "" : "; val_ needs a validation set");
    clt_str_free(&names);
    return status;
}

/* --- state ------------------------------------------------------------------------------------ */

/* Makes an object of the states of all policies. Release it with json_decref. */
static clt_status collect(const clt_fit_run *f, json_t **out)
{
    const clt_fit_options *o = f->options;
    json_t *all = json_object();
    clt_status status = all ? CLT_OK : CLT_OUT_OF_MEMORY;
    for (int i = 0; status == CLT_OK && i < o->n_policies; i++) {
        const clt_policy *p = o->policies[i];
        if (!p->save)
            continue;
        char *text = p->save(p->user);
        json_t *state = text ? json_loads(text, JSON_DECODE_ANY, NULL) : NULL;
        if (!text)
            status = clt_fail(CLT_INVALID_ARGUMENT, "policy %s gave no state", p->name);
        else if (!state)
            status = clt_fail(CLT_INVALID_ARGUMENT, "the state of policy %s is not JSON", p->name);
        else if (json_object_set_new(all, p->name, state) != 0)
            status = CLT_OUT_OF_MEMORY;
        free(text);
    }
    if (status == CLT_OK)
        *out = all;
    else
        json_decref(all);
    return status;
}

static char *dump(json_t *json)
{
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    char *copy = text ? clt_strdup(text) : NULL;
    free(text);
    json_decref(json);
    return copy;
}

clt_status clt_policies_store(clt_fit_run *f)
{
    clt_trainer *t = f->trainer;
    clt_free(t->policies);
    t->policies = NULL;
    t->best_step = f->policies.best;
    if (!f->options->n_policies)
        return CLT_OK;
    json_t *states;
    CLT_TRY(collect(f, &states));
    t->policies = dump(json_pack("{s:I, s:f, s:I, s:o}", "best", (json_int_t)f->policies.best,
                                 "epoch_loss", f->epoch_loss, "epoch_samples",
                                 (json_int_t)f->epoch_samples, "policies", states));
    CLT_TRY_MEMORY(t->policies);
    return CLT_OK;
}

clt_status clt_policies_tell(clt_fit_run *f)
{
    clt_trainer *t = f->trainer;
    int64_t bytes = t->policies ? (int64_t)strlen(t->policies) + 1 : 0;
    CLT_TRY(clt_world_tell(&t->all, 0, &bytes, sizeof bytes));
    char *text = bytes ? clt_alloc((size_t)bytes) : NULL;
    CLT_TRY(clt_world_agree(&t->all, bytes && !text ? CLT_OUT_OF_MEMORY : CLT_OK));
    if (bytes && !t->all.rank)
        memcpy(text, t->policies, (size_t)bytes);
    const clt_status status = bytes ? clt_world_tell(&t->all, 0, text, bytes) : CLT_OK;
    clt_free(t->policies);
    t->policies = text;
    return status;
}

/* Begins all policies with their states in an object, which may be NULL. */
static clt_status begin_all(clt_fit_run *f, const json_t *states)
{
    clt_status status = CLT_OK;
    f->policies.keep = f->policies.stop = false;
    for (int i = 0; status == CLT_OK && i < f->options->n_policies; i++) {
        const clt_policy *p = f->options->policies[i];
        const json_t *state = json_object_get(states, p->name);
        char *text = state ? json_dumps(state, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
        if (state && !text)
            status = CLT_OUT_OF_MEMORY;
        else if (p->begin)
            status = p->begin(p->user, &f->policies, text);
        free(text);
    }
    return status;
}

/* A policy that stops the run ends it after the step that was evaluated. */
static void end_if_stopped(clt_fit_run *f)
{
    if (f->policies.stop)
        f->total_steps = f->trainer->steps;
}

/* Says which states of the checkpoint have no policy in this run. */
static void tell_missing(const clt_fit_run *f, json_t *states)
{
    const char *name;
    json_t *state;
    json_object_foreach(states, name, state)
    {
        bool there = f->trainer->all.rank != 0;
        for (int i = 0; !there && i < f->options->n_policies; i++)
            there = !strcmp(name, f->options->policies[i]->name);
        if (!there)
            clt_log(CLT_LOG_WARN,
                    "the checkpoint has a state of policy %s, which this run does not have: it is "
                    "dropped%s",
                    name,
                    json_integer_value(json_object_get(state, "reductions")) > 0
                        ? ", and the learning rate is the one before its reductions"
                        : "");
    }
}

clt_status clt_policies_begin(clt_fit_run *f)
{
    clt_trainer *t = f->trainer;
    clt_policy_run *run = &f->policies;
    *run = (clt_policy_run){.fit = f, .base_lr = t->options.lr, .at = -1};
    t->best_step = 0;
    if (!f->resumed) {
        clt_free(t->policies);
        t->policies = NULL;
    }
    json_t *all = t->policies ? json_loads(t->policies, 0, NULL) : NULL;
    tell_missing(f, json_object_get(all, "policies"));
    if (!f->options->n_policies) {
        json_decref(all);
        return CLT_OK;
    }
    run->best = (int64_t)json_integer_value(json_object_get(all, "best"));
    f->epoch_loss = json_number_value(json_object_get(all, "epoch_loss"));
    f->epoch_samples = (int64_t)json_integer_value(json_object_get(all, "epoch_samples"));
    const clt_status status = begin_all(f, json_object_get(all, "policies"));
    json_decref(all);
    end_if_stopped(f);
    return status;
}

/* After a device was lost, ranks that were ahead evaluate again: they go back to the state before
 * the first time. */
static clt_status go_back(clt_fit_run *f)
{
    clt_policy_run *run = &f->policies;
    const int64_t step = f->trainer->steps;
    if (run->at != step) {
        json_t *now;
        CLT_TRY(collect(f, &now));
        clt_free(run->before);
        run->before = dump(now);
        CLT_TRY_MEMORY(run->before);
        run->best_before = run->best;
        run->at = step;
        return CLT_OK;
    }
    json_t *states = json_loads(run->before, 0, NULL);
    clt_status status = states ? CLT_OK : CLT_OUT_OF_MEMORY;
    run->best = run->best_before;
    CLT_NEXT(status, clt_trainer_set_lr(f->trainer, run->base_lr));
    CLT_NEXT(status, begin_all(f, states));
    json_decref(states);
    return status;
}

/* --- evaluations ------------------------------------------------------------------------------ */

enum { MOST_NAME = 160 };

/* The named metrics of a report. */
typedef struct named {
    const char **names;
    char (*texts)[MOST_NAME];
    double *values;
    int count;
} named;

static void add(named *n, double value, const char *prefix, const char *name)
{
    snprintf(n->texts[n->count], MOST_NAME, "%s%s", prefix, name);
    n->names[n->count] = n->texts[n->count];
    n->values[n->count++] = value;
}

/* Adds "val_loss" and each further loss and metric of a set. */
static void add_means(named *n, const clt_graph *graph, const char *prefix, const double *means,
                      int count, double loss)
{
    const int losses = clt_graph_loss_count(graph);
    if (!count)
        return;
    add(n, loss, prefix, "loss");
    for (int i = 0; i < count; i++) {
        const char *name =
            i < losses ? clt_graph_loss_name(graph, i) : clt_graph_metric_name(graph, i - losses);
        if (i >= losses || (losses > 1 && strcmp(name, "loss")))
            add(n, means[i], prefix, name);
    }
}

static clt_status call_all(clt_fit_run *f, const clt_progress *p, const named *n)
{
    const clt_evaluation evaluation = {p->step, p->epoch, n->count, n->names, n->values};
    clt_status status = CLT_OK;
    for (int i = 0; status == CLT_OK && i < f->options->n_policies; i++) {
        const clt_policy *policy = f->options->policies[i];
        if (policy->evaluated)
            status = policy->evaluated(policy->user, &f->policies, &evaluation);
    }
    return status;
}

clt_status clt_policies_evaluated(clt_fit_run *f, const clt_progress *p)
{
    const clt_graph *graph = f->trainer->evaluation->graph;
    const size_t room = 4 * (size_t)f->trainer->evaluation->n_means + 5;
    if (!f->options->n_policies)
        return CLT_OK;
    CLT_TRY(go_back(f));
    f->policies.keep = false;
    named n = {clt_calloc(room, sizeof *n.names), clt_calloc(room, sizeof *n.texts),
               clt_calloc(room, sizeof *n.values), 0};
    clt_status status = n.names && n.texts && n.values ? CLT_OK : CLT_OUT_OF_MEMORY;
    if (status == CLT_OK) {
        if (f->reported_epoch == p->epoch) /* the epoch has ended */
            add(&n, p->loss, "", "loss");
        add_means(&n, graph, "val_", p->val_means, p->n_val_means, p->val_loss);
        add_means(&n, graph, "test_", p->test_means, p->n_test_means, p->test_loss);
        add_means(&n, graph, "average_val_", p->average_val_means, p->n_average_val_means,
                  p->average_val_loss);
        add_means(&n, graph, "average_test_", p->average_test_means, p->n_average_test_means,
                  p->average_test_loss);
        status = call_all(f, p, &n);
    }
    CLT_FREE(n.names, n.texts, n.values);
    end_if_stopped(f);
    return status;
}

void clt_policies_end(clt_fit_run *f, bool reached)
{
    for (int i = 0; reached && !f->trainer->all.rank && i < f->options->n_policies; i++)
        clt_policy_tell_best(f->options->policies[i]);
    clt_free(f->policies.before);
    f->policies.before = NULL;
}
