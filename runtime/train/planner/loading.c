#include "train/planner/loading.h"

#include <sched.h>

#include "base/alloc.h"
#include "data/loader/batch.h"
#include "base/clock.h"

enum { REPEATS = 5, MOST = 1024 };

int clt_loading_cores(void)
{
    cpu_set_t own;
    CPU_ZERO(&own);
    const int count = sched_getaffinity(0, sizeof own, &own) == 0 ? CPU_COUNT(&own) : 0;
    return count > 0 ? count : 1;
}

typedef struct lab {
    clt_dataset *dataset;
    clt_gather gather;
    clt_scratch scratch;
    int64_t samples;
    int64_t *indices;
    void *data; /* shared by all fields: zeros */
    void *to[CLT_DATA_MAX_FIELDS];
} lab;

static bool is_fed(const clt_plan *plan, const clt_value *input)
{
    for (int l = 0; l < plan->graph->n_losses; l++)
        if (plan->graph->losses[l].upstream == input)
            return false;
    return !input->output_gradient && clt_type_coefficient(&input->type) > 0 &&
           (input->type.dtype == CLT_F32 || input->type.dtype == CLT_I32);
}

static clt_status add_input(lab *l, const clt_value *input)
{
    const clt_dtype dtype = input->type.dtype;
    const int64_t elements = clt_type_coefficient(&input->type);
    int output;
    CLT_TRY(clt_dataset_add_field(l->dataset, input->name, dtype == CLT_F32 ? CLT_U8 : dtype, 1,
                                  &elements, l->data, CLT_DATA_BORROW, NULL));
    CLT_TRY(clt_gather_add(&l->gather, input->name, dtype, &output));
    l->to[output] = clt_calloc((size_t)(l->samples * elements), sizeof(float));
    return l->to[output] ? CLT_OK : CLT_OUT_OF_MEMORY;
}

static clt_status prepare(lab *l, const clt_plan *plan)
{
    int64_t widest = 1;
    for (int i = 0; i < plan->n_inputs; i++) {
        const int64_t elements = clt_type_coefficient(&plan->inputs[i]->type);
        widest = elements > widest ? elements : widest;
    }
    l->data = clt_calloc((size_t)(l->samples * widest), sizeof(int32_t));
    l->indices = clt_calloc((size_t)l->samples, sizeof *l->indices);
    CLT_TRY_MEMORY(l->data && l->indices);
    for (int64_t i = 0; i < l->samples; i++)
        l->indices[i] = i * 37 % l->samples; /* scattered, as in shuffled batches */
    CLT_TRY(clt_dataset_create_arrays("measured", l->samples, &l->dataset));
    clt_gather_init(&l->gather, l->dataset);
    for (int i = 0, n = 0; i < plan->n_inputs && n < CLT_DATA_MAX_FIELDS; i++)
        if (is_fed(plan, plan->inputs[i])) {
            CLT_TRY(add_input(l, plan->inputs[i]));
            n++;
        }
    return clt_scratch_init(&l->scratch, &l->gather, l->samples);
}

static clt_status run(lab *l, double *seconds)
{
    double times[REPEATS];
    for (int r = -1; r < REPEATS; r++) {
        int64_t weight = 0;
        const double began = clt_clock();
        CLT_TRY(clt_gather_run(&l->gather, &(clt_sample_key){0}, l->indices, l->samples, l->to,
                               &l->scratch, &weight));
        if (r >= 0)
            times[r] = clt_clock() - began;
    }
    *seconds = clt_clock_median(times, REPEATS) / (double)l->samples;
    return CLT_OK;
}

clt_status clt_loading_measure(const clt_plan *plan, int64_t samples, double *seconds)
{
    lab l = {.samples = samples < MOST ? samples : MOST};
    clt_status status = prepare(&l, plan);
    CLT_NEXT(status, run(&l, seconds));
    clt_scratch_free(&l.scratch);
    clt_gather_free(&l.gather);
    clt_dataset_free(l.dataset);
    for (int i = 0; i < CLT_DATA_MAX_FIELDS; i++)
        clt_free(l.to[i]);
    CLT_FREE(l.indices, l.data);
    return status;
}
