/* `cltrain eval`: computes losses and metrics of saved parameters on the test samples. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "options/commands.h"
#include "options/groups.h"
#include "job/job.h"
#include "output/means.h"
#include "text/message.h"
#include "saved/saved.h"
#include "saved/label_names.h"

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

static int print(const job *j, const settings *s, double loss, const double *sums,
                 const double *weights)
{
    const int64_t samples = clt_dataset_count(j->test);
    json_t *record = json_pack("{s:o}", "test_loss", number(loss));
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
    if (s->json)
        return print_object(record, JSON_REAL_PRECISION(9));
    json_decref(record);
    show("  (%lld samples)\n", (long long)samples);
    return EXIT_DONE;
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

static int evaluate(job *j, const settings *s)
{
    const int count = mean_count(j->graph);
    double *sums = calloc(2 * (size_t)count + 1, sizeof *sums), *weights = sums + count;
    TRY_MEMORY(sums);
    clt_fit_options fit;
    job_fit(j, s, &fit);
    const clt_status status = clt_evaluate(j->trainer, j->test, &fit, sums, weights);
    const double loss = total_loss(j->graph, sums, weights);
    int code = 0;
    if (status != CLT_OK)
        code = library_failure(status);
    else if (count && weights[0] > 0 && !isfinite(loss))
        code = failure("the test loss is not finite: the parameters in %s, or the samples, hold "
                       "values that are not finite",
                       s->checkpoint);
    else if (ranks_prints(&j->ranks))
        code = print(j, s, loss, sums, weights);
    free(sums);
    return code;
}

int run_eval(const settings *given)
{
    job j = {0};
    saved c = {0};
    settings s = *given;
    int code = job_ranks(&j, &s);
    NEXT(code, refuse_measured(&s));
    NEXT(code, saved_open(&c, &s));
    s.model = c.model;
    NEXT(code, check_mesh(&s, 0));
    NEXT(code, job_read(&j, &s));
    j.options.tune_seconds = 0;
    j.options.accumulate = mesh_stages(&s); /* as many micro-batches as a pipeline needs */
    NEXT(code, read_use(&j, &s, &c));
    NEXT(code, job_devices(&j, &s));
    NEXT(code, job_data(&j, &s, DATA_TEST));
    NEXT(code, job_model(&j, &s));
    if (!code) {
        const clt_status status = saved_load(&c, j.store);
        code = library_failure(status);
    }
    code = job_trainer(&j, &s, code);
    NEXT(code, evaluate(&j, &s));
    code = job_close(&j, code);
    saved_close(&c);
    return code;
}
