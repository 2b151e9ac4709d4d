/* `cltrain plan`: what a training would run, and the memory it needs, without running it. */
#include <stdio.h>
#include <stdlib.h>

#include "commands.h"
#include "job.h"
#include "message.h"

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
    return EXIT_DONE;
}

int run_plan(const settings *s)
{
    job j = {0};
    int code = job_read(&j, s);
    if (!code)
        code = job_plan(&j, s);
    if (!code)
        code = print(&j, s);
    return job_close(&j, code);
}
