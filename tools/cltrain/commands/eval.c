/* `cltrain eval`: computes losses and metrics of saved parameters on the test samples. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "options/commands.h"
#include "options/groups.h"
#include "job/job.h"
#include "output/gnuplot.h"
#include "output/means.h"
#include "output/report.h"
#include "text/message.h"
#include "saved/saved.h"
#include "saved/label_names.h"
#include "saved/same_use.h"

/* Returns the number of labels, or of tokens in the vocabulary. Returns -1 if it is not known. */
static int64_t known_classes(const job *j, int text)
{
    const clt_model_field *field = use_field(j, text ? "tokens" : "label");
    return field && field->classes > 0 ? field->classes : -1;
}

/* Sets options that the command does not set from the checkpoint's training run: image size, length
 * of text samples, and number of classes. The test samples need not have all classes. */
static int read_use(job *j, settings *s, const saved *c)
{
    const int code = c->use ? use_read(j, s, c->use, c->file) : 0;
    if (code || !c->use || !s->data)
        return code;
    const int text = !strncmp(s->data, "tokens:", 7) || !strncmp(s->data, "text:", 5);
    if (text && s->seq_len <= 0)
        s->seq_len = use_sequence(j);
    if (s->classes <= 0)
        s->classes = known_classes(j, text);
    if (strncmp(s->data, "images:", 7) != 0 || s->image_size > 0 || !use_resize(c->use))
        return 0;
    s->image_size = j->fields[0].dims[1];
    s->resize = s->resize > 0 ? s->resize : use_resize(c->use);
    return 0;
}

static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static double mean(const double *sums, const double *weights, int i)
{
    return weights[i] > 0 ? sums[i] / weights[i] : NAN;
}

/* --- metrics ---------------------------------------------------------------------------------- */

/* Most memory for the scores that AUC needs. */
static const double MOST_SCORES = 4e9;

/* What --report and --confusion measure. Without them `metrics` is NULL. */
typedef struct measured {
    const job *job;
    const saved *saved;
    const char *output, *field;
    clt_metrics *metrics;
    report report;
    char text[24]; /* number of a class without a name */
} measured;

static const char *class_name(void *user, int64_t number)
{
    measured *m = user;
    const char *name = use_class_name(m->saved->use, number);
    int field;
    if (!name && clt_dataset_find_field(m->job->test, m->field, &field) == CLT_OK)
        name = clt_dataset_class_name(m->job->test, field, number);
    snprintf(m->text, sizeof m->text, "%" PRId64, number);
    return name ? name : m->text;
}

/* Finds what can be measured: labels and scores, or targets and predictions. */
static int find_measured(measured *m)
{
    const job *j = m->job;
    static const char *const fields[] = {"label", "targets", "y"};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const clt_model_field *f = use_field(j, fields[i]);
        if (!f || !clt_graph_find(j->graph, fields[i]))
            continue;
        m->field = fields[i];
        m->output = f->classes ? "logits" : "prediction";
        m->report.classes = f->classes;
        return 0;
    }
    return usage_error("--report and --confusion need a model that is trained on a field label, "
                       "targets or y");
}

static int create_metrics(measured *m, const settings *s)
{
    clt_metrics_options o;
    TRY(find_measured(m));
    report *r = &m->report;
    const double samples = (double)clt_dataset_count(m->job->test);
    clt_metrics_options_init(&o);
    const int text = !strcmp(m->field, "targets");
    if (s->confusion && !r->classes)
        return usage_error("--confusion: the model predicts numbers, not classes; --report gives "
                           "their errors");
    if (s->top > r->classes)
        return usage_error("--top %" PRId64 ": the model has %" PRId64 " classes", s->top,
                           r->classes);
    o.classes = r->classes;
    o.logits = r->classes > 0;
    o.ignore_index = IGNORED_LABEL;
    o.top = r->top = s->top > 0 ? s->top : 0;
    r->auc = o.auc =
        s->report && r->classes && !text && samples * (double)r->classes * 8 <= MOST_SCORES;
    if (s->report && r->classes && !text && !o.auc && ranks_prints(&m->job->ranks))
        say("warning: no AUC: it would need %.0f GB for the scores of all classes",
            samples * (double)r->classes * 8e-9);
    const clt_model_field *f = use_field(m->job, m->field);
    for (int i = 0; !r->classes && i < f->rank; i++)
        o.outputs *= f->dims[i];
    double shift;
    use_target_scale(clt_dataset_description(m->job->test), &shift, &r->scale);
    r->name = class_name;
    r->user = m;
    TRY(library_failure(clt_metrics_create(&o, &m->metrics)));
    r->metrics = m->metrics;
    return 0;
}

static int print_report(const measured *m, const settings *s)
{
    if (s->report)
        TRY(report_metrics(&m->report));
    if (s->confusion)
        TRY(report_confusion(&m->report));
    return 0;
}

/* --- results ---------------------------------------------------------------------------------- */

static int print(const measured *m, const settings *s, double loss, const double *sums,
                 const double *weights)
{
    const job *j = m->job;
    const int64_t samples = clt_dataset_count(j->test);
    json_t *record = json_pack("{s:o}", "test_loss", number(loss));
    int code = 0;
    if (!s->json)
        show("test loss %.6f", loss);
    for (int i = 0; i < mean_count(j->graph); i++) {
        const char *name = mean_name(j->graph, i);
        char key[128];
        if (!name)
            continue;
        if (!s->json)
            show("  test %s %.4f", name, mean(sums, weights, i));
        snprintf(key, sizeof key, "test_%s", name);
        json_object_set_new(record, key, number(mean(sums, weights, i)));
    }
    json_object_set_new(record, "samples", json_integer(samples));
    if (m->metrics && s->json)
        code = report_json(&m->report, s->confusion, record);
    if (s->json)
        code = code ? (json_decref(record), code) : print_object(record, JSON_REAL_PRECISION(9));
    else
        json_decref(record);
    if (!s->json)
        show("  (%lld samples)\n", (long long)samples);
    if (m->metrics && !s->json)
        NEXT(code, print_report(m, s));
    if (s->output)
        NEXT(code, report_picture(&m->report, s->output));
    return code;
}

/* Returns the objective: the sum of the losses times their coefficients. */
static double total_loss(const clt_graph *graph, const double *sums, const double *weights)
{
    double loss = 0;
    int counted = 0;
    for (int i = 0; i < clt_graph_loss_count(graph); i++)
        if (weights[i] > 0) {
            loss += clt_graph_loss_coefficient(graph, i) * mean(sums, weights, i);
            counted = 1;
        }
    return counted ? loss : NAN;
}

static int evaluate(job *j, const settings *s, const saved *c)
{
    const int count = mean_count(j->graph);
    double *sums = calloc(2 * (size_t)count + 1, sizeof *sums), *weights = sums + count;
    measured m = {.job = j, .saved = c};
    TRY_MEMORY(sums);
    clt_fit_options fit;
    job_fit(j, s, &fit);
    int code = s->report || s->confusion ? create_metrics(&m, s) : 0;
    code = ranks_agree(&j->ranks, code);
    if (!code) {
        const clt_status status = m.metrics
                                      ? clt_evaluate_metrics(j->trainer, j->test, &fit, m.output,
                                                             m.field, m.metrics, sums, weights)
                                      : clt_evaluate(j->trainer, j->test, &fit, sums, weights);
        code = library_failure(status);
    }
    const double loss = total_loss(j->graph, sums, weights);
    if (!code && count && weights[0] > 0 && !isfinite(loss))
        code = failure("the test loss is not finite: the parameters in %s, or the samples, hold "
                       "values that are not finite",
                       s->checkpoint);
    else if (!code && ranks_prints(&j->ranks))
        code = print(&m, s, loss, sums, weights);
    clt_metrics_destroy(m.metrics);
    free(sums);
    return code;
}

/* Checks the options about metrics. */
static int check(const settings *s)
{
    if (s->output && !s->confusion)
        return usage_error("-o %s: is for the picture of --confusion", s->output);
    if (s->top > 0 && !s->report)
        return usage_error("--top %" PRId64 ": is for --report", s->top);
    return s->output ? gnuplot_check(s->output) : 0;
}

int run_eval(const settings *given)
{
    job j = {0};
    saved c = {0};
    settings s = *given;
    int code = job_ranks(&j, &s);
    NEXT(code, check(&s));
    NEXT(code, refuse_measured(&s));
    NEXT(code, saved_open(&c, &s));
    s.model = c.model;
    saved_settings(&c, &s);
    NEXT(code, check_mesh(&s, 0));
    NEXT(code, job_read(&j, &s));
    j.options.tune_seconds = 0;
    j.options.accumulate = mesh_stages(&s); /* as many micro-batches as a pipeline needs */
    NEXT(code, read_use(&j, &s, &c));
    NEXT(code, job_devices(&j, &s));
    NEXT(code, job_data(&j, &s, DATA_TEST));
    NEXT(code, use_same_classes(c.use, j.test));
    NEXT(code, job_model(&j, &s));
    if (!code) {
        const clt_status status = saved_load(&c, j.store);
        code = library_failure(status);
    }
    code = job_trainer(&j, &s, code);
    NEXT(code, evaluate(&j, &s, &c));
    code = job_close(&j, code);
    saved_close(&c);
    return code;
}
