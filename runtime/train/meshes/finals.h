/* Real steps of meshes, which decide between those that are predicted to be about equally fast. */
#ifndef CLT_TRAIN_MESHES_FINALS_H
#define CLT_TRAIN_MESHES_FINALS_H

#include "train/meshes/facts.h"

/* Trains a few steps on the mesh, on parameters and data of its own, with a learning rate of 0, and
 * gives the median time of a step. `world`: the ranks at hand, or NULL. Collective: all ranks get
 * the same time, or all fail. Errors: those of clt_trainer_create and of steps. */
clt_status clt_mesh_run(const clt_mesh_setting *setting, const clt_world *world,
                        const clt_mesh_facts *facts, double *seconds);

#endif
