/* Splits devices into parts. */
#ifndef CLT_DEVICE_DISCOVER_SUB_DEVICES_H
#define CLT_DEVICE_DISCOVER_SUB_DEVICES_H

#include "device/discover/open.h"
#include "device/discover/selection.h"

/* Makes the parts of one (row, group) of a selection by one call, so that they have disjoint cores.
 * Sets ids[i] of each of these units i. The caller releases them. */
clt_status clt_split_group(const clt_device_row *row, const clt_selection *selection, int row_index,
                           int group, cl_device_id *ids);

/* Whether parts of one device share cores. Then they share the driver's threads too. */
bool clt_split_shares_cores(clt_device *const *devices, int count);

/* Checks that the driver keeps a part to its cores, by counting the threads that share a busy
 * kernel. The answer is remembered in the process for each root device. UNSUPPORTED with the reason
 * if the driver does not. */
clt_status clt_split_check(clt_device *part);

#endif
