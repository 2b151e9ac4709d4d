/* Parts of devices. */
#ifndef CLT_DEVICE_DISCOVER_SUB_DEVICES_H
#define CLT_DEVICE_DISCOVER_SUB_DEVICES_H

#include "device/discover/open.h"
#include "device/discover/selection.h"

/* Makes the parts of one (row, group) of a selection by one call, so that they have disjoint cores:
 * ids[i] of each such unit i is set, and belongs to the caller. */
clt_status clt_split_group(const clt_device_row *row, const clt_selection *selection, int row_index,
                           int group, cl_device_id *ids);

/* Whether the driver keeps a part to its cores: how many threads share a busy kernel. The answer is
 * kept for the process, by root device. UNSUPPORTED with the reason if it does not. */
clt_status clt_split_check(clt_device *part);

#endif
