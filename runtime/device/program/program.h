/* Kernel sources, the programs of a device, and their files in the cache folder. */
#ifndef CLT_DEVICE_PROGRAM_PROGRAM_H
#define CLT_DEVICE_PROGRAM_PROGRAM_H

#include "base/str.h"
#include "device/core/device.h"

/* Returns the embedded text of `file`; NULL if there is none. */
const char *clt_source_find(const char *file);

/* Appends the text with its includes resolved, each file once. #line marks make the compiler's
 * messages name file and line. `text` NULL: the embedded file `name`. Errors: NOT_FOUND. */
clt_status clt_source_resolve(const char *name, const char *text, clt_str *out);

/* The name of programs that merge_source.c writes. */
#define CLT_MERGED_FILE "merged launches"

typedef struct clt_program_table clt_program_table;

clt_status clt_program_table_create(clt_program_table **out);

/* Returns how many seconds closing a device may spend on writing programs, if the device was open
 * for `open` seconds. Writing must not slow down short runs; later runs write the rest. */
double clt_program_store_seconds(double open);

/* Writes programs to the cache folder that were not written when they were built. Starts no further
 * one after `seconds`. */
void clt_program_table_store(clt_device *device, double seconds);

/* Returns the seconds since the table was created. */
double clt_program_table_seconds(const clt_program_table *table);

/* Destroys the table and its programs. NULL is allowed. */
void clt_program_table_destroy(clt_program_table *table);

/* Gets the program of (name, text, options), built if necessary, and the hash of its source,
 * options and device. The table owns it. `text` NULL: an embedded file. */
clt_status clt_program_get(clt_device *device, const char *name, const char *text,
                           const char *options, cl_program *program, uint64_t *hash);

/* Gets the program of an embedded file that has the kernel. If the file uses CLT_HAS, the program
 * has only this kernel. */
clt_status clt_program_get_for(clt_device *device, const clt_program_key *key, cl_program *program);

/* Appends source and options that the driver compiles for the key. */
clt_status clt_program_compose(clt_device *device, const clt_program_key *key, clt_str *source,
                               clt_str *options);

/* Whether the program of the key was not built yet. */
bool clt_program_is_new(clt_device *device, const clt_program_key *key);

/* Whether two keys name one program. */
bool clt_program_keys_equal(const clt_program_key *a, const clt_program_key *b);

/* Compiles resolved source. An error's message has the compiler's first error lines. */
clt_status clt_program_build(clt_device *device, const char *name, const char *source,
                             const char *options, cl_program *out);

/* Appends the first error lines of a build log as one line. */
void clt_program_log_summary(const char *log, clt_str *out);

#endif
