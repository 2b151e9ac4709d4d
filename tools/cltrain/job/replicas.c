#include "job/replicas.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "job/job.h"
#include "text/message.h"

static int read_when(const settings *s, clt_local_options *o)
{
    if (!s->sync_every)
        return usage_error("--parallel %s: says nothing about when replicas are synchronised: add "
                           "--sync-every with a number of steps, as 8, or of seconds, as 2s",
                           s->parallel);
    if (clt_sync_every_parse(s->sync_every, &o->every_steps, &o->every_seconds) != CLT_OK)
        return usage_error("--sync-every %s: must be a number of steps above 0, as 8, or of "
                           "seconds, as 2s",
                           s->sync_every);
    if (s->outer && clt_outer_parse(s->outer, &o->outer) != CLT_OK)
        return usage_error("--outer %s: must be average, or momentum or nesterov with "
                           ":lr=X,momentum=Y if wanted, X above 0 and Y from 0 to below 1",
                           s->outer);
    return 0;
}

/* Options that are not built beside local. */
static int refuse_others(const settings *s)
{
    const int weighs = s->split && strcmp(s->split, "equal") && strcmp(s->split, "measured");
    const int continued = s->windows && !strcmp(s->windows, "continued");
    const char *other = s->zero > 0             ? "--zero"
                        : s->offload            ? "--offload"
                        : s->rebalance          ? "--rebalance"
                        : s->replay             ? "--replay"
                        : s->virtual_shards > 0 ? "--virtual-shards"
                        : weighs                ? "--split with weights"
                        : continued             ? "--windows continued"
                        : s->val                ? "--val"
                        : s->average            ? "--average"
                        : s->keep_best          ? "--keep-best"
                        : s->patience > 0       ? "--patience"
                        : s->schedule && !strncmp(s->schedule, "plateau", 7) ? "--schedule plateau"
                                                                             : NULL;
    if (other)
        return usage_error("--parallel %s: %s is not built beside local", s->parallel, other);
    if (s->drop_last && strchr(s->sync_every, 's'))
        return usage_error("--drop-last: replicas that are synchronised by time (--sync-every %s) "
                           "use every sample of an epoch",
                           s->sync_every);
    return 0;
}

int replicas_read(job *j, const settings *s)
{
    replica_set *r = &j->replicas;
    clt_local_options_init(&r->options);
    if (!s->parallel || !strstr(s->parallel, "local"))
        return (!s->sync_every || s->simulate) && !s->outer
                   ? 0
                   : usage_error("--%s: is for replicas, --parallel local=N",
                                 s->sync_every ? "sync-every" : "outer");
    TRY(name_failure(clt_local_mesh(s->parallel, &r->total, r->mesh, sizeof r->mesh)));
    if (!r->total)
        return 0; /* the store says what is wrong with the mesh */
    TRY(read_when(s, &r->options));
    r->options.world = j->options.world;
    r->options.comm_timeout = j->options.comm_timeout;
    r->options.wire = j->options.wire;
    return refuse_others(s);
}

/* Returns the devices of a replica of local=*: the product of the mesh's axes. */
static int devices_of_mesh(const char *mesh)
{
    const char *size = strstr(mesh, "dp=");
    return size ? atoi(size + 3) : 1;
}

/* Finds how many devices a replica has, and how many replicas local=* has. Collective. */
static int count_devices(job *j, const settings *s, int *each)
{
    replica_set *r = &j->replicas;
    int first = 0, total = j->n_devices, code = 0;
    if (j->options.world &&
        clt_world_count(j->options.world, j->n_devices, &first, &total) != CLT_OK)
        return library_failure(CLT_INTERNAL);
    if (r->total < 0) {
        *each = devices_of_mesh(r->mesh);
        r->total = *each > 0 && total >= *each ? total / *each : 1;
    } else
        *each = total / r->total;
    if (!*each || total != r->total * *each)
        code = usage_error("--parallel %s: %d replica%s cannot have as many of the %d devices of "
                           "all ranks each (--devices)",
                           s->parallel, r->total, r->total > 1 ? "s" : "", total);
    else if (first % *each || j->n_devices % *each)
        code = usage_error("--parallel %s: a replica has %d devices, which must be of one rank: "
                           "give each rank a multiple of %d devices",
                           s->parallel, *each, *each);
    return ranks_agree(&j->ranks, code);
}

int replicas_stores(job *j, const settings *s, const clt_store_options *given)
{
    replica_set *r = &j->replicas;
    clt_store_options options = *given;
    int each = 1;
    TRY(count_devices(j, s, &each));
    r->own = j->n_devices / each;
    r->stores = calloc((size_t)r->own, sizeof *r->stores);
    r->trainers = calloc((size_t)r->own, sizeof *r->trainers);
    TRY_MEMORY(r->stores && r->trainers);
    options.world = NULL;
    options.parallel = *r->mesh ? r->mesh : NULL;
    for (int i = 0; i < r->own; i++)
        TRY(name_failure(
            clt_store_create_with(j->graph, j->devices + i * each, each, &options, &r->stores[i])));
    j->store = r->stores[0];
    return 0;
}

clt_status replicas_load(const job *j, const settings *s, const char *skip)
{
    clt_status status = CLT_OK;
    for (int i = 1; i < j->replicas.own; i++)
        NEXT(status, clt_store_load_skipping(j->replicas.stores[i], s->init, skip, NULL));
    return status;
}

static clt_status make_trainers(job *j)
{
    replica_set *r = &j->replicas;
    clt_trainer_options options = j->options;
    clt_status status = CLT_OK;
    const int64_t each = j->n_devices / r->own, parts = r->total * each;
    options.world = NULL;
    options.wire = CLT_F32; /* replicas.options has it */
    options.batch = each * ((j->options.batch + parts - 1) / parts);
    for (int i = 0; i < r->own; i++) {
        NEXT(status, clt_trainer_create(j->graph, r->stores[i], &options, &r->trainers[i]));
        options.heartbeat = NULL; /* the first one tells where the rank is */
    }
    if (status == CLT_OK)
        j->trainer = r->trainers[0];
    return status;
}

/* The first rank of a node measures and compiles, and the others find the results in the cache. */
clt_status replicas_trainers(job *j)
{
    const int leads = j->ranks.world.node_rank == 0;
    clt_status status = leads ? make_trainers(j) : CLT_OK;
    if (ranks_agree(&j->ranks, status != CLT_OK))
        return status == CLT_OK ? clt_error_set(CLT_ABORTED, "another rank has failed") : status;
    status = leads ? CLT_OK : make_trainers(j);
    if (ranks_agree(&j->ranks, status != CLT_OK))
        return status == CLT_OK ? clt_error_set(CLT_ABORTED, "another rank has failed") : status;
    return clt_local_create(j->replicas.trainers, j->replicas.own, &j->replicas.options,
                            &j->replicas.local);
}

int replicas_by_time(const job *j)
{
    return j->replicas.total > 0 && j->replicas.options.every_seconds > 0;
}

int64_t replicas_batch(const job *j)
{
    const int64_t batch = j->options.batch, total = j->replicas.total;
    return replicas_by_time(j) ? (batch + total - 1) / total * total : batch;
}

void replicas_print(const job *j)
{
    const replica_set *r = &j->replicas;
    const clt_local_options *o = &r->options;
    char when[64], outer[96] = "average";
    if (o->every_steps)
        snprintf(when, sizeof when, "%lld step%s", (long long)o->every_steps,
                 o->every_steps > 1 ? "s" : "");
    else
        snprintf(when, sizeof when, "%g s", o->every_seconds);
    if (o->outer.kind != CLT_OUTER_AVERAGE)
        snprintf(outer, sizeof outer, "%s, lr %g, momentum %g", clt_outer_name(o->outer.kind),
                 o->outer.lr, o->outer.momentum);
    printf("%d replicas, synchronised every %s (%s): %lld bytes each time%s%s\n", r->total, when,
           outer, (long long)clt_local_sync_bytes(r->local),
           o->wire == CLT_F32 ? "" : ", parameters in ",
           o->wire == CLT_F32 ? "" : clt_dtype_name(o->wire));
    const long long batch = replicas_batch(j), given = j->options.batch;
    if (batch != given)
        printf("a step has %lld samples instead of %lld (--batch): %lld of each replica\n", batch,
               given, batch / r->total);
}

void replicas_print_end(const job *j)
{
    const long long syncs = clt_local_syncs(j->replicas.local);
    printf("%lld synchronisation%s, %lld bytes\n", syncs, syncs == 1 ? "" : "s",
           syncs * (long long)clt_local_sync_bytes(j->replicas.local));
}

void replicas_close(job *j, int finish)
{
    replica_set *r = &j->replicas;
    if (r->local && finish)
        clt_local_finish(r->local);
    clt_local_destroy(r->local);
    for (int i = 0; i < r->own; i++) {
        if (r->trainers)
            clt_trainer_destroy(r->trainers[i]);
        if (r->stores)
            clt_store_destroy(r->stores[i]);
    }
    free(r->trainers);
    free(r->stores);
    if (r->total) {
        j->trainer = NULL;
        j->store = NULL;
    }
    *r = (replica_set){0};
}
