/* Classes of shapes: what a measurement of a node holds for. */
#include <stdio.h>

#include "base/hash.h"
#include "plan/plan.h"

static int64_t round_batch(int64_t batch)
{
    int64_t rounded = 1;
    while (rounded < batch && rounded < INT64_MAX / 2)
        rounded *= 2;
    return rounded;
}

static const clt_value *value_of(const clt_node *node, int index)
{
    return index < node->n_in ? node->in[index] : node->out[index - node->n_in];
}

static uint64_t mix(int64_t number, uint64_t hash)
{
    return clt_hash(&number, sizeof number, hash);
}

/* Adds the attributes that are not at their defaults, so a new attribute with a default leaves
 * existing keys unchanged. Types of results are part of the outputs. */
static uint64_t mix_attributes(const clt_node *node, uint64_t hash)
{
    const clt_attribute *a = node->attr ? node->op->attributes : NULL;
    for (; a && a->name; a++)
        if (!a->untuned && a->kind != CLT_ATTRIBUTE_TYPE &&
            !clt_attribute_is_default(a, node->attr))
            hash = clt_hash((const char *)node->attr + a->offset, (size_t)a->bytes,
                            clt_hash_text(a->name, hash));
    return hash;
}

uint64_t clt_plan_key(const clt_node *node, const clt_target *target)
{
    const int64_t n = round_batch(target->max_batch);
    uint64_t hash = mix(target->caps->kind, clt_hash_text(node->op->name, 0));
    for (int i = 0; i < node->n_in + node->n_out; i++) {
        const clt_value *v = value_of(node, i);
        hash = mix(!v ? -1 : v->layout == CLT_LAYOUT_PLAIN ? 0 : target->lanes, hash);
        if (!v)
            continue;
        hash = mix(v->type.rank, mix(v->type.dtype, hash));
        for (int d = 0; d < v->type.rank; d++)
            hash = mix(clt_dim(v->type.dims[d], n), hash);
    }
    hash = mix_attributes(node, hash);
    return hash ? hash : 1;
}

/* Adds the shapes of all values and the attributes. `blocked` marks batch-blocked values. */
static void add_class(const clt_node *node, int64_t max_batch, const char *blocked, clt_str *s)
{
    const int64_t n = round_batch(max_batch);
    for (int i = 0; i < node->n_in + node->n_out; i++) {
        const clt_value *v = value_of(node, i);
        clt_str_add(s, i ? " " : "");
        if (v && v->layout == CLT_LAYOUT_BATCH_BLOCKED)
            clt_str_add(s, "%s", blocked);
        for (int d = 0; v && d < v->type.rank; d++)
            clt_str_add(s, "%s%lld", d ? "x" : "", (long long)clt_dim(v->type.dims[d], n));
        if (v && v->type.dtype != CLT_F32)
            clt_str_add(s, "%s", clt_dtype_name(v->type.dtype));
    }
    if (node->op->describe) {
        clt_str_add(s, " ");
        node->op->describe(node, s);
    }
}

void clt_plan_class(const clt_node *node, int64_t max_batch, char text[64])
{
    clt_str s = {0};
    add_class(node, max_batch, "batch_blocked ", &s);
    snprintf(text, 64, "%.63s", clt_str_text(&s));
    clt_str_free(&s);
}

/* A readable beginning and, since texts have limits, a hash of everything. Checkpoints have these
 * texts as keys: they must not change. */
void clt_plan_old_class(const clt_node *node, int64_t max_batch, char text[64])
{
    enum { READABLE = 44 };
    clt_str s = {0};
    add_class(node, max_batch, "lanes ", &s);
    const char *all = clt_str_text(&s);
    snprintf(text, 64, "%.*s #%016llx", (int)READABLE, all,
             (unsigned long long)clt_hash_text(all, 0));
    clt_str_free(&s);
}
