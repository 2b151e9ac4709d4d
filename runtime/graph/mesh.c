#include "graph/mesh.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

static const char *const names[CLT_AXES] = {"dp", "tp", "pp", "space", "time"};

static const char axes[] = "dp, tp, pp, space and time";

/* Reads one axis, "tp=2". The axis written last has the smallest stride, so all axes before it are
 * stretched by its size. "dp=*" has `rest` places. */
static clt_status read_axis(const char *text, int length, int rest_places, clt_mesh *mesh)
{
    const char *equals = memchr(text, '=', (size_t)length);
    const int name = equals ? (int)(equals - text) : length;
    char *end;
    int axis = 0;
    while (axis < CLT_AXES &&
           ((int)strlen(names[axis]) != name || memcmp(names[axis], text, (size_t)name)))
        axis++;
    if (axis == CLT_AXES && name == 5 && !memcmp(text, "local", 5))
        return clt_fail(
            CLT_INVALID_ARGUMENT,
            "mesh: local has replicas with a trainer each. Give their number, as `cltrain train "
            "--parallel local=4 --sync-every 8`; in C, see <cltrain/local.h>");
    if (axis == CLT_AXES)
        return clt_fail(CLT_INVALID_ARGUMENT, "mesh: there is no axis '%.*s'; axes are local, %s",
                        name, text, axes);
    if (mesh->stride[axis])
        return clt_fail(CLT_INVALID_ARGUMENT, "mesh: axis %s is given twice", names[axis]);
    const bool star = axis == CLT_AXIS_DATA && equals && equals[1] == '*';
    const long size = star ? rest_places : equals ? strtol(equals + 1, &end, 10) : 0;
    if (star)
        end = (char *)equals + 2;
    const int rest = equals ? length - (int)(end - text) : 0;
    const bool sequence = axis == CLT_AXIS_TENSOR && rest == 9 && !memcmp(end, ":sequence", 9);
    if (size < 1 || size > INT_MAX / 2 || (rest && !sequence))
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "mesh: '%.*s' must be %s=N%s, N a number of devices from 1 on", length,
                        text, names[axis],
                        axis == CLT_AXIS_TENSOR ? " or tp=N:sequence"
                        : axis == CLT_AXIS_DATA ? " or dp=*"
                                                : "");
    for (int a = 0; a < CLT_AXES; a++) {
        if (mesh->stride[a] > INT_MAX / size)
            return clt_fail(CLT_INVALID_ARGUMENT, "mesh: its axes have too many devices");
        mesh->stride[a] *= (int)size;
    }
    mesh->stride[axis] = 1;
    mesh->size[axis] = (int)size;
    mesh->sequence = mesh->sequence || sequence;
    return CLT_OK;
}

/* Reads all axes. *product becomes the number of devices. */
static clt_status read_axes(const char *text, int rest_places, clt_mesh *mesh, long long *product)
{
    *mesh = (clt_mesh){.size = {1, 1, 1, 1, 1}};
    *product = 1;
    for (const char *at = text; at && *at;) {
        const int length = (int)strcspn(at, ",");
        CLT_TRY(read_axis(at, length, rest_places, mesh));
        at += length;
        if (*at && !*++at)
            return clt_fail(CLT_INVALID_ARGUMENT, "mesh: '%s' ends with a comma", text);
    }
    for (int a = 0; a < CLT_AXES; a++)
        *product *= mesh->size[a];
    return CLT_OK;
}

clt_status clt_mesh_parse(const char *text, int devices, clt_mesh *mesh)
{
    clt_mesh m;
    long long product;
    CLT_TRY(read_axes(text, 1, &m, &product));
    if (text && strstr(text, "dp=*")) {
        if (devices % product)
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "mesh: '%s' needs a multiple of %lld devices (--devices), and all "
                            "ranks together have %d",
                            text, product, devices);
        CLT_TRY(read_axes(text, (int)(devices / product), &m, &product));
    }
    if (!text || !*text)
        m.size[CLT_AXIS_DATA] = (int)(product = devices);
    for (int a = 0; a < CLT_AXES; a++)
        m.stride[a] = m.stride[a] ? m.stride[a] : 1;
    if (product != devices)
        return clt_fail(
            CLT_INVALID_ARGUMENT,
            "mesh: '%s' is for %lld devices, and all ranks together have %d: the product "
            "of the axes must be the number of devices (--devices)",
            text, product, devices);
    *mesh = m;
    return CLT_OK;
}

const char *clt_axis_name(clt_axis axis)
{
    return names[axis];
}

bool clt_axis_has_samples(clt_axis axis)
{
    return axis == CLT_AXIS_DATA || axis == CLT_AXIS_SPACE || axis == CLT_AXIS_TIME;
}

int clt_mesh_places(const clt_mesh *mesh, clt_axis axis)
{
    return axis == CLT_AXIS_SAMPLES
               ? mesh->size[CLT_AXIS_DATA] * mesh->size[CLT_AXIS_SPACE] * mesh->size[CLT_AXIS_TIME]
               : mesh->size[axis];
}

/* Returns the axis with samples whose places lie next to each other, after `axis`; CLT_AXES: the
 * first one; -1: there is none. */
static int next_with_samples(const clt_mesh *mesh, int axis)
{
    const int least = axis == CLT_AXES ? 0 : mesh->stride[axis];
    int next = -1;
    for (int a = 0; a < CLT_AXES; a++)
        if (clt_axis_has_samples((clt_axis)a) && mesh->size[a] > 1 && mesh->stride[a] > least &&
            (next < 0 || mesh->stride[a] < mesh->stride[next]))
            next = a;
    return next;
}

int clt_mesh_coordinate(const clt_mesh *mesh, clt_axis axis, int participant)
{
    if (axis == CLT_AXIS_SAMPLES) {
        int place = 0, step = 1;
        for (int a = next_with_samples(mesh, CLT_AXES); a >= 0; a = next_with_samples(mesh, a)) {
            place += step * clt_mesh_coordinate(mesh, (clt_axis)a, participant);
            step *= mesh->size[a];
        }
        return place;
    }
    return participant / mesh->stride[axis] % mesh->size[axis];
}

int clt_mesh_neighbour(const clt_mesh *mesh, clt_axis axis, int participant, int place)
{
    if (axis == CLT_AXIS_SAMPLES) {
        for (int a = next_with_samples(mesh, CLT_AXES); a >= 0; a = next_with_samples(mesh, a)) {
            participant = clt_mesh_neighbour(mesh, (clt_axis)a, participant, place % mesh->size[a]);
            place /= mesh->size[a];
        }
        return participant;
    }
    return participant +
           (place - clt_mesh_coordinate(mesh, axis, participant)) * mesh->stride[axis];
}

void clt_mesh_colours(const clt_mesh *mesh, clt_axis axis, int *colours)
{
    int total = 1;
    for (int a = 0; a < CLT_AXES; a++)
        total *= mesh->size[a];
    for (int p = 0; p < total; p++)
        colours[p] = clt_mesh_neighbour(mesh, axis, p, 0);
}
