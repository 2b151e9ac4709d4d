/* Attributes of operators by their rows of the schema: defaults, ranges, values by name. */
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "graph/graph.h"

/* How many numbers the attribute has room for, and how wide each is. */
static int room_of(const clt_attribute *a)
{
    return a->count ? a->count : 1;
}

static size_t width_of(const clt_attribute *a)
{
    return (size_t)(a->bytes / room_of(a));
}

static int length_of(const clt_attribute *a, const void *attr)
{
    int length = room_of(a);
    if (a->list)
        memcpy(&length, (const char *)attr + a->length, sizeof length);
    return length;
}

static bool is_number(const clt_attribute *a)
{
    return a->kind < CLT_ATTRIBUTE_TYPE;
}

static int64_t integer_at(const clt_attribute *a, const void *attr, int index)
{
    const char *at = (const char *)attr + a->offset + (size_t)index * width_of(a);
    int64_t wide;
    int narrow;
    if (width_of(a) == sizeof(bool))
        return *(const bool *)at;
    if (width_of(a) == sizeof wide) {
        memcpy(&wide, at, sizeof wide);
        return wide;
    }
    memcpy(&narrow, at, sizeof narrow);
    return narrow;
}

static double real_at(const clt_attribute *a, const void *attr, int index)
{
    const char *at = (const char *)attr + a->offset + (size_t)index * width_of(a);
    double wide;
    float narrow;
    if (width_of(a) == sizeof narrow) {
        memcpy(&narrow, at, sizeof narrow);
        return (double)narrow;
    }
    memcpy(&wide, at, sizeof wide);
    return wide;
}

static void put_integer(const clt_attribute *a, void *attr, int index, int64_t value)
{
    char *at = (char *)attr + a->offset + (size_t)index * width_of(a);
    const int narrow = (int)value;
    if (width_of(a) == sizeof(bool))
        *(bool *)at = value != 0;
    else if (width_of(a) == sizeof value)
        memcpy(at, &value, sizeof value);
    else
        memcpy(at, &narrow, sizeof narrow);
}

static void put_real(const clt_attribute *a, void *attr, int index, double value)
{
    char *at = (char *)attr + a->offset + (size_t)index * width_of(a);
    const float narrow = (float)value;
    if (width_of(a) == sizeof narrow)
        memcpy(at, &narrow, sizeof narrow);
    else
        memcpy(at, &value, sizeof value);
}

void clt_attributes_init(const clt_op *op, void *attr)
{
    memset(attr, 0, op->attr_bytes);
    for (const clt_attribute *a = op->attributes; a && a->name; a++)
        for (int i = 0; is_number(a) && !a->list && i < room_of(a); i++) {
            if (a->kind == CLT_ATTRIBUTE_REAL)
                put_real(a, attr, i, a->default_value);
            else
                put_integer(a, attr, i, (int64_t)a->default_value);
        }
}

/* --- ranges ---------------------------------------------------------------------------------- */

static bool unlimited(const clt_attribute *a)
{
    return a->least == 0 && a->most == 0;
}

static void range_text(const clt_attribute *a, char *text, size_t room)
{
    const char *kind = a->kind == CLT_ATTRIBUTE_REAL ? "a number" : "an integer";
    const bool open = a->most >= (a->kind == CLT_ATTRIBUTE_REAL ? (double)FLT_MAX : INT_MAX);
    if (unlimited(a))
        snprintf(text, room, "%s", kind);
    else if (a->least == -a->most && isfinite(a->most) && open)
        snprintf(text, room, "a finite number");
    else if (open && a->least > INT_MIN)
        snprintf(text, room, "%s %s %.10g", kind, a->above ? "above" : "of at least", a->least);
    else if (open)
        snprintf(text, room, "%s", kind);
    else
        snprintf(text, room, "%s of %.10g to %.10g", kind, a->least, a->most);
}

const char *clt_attribute_text(const clt_attribute *a, char *text, size_t room)
{
    char one[160];
    size_t used;
    range_text(a, one, sizeof one);
    if (a->kind == CLT_ATTRIBUTE_FLAG) {
        snprintf(text, room, "true or false");
    } else if (a->kind == CLT_ATTRIBUTE_CHOICE) {
        text[0] = '\0';
        for (int i = 0; a->choices[i] && (used = strlen(text)) < room; i++)
            snprintf(text + used, room - used, "%s%s", i ? a->choices[i + 1] ? ", " : " or " : "",
                     a->choices[i]);
    } else if (!is_number(a)) {
        snprintf(text, room, "%s",
                 a->kind == CLT_ATTRIBUTE_TYPE ? "a type, such as f32[2x4]" : "a text");
    } else if (a->list) {
        snprintf(text, room, "%s, or a list of at most %d", one, a->count);
    } else if (a->count) {
        static const char *const sizes[] = {
            [2] = "two (height, width)", [3] = "three (depth, height, width)"};
        if (a->count == 2 || a->count == 3)
            snprintf(text, room, "%s, or %s", one, sizes[a->count]);
        else
            snprintf(text, room, "%s, or %d of them", one, a->count);
    } else {
        snprintf(text, room, "%s", one);
    }
    return text;
}

/* `index`: which of several numbers; -1: it is about all. */
static clt_status fail_value(const clt_op *op, const clt_attribute *a, int index, const char *value)
{
    char wanted[160], place[24] = "";
    if (index >= 0 && a->count)
        snprintf(place, sizeof place, "[%d]", index);
    return clt_fail(CLT_INVALID_ARGUMENT, "%s: %s%s is %s; it must be %s", op->name, a->name, place,
                    value, clt_attribute_text(a, wanted, sizeof wanted));
}

int clt_attribute_allows(const clt_attribute *a, double value)
{
    double most = a->most;
    if (a->kind == CLT_ATTRIBUTE_FLAG)
        most = 1;
    else if (a->kind == CLT_ATTRIBUTE_CHOICE)
        for (most = -1; a->choices[(int)most + 1];)
            most++;
    else if (unlimited(a))
        return 1;
    return value >= a->least && value <= most && !(a->above && value == a->least);
}

static clt_status check_number(const clt_op *op, const clt_attribute *a, int index, double value)
{
    char text[32];
    if (clt_attribute_allows(a, value))
        return CLT_OK;
    snprintf(text, sizeof text, a->kind == CLT_ATTRIBUTE_REAL ? "%.10g" : "%.0f", value);
    return fail_value(op, a, index, text);
}

static double number_at(const clt_attribute *a, const void *attr, int index)
{
    return a->kind == CLT_ATTRIBUTE_REAL ? real_at(a, attr, index)
                                         : (double)integer_at(a, attr, index);
}

clt_status clt_attributes_check(const clt_op *op, const void *attr)
{
    for (const clt_attribute *a = op->attributes; a && a->name; a++)
        for (int i = 0; is_number(a) && i < length_of(a, attr); i++)
            CLT_TRY(check_number(op, a, i, number_at(a, attr, i)));
    return CLT_OK;
}

bool clt_attribute_is_default(const clt_attribute *a, const void *attr)
{
    const char *bytes = (const char *)attr + a->offset;
    if (is_number(a) && !a->list) {
        const bool narrow = a->kind == CLT_ATTRIBUTE_REAL && width_of(a) == sizeof(float);
        const double usual = narrow ? (double)(float)a->default_value : a->default_value;
        for (int i = 0; i < room_of(a); i++)
            if (number_at(a, attr, i) != usual)
                return false;
        return true;
    }
    for (int i = 0; i < a->bytes; i++)
        if (bytes[i])
            return false;
    return true;
}

/* --- values by name -------------------------------------------------------------------------- */

static clt_status fail_name(const clt_op *op, const char *name)
{
    enum { NAMES = 32 };
    const char *names[NAMES];
    char all[256] = "";
    int count = 0;
    for (const clt_attribute *a = op->attributes; a && a->name && count < NAMES; a++) {
        const size_t used = strlen(all);
        if (a->internal)
            continue;
        names[count++] = a->name;
        snprintf(all + used, sizeof all - used, "%s%s", used ? ", " : "", a->name);
    }
    const char *near = clt_nearest(name, names, count);
    if (near)
        return clt_fail(CLT_NOT_FOUND, "%s has no '%s'; did you mean %s?", op->name, name, near);
    return clt_fail(CLT_NOT_FOUND, "%s has no '%s'; it takes %s", op->name, name,
                    *all ? all : "no attributes");
}

const clt_attribute *clt_attribute_find(const clt_op *op, const char *name)
{
    for (const clt_attribute *a = op->attributes; a && a->name; a++)
        if (!strcmp(a->name, name))
            return a;
    return NULL;
}

static clt_status set_type(const clt_op *op, const clt_attribute *a, const clt_setting *s,
                           void *attr)
{
    clt_type type = {.dtype = s->type, .rank = s->count};
    if (s->count < 0 || s->count > CLT_MAX_RANK || (s->count && !s->integers) ||
        !clt_dtype_of_tensor(s->type))
        return fail_value(op, a, -1, "of another kind");
    for (int i = 0; i < s->count; i++)
        type.dims[i] = s->integers[i];
    memcpy((char *)attr + a->offset, &type, sizeof type);
    return CLT_OK;
}

clt_status clt_attribute_set(const clt_op *op, const clt_setting *s, void *attr)
{
    const clt_attribute *a = clt_attribute_find(op, s->name);
    /* Programs call these operators. Their builders and passes set internal attributes. */
    if (!a || (a->internal && op->callable))
        return fail_name(op, s->name);
    if (a->kind == CLT_ATTRIBUTE_TYPE)
        return set_type(op, a, s, attr);
    const bool real = a->kind == CLT_ATTRIBUTE_REAL;
    const bool fits =
        a->list ? s->count >= 1 && s->count <= a->count : s->count == 1 || s->count == room_of(a);
    if (!is_number(a) || !fits || (!real && !s->integers) || (real && s->count > 1 && !s->reals)) {
        char text[48];
        snprintf(text, sizeof text, "%d numbers", s->count);
        return fail_value(op, a, -1, s->count == 1 ? "of another kind" : text);
    }
    const int count = a->list ? s->count : room_of(a);
    for (int i = 0; i < count; i++) {
        const int from = s->count == 1 ? 0 : i;
        if (real) {
            const double value = s->reals      ? s->reals[from]
                                 : s->integers ? (double)s->integers[from]
                                               : s->real;
            CLT_TRY(check_number(op, a, i, value));
            put_real(a, attr, i, value);
        } else {
            const int64_t value = s->integers[from];
            CLT_TRY(check_number(op, a, i, (double)value));
            if (width_of(a) < sizeof value && (int)value != value)
                return fail_value(op, a, i, "beyond 32 bits");
            put_integer(a, attr, i, value);
        }
    }
    if (a->list)
        memcpy((char *)attr + a->length, &count, sizeof count);
    return CLT_OK;
}
