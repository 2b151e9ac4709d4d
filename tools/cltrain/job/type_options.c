/* The options that name types of numbers: --precision and --wire. */
#include <string.h>

#include <cltrain/unstable.h>

#include "job/job.h"
#include "text/message.h"

static int read_type(const char *option, const char *text, clt_dtype *type)
{
    static const char *const names[] = {"f32", "bf16", "f16"};
    static const clt_dtype types[] = {CLT_F32, CLT_BF16, CLT_F16};
    enum { TYPES = sizeof types / sizeof *types };
    for (int i = 0; i < TYPES; i++)
        if (!text || !strcmp(text, names[i])) {
            *type = types[i];
            return 0;
        }
    const char *near = clt_nearest(text, names, TYPES);
    return usage_error("%s %s: must be f32, bf16 or f16%s%s%s", option, text,
                       near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

int read_precision(const settings *s, clt_dtype *type)
{
    return read_type("--precision", s->precision, type);
}

int read_types(const settings *s, clt_trainer_options *o)
{
    int code = read_precision(s, &o->precision);
    NEXT(code, read_type("--wire", s->wire, &o->wire));
    if (code)
        return code;
    /* Replicas send differences of parameters, which have nothing to do with scaled losses. */
    if (s->parallel && !strncmp(s->parallel, "local=", 6))
        return 0;
    if (o->wire == CLT_F16 && o->precision != CLT_F16)
        return usage_error("--wire f16: needs losses that are scaled, as --precision f16 does; "
                           "choose --wire bf16, or add --precision f16");
    if (o->wire == CLT_BF16 && o->precision == CLT_F16)
        return usage_error("--wire bf16: gradients are f16 with --precision f16; choose --wire f16 "
                           "or leave it out");
    return 0;
}
