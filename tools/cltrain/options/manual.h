/* Man pages and bash completion, written from the tables of subcommands and options. The build runs
 * this, see cmake/Manual.cmake. */
#ifndef CLTRAIN_COMMAND_OPTIONS_MANUAL_H
#define CLTRAIN_COMMAND_OPTIONS_MANUAL_H

/* Hidden first arguments of the command. */
#define PRINT_MAN "--print-man"               /* [COMMAND]: cltrain.1, or cltrain-COMMAND.1 */
#define PRINT_COMPLETION "--print-completion" /* of bash */

/* Whether the first argument is one of the two. */
int manual_asked(int argc, char **argv);

/* Prints what was asked for. Returns an exit code. */
int manual_print(int argc, char **argv);

/* The script of completion; used by manual_print. */
int completion_print(void);

#endif
