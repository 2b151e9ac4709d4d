#include "message.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cltrain/log.h>

static char speaker[32] = "cltrain";
static int speaking_rank;

void say_rank(int rank)
{
    speaking_rank = rank;
    snprintf(speaker, sizeof speaker, "cltrain, rank %d", rank);
}

static void say_list(const char *format, va_list args)
{
    char text[4500];
    vsnprintf(text, sizeof text, format, args);
    fprintf(stderr, "%s: %s\n", speaker, text);
}

void say(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say_list(format, args);
    va_end(args);
}

int usage_error(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (speaking_rank == 0)
        say_list(format, args);
    va_end(args);
    return EXIT_USAGE;
}

int failure(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say_list(format, args);
    va_end(args);
    return EXIT_FAILED;
}

int unknown_name(const char *what, const char *name, const char *const *names, int count)
{
    char list[1000] = "";
    const char *near = clt_nearest(name, names, count);
    if (near)
        return usage_error("%s %s: did you mean %s?", what, name, near);
    for (int i = 0, used = 0; i < count && used < (int)sizeof list; i++)
        used += snprintf(list + used, sizeof list - (size_t)used, "%s%s", i ? ", " : "", names[i]);
    return usage_error("%s %s: there is none of that name; there are %s", what, name, list);
}

int library_failure(clt_status status)
{
    const char *message = clt_error_message();
    say("%s", *message ? message : clt_status_text(status));
    return status == CLT_INVALID_ARGUMENT ? EXIT_USAGE : EXIT_FAILED;
}

int name_failure(clt_status status)
{
    int code = library_failure(status);
    return status == CLT_NOT_FOUND || status == CLT_UNSUPPORTED ? EXIT_USAGE : code;
}

static void print_log(void *user, clt_log_level level, const char *line)
{
    (void)user;
    fprintf(stderr, "%s: %s%s\n", speaker, level == CLT_LOG_WARN ? "warning: " : "", line);
}

void start_log(void)
{
    clt_log_set(print_log, NULL, CLT_LOG_WARN);
}

void show_progress(void)
{
    clt_log_set(print_log, NULL, CLT_LOG_INFO);
}

int print_object(json_t *object, size_t flags)
{
    char *text = object ? json_dumps(object, flags) : NULL;
    json_decref(object);
    if (!text)
        return failure("memory does not suffice");
    puts(text);
    free(text);
    return EXIT_DONE;
}
