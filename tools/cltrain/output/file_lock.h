/* What only one run may write: its checkpoint folder, its metrics file. */
#ifndef CLTRAIN_COMMAND_OUTPUT_FILE_LOCK_H
#define CLTRAIN_COMMAND_OUTPUT_FILE_LOCK_H

#include <cltrain/checkpoint.h>

/* How long to wait for another process to let go. A run that goes on right after a kill may find
 * the killed process still ending. */
typedef struct patience {
    double seconds;     /* 0: do not wait */
    int (*asked)(void); /* whether a signal asks for the end; may be NULL */
    double began;       /* the first call; 0 before */
    int noted;
} patience;

/* Sleeps a moment and returns 1 while there is patience left. Says `why` once, when it begins. */
int patience_left(patience *p, const char *why);

/* The checkpoint folder. Returns an exit code, after a message. */
int hold_folder(const char *dir, patience *p, clt_folder_lock **lock);

/* An open file that several runs would mix their lines in; until it is closed. Pipes, terminals and
 * devices are not held. Returns an exit code, after a message. */
int hold_file(int fd, const char *what, const char *path, patience *p);

#endif
