/* The ranking of meshes. */
#ifndef CLT_TRAIN_MESHES_MESHES_H
#define CLT_TRAIN_MESHES_MESHES_H

#include "base/str.h"
#include "train/meshes/facts.h"
#include "train/meshes/links.h"
#include "train/meshes/times.h"
#include <cltrain/planner.h>

/* A mesh and its times. */
typedef struct clt_mesh_rank {
    clt_mesh_facts *facts;
    double estimate; /* of a step's compute, before `stretch` */
    clt_mesh_step step;
    double real; /* of real steps; 0: none ran */
    char *reason;
} clt_mesh_rank;

struct clt_meshes {
    clt_mesh_setting setting;
    clt_mesh_options options;
    clt_trainer_options trainer; /* batch: of all devices, also of simulated ones */
    const clt_world *world;      /* of the ranks at hand; NULL: one */
    clt_mesh_links links;
    clt_mesh_base base;
    const clt_mesh_plan *base_plan; /* with which it was measured; NULL: no plan */
    double *slower, *pace;
    int64_t *shards;       /* setting.shards */
    clt_mesh_facts *facts; /* by candidate; does not move */
    clt_mesh_rank *ranks;  /* the best first */
    int count, possible;
    clt_str excluded; /* a line for each axis, or number of its places, that divides nothing */
    clt_str text;
};

/* base.c: measures what all meshes share, with the plan of a device of dp if the model fits it. */
clt_status clt_meshes_measure_base(clt_meshes *meshes);

/* Returns a mesh's time: of real steps if there are, else the prediction. */
static inline double clt_mesh_seconds(const clt_mesh_rank *row)
{
    return row->real > 0 ? row->real : row->step.seconds;
}

/* decide.c. stop_asked fails with STOPPED if the caller asks for it. sort puts the fastest first:
 * by real steps, then by predictions. run_finals runs real steps of the fastest and sorts again; a
 * mesh whose steps fail is not possible any more, and if all fail the call does. Collective: all
 * ranks get the same. */
clt_status clt_meshes_stop_asked(const clt_meshes *meshes);
void clt_meshes_sort(clt_meshes *meshes);
clt_status clt_meshes_run_finals(clt_meshes *meshes);

/*
 * recut.c: looks for better cuts of the pipelines whose plans were measured. The largest stage gets
 * the least measured time, within the memory of its devices. If a step with these cuts is predicted
 * to be faster, a mesh is added that has them. Collective: all ranks go by rank 0's times.
 */
clt_status clt_meshes_recut(clt_meshes *meshes);

/* agree.c, for several ranks; collective. check_devices fails with UNSUPPORTED unless device d of
 * each rank is like device d of rank 0, of which plans are made. share_status excludes the meshes
 * that are not possible on a rank. share_steps copies rank 0's predictions, and which plans count
 * as measured; `status` is this rank's so far. share_order copies rank 0's order. */
clt_status clt_meshes_check_devices(const clt_world *world, clt_device *const *devices, int count);
clt_status clt_meshes_share_status(clt_meshes *meshes);
clt_status clt_meshes_share_steps(clt_meshes *meshes, clt_status status);
clt_status clt_meshes_share_order(clt_meshes *meshes);

/* reasons.c: says why each mesh but the first is slower than the first. Errors: OUT_OF_MEMORY. */
clt_status clt_meshes_explain(clt_meshes *meshes);

#endif
