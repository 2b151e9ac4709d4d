/* Recognises dates and times among the texts of a CSV file. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "data/csv/csv_columns.h"

static const char digits[] = "0123456789";

/* Dates and times of numbers: 2024-05-31, 31.5.2024, 5/31/24, 12:30. */
static bool is_numeric(const char *text)
{
    int groups = 0;
    char between = '\0';
    for (;;) {
        const size_t length = strspn(text, digits);
        if (length < 1 || length > 4)
            return false;
        groups++;
        text += length;
        if (groups > 1 && (!*text || *text == ' ' || *text == 'T') &&
            (groups == 3 || between == ':'))
            return true;
        if (!*text || !strchr("-/.:", *text) || (between && *text != between))
            return false;
        between = *text++;
    }
}

/* Months of numbers: 2024-01, 01/2024. */
static bool is_month(const char *text)
{
    const size_t first = strspn(text, digits);
    if (!first || !strchr("-/", text[first]) || !text[first])
        return false;
    const char *rest = text + first + 1;
    const size_t second = strspn(rest, digits);
    if (rest[second] || (first == 4 ? second != 2 : first > 2 || second != 4))
        return false;
    const int year = atoi(first == 4 ? text : rest), month = atoi(first == 4 ? rest : text);
    return year >= 1900 && year < 2100 && month >= 1 && month <= 12;
}

/* Whether a word of `length` letters is one of the names, in full or by its first three letters. */
static bool is_name(const char *word, size_t length, const char *const *names, int count)
{
    for (int i = 0; i < count; i++)
        if ((length == 3 || length == strlen(names[i])) && !strncasecmp(word, names[i], length))
            return true;
    return false;
}

/* Dates with an English month: Jan 5 2024, 5-Jan-2024, Fri, 5 January 2024 12:30, Jan-24. */
static bool is_named(const char *text)
{
    static const char *const months[] = {"January",   "February", "March",   "April", "May",
                                         "June",      "July",     "August",  "Sept",  "October",
                                         "September", "November", "December"};
    static const char *const days[] = {"Monday", "Tuesday",  "Wednesday", "Thursday",
                                       "Friday", "Saturday", "Sunday"};
    enum { MONTHS = sizeof months / sizeof *months, DAYS = sizeof days / sizeof *days };
    int named = 0, numbers = 0;
    while (*text) {
        const size_t letters = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ");
        const size_t number = strspn(text, digits), length = letters + number;
        if (is_name(text, letters, months, MONTHS))
            named++;
        else if (number && number <= 4 && text[number] == ':')
            return named == 1 && numbers; /* a time behind the date */
        else if (number && number <= 4)
            numbers++;
        else if (!is_name(text, letters, days, DAYS))
            return false;
        text += length;
        const size_t between = strspn(text, " ,-/.");
        if (*text && !between)
            return false;
        text += between;
    }
    return named == 1 && (numbers == 1 || numbers == 2);
}

int clt_csv_is_date(const char *text)
{
    return is_numeric(text) || is_month(text) || is_named(text);
}
