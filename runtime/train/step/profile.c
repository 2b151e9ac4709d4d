/* Profiles a trainer: the commands of its devices, by node of the plan. */
#include <cltrain/unstable.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/vec.h"
#include "train/core/trainer.h"
#include "tune/measure_node.h"
#include "tune/recorder.h"

/* Reductions of one device; its thread adds to them between reads. */
typedef struct reductions {
    clt_profile_record *items;
    int count, room;
} reductions;

struct clt_profile {
    clt_trainer *trainer;
    int n_devices; /* at the beginning; a device may be lost later */
    double began;
    clt_recorder **recorders; /* by device */
    reductions *reductions;   /* by device */
    clt_profile_record *records;
};

double clt_trainer_exposed(clt_trainer *t, int device)
{
    const double exposed = t->exchange.devices[device].exposed;
    t->exchange.devices[device].exposed = 0;
    return exposed;
}

double clt_trainer_flops(const clt_trainer *t)
{
    const clt_plan *plan = t->training->devices[0].plan;
    double flops = 0;
    for (int i = 0; i < plan->n_nodes; i++)
        if (!plan->nodes[i].node->op->view)
            flops += clt_node_flops(plan->nodes[i].node, t->shares.per_run);
    return flops / (double)t->shares.per_run;
}

double clt_trainer_update_bytes(const clt_trainer *t)
{
    const clt_buckets *layout = t->store->replicas[0].layout;
    const int slots = clt_optimizer_of(&t->options)->n_slots;
    double bytes = 0;
    for (int i = 0; i < layout->n_buckets; i++)
        if (!layout->buckets[i].state)
            bytes += (double)layout->buckets[i].bytes * (3 + 2 * slots);
    return bytes;
}

clt_status clt_profile_start(clt_trainer *t, clt_profile **out)
{
    CLT_TRY(clt_store_check_devices(t->store));
    clt_profile *p = CLT_NEW(clt_profile);
    CLT_TRY_MEMORY(p);
    p->trainer = t;
    p->n_devices = t->all.own;
    p->recorders = clt_calloc((size_t)t->all.own, sizeof(clt_recorder *));
    p->reductions = clt_calloc((size_t)t->all.own, sizeof *p->reductions);
    p->began = clt_clock();
    clt_status status = p->recorders && p->reductions ? CLT_OK : CLT_OUT_OF_MEMORY;
    for (int i = 0; status == CLT_OK && i < t->all.own; i++)
        status = clt_recorder_create(t->store->replicas[i].device, &t->steps, &p->recorders[i]);
    if (status != CLT_OK) {
        clt_profile_stop(p);
        return status;
    }
    t->exchange.profile = p;
    *out = p;
    return CLT_OK;
}

void clt_profile_stop(clt_profile *p)
{
    if (!p)
        return;
    p->trainer->exchange.profile = NULL;
    for (int i = 0; p->recorders && i < p->n_devices; i++)
        clt_recorder_destroy(p->recorders[i]);
    for (int i = 0; p->reductions && i < p->n_devices; i++)
        clt_free(p->reductions[i].items);
    CLT_FREE(p->reductions, p->recorders, p->records, p);
}

/* Adds a record of an all-reduce with the result's times. If memory runs out, the reduction is not
 * recorded. */
static void add_reduction(clt_profile *p, clt_profile_record record,
                          const clt_collective_result *result)
{
    reductions *r = &p->reductions[record.device];
    record.kind = CLT_COMMAND_REDUCTION;
    record.op = "all_reduce";
    record.variant = "";
    record.start = result->ready - p->began;
    record.end = result->done - p->began;
    const clt_status status = CLT_PUSH(r->items, r->count, r->room, record);
    (void)status;
}

void clt_profile_reduction(clt_profile *p, int device, const char *label, bool backward,
                           int64_t bytes, const clt_collective_result *result)
{
    add_reduction(p,
                  (clt_profile_record){.device = device,
                                       .step = p->trainer->steps,
                                       .node = label,
                                       .name = "reduction",
                                       .backward = backward,
                                       .bytes = (double)bytes},
                  result);
}

void clt_profile_synchronisation(clt_profile *p, const char *label, int64_t bytes,
                                 const clt_collective_result *result)
{
    const int64_t done = p->trainer->steps;
    add_reduction(p,
                  (clt_profile_record){.step = done > 0 ? done - 1 : 0,
                                       .node = label,
                                       .name = "synchronisation",
                                       .bytes = (double)bytes},
                  result);
}

static clt_profile_record describe(const clt_profile *p, int device, const clt_recorded *r,
                                   double shift)
{
    const clt_plan_node *pn = r->command.node;
    clt_profile_record record = {.kind = r->command.transfer ? CLT_COMMAND_TRANSFER
                                                             : CLT_COMMAND_KERNEL,
                                 .device = device,
                                 .step = r->tag,
                                 .node = "",
                                 .op = "",
                                 .variant = "",
                                 .name = r->command.name,
                                 .launch = r->command.launch,
                                 .start = r->start + shift,
                                 .end = r->end + shift,
                                 .bytes = (double)r->command.bytes};
    if (!pn)
        return record;
    record.node = pn->node->name;
    record.op = pn->node->op->name;
    record.variant = pn->variant->name;
    record.backward = pn->node->backward;
    if (!r->command.launch) {
        /* The figures are those of a full run; a smaller share or micro-batch computes less. */
        const int64_t batch = p->trainer->shares.per_run;
        record.flops = clt_node_flops(pn->node, batch);
        record.bytes = clt_node_bytes(pn->node, batch);
    }
    return record;
}

clt_status clt_profile_read(clt_profile *p, const clt_profile_record **records, int *count)
{
    int total = 0;
    const clt_recorded *recorded;
    int n;
    double shift;
    for (int d = 0; d < p->n_devices; d++) {
        CLT_TRY(clt_recorder_read(p->recorders[d], &recorded, &n, &shift));
        total += n + p->reductions[d].count;
    }
    clt_profile_record *all = clt_realloc(p->records, ((size_t)total + 1) * sizeof *all);
    CLT_TRY_MEMORY(all);
    p->records = all;
    int at = 0;
    for (int d = 0; d < p->n_devices; d++) {
        CLT_TRY(clt_recorder_read(p->recorders[d], &recorded, &n, &shift));
        for (int i = 0; i < n && at < total; i++)
            all[at++] = describe(p, d, &recorded[i], shift);
        for (int i = 0; i < p->reductions[d].count && at < total; i++)
            all[at++] = p->reductions[d].items[i];
    }
    *records = all;
    *count = at;
    return CLT_OK;
}
