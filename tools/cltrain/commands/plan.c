/* `cltrain plan`: prints what a training run would execute, its memory, and its predicted step
 * time. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "job/choose_mesh.h"
#include "options/commands.h"
#include "job/job.h"
#include "text/message.h"
#include "job/predicted_step.h"
#include "job/device_split.h"

static void print_head(const job *j, const settings *s)
{
    show("%s: ", s->model);
    show_parameters(j);
    show("; batch %lld", (long long)j->options.batch);
    if (j->options.virtual_shards)
        show(" in %lld virtual shards", (long long)j->options.virtual_shards);
    if (j->options.accumulate > 1)
        show(" in %d micro-batches", j->options.accumulate);
    show(", %s, %lld steps\n", clt_optimizer_name(j->options.optimizer), (long long)j->steps);
    for (int i = 0; i < j->n_devices; i++)
        show("device %d: %s\n", i, clt_device_label(j->devices[i]));
}

/* Measures a few steps for the prediction. A failure, for example for lack of memory, leaves the
 * plan usable. */
static clt_status measure(job *j, const settings *s, clt_planner **planner)
{
    clt_planner_options options;
    const double tune_seconds = j->options.tune_seconds;
    if (job_is_meshed(s))
        return clt_error_set(CLT_UNSUPPORTED, "the planner does not know meshes (--parallel), "
                                              "shards of parameters (--zero 3) and offload");
    if (j->options.virtual_shards)
        return clt_error_set(CLT_UNSUPPORTED,
                             "virtual shards are predicted by --parallel auto, and "
                             "by --simulate with --inter");
    if (isatty(STDERR_FILENO))
        say("running a few steps for the prediction; a large model takes minutes");
    clt_planner_options_init(&options);
    options.choose = planner_may_choose(s->devices);
    j->options.tune_seconds = 0;
    const clt_status status =
        clt_planner_create(j->graph, j->devices, j->n_devices, &j->options, &options, planner);
    j->options.tune_seconds = tune_seconds;
    return status;
}

static int make_plan(const job *j, const settings *s, char **text)
{
    return name_failure(clt_trainer_plan(j->graph, j->store, &j->options, s->explain,
                                         text)); /* --variant may name an unknown operator */
}

/* Plans again with the bucket size that a training run would have. */
static int plan_again(job *j, const settings *s, int64_t bucket_bytes, char **text)
{
    if (!bucket_bytes || bucket_bytes == clt_store_bucket_bytes(j->store))
        return 0;
    free(*text);
    *text = NULL;
    j->bucket_bytes = bucket_bytes;
    const int code = job_store(j, s);
    return code ? code : make_plan(j, s, text);
}

static int print(job *j, const settings *s)
{
    char *text = NULL;
    clt_planner *planner = NULL;
    const clt_status scheduled = job_schedule(j, s);
    int code = scheduled == CLT_OK ? make_plan(j, s, &text) : name_failure(scheduled);
    if (code)
        return code;
    const clt_status status = measure(j, s, &planner);
    if (status == CLT_OK)
        code = plan_again(j, s, clt_planner_bucket_bytes(planner), &text);
    if (!code) {
        print_head(j, s);
        show("%s\nPrediction\n", text);
    }
    if (!code && status == CLT_OK) {
        code = print_prediction(s, planner);
    } else if (!code) {
        show("none: %s\n", clt_error_message());
        code = s->simulate ? library_failure(status) : 0;
    }
    if (!code) /* train would fail, so plan does too */
        code = name_failure(clt_trainer_fits(j->graph, j->store, &j->options));
    clt_planner_destroy(planner);
    free(text);
    return code;
}

int run_plan(const settings *given)
{
    job j = {0};
    settings own = *given, *s = &own;
    int code = s->parallel && strstr(s->parallel, "local=")
                   ? usage_error("--parallel %s: plan describes one replica; leave local out, and "
                                 "give --devices and --batch of one",
                                 s->parallel)
                   : job_read(&j, s);
    NEXT(code, check_simulation(s));
    NEXT(code, job_devices(&j, s));
    NEXT(code, job_data(&j, s, DATA_TRAIN | DATA_SYNTHETIC));
    if (!code && simulates_meshes(s))
        return job_close(&j, print_simulated_meshes(&j, s));
    NEXT(code, job_choose_mesh(&j, s));
    NEXT(code, job_model(&j, s));
    NEXT(code, print(&j, s));
    return job_close(&j, code);
}
