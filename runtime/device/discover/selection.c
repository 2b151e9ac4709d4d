#include "device/discover/selection.h"

#include <ctype.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/caps.h"
#include "base/str.h"
#include "base/vec.h"

enum { MAX_ITEM = 256, MAX_NAMES = 64 };

typedef struct table {
    const clt_device_info *rows;
    int count;
} table;

typedef struct item {
    const char *text;    /* as the user wrote the item, for messages */
    char name[MAX_ITEM]; /* without suffixes */
    int index;           /* after a colon; -1 if none */
    int parts;           /* N of /N; 0 if none */
    int cores;           /* C of @C; 0 if none */
} item;

static bool all_digits(const char *text)
{
    size_t length = strspn(text, "0123456789");
    return length > 0 && text[length] == '\0';
}

/* Reads a number of at most six digits; -1 for other texts. */
static int small_number(const char *text)
{
    return all_digits(text) && strlen(text) <= 6 ? atoi(text) : -1;
}

static bool contains(const char *text, const char *part)
{
    return strcasestr(text, part) != NULL;
}

/* Whether all, cpu, gpu and the default include the row. */
static bool counts_once(const clt_device_info *row)
{
    return row->usable && row->duplicate_of < 0;
}

static bool is_gpu(const clt_device_info *row)
{
    return row->kind != CLT_KIND_CPU;
}

static clt_status parse_item(const char *text, item *out)
{
    *out = (item){.text = text, .index = -1};
    memcpy(out->name, text, strlen(text) + 1); /* add_list limits its length */
    char *mark = strpbrk(out->name, "/@");
    if (mark) {
        char kind = *mark;
        int number = small_number(mark + 1);
        if (number < 1)
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "--devices: in '%s', %c must be followed by a number from 1, once: %s",
                            text, kind,
                            kind == '/' ? "/N makes N equal parts" : "@C is a part of C cores");
        *mark = '\0';
        *(kind == '/' ? &out->parts : &out->cores) = number;
    }
    char *colon = strrchr(out->name, ':');
    if (colon) {
        out->index = small_number(colon + 1);
        if (out->index < 0)
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "--devices: in '%s', a number must follow the colon, as in pocl:0",
                            text);
        *colon = '\0';
    }
    if (!out->name[0])
        return clt_fail(CLT_INVALID_ARGUMENT, "--devices: '%s' names no device", text);
    return CLT_OK;
}

/* Sets chosen[i] for rows that match the platform's name. Returns whether any row does. */
static bool match_platform(const table *t, const char *name, bool *chosen)
{
    bool any = false;
    for (int pass = 0; pass < 2 && !any; pass++) {
        for (int i = 0; i < t->count; i++) {
            const clt_device_info *row = &t->rows[i];
            bool hit = pass == 0
                           ? row->suffix[0] && !strcasecmp(row->suffix, name)
                           : contains(row->platform, name) || contains(row->platform_vendor, name);
            chosen[i] = hit;
            any |= hit;
        }
    }
    return any;
}

static clt_status unknown_name(const table *t, const item *it)
{
    const char *names[MAX_NAMES] = {"all", "cpu", "gpu"};
    int count = 3;
    clt_str found = {0};
    for (int i = 0; i < t->count && count + 2 <= MAX_NAMES; i++) {
        const clt_device_info *row = &t->rows[i];
        bool seen = false;
        for (int j = 0; j < i && !seen; j++)
            seen = !strcmp(t->rows[j].platform, row->platform);
        if (seen)
            continue;
        if (row->suffix[0])
            names[count++] = row->suffix;
        names[count++] = row->platform;
        clt_str_add(&found, "%s%s%s%s%s", found.length ? ", " : "", row->suffix,
                    row->suffix[0] ? " (" : "", row->platform, row->suffix[0] ? ")" : "");
    }
    const char *near = clt_nearest(it->name, names, count);
    clt_status status = clt_fail(
        CLT_NOT_FOUND, "--devices: no platform is called '%s'%s%s%s; found: %s", it->name,
        near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "", clt_str_text(&found));
    clt_str_free(&found);
    return status;
}

static clt_status none_usable(const table *t, const item *it, const bool *named)
{
    for (int i = 0; i < t->count; i++) {
        if (named[i])
            return clt_fail(CLT_NO_DEVICE,
                            "--devices: '%s' is device %d (%s), which cannot be used: %s", it->text,
                            i, t->rows[i].name, t->rows[i].skip);
    }
    return clt_fail(CLT_NO_DEVICE, "--devices: '%s' matches no device; `cltrain devices` lists %d",
                    it->text, t->count);
}

/* Finds the rows that an item means, without its /N or @C. */
static clt_status choose_rows(const table *t, const item *it, bool *chosen)
{
    bool all = !strcasecmp(it->name, "all"), cpu = !strcasecmp(it->name, "cpu");
    bool gpu = !strcasecmp(it->name, "gpu");
    bool *named = clt_calloc((size_t)t->count, sizeof *named);
    CLT_TRY_MEMORY(named);
    clt_status status = CLT_OK;
    if (all || cpu || gpu) {
        for (int i = 0; i < t->count; i++)
            named[i] = (all || is_gpu(&t->rows[i]) == gpu) &&
                       (counts_once(&t->rows[i]) || !t->rows[i].usable);
        if (it->index >= 0)
            status = clt_fail(
                CLT_INVALID_ARGUMENT,
                "--devices: '%s': a number after a colon needs a platform, as in pocl:0", it->text);
    } else if (all_digits(it->name)) {
        int row = small_number(it->name);
        if (row >= 0 && row < t->count && it->index < 0)
            named[row] = true;
        else
            status = clt_fail(CLT_NOT_FOUND, "--devices: there is no device %s; rows are 0 to %d",
                              it->text, t->count - 1);
    } else if (!match_platform(t, it->name, named)) {
        status = unknown_name(t, it);
    } else if (it->index >= 0) {
        bool any = false;
        for (int i = 0; i < t->count; i++)
            any |= named[i] = named[i] && t->rows[i].platform_index == it->index;
        if (!any)
            status = clt_fail(CLT_NOT_FOUND, "--devices: '%s': that platform has no device %d",
                              it->text, it->index);
    }
    bool usable = false;
    for (int i = 0; i < t->count && status == CLT_OK; i++)
        usable |= chosen[i] = named[i] && t->rows[i].usable;
    if (status == CLT_OK && !usable)
        status = none_usable(t, it, named);
    clt_free(named);
    return status;
}

/* Puts a part in the first group of its row with enough free cores. */
static void place_part(const clt_device_info *rows, const clt_selection *s, clt_unit *unit)
{
    for (unit->group = 0;; unit->group++) {
        int used = 0;
        unit->place = 0;
        for (int i = 0; i < s->count; i++) {
            const clt_unit *other = &s->units[i];
            if (other->row == unit->row && other->cores && other->group == unit->group) {
                used += other->cores;
                unit->place++;
            }
        }
        if (used + unit->cores <= rows[unit->row].compute_units)
            return;
    }
}

static clt_status add_unit(const table *t, clt_selection *s, int row, int cores)
{
    clt_unit unit = {.row = row, .cores = cores};
    for (int i = 0; i < s->count; i++)
        unit.part += s->units[i].row == row && s->units[i].cores > 0;
    if (cores)
        place_part(t->rows, s, &unit);
    return CLT_PUSH(s->units, s->count, s->room, unit);
}

/* Describes a restriction of the process to fewer cores, because a CPU's driver may count only
 * these. */
static void describe_binding(const clt_device_info *row, char text[80])
{
    cpu_set_t own;
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    *text = '\0';
    if (row->kind == 0 && sched_getaffinity(0, sizeof own, &own) == 0 && CPU_COUNT(&own) < cores)
        snprintf(text, 80, "; this process is kept to %d of the machine's %ld cores",
                 CPU_COUNT(&own), cores);
}

static clt_status add_row(const table *t, const item *it, int index, clt_selection *s)
{
    const clt_device_info *row = &t->rows[index];
    const int units = row->compute_units;
    if (it->parts > units || it->cores > units) {
        char bound[80];
        describe_binding(row, bound);
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "--devices: '%s': device %d (%s) has %d core%s%s: ask for at most as many",
                        it->text, index, row->name, units, units == 1 ? "" : "s", bound);
    }
    bool whole = it->parts <= 1 && (it->cores == 0 || it->cores == units);
    if (whole)
        return add_unit(t, s, index, 0);
    if (!row->splittable)
        return clt_fail(
            CLT_UNSUPPORTED,
            "--devices: '%s': device %d (%s) cannot be split: its driver offers no parts", it->text,
            index, row->name);
    if (it->cores)
        return add_unit(t, s, index, it->cores);
    for (int i = 0; i < it->parts; i++)
        CLT_TRY(add_unit(t, s, index, units / it->parts));
    return CLT_OK;
}

static clt_status add_item(const table *t, const char *text, clt_selection *s)
{
    item it;
    CLT_TRY(parse_item(text, &it));
    bool *chosen = clt_calloc((size_t)t->count, sizeof *chosen);
    CLT_TRY_MEMORY(chosen);
    clt_status status = choose_rows(t, &it, chosen);
    for (int i = 0; i < t->count && status == CLT_OK; i++) {
        if (chosen[i])
            status = add_row(t, &it, i, s);
    }
    clt_free(chosen);
    return status;
}

/* Adds the default: all GPUs of the platform whose GPUs have the most compute units, or the first
 * CPU, whole, if there are none. */
static clt_status add_default(const table *t, clt_selection *s)
{
    int best = -1, best_units = 0;
    for (int i = 0; i < t->count; i++) {
        int units = 0;
        for (int j = 0; j < t->count; j++) {
            const clt_device_info *row = &t->rows[j];
            if (counts_once(row) && is_gpu(row) && !strcmp(row->platform, t->rows[i].platform))
                units += row->compute_units;
        }
        if (units > best_units) {
            best = i;
            best_units = units;
        }
    }
    for (int i = 0; i < t->count; i++) {
        const clt_device_info *row = &t->rows[i];
        bool wanted = counts_once(row) &&
                      (best < 0 ? s->count == 0
                                : is_gpu(row) && !strcmp(row->platform, t->rows[best].platform));
        if (wanted)
            CLT_TRY(add_unit(t, s, i, 0));
    }
    return CLT_OK;
}

static clt_status add_list(const table *t, const char *list, clt_selection *s)
{
    for (const char *at = list;; at++) {
        char text[MAX_ITEM];
        size_t length = strcspn(at, ",");
        const char *end = at + length;
        while (at < end && isspace((unsigned char)*at))
            at++;
        const char *last = end;
        while (last > at && isspace((unsigned char)last[-1]))
            last--;
        if (last == at)
            return clt_fail(CLT_INVALID_ARGUMENT, "--devices: an item of '%s' is empty", list);
        if (last - at >= MAX_ITEM)
            return clt_fail(CLT_INVALID_ARGUMENT, "--devices: an item is longer than %d characters",
                            MAX_ITEM - 1);
        memcpy(text, at, (size_t)(last - at));
        text[last - at] = '\0';
        CLT_TRY(add_item(t, text, s));
        if (!*end)
            return CLT_OK;
        at = end;
    }
}

clt_status clt_selection_parse(const clt_device_info *rows, int count, const char *remark,
                               const char *list, clt_selection *out)
{
    const table t = {rows, count};
    clt_selection s = {0};
    bool usable = false;
    for (int i = 0; i < count; i++)
        usable |= rows[i].usable != 0;
    if (!usable)
        return clt_fail(CLT_NO_DEVICE, "%s", remark[0] ? remark : "no usable device was found");
    clt_status status = list && *list ? add_list(&t, list, &s) : add_default(&t, &s);
    if (status != CLT_OK) {
        clt_free(s.units);
        return status;
    }
    *out = s;
    return CLT_OK;
}
