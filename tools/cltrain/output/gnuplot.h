/* Draws pictures with gnuplot, which must be installed. */
#ifndef CLTRAIN_COMMAND_OUTPUT_GNUPLOT_H
#define CLTRAIN_COMMAND_OUTPUT_GNUPLOT_H

#include <stdio.h>

/* Writes the script that draws the picture `output`. */
typedef void gnuplot_script(const void *user, const char *output, FILE *script);

/* Draws into a temporary file beside the picture, which replaces the picture after success. Returns
 * an exit code, after a message. */
int gnuplot_draw(const char *output, gnuplot_script *write, const void *user);

/* Checks that the name of a picture ends in .png. Returns an exit code, after a message. */
int gnuplot_check(const char *output);

/* Writes a string in gnuplot's double quotes. */
void gnuplot_quoted(const char *text, FILE *script);

#endif
