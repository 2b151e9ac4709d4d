/* Parses the notation of --devices without OpenCL: a list and a table of rows give the units to
 * open. */
#ifndef CLT_DEVICE_DISCOVER_SELECTION_H
#define CLT_DEVICE_DISCOVER_SELECTION_H

#include <cltrain/device.h>

/* One device or part of one, in the list's order. */
typedef struct clt_unit {
    int row;   /* index into the table */
    int cores; /* of the part; 0: the whole device */
    int group; /* one call makes all parts of a row and group, on disjoint cores */
    int place; /* index among the parts of its group */
    int part;  /* number among all parts of its row, for its label */
} clt_unit;

typedef struct clt_selection {
    clt_unit *units; /* freed with clt_free */
    int count, room;
} clt_selection;

/* Parses a list of devices; NULL or "" is the default choice. `remark` tells in messages why there
 * may be no rows ("" if nothing is wrong). Errors: NO_DEVICE, NOT_FOUND, INVALID_ARGUMENT,
 * UNSUPPORTED, OUT_OF_MEMORY. */
clt_status clt_selection_parse(const clt_device_info *rows, int count, const char *remark,
                               const char *list, clt_selection *out);

#endif
