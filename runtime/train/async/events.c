#include "train/async/events.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"

struct clt_events {
    FILE *file;
    char path[1024];
};

/* Opens a log to go on with it. A process that was killed may have left an incomplete last line. */
static FILE *open_again(const char *path)
{
    FILE *file = fopen(path, "r+e");
    if (!file)
        return fopen(path, "we");
    off_t end = 0, at = 0;
    for (int c; (c = getc(file)) != EOF;) {
        at++;
        end = c == '\n' ? at : end;
    }
    if (fseeko(file, end, SEEK_SET) == 0 && ftruncate(fileno(file), end) == 0)
        return file;
    fclose(file);
    return NULL;
}

clt_status clt_events_open(const char *path, int holder, bool resume, clt_events **out)
{
    *out = NULL;
    if (!path)
        return CLT_OK;
    clt_events *e = CLT_NEW(clt_events);
    CLT_TRY_MEMORY(e);
    snprintf(e->path, sizeof e->path, holder ? "%s.%d" : "%s", path, holder);
    e->file = resume ? open_again(e->path) : fopen(e->path, "we");
    if (!e->file) {
        const clt_status status =
            clt_fail(CLT_IO, "cannot write the events to %s: %s", e->path, strerror(errno));
        clt_free(e);
        return status;
    }
    *out = e;
    return CLT_OK;
}

void clt_events_add(clt_events *e, const char *name, const char *members, ...)
{
    va_list list;
    if (!e)
        return;
    fprintf(e->file, "{\"event\":\"%s\",\"time\":%.6f", name, clt_clock());
    va_start(list, members);
    if (*members)
        fputc(',', e->file);
    vfprintf(e->file, members, list);
    va_end(list);
    fputs("}\n", e->file);
}

void clt_events_flush(clt_events *e)
{
    if (e)
        fflush(e->file);
}

clt_status clt_events_close(clt_events *e)
{
    if (!e)
        return CLT_OK;
    const bool failed = ferror(e->file) != 0;
    const bool bad = fclose(e->file) != 0 || failed;
    const clt_status status =
        bad ? clt_fail(CLT_IO, "cannot write the events to %s: %s", e->path, strerror(errno))
            : CLT_OK;
    clt_free(e);
    return status;
}
