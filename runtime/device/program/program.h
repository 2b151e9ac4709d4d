/* Kernel sources, the programs of a device, and their files in the cache folder. */
#ifndef CLT_DEVICE_PROGRAM_PROGRAM_H
#define CLT_DEVICE_PROGRAM_PROGRAM_H

#include "base/str.h"
#include "device/core/device.h"

/* The embedded text of `file`; NULL if there is none. */
const char *clt_source_find(const char *file);

/* Appends the text with its includes put in place, each file once, with #line marks so that the
 * compiler's messages name file and line. `text` NULL: the embedded file `name`. Errors: NOT_FOUND.
 */
clt_status clt_source_resolve(const char *name, const char *text, clt_str *out);

typedef struct clt_program_table clt_program_table;

clt_status clt_program_table_create(clt_program_table **out);

/* How long programs may be written when a device is closed that was open for so many seconds:
 * writing them must not slow short runs down. Later runs write the rest. */
double clt_program_store_seconds(double open);

/* Writes programs to the cache folder that were not written when they were built; begins no more
 * after so many seconds. */
void clt_program_table_store(clt_device *device, double seconds);

/* Since the table was created. */
double clt_program_table_seconds(const clt_program_table *table);

/* Takes NULL. */
void clt_program_table_destroy(clt_program_table *table);

/* The built program of (name, text, options), and the hash of its source, options and device. The
 * table keeps it. `text` NULL: an embedded file. */
clt_status clt_program_get(clt_device *device, const char *name, const char *text,
                           const char *options, cl_program *program, uint64_t *hash);

/* Builds, or finds, the program of an embedded file that has the kernel: where the file uses
 * CLT_HAS, one with that kernel alone. */
clt_status clt_program_get_for(clt_device *device, const clt_program_key *key, cl_program *program);

/* Compiles resolved source. The message of a failure has the compiler's first error lines. */
clt_status clt_program_build(clt_device *device, const char *name, const char *source,
                             const char *options, cl_program *out);

/* The first error lines of a build log as one line. */
void clt_program_log_summary(const char *log, clt_str *out);

#endif
