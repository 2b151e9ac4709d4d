/* Reads the texts of options about replicas. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "train/ranks/connect.h"
#include <cltrain/local.h>

static const char *const names[] = {"average", "momentum", "nesterov"};
enum { KINDS = sizeof names / sizeof *names };

const char *clt_outer_name(clt_outer_kind kind)
{
    return (int)kind >= 0 && (int)kind < KINDS ? names[kind] : NULL;
}

static clt_status bad_outer(const char *text)
{
    return clt_fail(CLT_INVALID_ARGUMENT,
                    "outer optimizer '%s': must be average, or momentum or nesterov with "
                    ":lr=X,momentum=Y if wanted, each once, X above 0 and Y from 0 to below 1",
                    text);
}

/* Reads "lr=X" or "momentum=Y" at *at, and moves *at behind it. Returns false if it is neither, or
 * was there before: `seen` has a bit for each. */
static bool read_number(const char **at, double *lr, double *momentum, unsigned *seen)
{
    char *end;
    const bool rate = !strncmp(*at, "lr=", 3);
    const unsigned bit = rate ? 1 : 2;
    if ((!rate && strncmp(*at, "momentum=", 9) != 0) || (*seen & bit))
        return false;
    *seen |= bit;
    const char *number = strchr(*at, '=') + 1;
    const double value = strtod(number, &end);
    if (end == number || !isfinite(value) || (*end && *end != ',') || (*end == ',' && !end[1]))
        return false;
    *(rate ? lr : momentum) = value;
    *at = end + (*end == ',');
    return true;
}

clt_status clt_outer_parse(const char *text, clt_outer *outer)
{
    const size_t length = strcspn(text, ":");
    clt_outer o = {.lr = 0.7, .momentum = 0.9};
    unsigned seen = 0;
    int kind = 0;
    while (kind < KINDS && (strlen(names[kind]) != length || strncmp(names[kind], text, length)))
        kind++;
    if (kind == KINDS || (text[length] && (kind == CLT_OUTER_AVERAGE || !text[length + 1])))
        return bad_outer(text);
    for (const char *at = text + length + (text[length] == ':'); *at;)
        if (!read_number(&at, &o.lr, &o.momentum, &seen))
            return bad_outer(text);
    if (!(o.lr > 0) || !(o.momentum >= 0 && o.momentum < 1))
        return bad_outer(text);
    o.kind = (clt_outer_kind)kind;
    *outer = o;
    return CLT_OK;
}

clt_status clt_sync_every_parse(const char *text, int64_t *steps, double *seconds)
{
    const size_t digits = strspn(text, "0123456789"), length = strspn(text, "0123456789.");
    const bool time = !strcmp(text + length, "s");
    char *end;
    const double number = strtod(text, &end);
    if (!length || end != text + length || (!time && text[digits]) || !(number > 0) || number > 1e9)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "'%s': replicas are synchronised every so many steps, as 8, or seconds, as "
                        "2s or 0.5s; the number must be above 0 and at most 1000000000",
                        text);
    *steps = time ? 0 : (int64_t)number;
    *seconds = time ? number : 0;
    return CLT_OK;
}

static clt_status read_replicas(const char *text, int length, int *replicas)
{
    char *end;
    const char *number = text + strlen("local=");
    if (*number == '*' && number + 1 == text + length) {
        *replicas = -1;
        return CLT_OK;
    }
    const long value = strtol(number, &end, 10);
    if (end != text + length || end == number || value < 1 || value > 64 * CLT_MOST_DEVICES)
        return clt_fail(
            CLT_INVALID_ARGUMENT,
            "mesh: '%.*s' must be local=N, N a number of replicas from 1 on, or local=*, "
            "as many as the devices make",
            length, text);
    *replicas = (int)value;
    return CLT_OK;
}

clt_status clt_local_mesh(const char *mesh, int *replicas, char *rest, size_t room)
{
    static const char *const others[] = {"tp=", "pp=", "space=", "time="};
    const char *text = mesh ? mesh : "";
    const char *own = strstr(text, "local=");
    const int length = own ? (int)strcspn(own, ",") : 0;
    int count = 0;
    if (own && (own != text || strstr(own + 1, "local=")))
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "mesh: '%s': local must be its first axis, given once, as local=2,dp=2",
                        text);
    if (own)
        CLT_TRY(read_replicas(own, length, &count));
    for (size_t i = 0; own && i < sizeof others / sizeof *others; i++)
        if (strstr(text, others[i]))
            return clt_fail(CLT_UNSUPPORTED, "mesh: '%s': beside local only dp is built, not %.*s",
                            text, (int)strlen(others[i]) - 1, others[i]);
    if (count < 0 && strstr(text + length, "=*"))
        return clt_fail(
            CLT_INVALID_ARGUMENT,
            "mesh: '%s': local=* and dp=* cannot both be as many as there are: give one "
            "of them a number",
            text);
    const char *left = text + length + (own && text[length] == ',');
    if (own && text[length] == ',' && !*left)
        return clt_fail(CLT_INVALID_ARGUMENT, "mesh: '%s' ends with a comma", text);
    if (strlen(left) >= room)
        return clt_fail(CLT_INVALID_ARGUMENT, "mesh: '%s' is too long", text);
    memmove(rest, left, strlen(left) + 1);
    *replicas = count;
    return CLT_OK;
}
