/*
 * Text from outside: how it is shown, and how files of it are opened. Messages and log lines of the
 * library went through clt_printable already.
 */
#ifndef CLTRAIN_TEXT_H
#define CLTRAIN_TEXT_H

#include <stdint.h>

#include <cltrain/export.h>
#include <cltrain/status.h>

CLT_BEGIN_DECLS

/* Writes `text` so that a terminal shows it on one line and obeys nothing in it. These bytes become
 * \n, \r, \t or \xNN: control characters (C0, DEL, C1), line separators, characters that change the
 * direction of text, and bytes that are not UTF-8. Everything else is copied. The result ends in a
 * 0 byte and is cut to `room` bytes; nothing is written for a `room` of 0. Returns the bytes of the
 * whole result without the 0 byte. Thread-safe. */
CLT_API int64_t clt_printable(const char *text, char *out, int64_t room);

/* Opens a file that is read once, from its beginning to its end, and never waits for the other end
 * of a pipe. `path` may name:
 *   - a regular file;
 *   - a descriptor that the process holds already: /dev/stdin, /dev/fd/N, /proc/self/fd/N. So pipes
 *     and the shell's <(command) work: their other end exists.
 * *fd is the caller's to close. Errors: NOT_FOUND; IO for what cannot be opened, a named pipe, a
 * device and a folder. The message names the file. Thread-safe. */
CLT_API clt_status clt_text_open(const char *path, int *fd);

CLT_END_DECLS

#endif
