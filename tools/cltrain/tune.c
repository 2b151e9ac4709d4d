/* `cltrain tune`: measures kernels for the shapes of models, into the devices' tuning records. */
#include <stdio.h>

#include <cltrain/models.h>

#include "commands.h"
#include "job.h"
#include "message.h"

static const double BUDGET = 60;

static int tune_model(const settings *s, double seconds)
{
    job j;
    int code = job_read(&j, s);
    j.options.tune_seconds = seconds;
    if (!code)
        code = job_plan(&j, s);
    if (!code)
        code = job_trainer(&j, s);
    for (int i = 0; !code && i < j.n_devices; i++)
        printf("%s: %s, batch %lld\n", s->model, clt_device_label(j.devices[i]),
               (long long)j.options.batch);
    job_close(&j);
    return code;
}

int run_tune(const settings *s)
{
    const double budget = s->budget > 0 ? s->budget : BUDGET;
    show_progress();
    if (s->model)
        return tune_model(s, budget);
    const int count = clt_model_count();
    int code = 0;
    for (int i = 0; !code && i < count; i++) {
        settings own = *s;
        own.model = (char *)clt_model_name(i);
        code = tune_model(&own, budget / count);
    }
    return code;
}
