/* A kernel file within a merged kernel's source, where several such files stand one after the
 * other. */
#ifndef CLT_DEVICE_PROGRAM_MERGE_SECTION_H
#define CLT_DEVICE_PROGRAM_MERGE_SECTION_H

#include "base/str.h"
#include "device/core/device.h"

/* The arguments that kernels in a merged source have before their own, and that functions which
 * read the work-item's place have as well. */
#define CLT_MERGE_PLACE "clt_x, clt_y, clt_z, clt_nx, clt_ny, clt_nz"

/* Appends the key's file. Macros of the file and of its options end behind it. All other names of
 * the file get the suffix _m and `number`, so that several sections can be in one source. */
clt_status clt_merge_section(const clt_program_key *key, int number, clt_str *out);

#endif
