#include "ranks/ranks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "devices/allot_devices.h"
#include "text/message.h"
#include "ranks/watch.h"

int ranks_prints(const rank_set *r)
{
    return r->world.rank == 0;
}

/* Returns whether a process manager of an MPI library started this process. The variables are those
 * of Hydra and other PMI managers, PMIx, Open MPI and PALS. */
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

/* Default time-outs in seconds. */
static const double STOPPED = 60, LATE = 600;

/* All data that ranks exchange here, in one message of a fixed size. A rank that is at another call
 * or has another version is thereby noticed. */
typedef struct message {
    int code;
    char command[64], version[32], mesh[128];
    uint64_t options[COMPARED];
    char text[HELD_TEXT];
    found found;
    cpu_set_t cores;
} message;

static struct {
    rank_set ranks;
    int over; /* all ranks know that the run is over, and MPI may have ended */
    const char *stage;
    int (*asked)(void);
    double stopped, late; /* seconds that other ranks may be stopped or late */
    clt_status (*connect)(void *user, int color, const struct clt_comm_device *devices, int count,
                          const struct clt_comm_options *options, struct clt_comm **comm);
} met;

int ranks_expected(void)
{
    return manager_here();
}

void ranks_stage(const char *stage)
{
    met.stage = stage;
}

void ranks_interrupt(int (*asked)(void))
{
    met.asked = asked;
}

static const char *stage(void *user)
{
    (void)user;
    return met.stage;
}

static int cancelled(void *user)
{
    (void)user;
    return met.asked && met.asked();
}

/* --- messages between ranks ------------------------------------------------------------------- */

static message message_of(int code)
{
    message m = {.code = code};
    snprintf(m.text, sizeof m.text, "%s", held_usage());
    sched_getaffinity(0, sizeof m.cores, &m.cores);
    return m;
}

/* Reports why the ranks cannot exchange messages. No collective call may follow. */
static int cut_off(clt_status status)
{
    const int said = just_said(clt_error_message()); /* by the library call that failed */
    const int code = said ? EXIT_FAILED : failure("%s", clt_error_message());
    const int asked = status == CLT_STOPPED && met.asked ? met.asked() : 0;
    met.over = 1;
    return asked ? asked : code;
}

/* Prints this rank's usage error, unless a lower rank has the same text. */
static void print_held(const message *all, int rank)
{
    int said = !*all[rank].text;
    for (int i = 0; i < rank; i++)
        said |= !strcmp(all[rank].text, all[i].text);
    if (!said)
        say("%s", all[rank].text);
    drop_usage();
}

/* Exchanges the messages of all ranks. On success *all has them, and the caller frees it. Otherwise
 * returns the largest code of all ranks; then the run is over and *all is NULL. */
static int exchange(const rank_set *r, const message *mine, message **all)
{
    const clt_world *world = &r->world;
    int worst = 0;
    *all = calloc((size_t)world->ranks, sizeof **all);
    if (!*all) {
        failure("memory does not suffice");
        MPI_Abort(MPI_COMM_WORLD, EXIT_FAILED);
    }
    const clt_status status = world->gather(world->user, mine, sizeof *mine, *all);
    for (int i = 0; status == CLT_OK && i < world->ranks; i++)
        worst = (*all)[i].code > worst ? (*all)[i].code : worst;
    if (status == CLT_OK && worst) {
        met.over = 1;
        print_held(*all, world->rank);
    }
    if (status == CLT_OK && !worst)
        return 0;
    free(*all);
    *all = NULL;
    return status == CLT_OK ? worst : cut_off(status);
}

int ranks_agree(const rank_set *r, int code)
{
    message *all;
    if (!r->began || met.over || r->world.ranks < 2)
        return code;
    const message mine = message_of(code);
    code = exchange(r, &mine, &all);
    free(all);
    return code;
}

/* --- start-up --------------------------------------------------------------------------------- */

static int differs(int rank, const char *what, const char *its, const char *first)
{
    return usage_error(
        "rank %d has another %s than rank 0 (%.70s, not %.70s): start all ranks with "
        "the same program, options and data",
        rank, what, its, first);
}

/* Finds the first difference between the ranks. Rank 0 prints this difference. */
static int compare(const message *all, int ranks)
{
    for (int r = 1; r < ranks; r++) {
        if (strcmp(all[r].version, all[0].version))
            return differs(r, "version of cltrain", all[r].version, all[0].version);
        if (strcmp(all[r].command, all[0].command))
            return differs(r, "command", all[r].command, all[0].command);
        if (strcmp(all[r].mesh, all[0].mesh))
            return usage_error("rank 0 has the mesh '%s' (--parallel), rank %d the mesh '%s'",
                               all[0].mesh, r, all[r].mesh);
        for (int i = 0; i < COMPARED; i++)
            if (all[r].options[i] != all[0].options[i]) {
                char name[64];
                return usage_error("rank %d has another %s than rank 0: start all ranks with the "
                                   "same program, options and data",
                                   r, settings_compared_name(i, name));
            }
    }
    return 0;
}

static double seconds_or(double given, double default_value)
{
    return isnan(given) ? default_value : given;
}

/* Makes a communicator with the world's own function, whose MPI calls block. All ranks meet first,
 * then a thread watches the call. */
static clt_status connect_watched(void *user, int color, const struct clt_comm_device *devices,
                                  int count, const struct clt_comm_options *options,
                                  struct clt_comm **comm)
{
    const clt_world *world = &met.ranks.world;
    char mine = 0, *all = malloc((size_t)world->ranks);
    if (!all)
        return clt_error_set(CLT_OUT_OF_MEMORY, "memory does not suffice");
    clt_status status = world->gather(user, &mine, 1, all);
    free(all);
    if (status != CLT_OK)
        return status;
    watch("MPI, while ranks make a communicator,", met.stopped, met.late);
    status = met.connect(user, color, devices, count, options, comm);
    unwatch();
    return status;
}

/* Initialises MPI and the world. These MPI calls block, and every rank makes them at once. */
static clt_status open_world(const char *command, const settings *s, rank_set *r)
{
    int rank, ranks;
    clt_world_deadlines deadlines;
    clt_world_deadlines_init(&deadlines);
    met.stopped = seconds_or(s->comm_timeout, STOPPED);
    met.late = seconds_or(s->setup_timeout, LATE);
    watch("MPI_Init", met.stopped, met.late);
    if (MPI_Init(NULL, NULL) != MPI_SUCCESS)
        return clt_error_set(CLT_MPI, "MPI cannot be initialised");
    unwatch();
    r->began = 1;
    /* Each of the two queued steps and the checkpoint takes at most the time-out. */
    if (manager_here())
        watch_manager(strcmp(command, "train") ? 0 : 3 * (met.stopped > 0 ? met.stopped : STOPPED));
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks > 1)
        say_rank(rank);
    hold_usage(ranks > 1);
    if (ranks < 2)
        return CLT_OK;
    watch("the first exchange of MPI", met.stopped, met.late);
    const clt_status status = clt_world_open_mpi(MPI_COMM_WORLD, &r->world);
    unwatch();
    if (status != CLT_OK)
        return status;
    met.connect = r->world.connect;
    deadlines.late = met.late;
    deadlines.stopped = met.stopped;
    deadlines.cancelled = cancelled;
    deadlines.what = stage;
    const clt_status set = clt_world_set_deadlines_mpi(&r->world, &deadlines);
    r->world.connect = connect_watched;
    return set;
}

int ranks_meet(const char *command, const settings *s, int several, int code)
{
    rank_set *r = &met.ranks;
    message *all;
    clt_world_init(&r->world);
    if (!s->mpi && !ranks_expected())
        return code;
    ranks_stage("the command and its options");
    const clt_status status = open_world(command, s, r);
    if (status != CLT_OK)
        return cut_off(status);
    if (r->world.ranks < 2)
        return code;
    if (!code && !several)
        code =
            usage_error("%s runs in one process, and mpiexec started %d: start it without mpiexec",
                        command, r->world.ranks);
    message mine = message_of(code);
    snprintf(mine.command, sizeof mine.command, "%s", command);
    snprintf(mine.version, sizeof mine.version, "%s", CLT_COMMAND_VERSION);
    snprintf(mine.mesh, sizeof mine.mesh, "%s", s->parallel ? s->parallel : "dp");
    settings_compared(s, mine.options);
    code = exchange(r, &mine, &all);
    if (!code) {
        code = compare(all, r->world.ranks);
        if (code && r->world.rank == 0)
            say("%s", held_usage());
        if (code) {
            drop_usage();
            met.over = 1;
        }
    }
    free(all);
    return code;
}

int ranks_follow(void)
{
    return met.ranks.world.rank > 0;
}

/* Finds the world ranks of this node's ranks, and this rank's place among them. */
static int find_node(const rank_set *r, int *k, int *n, int **ranks)
{
    MPI_Comm node;
    MPI_Group here, world;
    if (MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, r->world.rank, MPI_INFO_NULL,
                            &node) != MPI_SUCCESS)
        return failure("MPI cannot tell which ranks share a node");
    MPI_Comm_rank(node, k);
    MPI_Comm_size(node, n);
    MPI_Comm_group(node, &here);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    int *own = malloc((size_t)*n * sizeof *own);
    *ranks = malloc((size_t)*n * sizeof **ranks);
    for (int i = 0; own && i < *n; i++)
        own[i] = i;
    if (own && *ranks)
        MPI_Group_translate_ranks(here, *n, own, world, *ranks);
    const int made = own && *ranks;
    free(own);
    MPI_Group_free(&here);
    MPI_Group_free(&world);
    MPI_Comm_free(&node);
    return made ? 0 : failure("memory does not suffice");
}

static int share_out(rank_set *r, const settings *s)
{
    int k, n, *ranks = NULL;
    message *all;
    watch("MPI_Comm_split_type", met.stopped, met.late);
    int code = find_node(r, &k, &n, &ranks);
    unwatch();
    ranks_stage("the node's devices to be found");
    message mine = message_of(code);
    if (!code && k == 0 && n > 1)
        mine.code = look_apart(s, &mine.found);
    mine.code = mine.found.code > mine.code ? mine.found.code : mine.code;
    code = exchange(r, &mine, &all);
    cpu_set_t *cores = code || n < 2 ? NULL : malloc((size_t)n * sizeof *cores);
    if (cores) {
        for (int i = 0; i < n; i++)
            cores[i] = all[ranks[i]].cores;
        code = share_out_devices(&all[ranks[0]].found, k, n, cores, &r->first, &r->count);
    } else if (!code && n > 1) {
        code = failure("memory does not suffice");
    }
    free(cores);
    free(ranks);
    free(all);
    return code;
}

int ranks_begin(rank_set *r, const settings *s)
{
    *r = met.ranks;
    met.ranks.began = 0;
    if (r->world.ranks < 2)
        return 0;
    int code = s->oversubscribe ? 0 : share_out(r, s);
    ranks_stage("the devices to be shared out");
    code = ranks_agree(r, code);
    ranks_stage("the data and the model to be read");
    return code;
}

/* Returns the largest code of all ranks. Returns -1 if other ranks do not come within `seconds`. 0
 * seconds stands for no limit. */
static int all_come(int code, double seconds)
{
    MPI_Request request;
    const struct timespec pause = {0, 5000000};
    int done = 0, worst = code;
    MPI_Iallreduce(&code, &worst, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD, &request);
    for (int i = 0; !done && (seconds <= 0 || i < (int)(seconds / 5e-3)); i++) {
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        if (!done)
            nanosleep(&pause, NULL);
    }
    return done ? worst : -1;
}

int ranks_end(rank_set *r, int code)
{
    if (!r->began)
        return code;
    fflush(NULL);
    hold_usage(0);
    if (manager_ended()) /* MPI_Finalize and MPI_Abort would call the manager and print that this
                            fails */
        _exit(code);
    const int worst = all_come(code, code ? 3 : LATE);
    if (worst < 0)
        MPI_Abort(MPI_COMM_WORLD, code ? code : EXIT_FAILED);
    clt_world_close(&r->world);
    MPI_Finalize();
    r->began = 0;
    return worst;
}

int ranks_leave(int code)
{
    rank_set *r = &met.ranks;
    return r->began ? ranks_end(r, ranks_agree(r, code)) : code;
}
#else
int ranks_expected(void)
{
    return 0;
}

int ranks_meet(const char *command, const settings *s, int several, int code)
{
    (void)command;
    if (!code && (s->mpi || (several && manager_here())))
        return usage_error("this cltrain was built without MPI: every rank would train on its own. "
                           "Install an MPI library (Debian: libmpich-dev) and build again");
    return code;
}

int ranks_follow(void)
{
    return 0;
}

int ranks_begin(rank_set *r, const settings *s)
{
    (void)s;
    clt_world_init(&r->world);
    return 0;
}

void ranks_stage(const char *stage)
{
    (void)stage;
}

void ranks_interrupt(int (*asked)(void))
{
    (void)asked;
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

int ranks_leave(int code)
{
    return code;
}
#endif
