#include "job/async.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "devices/make_runtime.h"
#include "options/groups.h"
#include "text/message.h"

/* The variable with the job's secret. It is not an option: command lines can be read by everybody.
 */
static const char SECRET[] = "CLTRAIN_SECRET";

async_role async_role_of(const settings *s)
{
    return s->async < 0 ? SYNCHRONOUS : s->worker >= 0 ? WORKER : s->holder > 0 ? FOLLOWER : LEADER;
}

/* Names an option that asynchronous training excludes, and says why. */
static const char *excluded(const settings *s, const char **why)
{
    *why = "workers have no mesh: each is data parallel over its own devices";
    if (s->parallel)
        return "parallel";
    if (s->stages)
        return "stages";
    *why = "the holders divide the optimizer's state already";
    if (s->zero > 0)
        return "zero";
    if (s->offload)
        return "offload";
    *why = "workers take batches at their own speed";
    if (s->split)
        return "split";
    if (s->rebalance)
        return "rebalance";
    if (s->replay)
        return "replay";
    *why = "batches come in any order, and states are not carried from one to the next";
    if (s->windows && !strcmp(s->windows, "continued"))
        return "windows continued";
    *why = "evaluations run beside the steps, whose number depends on the speed of workers";
    if (s->val)
        return "val";
    if (s->average)
        return "average";
    if (s->keep_best)
        return "keep-best";
    if (s->patience > 0)
        return "patience";
    if (s->schedule && !strncmp(s->schedule, "plateau", 7))
        return "schedule plateau";
    *why = "its processes are connected by sockets, without mpiexec";
    if (s->mpi)
        return "mpi";
    if (s->heartbeat)
        return "heartbeat";
    if (s->global_batch)
        return "global-batch";
    *why = "the bits depend on the order in which gradients come";
    if (s->virtual_shards > 0)
        return "virtual-shards";
    *why = "gradients go to holders one by one, without a sum that is rounded";
    if (s->wire && strcmp(s->wire, "f32"))
        return "wire";
    *why = "kernels of several processes are not in one trace";
    return s->profile ? "profile" : NULL;
}

/* Whether ADDRESS:PORT stands for all addresses of the host. */
/* Whether the text has an address and a port. */
static int names_port(const char *listen)
{
    const char *colon = strrchr(listen, ':');
    char *end;
    if (colon == listen || !isdigit((unsigned char)colon[1]))
        return 0;
    const long port = strtol(colon + 1, &end, 10);
    return !*end && port >= 0 && port <= 65535;
}

static int is_any(const char *listen)
{
    const int length = (int)(strrchr(listen, ':') - listen);
    static const char *const any[] = {"", "*", "0.0.0.0", "::", "[::]"};
    for (size_t i = 0; i < sizeof any / sizeof *any; i++)
        if ((int)strlen(any[i]) == length && !strncmp(listen, any[i], (size_t)length))
            return 1;
    return 0;
}

static int check_role(const settings *s)
{
    const int64_t holders = s->servers > 0 ? s->servers : 1;
    if (holders > CLT_ASYNC_MOST_HOLDERS)
        return usage_error("--servers %lld: must be at most %d", (long long)holders,
                           CLT_ASYNC_MOST_HOLDERS);
    if ((s->holder < 0) == (s->worker < 0))
        return usage_error("--async %lld: one process is either a holder (--holder I) or a worker "
                           "(--worker K --join HOST:PORT); cltrain-launch starts them all",
                           (long long)s->async);
    if (s->holder >= holders)
        return usage_error(
            "--holder %lld: the %lld holders of --servers have the numbers 0 to %lld",
            (long long)s->holder, (long long)holders, (long long)holders - 1);
    if (s->worker >= CLT_ASYNC_MOST_WORKERS)
        return usage_error("--worker %lld: must be below %d", (long long)s->worker,
                           CLT_ASYNC_MOST_WORKERS);
    if (s->holder >= 0 && (!s->listen || !strrchr(s->listen, ':')))
        return usage_error("--holder %lld needs --listen ADDRESS:PORT, as 0.0.0.0:7000",
                           (long long)s->holder);
    if (s->holder >= 0 && !names_port(s->listen))
        return usage_error(
            "--listen %s: give ADDRESS:PORT, as 0.0.0.0:7000, with a port of 0 to 65535",
            s->listen);
    if (s->holder > 0 && !s->reach && is_any(s->listen))
        return usage_error(
            "--holder %lld --listen %s: others cannot reach this address: add --reach "
            "HOST, the name of this host",
            (long long)s->holder, s->listen);
    if (s->holder < 0 && s->listen)
        return usage_error("--listen is for holders; a worker has --join");
    if (s->holder == 0 && s->join)
        return usage_error("--join is for workers and for other holders than holder 0");
    if (s->holder != 0 && (!s->join || !strrchr(s->join, ':')))
        return usage_error("--%s %lld needs --join HOST:PORT, the address of holder 0",
                           s->worker < 0 ? "holder" : "worker",
                           (long long)(s->worker < 0 ? s->holder : s->worker));
    const char *secret = getenv(SECRET);
    if (!secret || strlen(secret) < 16)
        return usage_error("--async %lld: the variable %s must have the job's secret, of 16 "
                           "characters or more",
                           (long long)s->async, SECRET);
    return 0;
}

int async_check(const settings *s)
{
    const char *why;
    if (s->async < 0) {
        const char *given = s->servers >= 0  ? "servers"
                            : s->holder >= 0 ? "holder"
                            : s->worker >= 0 ? "worker"
                            : s->listen      ? "listen"
                            : s->reach       ? "reach"
                            : s->join        ? "join"
                            : s->events      ? "events"
                                             : NULL;
        return given ? usage_error("--%s needs --async", given) : 0;
    }
    const char *option = excluded(s, &why);
    if (option)
        return usage_error("--async and --%s exclude each other: %s", option, why);
    if (!clt_async_is_built())
        return failure("--async: this cltrain was built without ZeroMQ or libsodium (Debian: "
                       "libzmq3-dev libsodium-dev)");
    return check_role(s);
}

void async_quieten(settings *s)
{
    s->checkpoint_dir = s->checkpoint_every = s->metrics = s->tensorboard = s->init = NULL;
    if (async_role_of(s) == WORKER) /* another holder goes on with its log */
        s->resume = s->resume_intact = 0;
    s->keep = -1;
    s->quiet = 1;
}

/* --- taking part ---------------------------------------------------------------------------- */

static void on_listen(void *user, int port)
{
    const settings *s = user;
    printf("holder %lld listens on port %d\n", (long long)s->holder, port);
    fflush(stdout);
}

static void on_note(void *user, const char *line)
{
    (void)user;
    say("%s", line);
}

static void describe(const settings *s, clt_async_options *o)
{
    clt_async_options_init(o);
    o->staleness = s->async;
    o->holders = s->servers > 0 ? (int)s->servers : 1;
    o->number = (int)(s->worker >= 0 ? s->worker : s->holder);
    o->secret = getenv(SECRET);
    o->listen = s->listen;
    o->host = s->reach;
    o->join = s->join;
    o->events = s->worker >= 0 ? NULL : s->events;
    o->resume = job_resumes(s);
    if (!isnan(s->setup_timeout) && s->setup_timeout > 0)
        o->patience = s->setup_timeout;
    o->on_listen = on_listen;
    o->on_note = s->quiet ? NULL : on_note;
    o->user = (void *)(uintptr_t)s;
}

/* Opens the device of the holder's range. Holder 0's whole model is on others, as another thread
 * uses them. */
static clt_status open_device(const settings *s, clt_runtime **runtime, clt_device ***devices,
                              int *count)
{
    clt_status status = make_runtime(s->cache_dir, runtime);
    NEXT(status, clt_devices_open(*runtime, s->devices, NULL, devices, count));
    return status;
}

/* Anybody may connect to a holder, and takes an open file of it until the handshake fails. So that
 * few strangers do not take all, a holder may have as many as the system lets it. */
static void allow_open_files(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0)
        return;
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
}

static clt_status lead(job *j, const settings *s, const clt_fit_options *fit,
                       const clt_async_options *o)
{
    clt_runtime *runtime = NULL;
    clt_device **devices = NULL;
    int count = 0;
    allow_open_files();
    clt_status status = open_device(s, &runtime, &devices, &count);
    NEXT(status,
         clt_async_hold(j->graph, devices[0], &j->options, j->trainer, j->train, j->test, fit, o));
    char message[1024];
    snprintf(message, sizeof message, "%s", clt_error_message());
    clt_devices_close(devices, count);
    clt_runtime_destroy(runtime);
    return status == CLT_OK ? CLT_OK : clt_error_set(status, message);
}

static clt_status work(job *j, const settings *s, const clt_fit_options *fit, clt_async_options *o)
{
    clt_async_worked worked;
    clt_async_worked_init(&worked);
    o->should_stop = fit->should_stop;
    o->user = fit->user;
    o->on_note = NULL;
    const clt_status status = clt_async_work(j->trainer, j->train, fit, o, &worked);
    if (status == CLT_OK)
        say("worker %lld: %lld gradients applied, %lld discarded, %lld not finite, %.0f samples/s; "
            "%lld requests sent again",
            (long long)s->worker, (long long)worked.applied, (long long)worked.discarded,
            (long long)worked.nonfinite,
            worked.seconds > 0 ? (double)worked.samples / worked.seconds : 0,
            (long long)worked.repeated);
    return status;
}

clt_status async_run(job *j, const settings *s, const clt_fit_options *fit)
{
    clt_async_options o;
    describe(s, &o);
    return async_role_of(s) == WORKER ? work(j, s, fit, &o) : lead(j, s, fit, &o);
}

/* --- another holder ------------------------------------------------------------------------- */

static int (*asks_to_stop)(void);

static int should_stop(void *user)
{
    (void)user;
    return asks_to_stop();
}

int async_follow(const settings *s, int (*stop)(void))
{
    job j = {0};
    clt_async_options o;
    asks_to_stop = stop;
    int code = job_ranks(&j, s);
    NEXT(code, job_read(&j, s));
    NEXT(code, job_devices(&j, s));
    NEXT(code, job_data(&j, s, DATA_TRAIN));
    NEXT(code, job_graph(&j, s));
    NEXT(code, read_groups(j.graph, s));
    if (!code)
        code = name_failure(job_schedule(&j, s));
    if (code)
        return job_close(&j, code);
    allow_open_files();
    describe(s, &o);
    o.should_stop = should_stop;
    const clt_status status =
        clt_async_hold(j.graph, j.devices[0], &j.options, NULL, NULL, NULL, NULL, &o);
    if (status == CLT_STOPPED)
        code = 128 + 15;
    else if (status != CLT_OK)
        code = library_failure(status);
    return job_close(&j, code);
}
