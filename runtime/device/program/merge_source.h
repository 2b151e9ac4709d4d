/*
 * One kernel that does the work of several launches, in one work-item. The source has the kernels'
 * own files, as functions of one work-item that loops call.
 */
#ifndef CLT_DEVICE_PROGRAM_MERGE_SOURCE_H
#define CLT_DEVICE_PROGRAM_MERGE_SOURCE_H

#include "base/str.h"
#include "device/core/device.h"

/* A launch. `global` and `args` are OpenCL C over the merged kernel's own parameters. */
typedef struct clt_merge_part {
    clt_program_key key;
    const char *global[3]; /* work-items, each an int */
    const char *args;      /* the kernel's arguments, with commas between */
    const char *comment;
} clt_merge_part;

/* The merged kernel's name. */
#define CLT_MERGED_KERNEL "clt_merged"

/* Returns whether a merged kernel may contain the program's kernel. If not, writes the reason to
 * `why` (CLT_MERGE_WHY bytes). */
bool clt_merge_accepts(const clt_program_key *key, char *why);
enum { CLT_MERGE_WHY = 128 };

/* The same for clt_plan_options.merges. */
bool clt_merge_accepts_kernel(const char *file, const char *options, const char *kernel, char *why);

/* Appends the source of a kernel that runs the parts one after the other. `parameters` are those of
 * the kernel, and `first` is what it does first. Launches of one program share its text. If `wide`,
 * the kernel has the work-items of the first part, each in a work-group of its own. The last one to
 * end goes on with the other parts, so that no work-item waits. The parameter CLT_MERGE_ENDED
 * counts them, and is 0 again at the end. */
clt_status clt_merge_source(const clt_merge_part *parts, int count, bool wide,
                            const char *parameters, const char *first, clt_str *out);

#define CLT_MERGE_ENDED "clt_ended"

#endif
