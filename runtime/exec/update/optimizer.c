#include "exec/update/optimizer.h"

#include <string.h>

#include "base/error.h"
#include "base/str.h"

static const clt_optimizer_row rows[] = {
    [CLT_SGD] = {"sgd", "sgd", 0, {NULL}},
    [CLT_MOMENTUM] = {"momentum", "momentum", 1, {"momentum_buffer"}},
    [CLT_NESTEROV] = {"nesterov", "momentum", 1, {"momentum_buffer"}},
    [CLT_ADAM] = {"adam", "adam", 2, {"exp_avg", "exp_avg_sq"}},
    [CLT_ADAMW] = {"adamw", "adam", 2, {"exp_avg", "exp_avg_sq"}},
};

enum { OPTIMIZERS = sizeof rows / sizeof *rows };

const clt_optimizer_row *clt_optimizer_find(clt_optimizer optimizer)
{
    return (int)optimizer >= 0 && (int)optimizer < OPTIMIZERS ? &rows[optimizer] : NULL;
}

const char *clt_optimizer_name(clt_optimizer optimizer)
{
    const clt_optimizer_row *row = clt_optimizer_find(optimizer);
    return row ? row->name : "?";
}

clt_status clt_optimizer_parse(const char *text, clt_optimizer *optimizer)
{
    const char *names[OPTIMIZERS];
    clt_str all = {0};
    for (int i = 0; i < OPTIMIZERS; i++) {
        names[i] = rows[i].name;
        clt_str_add(&all, "%s%s", i ? ", " : "", names[i]);
        if (!strcmp(text, names[i])) {
            *optimizer = (clt_optimizer)i;
            clt_str_free(&all);
            return CLT_OK;
        }
    }
    const char *near = clt_nearest(text, names, OPTIMIZERS);
    const clt_status status =
        clt_fail(CLT_NOT_FOUND, "optimizer '%s' is none of %s%s%s%s", text, clt_str_text(&all),
                 near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
    clt_str_free(&all);
    return status;
}
