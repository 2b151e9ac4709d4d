#include "text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "message.h"

char *read_text(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "re");
    size_t room = 1 << 16, n = 0;
    char *text = file ? malloc(room) : NULL;
    while (text) {
        n += fread(text + n, 1, room - n, file);
        if (n < room)
            break;
        char *moved = realloc(text, room *= 2);
        if (!moved)
            free(text);
        text = moved;
    }
    if (file && (ferror(file) || !text)) {
        failure("%s: cannot be read: %s", path, strerror(errno));
        free(text);
        text = NULL;
    } else if (!file) {
        failure("%s: cannot be opened: %s", path, strerror(errno));
    }
    if (file)
        fclose(file);
    *bytes = n;
    return text;
}
