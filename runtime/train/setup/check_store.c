/* What a trainer refuses for its store and devices, before there is a trainer. */
#include "base/error.h"
#include "train/ranks/virtual_shards.h"
#include "train/setup/capacity.h"

static int devices_of(const clt_mesh *mesh)
{
    return clt_mesh_places(mesh, CLT_AXIS_SAMPLES) * clt_mesh_places(mesh, CLT_AXIS_TENSOR) *
           clt_mesh_places(mesh, CLT_AXIS_PIPELINE);
}

clt_status clt_capacity_check_wire(const clt_mesh *mesh, int devices, clt_dtype wire)
{
    if (wire == CLT_F32)
        return CLT_OK;
    if (mesh->zero)
        return clt_fail(CLT_UNSUPPORTED,
                        "wire %s does not work with zero 3: its exchanges are part of the graph",
                        clt_dtype_name(wire));
    if (clt_mesh_places(mesh, CLT_AXIS_SAMPLES) != devices)
        return clt_fail(CLT_UNSUPPORTED,
                        "wire %s does not work with the axes tp and pp: its residuals are of whole "
                        "gradients",
                        clt_dtype_name(wire));
    return CLT_OK;
}

clt_status clt_capacity_check_store(const clt_graph *graph, const clt_store *store,
                                    const clt_trainer_options *options)
{
    const clt_mesh *mesh = &store->mesh;
    const int places = mesh->size[CLT_AXIS_DATA] ? devices_of(mesh) : 0;
    bool alike = true;
    for (int d = 1; d < store->n_devices; d++)
        alike = alike && store->replicas[d].device->identity == store->replicas[0].device->identity;
    if (options->virtual_shards)
        CLT_TRY(clt_virtual_shards_check(graph, places > mesh->size[CLT_AXIS_DATA], store->owners,
                                         alike));
    if (options->wire != CLT_F32 && store->owners)
        return clt_fail(CLT_UNSUPPORTED, "wire %s does not work with offload: leave out one",
                        clt_dtype_name(options->wire));
    return places ? clt_capacity_check_wire(mesh, places, options->wire) : CLT_OK;
}
