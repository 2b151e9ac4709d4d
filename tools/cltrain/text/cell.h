/* Names in tables, aligned by the columns that a terminal gives their characters. */
#ifndef CLTRAIN_COMMAND_TEXT_CELL_H
#define CLTRAIN_COMMAND_TEXT_CELL_H

typedef enum cell_side { CELL_LEFT, CELL_RIGHT } cell_side;

/* Returns the columns of a text, escaped as `show` does, with line breaks too. Letters of Chinese,
 * Japanese and Korean have two, combining marks none. */
int cell_width(const char *text);

/* Prints a text, escaped alike, with blanks so that it fills `columns`. A text of more than `most`
 * columns is cut there and ends in ~. */
void show_cell(const char *text, int columns, int most, cell_side side);

#endif
