/* What is known of a mesh before anything is measured: the plans, programs and memory of its
 * devices. Passes and plans say what is not possible. */
#ifndef CLT_TRAIN_MESHES_FACTS_H
#define CLT_TRAIN_MESHES_FACTS_H

#include "device/program/tuning_file.h"
#include "train/meshes/candidates.h"
#include "train/meshes/plans.h"
#include "train/program/timeline.h"
#include "train/setup/device_memory.h"

/* The devices for which meshes are made. */
typedef struct clt_mesh_setting {
    const clt_graph *graph;
    clt_device *const *devices; /* of this process, or devices[0] as a model of all others */
    int count;                  /* of each rank */
    clt_tuning_record *tuning;  /* by device */
    int ranks;                  /* count * ranks devices are at hand, or simulated */
    int rank, node_ranks;       /* node_ranks: that share the host's memory */
    int per_node;               /* simulated: devices of a node */
    /* With virtual shards: which of them each device has, as clt_virtual_shards_divide says; NULL:
     * there are none. */
    const int64_t *shards;
    /* Only one device of each stage is looked at, since the others have the same plan. */
    bool simulated;
    const clt_trainer_options *options; /* batch: of all devices */
    clt_mesh_plans *plans;              /* of the meshes so far */
} clt_mesh_setting;

/* A device of the mesh. */
typedef struct clt_mesh_place {
    int participant, device; /* device: of its rank */
    clt_mesh_plan *plan;     /* of setting.plans */
    clt_step_program_input input;
    clt_step_program program;
    clt_memory memory;
    int rounds;            /* micro-batches, or virtual shards */
    double forward, whole; /* seconds of a micro-batch: of forward, and with backward */
    /* [n_pieces of the facts][2]: the same of the nodes of each piece; 0: not measured. Only their
     * proportions count, since the device waits between pieces. */
    double *pieces;
    double *nodes; /* see clt_timeline_device */
    double update, status;
} clt_mesh_place;

typedef struct clt_mesh_facts {
    clt_candidate candidate;
    char mesh[CLT_CANDIDATE_TEXT];
    clt_status status; /* OK: devices can train so */
    char *reason;      /* if not: why */
    clt_world world;   /* of the ranks that are not here; its user is `ranks` */
    int ranks;
    clt_trainer_options options; /* of a trainer on one such mesh */
    const clt_graph *graph;      /* with the cuts of this mesh */
    clt_graph *own_graph;        /* the same if it belongs to these facts; else NULL */
    clt_mesh shape;
    clt_store **stores; /* by rank, while the facts are found; only those of places are made */
    clt_mesh_place *places;
    int n_places, parts; /* parts: places of dp, without `local` */
    int *after;
    int64_t memory; /* the most bytes of a device */
    bool measured;  /* the times of places were measured, not estimated */
    int n_pieces;   /* of a pipeline whose model has more cuts than it needs: 1 + these; else 0 */
    /* Of a pipeline whose cuts were chosen by measured times (recut.c): */
    char *stages;  /* the names for clt_cut_before; else NULL */
    bool composed; /* until measured: the times of places are sums of measured pieces' */
    bool recut;    /* such cuts were looked for, or these facts have them */
    int full;      /* if a device lacks memory: its stage; -1: none */
} clt_mesh_facts;

/* Finds the facts of a mesh. They point to plans of setting->plans. What is not possible is no
 * failure of the call: see facts->status. Free *facts with clt_mesh_facts_free in any case. Errors:
 * OUT_OF_MEMORY. */
clt_status clt_mesh_facts_find(const clt_mesh_setting *setting, const clt_candidate *candidate,
                               clt_mesh_facts *facts);

/* Finds the facts of a pipeline with the cuts before the pieces begins[1], begins[2], ..., one for
 * each stage but the first; NULL: as clt_mesh_facts_find. Errors: as clt_mesh_facts_find. */
clt_status clt_mesh_facts_find_cut(const clt_mesh_setting *setting, const clt_candidate *candidate,
                                   const int *begins, clt_mesh_facts *facts);

/* Frees the facts. All zero: nothing to free. */
void clt_mesh_facts_free(clt_mesh_facts *facts);

/* Returns the samples of a micro-batch of a place. */
int64_t clt_mesh_samples(const clt_mesh_facts *facts);

#endif
