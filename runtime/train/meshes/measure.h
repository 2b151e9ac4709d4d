/* Measures what the times of meshes are made of: plans of devices and collectives. */
#ifndef CLT_TRAIN_MESHES_MEASURE_H
#define CLT_TRAIN_MESHES_MEASURE_H

#include "train/meshes/facts.h"
#include "train/meshes/links.h"

/* Measures collectives of each kind among all devices of all ranks, and if there are several ranks
 * of several devices also within a rank and among ranks. They run in the element type of gradients,
 * as training runs them, and with a wire the sums of gradients in its type too. `world`: the ranks
 * at hand, or NULL. All ranks get the same numbers. Collective. */
clt_status clt_mesh_measure_links(const clt_mesh_setting *setting, const clt_world *world,
                                  clt_mesh_links *links);

/*
 * Measures forward and backward of a micro-batch at every place of this process' devices, all at
 * the same time, since devices of a host share its memory and caches. Sets `forward`, `whole` and
 * `pieces` of all places. With a simulated setting one device runs the plans of its places one
 * after the other. `world`: the ranks at hand, or NULL; collective. Errors: those of the devices.
 */
clt_status clt_mesh_measure_plans(const clt_mesh_setting *setting, const clt_world *world,
                                  clt_mesh_facts *facts);

#ifdef CLT_TESTING
/* Seconds of a micro-batch in each piece of a pipeline's model, a third of them in forward, instead
 * of what is measured. Devices then count as equally fast. NULL: the measurements count. */
extern const double *clt_mesh_testing_pieces;
#endif

/* Takes the times of simulated devices from their plans, if all were measured. */
void clt_mesh_take_times(const clt_mesh_setting *setting, clt_mesh_facts *facts);

#endif
