/* Virtual shards of the devices of a mesh. All meshes that have them are on dp alone, with all
 * devices, so that they have the same division. */
#ifndef CLT_TRAIN_MESHES_MESH_SHARDS_H
#define CLT_TRAIN_MESHES_MESH_SHARDS_H

#include "train/meshes/facts.h"

/* Divides the shards of the options over the devices for setting->shards; *bounds is NULL without
 * shards. `world`: the ranks at hand, or NULL; collective. Free *bounds with clt_free. Errors:
 * those of clt_virtual_shards_bounds. */
clt_status clt_mesh_shards_divide(const clt_mesh_setting *setting, const clt_world *world,
                                  int64_t **bounds);

/* Fails with UNSUPPORTED, and the reason, if the mesh cannot have virtual shards. */
clt_status clt_mesh_shards_check(const clt_mesh_setting *setting, const clt_mesh_facts *facts);

/* Returns the most shards of a device. */
int clt_mesh_shards_most(const clt_mesh_setting *setting);

/* Returns the first device that has the most shards. */
int clt_mesh_shards_fullest(const clt_mesh_setting *setting);

/* Returns the shards of a device. */
int64_t clt_mesh_shards_of(const clt_mesh_setting *setting, int participant);

/* Returns the shards that a device computes in a step: none if all of its shards are empty. */
int clt_mesh_shards_rounds(const clt_mesh_setting *setting, int participant);

#endif
