/* Arguments behind a model's name: words and NAME=NUMBER, such as gpt2:nano,dropout=0.1. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "builders.h"

static int find(const clt_model_argument *list, int count, const char *name, size_t length)
{
    for (int i = 0; i < count; i++)
        if (strlen(list[i].name) == length && !strncmp(list[i].name, name, length))
            return i;
    return -1;
}

static clt_status unknown(const char *model, const char *given, const clt_model_argument *list,
                          int count)
{
    char names[256] = "";
    for (int i = 0; i < count; i++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s%s", i ? ", " : "",
                 list[i].name, list[i].word ? "" : "=N");
    return clt_model_fail(CLT_INVALID_ARGUMENT, "model %s: '%.60s' is none of its arguments: %s",
                          model, given, names);
}

clt_status clt_model_arguments(const char *model, const char *text, clt_model_argument *list,
                               int count)
{
    while (text && *text) {
        const size_t length = strcspn(text, ","), name = strcspn(text, "=,");
        const int at = find(list, count, text, name);
        char one[64];
        snprintf(one, sizeof one, "%.*s", (int)length, text);
        if (at < 0 || list[at].word != (name == length))
            return unknown(model, one, list, count);
        clt_model_argument *a = &list[at];
        for (int i = 0; i < count; i++)
            if (i != at && a->choice && list[i].choice == a->choice && list[i].given)
                return clt_model_fail(CLT_INVALID_ARGUMENT, "model %s: %s and %s: give one of them",
                                      model, list[i].name, a->name);
        a->given = 1;
        if (!a->word) {
            char *end;
            a->value = strtod(text + name + 1, &end);
            if (end != text + length || end == text + name + 1 || !(a->value >= a->least) ||
                !(a->value <= a->most) || (a->whole && a->value != floor(a->value)))
                return clt_model_fail(CLT_INVALID_ARGUMENT,
                                      "model %s: %s: must be %s from %g to %g", model, one,
                                      a->whole ? "a whole number" : "a number", a->least, a->most);
        }
        text += length + (text[length] == ',');
    }
    return CLT_OK;
}
