/* Profiles of a trainer: what its devices ran, by node of the plan. */
#include <cltrain/unstable.h>

#include "base/alloc.h"
#include "train/trainer.h"
#include "tune/measure.h"
#include "tune/recorder.h"

struct clt_profile {
    clt_trainer *trainer;
    clt_recorder **recorders; /* by device */
    clt_profile_record *records;
};

clt_status clt_profile_start(clt_trainer *t, clt_profile **out)
{
    clt_profile *p = CLT_NEW(clt_profile);
    if (!p)
        return CLT_OUT_OF_MEMORY;
    p->trainer = t;
    p->recorders = clt_calloc((size_t)t->n_devices, sizeof(clt_recorder *));
    clt_status status = p->recorders ? CLT_OK : CLT_OUT_OF_MEMORY;
    for (int i = 0; status == CLT_OK && i < t->n_devices; i++)
        status = clt_recorder_create(t->store->replicas[i].device, &t->steps, &p->recorders[i]);
    if (status != CLT_OK) {
        clt_profile_stop(p);
        return status;
    }
    *out = p;
    return CLT_OK;
}

void clt_profile_stop(clt_profile *p)
{
    if (!p)
        return;
    for (int i = 0; p->recorders && i < p->trainer->n_devices; i++)
        clt_recorder_destroy(p->recorders[i]);
    clt_free(p->recorders);
    clt_free(p->records);
    clt_free(p);
}

static clt_profile_record describe(const clt_profile *p, int device, const clt_recorded *r,
                                   double shift)
{
    const clt_plan_node *pn = r->command.node;
    clt_profile_record record = {.device = device,
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
        /* A smaller share or micro-batch computes less: the figures are of a whole one. */
        const int64_t batch = p->trainer->per_device;
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
    for (int d = 0; d < p->trainer->n_devices; d++) {
        CLT_TRY(clt_recorder_read(p->recorders[d], &recorded, &n, &shift));
        total += n;
    }
    clt_profile_record *all = clt_realloc(p->records, ((size_t)total + 1) * sizeof *all);
    if (!all)
        return CLT_OUT_OF_MEMORY;
    p->records = all;
    int at = 0;
    for (int d = 0; d < p->trainer->n_devices; d++) {
        CLT_TRY(clt_recorder_read(p->recorders[d], &recorded, &n, &shift));
        for (int i = 0; i < n && at < total; i++)
            all[at++] = describe(p, d, &recorded[i], shift);
    }
    *records = all;
    *count = at;
    return CLT_OK;
}
