/* Set-up that train, eval, plan and bench share: data, devices, model and trainer. */
#ifndef CLTRAIN_COMMAND_JOB_JOB_H
#define CLTRAIN_COMMAND_JOB_JOB_H

#include <cltrain/fit.h>
#include <cltrain/models.h>
#include <cltrain/planner.h>

#include "job/replicas.h"
#include "options/options.h"
#include "ranks/ranks.h"

enum { MOST_CHANNELS = 16, MOST_POLICIES = 4 };

/* With which batch and devices a run with --global-batch scaled began. */
typedef struct scaled_from {
    int64_t batch, devices;
} scaled_from;

typedef struct job {
    clt_trainer_options options;
    rank_set ranks;
    double mean[MOST_CHANNELS], std[MOST_CHANNELS]; /* of --normalize */
    int channels;              /* channels of --normalize; 0 if the option was not set */
    clt_dataset *train, *test; /* NULL if not opened */
    clt_dataset *validation;   /* of --val; NULL: none */
    clt_dataset *whole;        /* of which training and validation samples are parts; NULL: none */
    int64_t val_seed;          /* of the draw of validation samples */
    clt_policy *policies[MOST_POLICIES];
    int n_policies;
    /* Of the columns of csv:PATH, and of the classes of images:DIR, from the checkpoint or the
     * training samples. */
    char *description, *classes;
    double *class_weights; /* of --class-weights, or of the checkpoint; NULL: none */
    char *resumed;   /* path of the checkpoint to resume from; NULL for a run from the beginning */
    char *frozen;    /* kernel choices of the resumed run */
    char *heartbeat; /* path of this rank's heartbeat file */
    char mesh[128];  /* that --parallel auto chose */
    char *stages;    /* the same for --stages; NULL: it chose none */
    int (*stop)(void *user); /* asked while meshes are compared; may be NULL */
    void *stop_user;
    clt_model_field fields[CLT_DATA_MAX_FIELDS];
    clt_model_input input; /* refers to `fields` */
    clt_runtime *runtime;
    clt_device **devices;
    int n_devices;
    clt_graph *graph;
    clt_store *store;
    clt_trainer *trainer;
    replica_set replicas;   /* if there are any, store and trainer are those of the first */
    int64_t steps;          /* of the whole run */
    int64_t all_devices;    /* with samples, of all ranks; 0 without --global-batch */
    scaled_from scaled;     /* all 0 without --global-batch scaled */
    scaled_from began;      /* the same, or what the checkpoint has: for the next checkpoints */
    double rate_factor;     /* of --global-batch scaled, for rates that options give */
    int64_t schedule_steps; /* of the whole run, in steps of scaled.batch */
    int splits;             /* job_model divides the batch among the devices, and may close some */
    int silent;             /* do not print the division */
    int benchmark;          /* the steps stand for those of a long run */
    int predicts;           /* predict the step time, also if there is nothing to divide */
    clt_prediction prediction;
    double *weights;
    int64_t bucket_bytes; /* of the store; 0 for the library's default */
    double run_began;     /* see measure_later_begin */
    double measure_later; /* seconds for measuring kernels after the run; 0: none */
    struct {
        clt_split_change *list; /* changes of --replay; their weights are in `numbers` */
        double *numbers;
        int count, n_weights;
    } changes;
} job;

/* Which splits job_data opens. DATA_SYNTHETIC also allows random samples, and makes them the
 * default. */
enum { DATA_TRAIN = 1, DATA_TEST = 2, DATA_SYNTHETIC = 4 };

/* Labels of this value count neither in the loss nor in the accuracy. PyTorch uses the same
 * default. */
enum { IGNORED_LABEL = -100 };

/* Reads --normalize into means and standard deviations. Returns an exit code. */
int read_normalize(job *j, const settings *s);

/* Reads --tune off|SECONDS. Sets `default_value` if the option was not set. Returns an exit code.
 */
int read_tune(const char *text, double default_value, double *seconds);

/* Reads --memory SIZE. Nothing happens if `text` is NULL. Returns an exit code. */
int read_memory(const char *text, int64_t *bytes);

/* Checks that the names in --variant exist. Returns an exit code. */
int check_variants(const settings *s);

/* Reads --optimizer and the options of optimizers. Returns an exit code. */
int read_optimizer(const settings *s, clt_trainer_options *options);

/* Adds the adapters of --lora to a graph. Returns an exit code. */
int read_lora(clt_graph *graph, const settings *s);

/* Reads --precision. Returns an exit code. */
int read_precision(const settings *s, clt_dtype *type);

/* Reads --precision and --wire. Returns an exit code. */
int read_types(const settings *s, clt_trainer_options *options);

/* Checks --stages and --zero. `trains`: there is an optimizer. Returns an exit code. */
int check_mesh(const settings *s, int trains);

/* Reads --virtual-shards, and refuses options that do not go with it. Returns an exit code. */
int read_virtual_shards(job *j, const settings *s);

/* Reports a failure to make a store or predictor. The mesh may ask for parts that the model does
 * not have, which is a usage error. Returns an exit code. */
int mesh_failure(const settings *s, clt_status status);

/* Returns the number of stages that --parallel asks for. */
int mesh_stages(const settings *s);

/* The steps of set-up, to be called in this order on a zeroed job. Each prints a message and
 * returns an exit code other than 0 if it fails. Call job_close in any case. */

/* Assigns devices to ranks, for commands that may run on several ranks. */
int job_ranks(job *j, const settings *s);
/* Reads the options. Opens nothing. */
int job_read(job *j, const settings *s);
/* Whether devices have a mesh, or shards of the parameters. The planner does not know either. */
int job_is_meshed(const settings *s);
/* Returns how many of a rank's last devices --offload makes owners; -1: it is wrong. */
int job_owners(const settings *s);
/* Opens the devices. Call this before job_data, since decoding disturbs measurements of devices. */
int job_devices(job *j, const settings *s);
/* Finds the checkpoint to resume from, for train. */
int job_resume(job *j, const settings *s);
/* Opens the splits that `which` names. */
int job_data(job *j, const settings *s, int which);
/* Builds the graph. A part of job_model. */
int job_graph(job *j, const settings *s);
/* Makes graph and store. */
int job_model(job *j, const settings *s);
/* Makes the store. A part of job_model, which may be called again for another bucket size. */
int job_store(job *j, const settings *s);
/* Reads --merge-launches; without it *merging stays. */
int read_merging(const char *text, clt_merging *merging);
/* Calls job_devices, job_data and job_model, with training data or random data. */
int job_plan(job *j, const settings *s);
/* Makes the trainer. `code` is the result of the steps before. Collective. */
int job_trainer(job *j, const settings *s, int code);
/* Reads --schedule. A part of job_trainer. */
clt_status job_schedule(job *j, const settings *s);
/* Frees everything. Returns the largest code of all ranks. Collective. */
int job_close(job *j, int code);

/* Prints the number of parameters, and how many of them are trained if some are frozen. */
void show_parameters(const job *j);

/* Returns the number of classes, or the vocabulary of text, from the first field that has classes.
 * Returns 0 if no field has them. */
int64_t job_classes(const clt_dataset *dataset);

/* Keeps the description of the columns or classes that the training samples have now. */
clt_status job_describe_columns(job *j, const clt_dataset *train);

/* Returns the description for a data set: NULL if it is neither csv:PATH nor images:DIR. */
const char *job_description(const job *j, const char *spec);

/* Returns whether --resume or --resume-intact was set. */
int job_resumes(const settings *s);

/* Sets the options of clt_fit and clt_evaluate that describe the data and the length of the run. */
void job_fit(const job *j, const settings *s, clt_fit_options *fit);

#endif
