#include "ranks.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "job.h"
#include "message.h"

int ranks_prints(const rank_set *r)
{
    return r->world.rank == 0;
}

/* What the process managers that MPI libraries come with set: Hydra and other PMI, PMIx, Open MPI,
 * PALS. */
static int manager_here(void)
{
    static const char *const names[] = {"PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK",
                                        "MPI_LOCALRANKID", "PALS_RANKID"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i]))
            return 1;
    return 0;
}

#ifdef CLT_COMMAND_MPI
#include <cltrain/mpi.h>

int ranks_expected(void)
{
    return manager_here();
}

/* What the list opens on this node. */
typedef struct found {
    int code; /* an exit code */
    int devices;
    int cpu; /* the only whole CPU among them, -1: none or several */
    int cores;
} found;

/* Runs in a process of its own: an OpenCL driver keeps to the cores that its process had when it
 * was first called. */
static found look(const settings *s)
{
    found f = {.cpu = -1};
    hold_usage(0);
    clt_runtime *runtime = NULL;
    clt_device **devices = NULL;
    clt_status status = make_runtime(s->cache_dir, &runtime);
    if (status == CLT_OK)
        status = clt_devices_open(runtime, s->devices, NULL, &devices, &f.devices);
    f.code = status == CLT_OK ? 0 : name_failure(status);
    int cpus = 0;
    for (int i = 0; !f.code && i < f.devices; i++) {
        clt_device_info info;
        clt_device_info_init(&info);
        clt_device_get_info(devices[i], &info);
        if (info.kind != 0)
            continue;
        f.cpu = cpus++ ? -1 : i;
        f.cores = info.compute_units;
    }
    clt_devices_close(devices, f.code ? 0 : f.devices);
    clt_runtime_destroy(runtime);
    return f;
}

static int look_apart(const settings *s, found *f)
{
    int ends[2];
    if (pipe(ends) != 0)
        return failure("cannot look for devices: a pipe cannot be made");
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        const found seen = look(s);
        const ssize_t written = write(ends[1], &seen, sizeof seen);
        _exit(written == (ssize_t)sizeof seen ? 0 : 1);
    }
    close(ends[1]);
    const ssize_t got = child < 0 ? -1 : read(ends[0], f, sizeof *f);
    close(ends[0]);
    if (child > 0)
        waitpid(child, NULL, 0);
    return got == (ssize_t)sizeof *f ? 0 : failure("cannot look for devices: a process failed");
}

/* The k-th of so many equal parts of this process' cores. */
static int keep_to_cores(int k, int parts)
{
    cpu_set_t all, own;
    CPU_ZERO(&all);
    CPU_ZERO(&own);
    if (sched_getaffinity(0, sizeof all, &all) != 0)
        return failure("cannot learn which cores this process has");
    const int cores = CPU_COUNT(&all), begin = cores * k / parts, end = cores * (k + 1) / parts;
    for (size_t core = 0, at = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &all) && at++ >= (size_t)begin && at <= (size_t)end)
            CPU_SET(core, &own);
    return sched_setaffinity(0, sizeof own, &own) == 0
               ? 0
               : failure("cannot keep to %d of %d cores", end - begin, cores);
}

/* Whether the launcher has already given the node's ranks cores of their own. */
static int bound_apart(MPI_Comm node, int ranks)
{
    cpu_set_t own, *all = calloc((size_t)ranks, sizeof *all);
    int apart = 0;
    CPU_ZERO(&own);
    if (!all || sched_getaffinity(0, sizeof own, &own) != 0) {
        free(all);
        return 0;
    }
    MPI_Allgather(&own, (int)sizeof own, MPI_BYTE, all, (int)sizeof own, MPI_BYTE, node);
    for (int r = 1; r < ranks; r++)
        apart |= !CPU_EQUAL(&all[r], &all[0]);
    free(all);
    return apart;
}

/* On any node, so that it is no usage_error, which only rank 0 prints. */
static int too_few(const found *f, int ranks)
{
    return failure("%d ranks on this node share %d device%s%s: start fewer ranks, name more "
                   "devices, or let every rank use all of them with --oversubscribe",
                   ranks, f->devices, f->devices == 1 ? "" : "s",
                   f->cpu >= 0 && f->cores > 1 ? " and too few cores" : "");
}

/* The CPU stands for as many devices as it takes to have one for each rank. */
static int split_cpu(rank_set *r, const found *f, int apart)
{
    const int n = r->world.node_ranks, k = r->world.node_rank, parts = n - (f->devices - 1);
    if (f->cpu < 0 || (!apart && parts > f->cores))
        return k == 0 ? too_few(f, n) : EXIT_FAILED;
    const int part = k - f->cpu;
    r->first = part < 0 ? k : part < parts ? f->cpu : k - parts + 1;
    r->count = 1;
    return part >= 0 && part < parts && !apart ? keep_to_cores(part, parts) : 0;
}

static int deal(rank_set *r, const settings *s, MPI_Comm node)
{
    found f = {0};
    const int n = r->world.node_ranks, k = r->world.node_rank;
    if (s->oversubscribe || n == 1)
        return 0;
    const int apart = bound_apart(node, n);
    int code = k == 0 ? look_apart(s, &f) : 0;
    if (code)
        f.code = code;
    MPI_Bcast(&f, (int)sizeof f, MPI_BYTE, 0, node);
    if (f.code)
        return f.code;
    if (f.devices < n)
        return split_cpu(r, &f, apart);
    r->first = f.devices * k / n;
    r->count = f.devices * (k + 1) / n - r->first;
    return 0;
}

/* All ranks do this first, those with a `code` from before too. */
static int begin_together(rank_set *r, int code)
{
    int rank, ranks;
    if (MPI_Init(NULL, NULL) != MPI_SUCCESS)
        return failure("MPI cannot be initialised");
    r->began = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks > 1)
        say_rank(rank);
    hold_usage(ranks > 1);
    return ranks_agree(r, code);
}

int ranks_begin(rank_set *r, const settings *s)
{
    MPI_Comm node;
    clt_world_init(&r->world);
    if (!s->mpi && !ranks_expected())
        return 0;
    int code = begin_together(r, 0);
    if (code)
        return code;
    const clt_status status = clt_world_open_mpi(MPI_COMM_WORLD, &r->world);
    if (status != CLT_OK)
        return library_failure(status);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, r->world.rank, MPI_INFO_NULL, &node);
    code = deal(r, s, node);
    MPI_Comm_free(&node);
    return ranks_agree(r, code);
}

int ranks_refuse(int code)
{
    rank_set r = {0};
    return ranks_end(&r, begin_together(&r, code));
}

/* Prints what is held unless a rank before has the same text. */
static void print_held(const char *texts, int rank)
{
    const char *own = texts + (size_t)rank * HELD_TEXT;
    int said = !*own;
    for (int i = 0; i < rank; i++)
        said |= !strcmp(own, texts + (size_t)i * HELD_TEXT);
    if (!said)
        say("%s", own);
    drop_usage();
}

int ranks_agree(const rank_set *r, int code)
{
    static int over; /* all know that it is, and may have ended MPI */
    int worst = code, rank, ranks;
    if (!r->began || over)
        return code;
    MPI_Allreduce(&code, &worst, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (!worst)
        return 0;
    over = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    char *texts = calloc((size_t)ranks, HELD_TEXT);
    if (!texts) {
        failure("memory does not suffice");
        MPI_Abort(MPI_COMM_WORLD, EXIT_FAILED);
    }
    MPI_Allgather(held_usage(), HELD_TEXT, MPI_CHAR, texts, HELD_TEXT, MPI_CHAR, MPI_COMM_WORLD);
    print_held(texts, rank);
    free(texts);
    return code ? code : worst;
}

/* Whether all ranks are here; within some seconds, or some time (0). */
static int all_come(double seconds)
{
    MPI_Request request;
    const struct timespec pause = {0, 5000000};
    int done = 0;
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    for (int i = 0; !done && (seconds <= 0 || i < (int)(seconds / 5e-3)); i++) {
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        if (!done)
            nanosleep(&pause, NULL);
    }
    return done;
}

int ranks_end(rank_set *r, int code)
{
    if (!r->began)
        return code;
    fflush(NULL);
    hold_usage(0);
    if (!all_come(code ? 3 : 0))
        MPI_Abort(MPI_COMM_WORLD, code);
    clt_world_close(&r->world);
    MPI_Finalize();
    r->began = 0;
    return code;
}
#else
int ranks_expected(void)
{
    return 0;
}

int ranks_refuse(int code)
{
    return code;
}

int ranks_begin(rank_set *r, const settings *s)
{
    clt_world_init(&r->world);
    if (s->mpi || manager_here())
        return usage_error("this cltrain was built without MPI: every rank would train on its own. "
                           "Install an MPI library (Debian: libmpich-dev) and build again");
    return 0;
}

int ranks_agree(const rank_set *r, int code)
{
    (void)r;
    return code;
}

int ranks_end(rank_set *r, int code)
{
    (void)r;
    return code;
}
#endif
