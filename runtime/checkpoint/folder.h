/* The folder that holds a run's checkpoints, and the names in it. */
#ifndef CLT_CHECKPOINT_FOLDER_H
#define CLT_CHECKPOINT_FOLDER_H

#include <stdbool.h>
#include <stdint.h>

#include <cltrain/status.h>

/* Names: "step-00000012" is a checkpoint; ".old-step-00000012" too, displaced by one of the same
 * step where two folders cannot be exchanged at once; ".tmp-..." is never anything that anyone
 * needs. */
typedef struct clt_step_name {
    int64_t step;
    char text[48];
    bool displaced;
} clt_step_name;

#define CLT_TMP_PREFIX ".tmp-"
#define CLT_OLD_PREFIX ".old-"

/* Whoever saves in the folder holds a lock on this file. */
#define CLT_LOCK_FILE ".lock"

clt_step_name clt_step_name_of(int64_t step);

/* False if the name is not that of a checkpoint. */
bool clt_step_name_parse(const char *text, clt_step_name *out);

/* The checkpoints in a folder, highest step first, displaced ones after others of their step.
 * `*items` is freed with clt_free. */
clt_status clt_folder_list(const char *path, clt_step_name **items, int *count);

/* Makes the folder and those above it. */
clt_status clt_folder_make(const char *path);

/* Removes what has this name in the folder: a file, or a folder of files. False if something stays.
 * Something that is not there counts as removed. */
bool clt_folder_remove(int folder_fd, const char *name);

/* Removes everything whose name begins with `prefix`. False if something stays. */
bool clt_folder_clean(int folder_fd, const char *prefix);

#endif
