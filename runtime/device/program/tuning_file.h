/* Tuning records. The cache folder has one JSON file for each kind of device, driver and number of
 * cores. The library ships further records, from clkernels/tuning. */
#ifndef CLT_DEVICE_PROGRAM_TUNING_FILE_H
#define CLT_DEVICE_PROGRAM_TUNING_FILE_H

#include "base/caps.h"
#include "device/core/device.h"

/* Loads the device's record from the cache folder, completed by shipped entries for shapes that it
 * lacks. Entries whose kernels have changed are left out. The record is empty, with device and
 * driver set, if there is no file, or if it is damaged, of another driver, or of a version
 * before 4. Free it with clt_tuning_free. */
void clt_tuning_load(const clt_device *device, clt_tuning_record *out);

/* Whether a record is of this device, or of one that differs at most in its compute units. */
bool clt_tuning_of_device(const clt_tuning_record *record, const clt_device *device);
bool clt_tuning_of_kind(const clt_tuning_record *record, const clt_device *device);

/* Writes the entries that were not shipped to the file. Entries that other processes have written
 * meanwhile for other shapes are kept. IO on failure. Does nothing without a cache folder.
 * Thread-safe. */
clt_status clt_tuning_save(const clt_device *device, const clt_tuning_record *record);

/* Adds the entry, or replaces the entry of the same operator and class. */
clt_status clt_tuning_put(clt_tuning_record *record, const clt_tuning_entry *entry);

/* Frees the entries. Device and driver stay. */
void clt_tuning_free(clt_tuning_record *record);

/* Convert a record to JSON and back, also for checkpoints. Free the text with clt_free. Reading:
 * FORMAT. */
clt_status clt_tuning_to_json(const clt_tuning_record *record, char **text);
clt_status clt_tuning_from_json(const char *text, clt_tuning_record *out);

/* Convert several records to {"kernels": [..]}, for checkpoints, and find the device's record in
 * such a text (NOT_FOUND, FORMAT). Its choices hold whatever other variants there are. A record of
 * version 3 names neither platform nor compute units: name and driver decide. Free with clt_free
 * and clt_tuning_free. The last one tells whether such a text has a record of the device's kind. */
clt_status clt_tunings_to_json(const clt_tuning_record *records, int count, char **text);
clt_status clt_tunings_find(const char *text, const clt_device *device, clt_tuning_record *out);
clt_status clt_tunings_have_kind(const char *text, const clt_device *device, bool *have);

#ifdef CLT_TESTING
/* Replaces all shipped records by this text; NULL: the library's records. */
extern const char *clt_tuning_testing_shipped;
#endif

#endif
