/* Messages on standard error and the exit codes of the command. */
#ifndef CLTRAIN_COMMAND_TEXT_MESSAGE_H
#define CLTRAIN_COMMAND_TEXT_MESSAGE_H

#include <cltrain/status.h>
#include <jansson.h>

/* EXIT_AGAIN: saved for cltrain-launch, which starts the run again on another number of ranks.
 * Below the codes of other signals, since the largest code of all ranks counts. */
enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_AGAIN = 75 };

/* Returns the exit code of `expression` from the calling function unless it is 0. */
#define TRY(expression)                                                                            \
    do {                                                                                           \
        const int try_code_ = (expression);                                                        \
        if (try_code_)                                                                             \
            return try_code_;                                                                      \
    } while (0)

/* Reports a failure from the calling function if the pointer, or one of `a && b`, is NULL. */
#define TRY_MEMORY(allocated) TRY((allocated) ? EXIT_DONE : failure("memory does not suffice"))

/* The next of several steps: evaluates `expression` and stores its exit code or status, unless
 * `variable` has the failure of an earlier step. */
#define NEXT(variable, expression)                                                                 \
    do {                                                                                           \
        if (!(variable))                                                                           \
            (variable) = (expression);                                                             \
    } while (0)

/* Prints "cltrain: " and the text as one line on standard error. All functions of this header
 * escape characters that a terminal would obey (clt_printable). */
void say(const char *format, ...) CLT_PRINTF(1, 2);

/* Prints text that may hold names and text of files to standard output. Keeps newlines. */
void show(const char *format, ...) CLT_PRINTF(1, 2);

/* Prints a name, which may hold anything, to standard output. Escapes newlines too. */
void show_text(const char *text);

/* Says each line of a text, then frees the text. Takes NULL. */
void say_lines(char *text);

/* Returns whether the line that was said last contains `text`. */
int just_said(const char *text);

/* Print as `say` does. Return EXIT_USAGE and EXIT_FAILED. */
int usage_error(const char *format, ...) CLT_PRINTF(1, 2);
int failure(const char *format, ...) CLT_PRINTF(1, 2);

/* Reports a name that does not exist as a usage error. Suggests the nearest existing name, or lists
 * all `names` if none is near. */
int unknown_name(const char *what, const char *name, const char *const *names, int count);

/* Prints the library's message for a failure. Returns EXIT_USAGE where the status says that an
 * argument was wrong, else EXIT_FAILED; EXIT_DONE without a message for CLT_OK. */
int library_failure(clt_status status);

/* As library_failure, for a name that the user passed (a model, a device). Returns EXIT_USAGE also
 * if the name does not exist or is not supported. */
int name_failure(clt_status status);

/* Prints a JSON object with jansson's `flags` and releases the object. NULL stands for an object
 * that memory did not suffice for. Returns an exit code. */
int print_object(json_t *object, size_t flags);

/* Makes a JSON string of a text from a file. A text that is not UTF-8 becomes what clt_printable
 * shows. Returns NULL if memory does not suffice. */
json_t *json_text(const char *text);

/* Adds the rank to every line that this process prints from now on. */
void say_rank(int rank);

/* Ranks usually have the same arguments, so a usage error should be printed once. While holding is
 * on, usage_error keeps its text, and ranks_agree decides which rank prints. Only the last text is
 * kept. */
enum { HELD_TEXT = 1200 };
void hold_usage(int on);
const char *held_usage(void); /* "" if there is none */
void drop_usage(void);

/* Prints the library's warnings and errors on standard error. */
void start_log(void);

/* Prints the library's progress messages too, from now on. */
void show_progress(void);

#endif
