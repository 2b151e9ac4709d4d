/* `cltrain eval`: loss and accuracy of saved parameters on the test samples. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cltrain/checkpoint.h>
#include <jansson.h>

#include "commands.h"
#include "job.h"
#include "message.h"

/* Parameters of a file, of a step's folder, or of the newest step in a run's folder. */
static int load(job *j, const char *path)
{
    char found[4096], file[4096 + 32];
    struct stat info;
    if (stat(path, &info) == 0 && !S_ISDIR(info.st_mode)) {
        snprintf(file, sizeof file, "%s", path);
    } else {
        clt_status status = clt_checkpoint_find(path, sizeof found, found);
        if (status != CLT_OK)
            return library_failure(status);
        snprintf(file, sizeof file, "%s/model.safetensors", found);
    }
    clt_status status = clt_store_load(j->store, file);
    return status == CLT_OK ? 0 : library_failure(status);
}

static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static int print(const settings *s, int64_t samples, double loss, double accuracy)
{
    if (!s->json) {
        printf("test loss %.6f  test accuracy %.4f  (%lld samples)\n", loss, accuracy,
               (long long)samples);
        return EXIT_DONE;
    }
    json_t *record = json_pack("{s:o, s:o, s:I}", "test_loss", number(loss), "test_accuracy",
                               number(accuracy), "samples", (json_int_t)samples);
    return print_object(record, JSON_REAL_PRECISION(9));
}

/* The models have one loss and one metric, the accuracy. */
static int evaluate(job *j, const settings *s)
{
    double sums[2] = {0}, weights[2] = {0};
    clt_fit_options fit;
    job_fit(j, s, &fit);
    clt_status status = clt_evaluate(j->trainer, j->test, &fit, sums, weights);
    if (status != CLT_OK)
        return library_failure(status);
    const double loss = weights[0] > 0 ? sums[0] / weights[0] : NAN;
    const double accuracy = weights[1] > 0 ? sums[1] / weights[1] : NAN;
    if (weights[0] > 0 && !isfinite(loss))
        return failure("the test loss is not finite: the parameters in %s, or the samples, hold "
                       "values that are not finite",
                       s->checkpoint);
    return ranks_prints(&j->ranks) ? print(s, clt_dataset_count(j->test), loss, accuracy) : 0;
}

int run_eval(const settings *s)
{
    job j = {0};
    int code = job_ranks(&j, s);
    if (!code)
        code = job_read(&j, s);
    j.options.tune_seconds = 0;
    if (!code && !s->checkpoint)
        code = usage_error("--checkpoint is missing: a run's folder, a step's folder, or a "
                           ".safetensors file");
    if (!code)
        code = job_devices(&j, s);
    if (!code)
        code = job_data(&j, s, DATA_TEST);
    if (!code)
        code = job_model(&j, s);
    if (!code)
        code = load(&j, s->checkpoint);
    code = job_trainer(&j, s, code);
    if (!code)
        code = evaluate(&j, s);
    return job_close(&j, code);
}
