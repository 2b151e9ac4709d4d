#include "train/ranks/world.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/str.h"
#include "exec/update/optimizer.h"
#include "train/store/rest.h"

/* Size of a message that other ranks show. */
enum { TEXT = 512 };

CLT_STRUCT_INIT(clt_world, .ranks = 1, .node_ranks = 1)

void clt_world_close(clt_world *world)
{
    if (!world)
        return;
    if (world->release)
        world->release(world->user);
    clt_world_init(world);
}

static int ranks_of(const clt_world *world)
{
    return world ? world->ranks : 1;
}

clt_status clt_ranks_gather(const clt_world *world, const void *mine, size_t bytes, void **all)
{
    *all = clt_calloc((size_t)ranks_of(world), bytes);
    CLT_TRY_MEMORY(*all);
    if (ranks_of(world) == 1) {
        memcpy(*all, mine, bytes);
        return CLT_OK;
    }
    const clt_status status = world->gather(world->user, mine, (int64_t)bytes, *all);
    if (status != CLT_OK) {
        clt_free(*all);
        *all = NULL;
        clt_fail_prefix(status, "rank %d: ", clt_rest_number(world, world->rank));
    }
    return status;
}

typedef struct report {
    int32_t status;
    int32_t devices;
    uint64_t identity; /* identity of all devices of the rank; 0: they differ */
    /* a number of the caller; in clt_participants_meet, the widest vector of a device */
    int64_t told;
    clt_mesh mesh; /* in clt_participants_meet: of the store, with its first and all participants */
    int32_t first, total;
    int32_t lost;    /* number of the rank's device that was lost; -1: none */
    int32_t rescues; /* 1: `lost` is valid, and `status` is the failure to recover from */
    char text[TEXT];
} report;

static report report_of(clt_status status)
{
    report w = {.status = (int32_t)status};
    if (status != CLT_OK)
        snprintf(w.text, sizeof w.text, "%s", clt_error_message());
    return w;
}

/* Returns this rank's failure, or ABORTED if another rank failed. */
static clt_status verdict(const clt_world *world, const report *reports)
{
    const report *own = &reports[world->rank];
    if (own->status != CLT_OK) {
        clt_error_restore(own->text);
        return (clt_status)own->status;
    }
    for (int r = 0; r < world->ranks; r++)
        if (reports[r].status != CLT_OK)
            return clt_fail(CLT_ABORTED, "rank %d failed: %s", clt_rest_number(world, r),
                            reports[r].text);
    return CLT_OK;
}

clt_status clt_ranks_agree(const clt_world *world, clt_status status, int64_t *told)
{
    if (ranks_of(world) == 1)
        return status;
    report mine = report_of(status);
    mine.told = told ? *told : 0;
    void *all;
    CLT_TRY(clt_ranks_gather(world, &mine, sizeof mine, &all));
    status = verdict(world, all);
    if (told)
        *told = ((const report *)all)->told;
    clt_free(all);
    return status;
}

clt_status clt_ranks_compare(const clt_world *world, uint64_t hash, const char *what)
{
    if (ranks_of(world) == 1)
        return CLT_OK;
    void *all;
    CLT_TRY(clt_ranks_gather(world, &hash, sizeof hash, &all));
    const uint64_t *hashes = all;
    clt_status status = CLT_OK;
    for (int r = 1; r < world->ranks && status == CLT_OK; r++)
        if (hashes[r] != hashes[0])
            status = clt_fail(CLT_MISMATCH,
                              "rank %d has another %s than rank 0: start all ranks with the same "
                              "program, options and data",
                              r, what);
    clt_free(all);
    return status;
}

clt_status clt_ranks_in_turns(const clt_world *world, clt_status (*local)(void *arg), void *arg)
{
    if (ranks_of(world) == 1)
        return local(arg);
    const bool leads = world->node_rank == 0;
    CLT_TRY(clt_ranks_agree(world, leads ? local(arg) : CLT_OK, NULL));
    return clt_ranks_agree(world, leads ? CLT_OK : local(arg), NULL);
}

clt_status clt_world_count(const clt_world *world, int devices, int *first, int *total)
{
    void *all;
    const int32_t mine = devices;
    CLT_TRY(clt_ranks_gather(world, &mine, sizeof mine, &all));
    *first = *total = 0;
    for (int r = 0; r < ranks_of(world); r++) {
        *first = world && r == world->rank ? *total : *first;
        *total += ((const int32_t *)all)[r];
    }
    clt_free(all);
    return CLT_OK;
}

clt_status clt_world_agree(const clt_participants *all, clt_status status)
{
    return clt_ranks_agree(all->world, status, NULL);
}

/* The caller's thread must still have the message of the failure. */
clt_status clt_world_rescue(const clt_participants *all, int lost, int *lost_of_ranks)
{
    lost_of_ranks[all->rank] = lost;
    if (all->ranks == 1)
        return CLT_OK;
    /* Uses the reports of clt_ranks_agree, because a rank without steps left may be in that
     * function. */
    report own = report_of(CLT_DEVICE_LOST);
    own.lost = lost;
    own.rescues = 1;
    void *gathered;
    CLT_TRY(clt_ranks_gather(all->world, &own, sizeof own, &gathered));
    const report *reports = gathered;
    clt_status status = CLT_OK;
    for (int r = 0; r < all->ranks && status == CLT_OK; r++) {
        lost_of_ranks[r] = reports[r].lost;
        if (reports[r].rescues)
            continue;
        const int number = clt_rest_number(all->world, r);
        status = reports[r].status == CLT_OK
                     ? clt_fail(CLT_ABORTED, "rank %d had no step left: %s", number, own.text)
                     : clt_fail(CLT_ABORTED, "rank %d failed: %s", number, reports[r].text);
    }
    clt_free(gathered);
    return status;
}

clt_status clt_world_largest(const clt_participants *all, int64_t *number)
{
    if (all->ranks == 1)
        return CLT_OK;
    void *numbers;
    CLT_TRY(clt_ranks_gather(all->world, number, sizeof *number, &numbers));
    for (int r = 0; r < all->ranks; r++)
        if (((const int64_t *)numbers)[r] > *number)
            *number = ((const int64_t *)numbers)[r];
    clt_free(numbers);
    return CLT_OK;
}

static uint64_t identity_of(const clt_store *store)
{
    const uint64_t first = store->replicas[0].device->identity;
    for (int i = 1; i < store->n_devices; i++)
        if (store->replicas[i].device->identity != first)
            return 0;
    return first;
}

static int64_t lanes_of(const clt_store *store)
{
    int64_t lanes = 1;
    for (int i = 0; i < store->n_devices; i++) {
        const int width = store->replicas[i].device->caps.vector_width;
        lanes = width > lanes ? width : lanes;
    }
    return lanes;
}

/* Sets the first and the last part of the batch that a rank's devices have. A rank's samples lie
 * together in the batch, so its devices must have all parts between. */
static clt_status find_parts(const clt_participants *all, int rank, int *first, int *last)
{
    const int begin = all->begins[rank], end = all->begins[rank + 1];
    *first = *last = clt_mesh_coordinate(&all->mesh, CLT_AXIS_DATA, begin);
    for (int p = begin; p < end; p++) {
        const int part = clt_mesh_coordinate(&all->mesh, CLT_AXIS_DATA, p);
        *first = part < *first ? part : *first;
        *last = part > *last ? part : *last;
    }
    for (int part = *first; part <= *last; part++) {
        int p = begin;
        while (p < end && clt_mesh_coordinate(&all->mesh, CLT_AXIS_DATA, p) != part)
            p++;
        if (p == end)
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "mesh: rank %d has devices at places %d and %d of dp, but not at place "
                            "%d: write the axes in another order, or give the ranks other numbers "
                            "of devices",
                            rank, *first, *last, part);
    }
    return CLT_OK;
}

static clt_status divide_batch(clt_participants *all)
{
    for (int r = 0; r < all->ranks; r++) {
        int first = 0, last = -1;
        if (all->begins[r] < all->begins[r + 1])
            CLT_TRY(find_parts(all, r, &first, &last));
        if (r == all->rank) {
            all->first_part = first;
            all->own_parts = last - first + 1;
        }
    }
    return CLT_OK;
}

bool clt_participants_count(const clt_participants *all, int participant)
{
    for (int a = 0; a < CLT_AXES; a++)
        if (!clt_axis_has_samples((clt_axis)a) && a != CLT_AXIS_PIPELINE &&
            clt_mesh_coordinate(&all->mesh, (clt_axis)a, participant))
            return false;
    return true;
}

/* Every rank checks the meshes of all ranks, so all fail together. A mesh of dp alone may have lost
 * devices. */
static clt_status find_mesh(clt_participants *all, const report *reports)
{
    const clt_mesh *mesh = &reports[0].mesh;
    for (int r = 0; r < all->ranks; r++) {
        if (memcmp(&reports[r].mesh, mesh, sizeof *mesh))
            return clt_fail(CLT_MISMATCH, "the stores of rank 0 and rank %d have different meshes",
                            r);
        if (mesh->size[CLT_AXIS_DATA] && mesh->size[CLT_AXIS_DATA] != reports[r].total &&
            (reports[r].total != all->total || reports[r].first != all->begins[r]))
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "the store of rank %d has a mesh of %d devices, of which its own begin "
                            "with number %d; in the trainer's world they are %d and %d: give the "
                            "store the same world (clt_store_options.world)",
                            r, reports[r].total, reports[r].first, all->total, all->begins[r]);
    }
    if (!mesh->size[CLT_AXIS_DATA] || mesh->size[CLT_AXIS_DATA] == reports[0].total)
        CLT_TRY(clt_mesh_parse(NULL, all->total, &all->mesh));
    else
        all->mesh = *mesh;
    all->mesh.zero = mesh->zero;
    return divide_batch(all);
}

clt_status clt_participants_meet(clt_participants *all, const clt_store *store, clt_status status,
                                 bool *alike)
{
    all->first = 0;
    all->total = all->own;
    all->lanes = lanes_of(store);
    all->begins = clt_calloc((size_t)all->ranks + 1, sizeof *all->begins);
    report mine = report_of(status == CLT_OK && !all->begins ? CLT_OUT_OF_MEMORY : status);
    mine.devices = all->own;
    mine.identity = identity_of(store);
    mine.told = all->lanes;
    mine.mesh = store->mesh;
    mine.first = store->first;
    mine.total = store->total;
    *alike = mine.identity != 0;
    if (all->begins)
        all->begins[all->ranks] = all->own;
    if (all->ranks == 1) {
        status = (clt_status)mine.status;
        CLT_NEXT(status, find_mesh(all, &mine));
        return status;
    }
    void *gathered;
    CLT_TRY(clt_ranks_gather(all->world, &mine, sizeof mine, &gathered));
    const report *reports = gathered;
    all->total = 0;
    for (int r = 0; r < all->ranks; r++) {
        all->first = r == all->rank ? all->total : all->first;
        if (all->begins) /* else `status` says OUT_OF_MEMORY to all ranks */
            all->begins[r + 1] = all->total + reports[r].devices;
        all->total += reports[r].devices;
        all->lanes = reports[r].told > all->lanes ? reports[r].told : all->lanes;
        *alike = *alike && reports[r].identity == mine.identity;
    }
    status = verdict(all->world, reports);
    CLT_NEXT(status, find_mesh(all, reports));
    clt_free(gathered);
    return status;
}

void clt_participants_part(clt_participants *all)
{
    CLT_FREE(all->begins, all->identities);
    all->begins = NULL;
    all->identities = NULL;
}

clt_status clt_world_tell(const clt_participants *all, int root, void *data, int64_t bytes)
{
    if (all->ranks == 1)
        return CLT_OK;
    void *told;
    CLT_TRY(clt_ranks_gather(all->world, data, (size_t)bytes, &told));
    memcpy(data, (const char *)told + root * bytes, (size_t)bytes);
    clt_free(told);
    return CLT_OK;
}

/* How a message shows a setting. Hashes and numbers of kinds are not shown, since they mean nothing
 * to a reader. */
typedef enum setting_kind { REAL, WHOLE, OPTIMIZER, DTYPE, UNSHOWN } setting_kind;

/* A setting that affects what steps compute. All ranks must have the same value. */
typedef struct setting {
    const char *name; /* as in clt_trainer_options; the same text on all ranks */
    setting_kind kind;
    double number; /* REAL */
    int64_t count; /* all others */
} setting;

enum { SETTINGS = 42 };

static void list_settings(const clt_trainer_options *o, int participants, setting list[SETTINGS])
{
    const clt_schedule *s = &o->schedule;
    const uint64_t split =
        o->weights ? clt_hash(o->weights, (size_t)participants * sizeof *o->weights, 0) : 0;
    const setting all[] = {{"learning rate (lr)", REAL, o->lr, 0},
                           {"momentum", REAL, clt_optimizer_momentum(o), 0},
                           {"beta1", REAL, o->beta1, 0},
                           {"beta2", REAL, o->beta2, 0},
                           {"epsilon", REAL, o->epsilon, 0},
                           {"weight decay", REAL, o->weight_decay, 0},
                           {"alpha", REAL, o->alpha, 0},
                           {"decay of the learning rate", REAL, o->lr_decay, 0},
                           {"initial accumulator", REAL, o->initial_accumulator, 0},
                           {"centered", WHOLE, 0, o->centered != 0},
                           {"clip_norm", REAL, o->clip_norm, 0},
                           {"factor of the schedule", REAL, s->factor, 0},
                           {"minimum of the schedule", REAL, s->minimum, 0},
                           {"optimizer", OPTIMIZER, 0, (int64_t)o->optimizer},
                           {"decoupled weight decay", WHOLE, 0, o->decoupled},
                           {"kind of schedule", UNSHOWN, 0, (int64_t)s->kind},
                           {"steps between changes of the schedule", WHOLE, 0, s->every},
                           {"length of the schedule", WHOLE, 0, s->total},
                           {"warm-up", WHOLE, 0, s->warmup},
                           {"guard", WHOLE, 0, o->guard},
                           {"zero", WHOLE, 0, o->zero},
                           {"batch", WHOLE, 0, o->batch},
                           {"number of micro-batches (accumulate)", WHOLE, 0, o->accumulate},
                           {"number of virtual shards", WHOLE, 0, o->virtual_shards},
                           {"micro-batches in flight", WHOLE, 0, o->in_flight},
                           {"quantum of the split", WHOLE, 0, o->quantum},
                           {"rebalance", WHOLE, 0, o->rebalance != 0},
                           {"per_device", WHOLE, 0, o->per_device},
                           {"check_every", WHOLE, 0, o->check_every},
                           {"recompute", WHOLE, 0, o->recompute != 0},
                           {"memory limit", WHOLE, 0, o->memory},
                           {"precision", DTYPE, 0, (int64_t)o->precision},
                           {"type on the wire", DTYPE, 0, (int64_t)o->wire},
                           {"seed", WHOLE, 0, (int64_t)o->seed},
                           {"kind of average", UNSHOWN, 0, (int64_t)o->average.kind},
                           {"decay of the average", REAL, o->average.decay, 0},
                           {"first step of the average", WHOLE, 0, o->average.from},
                           {"steps between those of the average", WHOLE, 0, o->average.every},
                           {"scale of muon", UNSHOWN, 0, (int64_t)o->muon_scale},
                           {"rate of AdamW beside muon (adamw_lr)", REAL, o->adamw_lr, 0},
                           {"set of parameters that muon leaves to AdamW (muon_adamw)", UNSHOWN, 0,
                            o->muon_adamw ? (int64_t)clt_hash_text(o->muon_adamw, 0) : 0},
                           {"split (weights of the devices)", UNSHOWN, 0, (int64_t)split}};
    _Static_assert(sizeof all == SETTINGS * sizeof *list, "as many as the list has room for");
    memcpy(list, all, sizeof all);
}

static clt_status differs(int rank, const setting *its, const setting *first)
{
    char values[80] = "";
    switch (its->kind) {
    case REAL:
        snprintf(values, sizeof values, " (%.9g, not %.9g)", its->number, first->number);
        break;
    case WHOLE:
        snprintf(values, sizeof values, " (%lld, not %lld)", (long long)its->count,
                 (long long)first->count);
        break;
    case OPTIMIZER:
        snprintf(values, sizeof values, " (%s, not %s)",
                 clt_optimizer_name((clt_optimizer)its->count),
                 clt_optimizer_name((clt_optimizer)first->count));
        break;
    case DTYPE:
        snprintf(values, sizeof values, " (%s, not %s)", clt_dtype_name((clt_dtype)its->count),
                 clt_dtype_name((clt_dtype)first->count));
        break;
    case UNSHOWN:
        break;
    }
    return clt_fail(CLT_MISMATCH,
                    "rank %d has another %s than rank 0%s: start all ranks with the same program, "
                    "options and data",
                    rank, its->name, values);
}

static clt_status compare_settings(const clt_participants *all, const clt_trainer_options *options)
{
    setting mine[SETTINGS];
    struct {
        double numbers[SETTINGS];
        int64_t counts[SETTINGS];
    } own, *its_own;
    void *gathered;
    list_settings(options, all->total, mine);
    for (int i = 0; i < SETTINGS; i++) {
        own.numbers[i] = mine[i].number;
        own.counts[i] = mine[i].count;
    }
    CLT_TRY(clt_ranks_gather(all->world, &own, sizeof own, &gathered));
    its_own = gathered;
    clt_status status = CLT_OK;
    for (int r = 1; r < all->ranks && status == CLT_OK; r++)
        for (int i = 0; i < SETTINGS && status == CLT_OK; i++)
            if (memcmp(&its_own[r].numbers[i], &its_own[0].numbers[i], sizeof(double)) ||
                its_own[r].counts[i] != its_own[0].counts[i]) {
                const setting its = {mine[i].name, mine[i].kind, its_own[r].numbers[i],
                                     its_own[r].counts[i]},
                              first = {mine[i].name, mine[i].kind, its_own[0].numbers[i],
                                       its_own[0].counts[i]};
                status = differs(r, &its, &first);
            }
    clt_free(gathered);
    return status;
}

clt_status clt_world_compare_plans(const clt_participants *all, const clt_graph *graph,
                                   const clt_store *store, const clt_trainer_options *options)
{
    if (all->ranks == 1)
        return CLT_OK;
    clt_str text = {0};
    clt_graph_dump(graph, &text);
    const uint64_t model = text.failed ? 0 : clt_hash_text(text.text, 0);
    clt_str_free(&text);
    CLT_TRY(clt_ranks_compare(all->world, model, "model"));
    clt_store_groups_text(store, &text);
    const uint64_t groups = text.failed ? 0 : clt_hash_text(clt_str_text(&text), 0);
    clt_str_free(&text);
    CLT_TRY(clt_ranks_compare(all->world, groups, "set of frozen parameters or parameter groups"));
    CLT_TRY(
        clt_ranks_compare(all->world, clt_buckets_hash(&store->layout), "layout of parameters"));
    return compare_settings(all, options);
}
