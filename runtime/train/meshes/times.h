/* Predicts the step of a mesh from its facts and measurements. */
#ifndef CLT_TRAIN_MESHES_TIMES_H
#define CLT_TRAIN_MESHES_TIMES_H

#include "train/meshes/facts.h"
#include "train/meshes/links.h"

/* What all meshes share. */
typedef struct clt_mesh_base {
    double flops, bytes;  /* a second, of a device: for estimates */
    double stretch;       /* measured time of a plan, divided by its estimate */
    double fixed;         /* seconds of a step that no plan and no collective explains */
    double update;        /* seconds a byte of parameters that a device updates */
    double status;        /* seconds a byte of gradients, for norm and finiteness */
    double move;          /* seconds a byte that an update reads or writes */
    double load;          /* seconds to assemble a sample, if the host has no free core */
    const double *slower; /* by participant: `update` times this; NULL: all are alike */
    int64_t sync_every;   /* of local SGD */
    const double *pace;   /* by participant: time of the same plan, the fastest is 1; NULL: alike */
} clt_mesh_base;

/* Bytes that the kernels of error feedback move for each byte of gradients in f32. Rounding reads
 * gradients and residuals and writes 16 bits. Keeping reads both and writes residuals. */
#define CLT_MESH_ROUND_BYTES 2.5
#define CLT_MESH_KEEP_BYTES 3.0

/* The predicted step of a mesh. */
typedef struct clt_mesh_step {
    clt_timeline timeline;
    double seconds; /* of a step, with the exchange of local SGD */
    double outer;   /* its part of the exchange of local SGD */
    int64_t sent;   /* bytes of the tensors that a device's collectives have in a step */
    double even;    /* mean time of a place's plan, divided by the longest of all places */
} clt_mesh_step;

/* Estimates forward and backward of a place from arithmetic and bytes, in seconds: before
 * `stretch`. */
void clt_mesh_estimate(const clt_mesh_base *base, const clt_mesh_facts *facts, int place,
                       double *forward, double *whole);

/* Whether the devices of a mesh round gradients for their exchange, as clt_wire_choose decides. */
bool clt_mesh_rounds(const clt_mesh_facts *facts);

/* Predicts a step with the times of the places. Errors: OUT_OF_MEMORY. */
clt_status clt_mesh_predict(const clt_mesh_base *base, clt_mesh_links *links,
                            const clt_mesh_facts *facts, clt_mesh_step *step);

/* Returns the bytes of parameters that a place updates. */
int64_t clt_mesh_updated(const clt_mesh_facts *facts, int place);

#endif
