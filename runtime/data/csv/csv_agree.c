/* Options of csv:PATH beside a description, which the weights of a trained model belong to. */
#include <string.h>

#include "base/error.h"
#include "data/csv/csv_columns.h"

#define AS_TRAINED "leave the option out, or train with it"

static const clt_csv_column *find(const clt_csv_columns *columns, const char *name)
{
    for (int64_t i = 0; i < columns->count; i++)
        if (!strcmp(columns->list[i].name, name))
            return &columns->list[i];
    return NULL;
}

static const clt_csv_column *find_target(const clt_csv_columns *columns)
{
    for (int64_t i = 0; i < columns->count; i++)
        if (columns->list[i].kind == CLT_CSV_LABEL || columns->list[i].kind == CLT_CSV_TARGET)
            return &columns->list[i];
    return NULL;
}

static const char *role_of(const clt_csv_column *c)
{
    static const char *const roles[] = {
        [CLT_CSV_DROPPED] = "was left out",           [CLT_CSV_NUMBER] = "is a number",
        [CLT_CSV_CATEGORY] = "is a category",         [CLT_CSV_LABEL] = "is the target, a class",
        [CLT_CSV_TARGET] = "is the target, a number", [CLT_CSV_FIELD] = "is a field"};
    return roles[c->kind];
}

/* A column that training did not have is read by nothing, so any option but field= may name it. */
static clt_status check_names(const clt_csv_columns *columns, const char *option,
                              char *const *names, int count, clt_csv_kind kind, clt_csv_kind other)
{
    for (int i = 0; i < count; i++) {
        const clt_csv_column *c = find(columns, names[i]);
        if (c ? c->kind == kind || c->kind == other : kind != CLT_CSV_FIELD)
            continue;
        return clt_fail(
            CLT_INVALID_ARGUMENT,
            "csv: option %s=%s: this column %s in the training of the model: " AS_TRAINED, option,
            names[i], c ? role_of(c) : "did not exist");
    }
    return CLT_OK;
}

static clt_status check_target(const clt_csv_options *o, const clt_csv_columns *columns)
{
    const clt_csv_column *target = find_target(columns);
    if (target && o->target && strcmp(o->target, target->name))
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "csv: option target=%s: the model was trained to predict '%s': " AS_TRAINED,
                        o->target, target->name);
    if (target && o->classify >= 0 && o->classify != (target->kind == CLT_CSV_LABEL))
        return clt_fail(
            CLT_INVALID_ARGUMENT,
            "csv: option task=%s: the target '%s' %s, in the training of the model: " AS_TRAINED,
            o->classify ? "classify" : "regress", target->name, role_of(target));
    return CLT_OK;
}

static clt_status check_categories(const clt_csv_options *o, const clt_csv_columns *columns)
{
    for (int64_t i = 0; o->given & CLT_CSV_GAVE_CATEGORIES && i < columns->count; i++) {
        const clt_csv_column *c = &columns->list[i];
        if (c->kind == CLT_CSV_CATEGORY && c->index != o->index)
            return clt_fail(
                CLT_INVALID_ARGUMENT,
                "csv: option categories=%s: the model was trained with categories=%s: " AS_TRAINED,
                o->index ? "index" : "onehot", c->index ? "index" : "onehot");
    }
    return CLT_OK;
}

static clt_status check_missing(const clt_csv_options *o, const clt_csv_columns *columns)
{
    static const char *const ways[] = {"refuse", "mean", "frequent"};
    int fills = 0;
    for (int64_t i = 0; i < columns->count; i++)
        fills = fills || columns->list[i].fills;
    /* Without a word about it, a description tells only whether values are filled in. */
    const int differs = columns->missing >= 0 ? columns->missing != (int)o->missing
                                              : fills != (o->missing != CLT_CSV_REFUSE);
    if (!(o->given & CLT_CSV_GAVE_MISSING) || !differs)
        return CLT_OK;
    if (!fills)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "csv: option missing=%s: the model was trained without it and knows no "
                        "value to fill in: complete the rows, or train with the option",
                        ways[o->missing]);
    return clt_fail(CLT_INVALID_ARGUMENT,
                    "csv: option missing=%s: the model was trained with %s: " AS_TRAINED,
                    ways[o->missing],
                    columns->missing < 0               ? "values to fill in"
                    : columns->missing == CLT_CSV_MEAN ? "missing=mean"
                                                       : "missing=frequent");
}

clt_status clt_csv_options_agree(const clt_csv_options *o, const clt_csv_columns *columns)
{
    CLT_TRY(check_target(o, columns));
    CLT_TRY(check_names(columns, "drop", o->drop, o->n_drop, CLT_CSV_DROPPED, CLT_CSV_DROPPED));
    CLT_TRY(check_names(columns, "text", o->text, o->n_text, CLT_CSV_CATEGORY, CLT_CSV_LABEL));
    CLT_TRY(check_names(columns, "field", o->field, o->n_field, CLT_CSV_FIELD, CLT_CSV_FIELD));
    CLT_TRY(check_categories(o, columns));
    return check_missing(o, columns);
}
