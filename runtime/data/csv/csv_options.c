/* The options of csv:PATH?NAME=VALUE,... */
#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "data/csv/csv_columns.h"

/* Decodes %XX in place, so that names may have any character. */
static void decode(char *text)
{
    char *to = text;
    for (; *text; text++, to++) {
        const char digits[3] = {text[0] == '%' ? text[1] : '\0', text[1] ? text[2] : '\0', '\0'};
        char *end;
        const long code = strtol(digits, &end, 16);
        *to = *text;
        if (end == digits + 2 && code) {
            *to = (char)code;
            text += 2;
        }
    }
    *to = '\0';
}

static clt_status choose(const char *name, const char *value, const char *const *words, int count,
                         const int *values, int *out)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(value, words[i])) {
            *out = values[i];
            return CLT_OK;
        }
    const char *near = clt_nearest(value, words, count);
    return clt_fail(CLT_INVALID_ARGUMENT, "csv: option %s=%s: must be %s, %s%s%s%s%s%s", name,
                    value, words[0], words[1], count > 2 ? " or " : "", count > 2 ? words[2] : "",
                    near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

/* Reads names that are separated by |. */
static clt_status read_names(char *value, char ***list, int *n, int *room)
{
    for (char *next = value; next;) {
        char *bar = strchr(next, '|');
        if (bar)
            *bar = '\0';
        decode(next);
        char *copy = clt_strdup(next);
        CLT_TRY_MEMORY(copy);
        if (CLT_PUSH(*list, *n, *room, copy) != CLT_OK) {
            clt_free(copy);
            return CLT_OUT_OF_MEMORY;
        }
        next = bar ? bar + 1 : NULL;
    }
    return CLT_OK;
}

/* Each option is one bit in *given. A second value would replace the first one silently. */
static clt_status check_once(int option, const char *name, unsigned *given)
{
    const unsigned bit = 1u << option;
    if (*given & bit)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "csv: option %s is given twice: give it once, columns with | between them",
                        name);
    *given |= bit;
    return CLT_OK;
}

static clt_status read_option(const char *name, char *value, unsigned *given, clt_csv_options *o)
{
    static const char *const names[] = {"target",  "task",       "drop",   "text",     "field",
                                        "missing", "categories", "header", "delimiter"};
    static const char *const tasks[] = {"classify", "regress"};
    static const char *const missing[] = {"refuse", "mean", "frequent"};
    static const char *const categories[] = {"onehot", "index"};
    static const char *const headers[] = {"on", "off"};
    static const int numbers[] = {0, 1, 2}, opposite[] = {1, 0};
    enum { NAMES = sizeof names / sizeof *names };
    int number = 0;
    for (int i = 0; i < NAMES; i++)
        if (!strcmp(name, names[i]))
            CLT_TRY(check_once(i, name, given));
    if (!strcmp(name, "drop"))
        return read_names(value, &o->drop, &o->n_drop, &o->room_drop);
    if (!strcmp(name, "text"))
        return read_names(value, &o->text, &o->n_text, &o->room_text);
    if (!strcmp(name, "field"))
        return read_names(value, &o->field, &o->n_field, &o->room_field);
    decode(value);
    if (!strcmp(name, "target")) {
        o->target = clt_strdup(value);
        return o->target ? CLT_OK : CLT_OUT_OF_MEMORY;
    }
    if (!strcmp(name, "task"))
        return choose(name, value, tasks, 2, opposite, &o->classify);
    if (!strcmp(name, "missing")) {
        o->given |= CLT_CSV_GAVE_MISSING;
        CLT_TRY(choose(name, value, missing, 3, numbers, &number));
        o->missing = (clt_csv_missing)number;
        return CLT_OK;
    }
    if (!strcmp(name, "categories")) {
        o->given |= CLT_CSV_GAVE_CATEGORIES;
        return choose(name, value, categories, 2, numbers, &o->index);
    }
    if (!strcmp(name, "header")) {
        o->given |= CLT_CSV_GAVE_HEADER;
        return choose(name, value, headers, 2, opposite, &o->header);
    }
    if (!strcmp(name, "delimiter")) {
        o->given |= CLT_CSV_GAVE_DELIMITER;
        o->delimiter = !strcmp(value, "tab") ? '\t' : value[0];
        if (o->delimiter && o->delimiter != '"' && o->delimiter != '\n' && o->delimiter != '\r' &&
            (o->delimiter == '\t' || !value[1]))
            return CLT_OK;
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "csv: option delimiter=%s: must be one character, or tab; write a comma as "
                        "%%2C",
                        value);
    }
    const char *near = clt_nearest(name, names, NAMES);
    return clt_fail(CLT_INVALID_ARGUMENT,
                    "csv: there is no option '%s'%s%s; there are target, task, drop, text, field, "
                    "missing, categories, header and delimiter",
                    name, near ? "; did you mean " : "", near ? near : "");
}

clt_status clt_csv_options_read(const char *text, clt_csv_options *out)
{
    unsigned given = 0;
    *out = (clt_csv_options){.delimiter = ',', .header = -1, .classify = -1};
    out->path = clt_strdup(text);
    CLT_TRY_MEMORY(out->path);
    char *next = strchr(out->path, '?');
    if (!next)
        return CLT_OK;
    *next++ = '\0';
    while (next && *next) {
        char *comma = strchr(next, ','), *equals = strchr(next, '=');
        if (comma)
            *comma = '\0';
        if (!equals || (comma && equals > comma))
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "csv: option '%s': must be NAME=VALUE, as in csv:FILE?target=price",
                            next);
        *equals = '\0';
        CLT_TRY(read_option(next, equals + 1, &given, out));
        next = comma ? comma + 1 : NULL;
    }
    return CLT_OK;
}

void clt_csv_options_free(clt_csv_options *o)
{
    for (int i = 0; i < o->n_drop; i++)
        clt_free(o->drop[i]);
    for (int i = 0; i < o->n_text; i++)
        clt_free(o->text[i]);
    for (int i = 0; i < o->n_field; i++)
        clt_free(o->field[i]);
    CLT_FREE(o->path, o->target, o->drop, o->text, o->field);
    *o = (clt_csv_options){0};
}
