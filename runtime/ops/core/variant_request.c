/* Reads the notation OP=NAME,... in which callers request variants. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/str.h"
#include "ops/core/launch.h"
#include "ops/core/ops.h"
#include <cltrain/unstable.h>

enum { MOST_NAMES = 256 };

/* One item of the text, from `at` to `end`. `equals` is its equals sign. */
typedef struct item {
    const char *at, *equals, *end;
} item;

static bool next_item(const char **text, item *out)
{
    if (!*text || !**text)
        return false;
    const char *comma = strchr(*text, ',');
    out->at = *text;
    out->end = comma ? comma : *text + strlen(*text);
    out->equals = memchr(out->at, '=', (size_t)(out->end - out->at));
    *text = comma ? comma + 1 : out->end;
    return true;
}

static bool same(const char *from, const char *end, const char *name)
{
    return strlen(name) == (size_t)(end - from) && !memcmp(from, name, (size_t)(end - from));
}

uint64_t clt_variants_hash(const clt_node *node, const clt_target *target)
{
    clt_target free = *target;
    uint64_t hash = 0;
    free.variants = free.tile = NULL;
    for (const clt_variant *v = node->op->variants; v && v->name; v++) {
        char why[CLT_WHY];
        if (!v->accepts || v->accepts(node, &free, why))
            hash = clt_hash_text(v->name, hash);
    }
    return hash | 1;
}

const clt_variant *clt_variant_wanted(const clt_op *op, const char *variants)
{
    item i;
    while (next_item(&variants, &i)) {
        if (!i.equals || !same(i.at, i.equals, op->name))
            continue;
        for (const clt_variant *v = op->variants; v && v->name; v++)
            if (same(i.equals + 1, i.end, v->name))
                return v;
    }
    return NULL;
}

static const clt_op *op_of(const item *i)
{
    int count;
    const clt_op *const *ops = clt_ops(&count);
    for (int k = 0; i->equals && k < count; k++)
        if (same(i->at, i->equals, ops[k]->name))
            return ops[k];
    return NULL;
}

const char *clt_variants_next(const char **variants, int *length, const clt_op **op)
{
    item i;
    if (!next_item(variants, &i))
        return NULL;
    *length = (int)(i.end - i.at);
    *op = op_of(&i);
    return i.at;
}

static clt_status unknown(const char *what, const item *i, const char *from, const char *end,
                          const char *const *names, int count)
{
    char word[64];
    snprintf(word, sizeof word, "%.*s", (int)(end - from), from);
    const char *near = clt_nearest(word, names, count);
    clt_str hint = {0};
    if (near)
        clt_str_add(&hint, "; did you mean %s?", near);
    for (int k = 0; !near && k < count; k++)
        clt_str_add(&hint, "%s%s", k ? ", " : "; there are ", names[k]);
    const clt_status status =
        clt_fail(CLT_NOT_FOUND, "variant %.*s: there is no %s '%s'%s", (int)(i->end - i->at), i->at,
                 what, word, clt_str_text(&hint));
    clt_str_free(&hint);
    return status;
}

/* Whether an earlier item names the same operator. */
static bool named_before(const char *variants, const item *own)
{
    const ptrdiff_t length = own->equals - own->at;
    item i;
    while (next_item(&variants, &i) && i.at < own->at)
        if (i.equals && i.equals - i.at == length && !memcmp(i.at, own->at, (size_t)length))
            return true;
    return false;
}

clt_status clt_variants_check(const char *variants)
{
    const char *const all = variants;
    item i;
    while (next_item(&variants, &i)) {
        const char *names[MOST_NAMES];
        const clt_op *op = op_of(&i);
        int count = 0;
        if (!i.equals)
            return clt_fail(CLT_INVALID_ARGUMENT, "variant '%.*s': must be OPERATOR=NAME",
                            (int)(i.end - i.at), i.at);
        if (named_before(all, &i))
            return clt_fail(CLT_INVALID_ARGUMENT, "variant %.*s: %.*s has one already",
                            (int)(i.end - i.at), i.at, (int)(i.equals - i.at), i.at);
        int n_ops;
        const clt_op *const *ops = clt_ops(&n_ops);
        for (int k = 0; k < n_ops && count < MOST_NAMES; k++)
            names[count++] = ops[k]->name;
        if (!op)
            return unknown("operator", &i, i.at, i.equals, names, count);
        count = 0;
        bool found = false;
        for (const clt_variant *v = op->variants; v && v->name; v++) {
            names[count++] = v->name;
            found |= same(i.equals + 1, i.end, v->name);
        }
        if (!found)
            return unknown("variant", &i, i.equals + 1, i.end, names, count);
    }
    return CLT_OK;
}
