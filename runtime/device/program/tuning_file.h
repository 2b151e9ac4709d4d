/* Tuning records: one JSON file for each kind of device, driver and number of cores, in the cache
 * folder; and those of clkernels/tuning, which are shipped with the library. */
#ifndef CLT_DEVICE_PROGRAM_TUNING_FILE_H
#define CLT_DEVICE_PROGRAM_TUNING_FILE_H

#include "base/caps.h"
#include "device/core/device.h"

/* The device's record: that of the cache folder, and what is shipped for shapes that it lacks.
 * Entries whose kernels have changed since are left out. Empty, with device and driver set, where
 * there is no file, or one that is damaged, of another driver, or of another version of this
 * format. Free it with clt_tuning_free. */
void clt_tuning_load(const clt_device *device, clt_tuning_record *out);

/* The hash of kernel files (names with commas between them) as they are in this library. */
uint64_t clt_tuning_source(const char *files);

/* Puts the entries that were not shipped into the file, beside those that other processes have
 * written meanwhile for other shapes. IO if that is not possible; without a cache folder nothing is
 * done. Thread-safe. */
clt_status clt_tuning_save(const clt_device *device, const clt_tuning_record *record);

/* Adds the entry, or replaces the one of the same operator and shape class. */
clt_status clt_tuning_put(clt_tuning_record *record, const clt_tuning_entry *entry);

/* Frees the entries; device and driver stay. */
void clt_tuning_free(clt_tuning_record *record);

/* The record as JSON and back, for checkpoints too. Free the text with clt_free. Reading: FORMAT.
 */
clt_status clt_tuning_to_json(const clt_tuning_record *record, char **text);
clt_status clt_tuning_from_json(const char *text, clt_tuning_record *out);

/* Several records as {"kernels": [..]}, for checkpoints; and the one of the device's kind and
 * driver in it (NOT_FOUND, FORMAT). Free with clt_free and clt_tuning_free. */
clt_status clt_tunings_to_json(const clt_tuning_record *records, int count, char **text);
clt_status clt_tunings_find(const char *text, const clt_device *device, clt_tuning_record *out);

#ifdef CLT_TESTING
/* A text to take for the one shipped record; NULL: those of the library. */
extern const char *clt_tuning_testing_shipped;
#endif

#endif
