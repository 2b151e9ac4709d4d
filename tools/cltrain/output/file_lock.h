/* Locks of files that only one run may write: the checkpoint folder and the metrics file. */
#ifndef CLTRAIN_COMMAND_OUTPUT_FILE_LOCK_H
#define CLTRAIN_COMMAND_OUTPUT_FILE_LOCK_H

#include <cltrain/checkpoint.h>

/* How long to wait for another process to release its lock. A run that is resumed right after a
 * kill may find the killed process still ending. */
typedef struct patience {
    double seconds;     /* 0: do not wait */
    int (*asked)(void); /* returns whether a signal asks for the end; may be NULL */
    double began;       /* time of the first call, 0 before */
    int noted;
} patience;

/* Sleeps 0.1 s and returns 1, or returns 0 when the time is over. The first call prints `why`. */
int patience_left(patience *p, const char *why);

/* Locks the checkpoint folder. Returns an exit code, after a message. */
int hold_folder(const char *dir, patience *p, clt_folder_lock **lock);

/* Locks an open file until it is closed, since the lines of several runs would mix. Pipes,
 * terminals and devices are not locked. `what` and `path` name the file in messages. Returns an
 * exit code, after a message. */
int hold_file(int fd, const char *what, const char *path, patience *p);

#endif
