/* What train, eval, plan and bench set up: data, devices, model, trainer. */
#ifndef CLTRAIN_COMMAND_JOB_JOB_H
#define CLTRAIN_COMMAND_JOB_JOB_H

#include <cltrain/fit.h>
#include <cltrain/models.h>
#include <cltrain/planner.h>

#include "options/options.h"
#include "ranks/ranks.h"

enum { MOST_CHANNELS = 16 };

typedef struct job {
    clt_trainer_options options;
    rank_set ranks;
    double mean[MOST_CHANNELS], std[MOST_CHANNELS]; /* of --normalize */
    int channels;                                   /* of it; 0: not given */
    clt_dataset *train, *test;                      /* NULL where not asked for */
    char *resumed;   /* where a resumed run's checkpoint is; NULL: it begins */
    char *frozen;    /* choices of kernels of a resumed run */
    char *heartbeat; /* path of this rank's file */
    clt_model_field fields[CLT_DATA_MAX_FIELDS];
    clt_model_input input; /* these fields */
    clt_runtime *runtime;
    clt_device **devices;
    int n_devices;
    clt_graph *graph;
    clt_store *store;
    clt_trainer *trainer;
    int64_t steps; /* of the whole run */
    int splits;    /* job_model divides the batch among the devices, and may leave some out; */
    int silent;    /* without saying so */
    int predicts;  /* also where there is nothing to divide, for: */
    clt_prediction prediction;
    double *weights;
    int64_t bucket_bytes; /* of the store; 0: the library's default */
    struct {
        clt_split_change *list; /* of --replay; their weights are in `numbers` */
        double *numbers;
        int count, n_weights;
    } changes;
} job;

/* Which data job_data opens. SYNTHETIC: also the data set "synthetic", the default then. */
enum { DATA_TRAIN = 1, DATA_TEST = 2, DATA_SYNTHETIC = 4 };

/* Labels of this value count neither in the loss nor in the accuracy: PyTorch's default. */
enum { IGNORED_LABEL = -100 };

/* --normalize as means and stds. Returns an exit code. */
int read_normalize(job *j, const settings *s);

/* --tune off|SECONDS; `otherwise` where it is not given. Returns an exit code. */
int read_tune(const char *text, double otherwise, double *seconds);

/* Whether --variant names what exists. Returns an exit code. */
int check_variants(const settings *s);

/* Each returns an exit code, after a message if it is not 0. In this order, on a job that is zero;
 * job_close always. */
int job_ranks(job *j, const settings *s);   /* begins MPI under mpiexec; where ranks are of use */
int job_read(job *j, const settings *s);    /* options; opens nothing */
int job_devices(job *j, const settings *s); /* before the data: decoding disturbs its probes */
int job_resume(job *j, const settings *s);  /* finds the checkpoint to go on from, in train */
int job_data(job *j, const settings *s, int which);
int job_graph(job *j, const settings *s); /* a part of job_model */
int job_model(job *j, const settings *s); /* graph and store */
int job_store(job *j, const settings *s); /* a part of job_model; again, for other buckets */
int job_plan(job *j, const settings *s);  /* these three, with training data or synthetic ones */
int job_trainer(job *j, const settings *s, int code); /* collective: `code` is what came before */
clt_status job_schedule(job *j, const settings *s);   /* a part of job_trainer */
int job_close(job *j, int code);                      /* collective; returns the code */

/* Of the labels, or the vocabulary of text: of the first field that has some; 0: none has. */
int64_t job_classes(const clt_dataset *dataset);

/* --resume, or --resume-intact. */
int job_resumes(const settings *s);

/* What clt_fit and clt_evaluate need to know of the data and the run's length. */
void job_fit(const job *j, const settings *s, clt_fit_options *fit);

#endif
