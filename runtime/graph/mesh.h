/*
 * A mesh: the devices of all ranks as a grid, with an axis for each way of dividing the work. The
 * participant's number counts through the grid. The axis that was written last varies fastest.
 */
#ifndef CLT_GRAPH_MESH_H
#define CLT_GRAPH_MESH_H

#include <stdbool.h>

#include <cltrain/graph.h>

typedef struct clt_mesh {
    int size[CLT_AXES];   /* 1: the axis is not used */
    int stride[CLT_AXES]; /* between neighbours along the axis */
    bool sequence;        /* tp=N:sequence: norms and dropout are divided over time within tp */
    bool zero; /* trained parameters are divided along dp, and not along tp; see CLT_FLAT */
} clt_mesh;

/* Reads "dp=2,tp=2:sequence" for so many devices of all ranks; NULL or "": all devices are dp.
 * "dp=*" takes the devices that the other axes leave. Errors: INVALID_ARGUMENT, with one line that
 * says what is wrong. */
clt_status clt_mesh_parse(const char *text, int devices, clt_mesh *mesh);

/* Returns "dp", "tp", "pp", "space" or "time". */
const char *clt_axis_name(clt_axis axis);

/*
 * The axes dp, space and time taken as one, for the functions below. Its places have different
 * samples, or different parts of samples. They have the same parameters, and their gradients and
 * losses add up.
 */
#define CLT_AXIS_SAMPLES ((clt_axis)CLT_AXES)

/* Returns true for dp, space and time. */
bool clt_axis_has_samples(clt_axis axis);

/* Returns the number of places along an axis. */
int clt_mesh_places(const clt_mesh *mesh, clt_axis axis);

/* Returns the place of a participant along an axis. */
int clt_mesh_coordinate(const clt_mesh *mesh, clt_axis axis, int participant);

/* Returns the axis along which parameters of stores are split. */
static inline clt_axis clt_mesh_split_axis(const clt_mesh *mesh)
{
    return mesh->zero ? CLT_AXIS_DATA : CLT_AXIS_TENSOR;
}

/* Returns the participant at another place along an axis. */
int clt_mesh_neighbour(const clt_mesh *mesh, clt_axis axis, int participant, int place);

/* Writes a colour for each of the mesh's participants. Those that differ only along the axis have
 * the same colour, and form a group in their order along the axis. */
void clt_mesh_colours(const clt_mesh *mesh, clt_axis axis, int *colours);

#endif
