/* Man pages and bash completion, written from the tables of subcommands and options. The build
 * calls this, see cmake/Manual.cmake. */
#ifndef CLTRAIN_COMMAND_OPTIONS_MANUAL_H
#define CLTRAIN_COMMAND_OPTIONS_MANUAL_H

/* Hidden first arguments of the command. */
#define PRINT_MAN "--print-man"               /* [COMMAND]: prints cltrain.1 or cltrain-COMMAND.1 */
#define PRINT_COMPLETION "--print-completion" /* prints the script for bash */

/* Returns whether the first argument is one of these. */
int manual_asked(int argc, char **argv);

/* Prints the page or script. Returns an exit code. */
int manual_print(int argc, char **argv);

/* Prints the completion script. Returns an exit code. */
int completion_print(void);

#endif
