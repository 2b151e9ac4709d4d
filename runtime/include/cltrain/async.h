/*
 * Asynchronous training with a parameter server (Li et al., OSDI 2014).
 *
 * Holders have the parameters and the optimizer's state, each an equal range of bytes. Workers ask
 * holder 0 for a batch, pull the parameters, compute a gradient and push it. Nobody waits for
 * another worker. A worker may end and come back while the job runs.
 *
 * - Each gradient that is applied makes a new version of the parameters. The staleness of a
 *   gradient is the number of versions between its pull and its push. An older one than
 *   options.staleness is discarded, and its samples are dealt again, to any worker.
 * - Holder 0 decides. All holders apply the same gradients in the same order, each at most once.
 *   Another holder may be some versions behind holder 0, and says with the parameters which version
 *   they have. The oldest of these versions is that of the pull.
 * - Schedules and bias corrections count versions. Gradients are clipped by the norm of the whole
 *   gradient.
 * - Each sample of an epoch is applied once. Batches of the next epoch are dealt before the last
 *   gradients of an epoch have come.
 * - Of tables that only clt_embedding reads, by an input of the graph, the rows of the batch
 *   travel.
 * - A worker repeats a request whose answer does not come, because a connection broke. Holders know
 *   each request by its number, so a batch is dealt once and a gradient is applied once.
 * - States take the values of the last gradient that was applied; whole numbers are added up.
 * - Holder 0 has the whole model in a second trainer, which evaluates and saves in a thread of its
 *   own. Checkpoints are those of clt_trainer_save. A synchronous run that resumes from one begins
 *   at the first sample that was not applied.
 *
 * The processes are connected by ZeroMQ's sockets with CURVE, whose keys follow from a secret of
 * the job. Without the secret nothing is accepted. UNSUPPORTED tells that the library was built
 * without ZeroMQ or libsodium.
 */
#ifndef CLTRAIN_ASYNC_H
#define CLTRAIN_ASYNC_H

#include <cltrain/fit.h>

CLT_BEGIN_DECLS

/* Most holders and most workers of a job. */
#define CLT_ASYNC_MOST_HOLDERS 64
#define CLT_ASYNC_MOST_WORKERS 1024

/* How to take part. Set up by clt_async_options_init, with the defaults that stand at the members.
 * Strings are borrowed for the time of the call. */
typedef struct clt_async_options {
    size_t struct_size; /* set by clt_async_options_init */
    int64_t staleness;  /* 0: of gradients that are applied, in versions; equal in all processes */
    int holders;        /* 1; equal in all processes */
    int number;         /* 0: of this holder or worker. A worker that joins with the number of an
                           earlier one replaces it */
    const char *secret; /* of the job, at least 16 characters; hard to guess */
    const char *listen; /* holders: "ADDRESS:PORT"; port 0: any free one */
    const char *host;   /* holders: the name by which others reach this one; NULL: ADDRESS */
    const char *join;   /* all but holder 0: "HOST:PORT" of holder 0 */
    double silence;     /* 10: seconds without a sign after which a process counts as gone */
    double patience;    /* 120: seconds that a worker or holder waits for the others to be ready. A
                           worker that brings no gradient for five times as long is dropped */
    const char *events; /* a file of JSON lines: every deal, pull and push; NULL: none */
    int resume;         /* 1: append to `events` */
    /* Called with the port, once others can connect; may be NULL. */
    void (*on_listen)(void *user, int port);
    /* Called with a line about the job: who joins and who is lost. May be NULL. */
    void (*on_note)(void *user, const char *line);
    /* Holders and workers: a result other than 0 ends the call. Polled every 0.1 s. May be NULL. */
    int (*should_stop)(void *user);
    void *user;
} clt_async_options;

/* Sets struct_size and the defaults. */
CLT_API void clt_async_options_init(clt_async_options *options);

/* Returns 1 if the library was built with ZeroMQ and libsodium, else 0. Thread-safe. */
CLT_API int clt_async_is_built(void);

/* Checks the options, and that a run with these options of the trainer can be asynchronous. Errors:
 * INVALID_ARGUMENT names the member; UNSUPPORTED. */
CLT_API clt_status clt_async_check(const clt_async_options *options,
                                   const clt_trainer_options *trainer);

/* Changes the options of a trainer to those of a worker's trainer, whose steps compute gradients
 * and update nothing. The optimizer is the holders'. */
CLT_API void clt_async_worker_options(clt_trainer_options *options);

/*
 * Holds the parameters of `graph` until the run is done. `options` say how to train; one device
 * suffices.
 *
 * Holder 0 also takes `whole`, a trainer of the whole graph with the same options on other devices
 * (of another clt_runtime, since a second thread uses them), `train`, `test` (may be NULL) and
 * `fit`. It trains from the trainer's parameters, or resumes from a checkpoint if fit->resume is
 * set. The result is in `whole` afterwards. fit->on_step, on_epoch and on_checkpoint are called
 * from two threads, never at the same time. Reports have the staleness and the number of discarded
 * gradients. Other holders pass NULL for these.
 *
 * Errors: TIMEOUT (another holder, or holder 0, has gone: the run must go on from the last
 * checkpoint, which the message names), MISMATCH (holders have other models or options), NONFINITE
 * (the gradient of a batch was not finite four times), STOPPED, IO, UNSUPPORTED,
 * INVALID_ARGUMENT, those of checkpoints, data and devices.
 */
CLT_API clt_status clt_async_hold(const clt_graph *graph, clt_device *device,
                                  const clt_trainer_options *options, clt_trainer *whole,
                                  clt_dataset *train, clt_dataset *test, const clt_fit_options *fit,
                                  const clt_async_options *async);

/* What a worker did. */
typedef struct clt_async_worked {
    size_t struct_size; /* set by clt_async_worked_init */
    int64_t applied, discarded, nonfinite;
    int64_t samples;  /* of applied gradients */
    int64_t repeated; /* requests that were sent again, because their answers did not come */
    double seconds;
} clt_async_worked;

/* Sets struct_size. */
CLT_API void clt_async_worked_init(clt_async_worked *worked);

/*
 * Works until the run is done: pulls, computes and pushes. The trainer was made with
 * clt_async_worker_options, on any number of devices, and its store has the graph's parameters. Of
 * `fit` the members about data and batches count. *worked (may be NULL) is set in any case.
 *
 * Errors: TIMEOUT (a holder does not answer: it is not there, or the secret is another one),
 * MISMATCH (holder 0 has another model or other data, or has dropped this worker), STOPPED,
 * UNSUPPORTED (a parameter without gradient that is not frozen; data in device memory), those of
 * data and devices.
 */
CLT_API clt_status clt_async_work(clt_trainer *trainer, clt_dataset *train,
                                  const clt_fit_options *fit, const clt_async_options *async,
                                  clt_async_worked *worked);

CLT_END_DECLS

#endif
