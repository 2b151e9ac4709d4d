/* `cltrain plan`: what a training would run, and the memory it needs, without running it. */
#include <stdio.h>
#include <stdlib.h>

#include "commands.h"
#include "job.h"
#include "message.h"

static int print(const job *j, const settings *s, int training)
{
    char *text = NULL;
    clt_status status = clt_trainer_describe(j->trainer, training, s->explain, &text);
    if (status != CLT_OK)
        return library_failure(status);
    printf("\n%s\n%s", training ? "Training" : "Evaluation", text);
    free(text);
    return EXIT_DONE;
}

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

int run_plan(const settings *s)
{
    job j;
    int code = job_read(&j, s);
    if (!code)
        code = job_devices(&j, s);
    if (!code)
        code = job_data(&j, s, DATA_TRAIN | DATA_SYNTHETIC);
    if (!code)
        code = job_model(&j, s);
    if (!code)
        code = job_trainer(&j, s);
    if (!code) {
        print_head(&j, s);
        code = print(&j, s, 1);
    }
    if (!code)
        code = print(&j, s, 0);
    job_close(&j);
    return code;
}
