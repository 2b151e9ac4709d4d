/* The rows of the table of options, which options.c reads. */
#ifndef CLTRAIN_COMMAND_OPTIONS_ROWS_H
#define CLTRAIN_COMMAND_OPTIONS_ROWS_H

#include <stddef.h>

#include "options/options.h"

typedef enum option_kind {
    FLAG,   /* int: 1 if given */
    TEXT,   /* char * */
    LIST,   /* char *; several values are joined by ; */
    EITHER, /* char *; several values are joined by | */
    WHOLE,  /* int64_t of at least `least` */
    NUMBER  /* double, finite and at least `least` */
} option_kind;

typedef struct option_row {
    const char *name;
    char letter;
    option_kind kind;
    size_t place;
    double least;
    unsigned commands;
    const char *argument, *help; /* a '$' in the help stands for all that `word` returns */
    const char *words;           /* see option_text */
    option_word *word;
    option_files files;
} option_row;

/* All options, in the order of the help. */
extern const option_row option_rows[];
extern const int option_row_count;

#endif
