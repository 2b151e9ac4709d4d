/* `cltrain plan`: what a training would run, the memory it needs, and what its steps would take. */
#include <stdio.h>
#include <stdlib.h>

#include "commands.h"
#include "job.h"
#include "message.h"
#include "predict.h"
#include "split.h"

static void print_head(const job *j, const settings *s)
{
    printf("%s: %lld parameters; batch %lld", s->model, (long long)clt_store_parameters(j->store),
           (long long)j->options.batch);
    if (j->options.accumulate > 1)
        printf(" in %d micro-batches", j->options.accumulate);
    printf(", %s, %lld steps\n", clt_optimizer_name(j->options.optimizer), (long long)j->steps);
    for (int i = 0; i < j->n_devices; i++)
        printf("device %d: %s\n", i, clt_device_label(j->devices[i]));
}

/* A few steps are measured for it. Where that fails, as for want of memory, the plan is still of
 * use. */
static int predict(job *j, const settings *s)
{
    clt_planner_options options;
    clt_planner *planner;
    clt_planner_options_init(&options);
    options.choose = planner_may_choose(s->devices);
    j->options.tune_seconds = 0;
    const clt_status status =
        clt_planner_create(j->graph, j->devices, j->n_devices, &j->options, &options, &planner);
    printf("\nPrediction\n");
    if (status != CLT_OK) {
        printf("none: %s\n", clt_error_message());
        return s->simulate ? library_failure(status) : 0;
    }
    const int code = print_prediction(s, planner);
    clt_planner_destroy(planner);
    return code;
}

static int print(job *j, const settings *s)
{
    char *text = NULL;
    clt_status status = job_schedule(j, s);
    if (status == CLT_OK)
        status = clt_trainer_plan(j->graph, j->store, &j->options, s->explain, &text);
    if (status != CLT_OK)
        return name_failure(status); /* --variant names an operator */
    print_head(j, s);
    fputs(text, stdout);
    free(text);
    fflush(stdout);
    return predict(j, s);
}

int run_plan(const settings *s)
{
    job j = {0};
    int code = job_read(&j, s);
    if (!code)
        code = check_simulation(s);
    if (!code)
        code = job_plan(&j, s);
    if (!code)
        code = print(&j, s);
    return job_close(&j, code);
}
