/* What the command says on standard error, and the exit codes. */
#ifndef CLTRAIN_COMMAND_TEXT_MESSAGE_H
#define CLTRAIN_COMMAND_TEXT_MESSAGE_H

#include <cltrain/status.h>
#include <jansson.h>

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

/* Prints "cltrain: " and the text as one line. What a terminal would obey is escaped, here and in
 * everything below (clt_printable). */
void say(const char *format, ...) CLT_PRINTF(1, 2);

/* Prints to standard output what may hold names and text of files. Newlines are kept. */
void show(const char *format, ...) CLT_PRINTF(1, 2);

/* The same for each line of a text (or NULL), which is freed. */
void say_lines(char *text);

/* Whether the last line had this text. */
int just_said(const char *text);

/* As say, and returns EXIT_USAGE or EXIT_FAILED. */
int usage_error(const char *format, ...) CLT_PRINTF(1, 2);
int failure(const char *format, ...) CLT_PRINTF(1, 2);

/* The same for a name that does not exist: with the nearest one of those that do, or all. */
int unknown_name(const char *what, const char *name, const char *const *names, int count);

/* Prints the library's message of a failure. Returns EXIT_USAGE where the status says that an
 * argument was wrong, else EXIT_FAILED. */
int library_failure(clt_status status);

/* The same for what the user named (a model, a device): a name that does not exist is usage. */
int name_failure(clt_status status);

/* Prints a JSON object, which is released; jansson's flags. NULL: memory did not suffice for it.
 * Returns an exit code. */
int print_object(json_t *object, size_t flags);

/* A text of files, which need not be UTF-8, as JSON is: then '?' for each byte that is not ASCII.
 * NULL: memory did not suffice. */
json_t *json_text(const char *text);

/* From now on every line of this process names its rank. */
void say_rank(int rank);

/* Most ranks have the same arguments, and what is wrong with them is to be printed once: while
 * held, usage errors are kept instead, the last one, for ranks_agree. */
enum { HELD_TEXT = 1200 };
void hold_usage(int on);
const char *held_usage(void); /* "": none */
void drop_usage(void);

/* Lets the library's warnings and errors out on standard error. */
void start_log(void);

/* From now on what the library does is told too. */
void show_progress(void);

#endif
