/* Names of the classes of images:DIR as JSON, which other images of the same classes are opened
 * with.
 */
#ifndef CLT_DATA_FOLDERS_CLASS_NAMES_H
#define CLT_DATA_FOLDERS_CLASS_NAMES_H

#include <stdbool.h>

#include "data/files/listing.h"

/* Whether a folder has the name of a class. JSON has a name that is not UTF-8 as clt_printable
 * shows it. */
bool clt_class_has_name(const char *name, const char *folder);

/* Converts to JSON, which clt_free frees, and back. The caller frees *out even after a failure.
 * Errors: FORMAT, OUT_OF_MEMORY. */
clt_status clt_class_names_write(const clt_listing *classes, char **json);
clt_status clt_class_names_read(const char *json, clt_listing *out);

#endif
