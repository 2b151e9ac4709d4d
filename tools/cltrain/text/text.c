#include "text/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cltrain/text.h>

#include "text/message.h"

FILE *open_text(const char *path)
{
    int fd;
    const clt_status status = clt_text_open(path, &fd);
    if (status != CLT_OK) {
        failure("%s", clt_error_message());
        return NULL;
    }
    FILE *file = fdopen(fd, "r");
    if (!file) {
        failure("memory does not suffice");
        close(fd);
    }
    return file;
}

char *read_text(const char *path, size_t *bytes)
{
    FILE *file = open_text(path);
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
    }
    if (file)
        fclose(file);
    *bytes = n;
    return text;
}
