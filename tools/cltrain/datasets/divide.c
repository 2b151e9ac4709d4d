#include "datasets/divide.h"

#include <stdlib.h>
#include <string.h>

int val_is_number(const char *text, double *fraction)
{
    char *end;
    *fraction = strtod(text, &end);
    return end != text && !*end;
}

/* Whether --val names files or a data set, and not a field. */
static int is_data(const char *text)
{
    if (strchr(text, ':'))
        return 1;
    for (int i = 0; clt_dataset_form(i); i++)
        if (!strcmp(clt_dataset_form(i), text))
            return 1;
    return 0;
}

int divides_training(const settings *s)
{
    double fraction;
    return s->val && (val_is_number(s->val, &fraction) || !is_data(s->val));
}

clt_status divide_training(const settings *s, int64_t seed, clt_dataset *whole, clt_dataset **rest,
                           clt_dataset **part)
{
    double fraction;
    return val_is_number(s->val, &fraction) ? clt_dataset_split(whole, fraction, seed, rest, part)
                                            : clt_dataset_split_by(whole, s->val, rest, part);
}
