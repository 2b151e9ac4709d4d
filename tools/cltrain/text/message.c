#include "text/message.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cltrain/log.h>
#include <cltrain/text.h>

static char speaker[32] = "cltrain";
static int holding;
static char held[HELD_TEXT];
static char last[HELD_TEXT];

void say_rank(int rank)
{
    snprintf(speaker, sizeof speaker, "cltrain, rank %d", rank);
}

static void say_list(const char *format, va_list args)
{
    char given[4500], text[4500];
    vsnprintf(given, sizeof given, format, args);
    clt_printable(given, text, sizeof text);
    fprintf(stderr, "%s: %s\n", speaker, text);
    snprintf(last, sizeof last, "%.*s", HELD_TEXT - 1, text);
}

int just_said(const char *text)
{
    return strstr(last, text) != NULL;
}

void say(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say_list(format, args);
    va_end(args);
}

/* Returns what clt_printable writes; NULL without memory. The caller frees it. */
static char *printable(const char *text)
{
    const int64_t length = clt_printable(text, NULL, 0);
    char *shown = malloc((size_t)length + 1);
    if (shown)
        clt_printable(text, shown, length + 1);
    return shown;
}

void show_text(const char *line)
{
    char *shown = printable(line);
    if (shown)
        fputs(shown, stdout);
    free(shown);
}

void show(const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    const int length = vasprintf(&text, format, args);
    va_end(args);
    for (char *line = length < 0 ? NULL : text; line;) {
        char *end = strchr(line, '\n');
        if (end)
            *end = '\0';
        show_text(line);
        if (end)
            putchar('\n');
        line = end ? end + 1 : NULL;
    }
    if (length >= 0)
        free(text);
}

void say_lines(char *text)
{
    for (char *line = text; line;) {
        char *end = strchr(line, '\n');
        if (end)
            *end = '\0';
        say("%s", line);
        line = end ? end + 1 : NULL;
    }
    free(text);
}

void hold_usage(int on)
{
    holding = on;
}

const char *held_usage(void)
{
    return held;
}

void drop_usage(void)
{
    held[0] = '\0';
}

int usage_error(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (holding)
        vsnprintf(held, sizeof held, format, args);
    else
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

static int report(clt_status status, int usage)
{
    if (status == CLT_OK)
        return EXIT_DONE;
    const char *message = clt_error_message();
    const char *text = *message ? message : clt_status_text(status);
    return usage ? usage_error("%s", text) : failure("%s", text);
}

int library_failure(clt_status status)
{
    return report(status, status == CLT_INVALID_ARGUMENT);
}

int name_failure(clt_status status)
{
    return report(status, status == CLT_INVALID_ARGUMENT || status == CLT_NOT_FOUND ||
                              status == CLT_UNSUPPORTED);
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

json_t *json_text(const char *text)
{
    json_t *value = json_string(text);
    char *shown = value ? NULL : printable(text);
    if (shown)
        value = json_string(shown);
    free(shown);
    return value;
}

int print_object(json_t *object, size_t flags)
{
    char *text = object ? json_dumps(object, flags) : NULL;
    json_decref(object);
    TRY_MEMORY(text);
    puts(text);
    free(text);
    return EXIT_DONE;
}
