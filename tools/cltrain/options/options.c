#include "options/options.h"

#include <errno.h>
#include <math.h>
#include <popt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "options/rows.h"
#include "text/message.h"

static void *place_of(settings *s, const option_row *row)
{
    return (char *)s + row->place;
}

static int is_text(const option_row *row)
{
    return row->kind == TEXT || row->kind == LIST || row->kind == EITHER;
}

void settings_init(settings *s)
{
    *s = (settings){0};
    for (int i = 0; i < option_row_count; i++) {
        if (option_rows[i].kind == WHOLE)
            *(int64_t *)place_of(s, &option_rows[i]) = -1;
        else if (option_rows[i].kind == NUMBER)
            *(double *)place_of(s, &option_rows[i]) = NAN;
    }
}

void settings_free(settings *s)
{
    for (int i = 0; i < option_row_count; i++)
        if (is_text(&option_rows[i]))
            free(*(char **)place_of(s, &option_rows[i]));
    poptFreeContext(s->context);
}

static int set_whole(const option_row *row, const char *text, int64_t *out)
{
    char *end;
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    if (end == text || *end)
        return usage_error("--%s %s: not a whole number", row->name, text);
    if (errno || (double)value < row->least)
        return usage_error("--%s %s: must be a whole number of at least %g", row->name, text,
                           row->least);
    *out = value;
    return 0;
}

static int set_number(const option_row *row, const char *text, double *out)
{
    char *end;
    const double value = strtod(text, &end);
    if (end == text || *end)
        return usage_error("--%s %s: not a number", row->name, text);
    if (!isfinite(value) || value < row->least)
        return usage_error("--%s %s: must be finite and at least %g", row->name, text, row->least);
    *out = value;
    return 0;
}

/* Joins two texts. Frees `text`, which is allocated. */
static char *joined(const char *before, char between, char *text)
{
    char *both = malloc(strlen(before) + strlen(text) + 2);
    if (both)
        sprintf(both, "%s%c%s", before, between, text);
    free(text);
    return both;
}

/* Sets an option to `text`. Takes ownership of `text`, which is allocated. */
static int set_option(settings *s, const option_row *row, char *text)
{
    void *place = place_of(s, row);
    int code = 0;
    if (is_text(row)) {
        char *before = *(char **)place;
        const int empty = !*text;
        if (before && row->kind != TEXT && !empty)
            text = joined(before, row->kind == LIST ? ';' : '|', text);
        free(before);
        *(char **)place = text;
        TRY_MEMORY(text);
        return empty ? usage_error("--%s needs a value", row->name) : 0;
    }
    if (row->kind == FLAG)
        *(int *)place = 1;
    else if (row->kind == WHOLE)
        code = set_whole(row, text, place);
    else
        code = set_number(row, text, place);
    free(text);
    return code;
}

static int unknown_option(unsigned command, const char *given)
{
    const char *names[COMPARED], *all[COMPARED];
    int count = 0;
    for (int i = 0; i < option_row_count; i++) {
        all[i] = option_rows[i].name;
        if (option_rows[i].commands & command)
            names[count++] = option_rows[i].name;
    }
    char word[100];
    snprintf(word, sizeof word, "%s", given + strspn(given, "-"));
    word[strcspn(word, "=")] = '\0';
    for (int i = 0; i < option_row_count; i++)
        if (!strcmp(option_rows[i].name, word))
            return usage_error("option --%s does not belong to this subcommand; see --help", word);
    const char *near = clt_nearest(word, names, count);
    if (near)
        return usage_error("unknown option %s; did you mean --%s?", given, near);
    near = clt_nearest(word, all, option_row_count);
    if (near)
        return usage_error("unknown option %s; --%s belongs to other subcommands; see --help",
                           given, near);
    return usage_error("unknown option %s; --help lists them", given);
}

static int read_options(settings *s, unsigned command, poptContext context)
{
    int value, code = 0;
    while (!code && (value = poptGetNextOpt(context)) > 0) {
        const option_row *row = &option_rows[value - 1];
        char *text = poptGetOptArg(context);
        /* Silently using the last value would hide a mistake. */
        if (s->given[value - 1] && row->kind != LIST && row->kind != EITHER && row->kind != FLAG) {
            free(text);
            return usage_error("--%s is given twice", row->name);
        }
        code = set_option(s, row, text);
        s->given[value - 1] = 1;
    }
    if (code || value == -1)
        return code;
    const char *given = poptBadOption(context, POPT_BADOPTION_NOALIAS);
    if (value == POPT_ERROR_BADOPT)
        return unknown_option(command, given);
    if (value == POPT_ERROR_NOARG)
        return usage_error("%s needs a value", given);
    return usage_error("%s: %s", given, poptStrerror(value));
}

int settings_read(settings *s, unsigned command, int argc, const char **argv)
{
    struct poptOption table[COMPARED] = {0};
    int count = 0;
    for (int i = 0; i < option_row_count; i++)
        if (option_rows[i].commands & command)
            table[count++] = (struct poptOption){
                .longName = option_rows[i].name,
                .shortName = option_rows[i].letter,
                .argInfo = option_rows[i].kind == FLAG ? POPT_ARG_NONE : POPT_ARG_STRING,
                .val = i + 1};
    s->context = poptGetContext("cltrain", argc, argv, table, 0);
    TRY_MEMORY(s->context);
    const int code = read_options(s, command, s->context);
    s->names = poptGetArgs(s->context);
    while (s->names && s->names[s->n_names])
        s->n_names++;
    if (code || s->help || (command & (FOR_PLOT | FOR_BENCH | FOR_DATA | FOR_PREDICT)) ||
        !s->n_names)
        return code;
    return usage_error("unexpected argument '%s'; --help lists the options", s->names[0]);
}

int settings_check(const settings *s, unsigned command, const char *name)
{
    for (int i = 0; i < option_row_count; i++)
        if (s->given[i] && !(option_rows[i].commands & command))
            return usage_error("option --%s does not belong to %s; see --help", option_rows[i].name,
                               name);
    return 0;
}

static const char *help_of(const option_row *r)
{
    static char text[512];
    const char *mark = r->word ? strchr(r->help, '$') : NULL;
    if (!mark)
        return r->help;
    size_t used = (size_t)snprintf(text, sizeof text, "%.*s", (int)(mark - r->help), r->help);
    for (int i = 0; r->word(i); i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s",
                                 !i               ? ""
                                 : r->word(i + 1) ? ", "
                                                  : " or ",
                                 r->word(i));
    snprintf(text + used, sizeof text - used, "%s", mark + 1);
    return text;
}

int settings_next(unsigned commands, int *row, option_text *out)
{
    for (; *row < option_row_count; ++*row)
        if (option_rows[*row].commands & commands) {
            const option_row *r = &option_rows[(*row)++];
            *out = (option_text){r->name,  r->argument, help_of(r), r->letter,
                                 r->words, r->word,     r->files};
            return 1;
        }
    return 0;
}

/* Prints a text in lines of at most HELP_WIDTH columns. Its first line begins at column `at`. */
static void print_wrapped(const char *text, int at)
{
    enum { HELP_INDENT = 29, HELP_WIDTH = 100 };
    if (at >= HELP_INDENT) {
        putchar('\n');
        at = 0;
    }
    printf("%*s", HELP_INDENT - at, "");
    for (int column = HELP_INDENT; *text;) {
        const int length = (int)strcspn(text, " ");
        if (column > HELP_INDENT && column + 1 + length > HELP_WIDTH) {
            printf("\n%*s", HELP_INDENT, "");
            column = HELP_INDENT;
        }
        column += printf("%s%.*s", column > HELP_INDENT ? " " : "", length, text);
        text += length + (text[length] == ' ');
    }
    putchar('\n');
}

void settings_help(unsigned command)
{
    option_text o;
    printf("\nOptions:\n");
    for (int row = 0; settings_next(command, &row, &o);) {
        const char letter[] = {'-', o.letter, ',', ' ', '\0'};
        print_wrapped(o.help, printf("  %s--%s %s", o.letter ? letter : "", o.name,
                                     o.argument ? o.argument : ""));
    }
}

/* --- option hashes of ranks ------------------------------------------------------------------- */

static int one_of(const char *name, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(name, names[i]))
            return 1;
    return 0;
}

#define ONE_OF(name, names) one_of(name, names, sizeof(names) / sizeof *(names))

/* Computes the hash FNV-1a (Fowler, Noll and Vo). */
static uint64_t hash_bytes(uint64_t hash, const void *data, size_t count)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ bytes[i]) * 1099511628211u;
    return hash;
}

static uint64_t hash_value(const option_row *row, const void *place)
{
    static const char *const presence[] = {"checkpoint-dir", "replay"};
    const uint64_t basis = 14695981039346656037u;
    const char *text = is_text(row) ? *(char *const *)place : NULL;
    if (is_text(row) && (!text || ONE_OF(row->name, presence)))
        return basis + (text != NULL);
    if (text)
        return hash_bytes(basis, text, strlen(text) + 1);
    return hash_bytes(basis, place,
                      row->kind == FLAG    ? sizeof(int)
                      : row->kind == WHOLE ? sizeof(int64_t)
                                           : sizeof(double));
}

void settings_compared(const settings *s, uint64_t hashes[COMPARED])
{
    static const char
        *const free_ones[] = {"data",
                              "devices",
                              "cache-dir",
                              "heartbeat",
                              "metrics",
                              "tensorboard",
                              "profile",
                              "checkpoint",
                              "variant",
                              "tune",
                              "export",
                              "comm-timeout",
                              "setup-timeout",
                              "quiet",
                              "json",
                              "first-step",
                              "compile-processes",
                              "parallel" /* ranks compare the text and name both meshes */};
    memset(hashes, 0, COMPARED * sizeof *hashes);
    for (int i = 0; i < option_row_count; i++)
        if (!ONE_OF(option_rows[i].name, free_ones))
            hashes[i] = hash_value(&option_rows[i], (const char *)s + option_rows[i].place);
    for (int i = 0; i < s->n_names; i++)
        hashes[COMPARED - 1] =
            hash_bytes(hashes[COMPARED - 1] + 1, s->names[i], strlen(s->names[i]) + 1);
}

const char *settings_compared_name(int index, char text[64])
{
    if (index < option_row_count)
        snprintf(text, 64, "option --%s", option_rows[index].name);
    else
        snprintf(text, 64, "list of arguments");
    return text;
}
