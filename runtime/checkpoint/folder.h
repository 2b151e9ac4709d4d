/* The folder that holds a run's checkpoints, and the names in it. */
#ifndef CLT_CHECKPOINT_FOLDER_H
#define CLT_CHECKPOINT_FOLDER_H

#include <stdbool.h>
#include <stdint.h>

#include <cltrain/status.h>

/* A checkpoint's name, such as "step-00000012". ".old-step-00000012" is a checkpoint too: a newer
 * one of the same step took its place on a file system that cannot exchange two folders at once.
 * Folders ".tmp-..." are leftovers and never needed. */
typedef struct clt_step_name {
    int64_t step;
    char text[48];
    bool displaced;
} clt_step_name;

#define CLT_TMP_PREFIX ".tmp-"
#define CLT_OLD_PREFIX ".old-"

/* A link to the best checkpoint. */
#define CLT_BEST_LINK "best"

/* A run that saves in the folder holds a lock on this file. */
#define CLT_LOCK_FILE ".lock"

clt_step_name clt_step_name_of(int64_t step);

/* Parses a name; false if it is not the name of a checkpoint. */
bool clt_step_name_parse(const char *text, clt_step_name *out);

/* Lists the checkpoints in a folder, highest step first. Displaced ones follow the others of their
 * step. Free `*items` with clt_free. */
clt_status clt_folder_list(const char *path, clt_step_name **items, int *count);

/* Fails with INVALID_ARGUMENT if a path is NULL or empty. `what` says in the message of what. */
clt_status clt_path_given(const char *path, const char *what);

/* Makes the folder and its parents. */
clt_status clt_folder_make(const char *path);

/* Removes the entry `name` of a folder: a file, or a folder of files. False if something is left. A
 * missing entry counts as removed. */
bool clt_folder_remove(int folder_fd, const char *name);

/* Removes all entries whose names begin with `prefix`. False if something is left. */
bool clt_folder_clean(int folder_fd, const char *prefix);

#endif
