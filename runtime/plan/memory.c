/*
 * Finds places for intermediates. A block is a value with its views and in-place successors, or a
 * scratch block. Blocks have a lifetime in node numbers. They are placed one by one, the largest
 * first, where no other block lives at the same time ("greedy by size", Pisarchyk and Lee,
 * "Efficient memory management for deep neural net inference", 2020). If the result is larger than
 * the most bytes alive at one node, other orders and gaps are tried, and the smallest result is
 * kept.
 */
#include <stdlib.h>

#include "base/vec.h"
#include "plan/occupied.h"
#include "plan/plan.h"

typedef struct memory {
    clt_plan *plan;
    const clt_target *target;
    clt_block *blocks;
    int n_blocks, room_blocks, room_slabs;
    int *block_of; /* by value id; -1: not in the arena */
    int *whole; /* by bucket: the block of all its gradients in further micro-batches; -1: none */
    int *last_use; /* by value id: the last node that reads it; n_nodes if it outlives the run */
} memory;

static int64_t stored_bytes(const memory *m, const clt_value *value)
{
    return clt_value_stored(value, m->plan->options.max_batch, m->target->lanes) *
           clt_dtype_size(value->type.dtype);
}

/* A view keeps its operand's memory. Nodes are in order, so one sweep backwards suffices. */
static void keep_under_views(memory *m)
{
    const clt_plan *plan = m->plan;
    for (int i = plan->n_nodes - 1; i >= 0; i--) {
        const clt_node *node = plan->nodes[i].node;
        if (node->op->view && m->last_use[node->in[0]->id] < m->last_use[node->out[0]->id])
            m->last_use[node->in[0]->id] = m->last_use[node->out[0]->id];
    }
}

/* Nodes run during a collective: none may overwrite its operand. What is sent stays. An operand
 * without later readers may become the result, which lives on. */
static void keep_operands(memory *m)
{
    const clt_plan *plan = m->plan;
    for (int i = 0; i < plan->n_collectives; i++) {
        const clt_plan_collective *c = &plan->collectives[i];
        const clt_node *node = plan->nodes[c->node].node;
        const clt_value *in = node->n_in ? node->in[0] : NULL;
        if (in && node->op->effect)
            m->last_use[in->id] = plan->n_nodes;
        else if (in && c->needed > c->node + 1 && m->last_use[in->id] < c->needed &&
                 !(node->op->in_place && m->last_use[clt_value_root(in)->id] == c->node))
            m->last_use[in->id] = c->needed;
    }
}

static void find_last_uses(memory *m)
{
    const clt_plan *plan = m->plan;
    const bool early = plan->options.early_outputs && plan->options.mode == CLT_PLAN_TRAIN;
    const int outputs_end = early ? plan->n_forward - 1 : plan->n_nodes;
    for (int i = 0; i < plan->graph->n_values; i++) {
        const clt_value *v = plan->graph->values[i];
        m->last_use[i] = v->producer ? v->producer->id : 0;
        /* What backward computes is read at the end. */
        const int end = v->producer && v->producer->backward ? plan->n_nodes : outputs_end;
        if (v->output && m->last_use[i] < end)
            m->last_use[i] = end;
    }
    for (int i = 0; i < plan->n_nodes; i++)
        for (int j = 0; j < plan->nodes[i].node->n_in; j++) {
            const clt_value *in = plan->nodes[i].node->in[j];
            if (in && m->last_use[in->id] < i)
                m->last_use[in->id] = i;
        }
    for (int i = 0; i < plan->graph->n_assigns; i++)
        m->last_use[plan->graph->assigns[i].value->id] = plan->n_nodes;
    keep_under_views(m);
    keep_operands(m);
    keep_under_views(m);
}

/* Places values outside the arena: gradients, inputs, constants, parameters and states. */
static void place_fixed(memory *m)
{
    clt_plan *plan = m->plan;
    for (int s = 0; s < plan->buckets.n_slots; s++) {
        const clt_slot *slot = &plan->buckets.slots[s];
        const clt_value *gradient = plan->gradients ? plan->gradients[s] : NULL;
        if (gradient)
            plan->places[gradient->id] = (clt_place){CLT_PLACE_GRADIENT, slot->bucket,
                                                     slot->offset / (int64_t)sizeof(float) *
                                                         clt_dtype_size(gradient->type.dtype)};
    }
    for (int i = 0; i < plan->n_inputs; i++)
        plan->places[plan->inputs[i]->id] = (clt_place){CLT_PLACE_INPUT, i, 0};
    for (int i = 0; i < plan->n_constants; i++)
        plan->places[plan->constants[i]->id] = (clt_place){CLT_PLACE_CONSTANT, i, 0};
    for (int i = 0; i < plan->graph->n_values; i++) {
        const clt_value *v = plan->graph->values[i];
        if (v->kind != CLT_VALUE_PARAMETER && v->kind != CLT_VALUE_STATE)
            continue;
        const clt_slot *slot = clt_buckets_find(&plan->buckets, v->name);
        plan->places[i] = (clt_place){CLT_PLACE_SLOT, slot->bucket, slot->offset};
    }
}

/* It may not if the same bytes are also an operand of which it reads other elements than it writes,
 * such as the source of a sum over rows. For example, the gradient of x + index_select(x) is added
 * to the gradient that it reads. */
bool clt_plan_may_overwrite(const clt_node *node, int index)
{
    const clt_value *root = clt_value_root(node->in[index]);
    for (int j = 0; j < node->n_in; j++)
        if (node->in[j] && clt_value_root(node->in[j]) == root &&
            (j >= 32 || !(node->op->in_place & 1u << j)))
            return false;
    return true;
}

/* Returns the block of an operand that the node may overwrite: in the arena, of the same size, and
 * with no later reader of the operand or a view of it; -1 if there is none. */
static int overwritten_block(const memory *m, const clt_node *node)
{
    for (int i = 0; i < node->n_in && i < 32; i++) {
        const clt_value *in = node->in[i];
        if (!in || !clt_plan_may_overwrite(node, i) || m->plan->options.separate ||
            m->plan->options.repeatable)
            continue;
        const int b = m->block_of[in->id];
        const clt_dtype own = node->out[0]->type.dtype;
        if (b >= 0 && m->blocks[b].dies == node->id && in->layout == node->out[0]->layout &&
            clt_dtype_size(in->type.dtype) == clt_dtype_size(own) &&
            m->blocks[b].bytes == stored_bytes(m, node->out[0]))
            return b;
    }
    return -1;
}

/* Places an operand that a node overwrites where the result is, if the result is a gradient in a
 * bucket. So sums of gradients are added in the bucket. Later nodes come first, so that chains of
 * sums work too. */
static void place_under_gradients(memory *m)
{
    clt_plan *plan = m->plan;
    for (int i = plan->n_nodes - 1; i >= 0; i--) {
        const clt_node *node = plan->nodes[i].node;
        const clt_value *out = node->out[0];
        if (!node->op->in_place || plan->places[out->id].kind != CLT_PLACE_GRADIENT ||
            plan->options.separate || plan->options.repeatable)
            continue;
        for (int j = 0; j < node->n_in && j < 32; j++) {
            const clt_value *in = node->in[j];
            if (!in || !clt_plan_may_overwrite(node, j) || !in->producer ||
                in->producer->op->view || in->producer->op->collective ||
                plan->places[in->id].kind != CLT_PLACE_NONE || m->last_use[in->id] != i ||
                in->layout != out->layout || !clt_type_equal(&in->type, &out->type))
                continue;
            plan->places[in->id] = plan->places[out->id];
            break;
        }
    }
}

static clt_status add_block(memory *m, int64_t bytes, int born, int dies, int *index)
{
    CLT_TRY(CLT_PUSH(m->blocks, m->n_blocks, m->room_blocks,
                     (clt_block){.bytes = bytes, .born = born, .dies = dies}));
    *index = m->n_blocks - 1;
    return CLT_OK;
}

/* The operand of a collective stays in its own place until the result is needed. */
static void keep_operand_block(memory *m, const clt_plan_collective *c)
{
    const clt_node *node = m->plan->nodes[c->node].node;
    const int b = node->n_in ? m->block_of[node->in[0]->id] : -1;
    if (b >= 0 && m->blocks[b].dies < c->needed && c->needed > c->node + 1)
        m->blocks[b].dies = c->needed;
}

/* Gives a gradient a block for further micro-batches, until it is added to its bucket after the
 * last node. Writes the number of the block, and the offset in it. A bucket where no node adds has
 * one block of the same layout, because adding is fast at equal offsets. */
static clt_status add_further_block(memory *m, const clt_node *node, const clt_value *gradient)
{
    clt_plan *plan = m->plan;
    const clt_place *out = &plan->places[gradient->id];
    clt_place *further = &plan->further[gradient->id];
    for (int i = 0; i < node->n_in; i++) /* the block of an operand that the node overwrites */
        if (node->in[i] && clt_place_equal(&plan->places[node->in[i]->id], out))
            *further = plan->further[node->in[i]->id];
    if (further->kind != CLT_PLACE_NONE)
        return CLT_OK;
    const bool whole = !plan->options.separate && !clt_plan_has_totals(plan, out->index);
    int *of_bucket = &m->whole[out->index], own = -1, *b = whole ? of_bucket : &own;
    const int64_t bytes =
        whole ? plan->buckets.buckets[out->index].bytes : stored_bytes(m, gradient);
    if (*b < 0)
        CLT_TRY(add_block(m, bytes, node->id, plan->n_nodes, b));
    m->blocks[*b].own = whole; /* at offset 0 of a slab */
    *further = (clt_place){CLT_PLACE_ARENA, *b, whole ? out->offset : 0};
    return CLT_OK;
}

static clt_status collect_blocks(memory *m, int **scratch_blocks)
{
    clt_plan *plan = m->plan;
    int n_scratch = 0, room = 0, collective = 0;
    for (int i = 0; i < plan->graph->n_values; i++)
        m->block_of[i] = -1;
    for (int i = 0; i < plan->buckets.n_buckets; i++)
        m->whole[i] = -1;
    for (int i = 0; i < plan->n_nodes; i++) {
        const clt_node *node = plan->nodes[i].node;
        const clt_plan_collective *c =
            node->op->collective ? &plan->collectives[collective++] : NULL;
        for (int j = 0; j < node->n_out; j++) {
            const clt_value *out = node->out[j];
            int b = -1;
            if (plan->further && plan->places[out->id].kind == CLT_PLACE_GRADIENT)
                CLT_TRY(add_further_block(m, node, out));
            if (plan->places[out->id].kind != CLT_PLACE_NONE)
                continue;
            if (node->op->view) {
                /* A view of a parameter, input, ... has the same place. */
                m->block_of[out->id] = m->block_of[node->in[0]->id];
                if (m->block_of[out->id] < 0)
                    plan->places[out->id] = plan->places[node->in[0]->id];
                if (plan->further)
                    plan->further[out->id] = plan->further[node->in[0]->id];
                continue;
            }
            if (j == 0)
                b = overwritten_block(m, node);
            if (b >= 0) {
                m->blocks[b].dies = m->last_use[out->id];
            } else {
                if (c)
                    keep_operand_block(m, c);
                CLT_TRY(add_block(m, stored_bytes(m, out), i, m->last_use[out->id], &b));
            }
            m->block_of[out->id] = b;
        }
        for (int j = 0; j < plan->nodes[i].program.n_scratch; j++) {
            int b;
            CLT_TRY(add_block(
                m, clt_extent_at(plan->nodes[i].program.scratch[j], plan->options.max_batch), i, i,
                &b));
            CLT_TRY(CLT_PUSH(*scratch_blocks, n_scratch, room, b));
        }
    }
    return CLT_OK;
}

/* Between forward and backward of a micro-batch, other micro-batches run. So what backward reads of
 * forward exists once for each micro-batch in flight. So does what is sent, because it must stay
 * until the receiver has it. */
static void mark_flight(memory *m)
{
    const clt_plan *plan = m->plan;
    for (int i = 0; i < m->n_blocks; i++) {
        clt_block *b = &m->blocks[i];
        b->flight = b->born < plan->n_forward && b->dies >= plan->n_forward;
    }
    for (int k = 0; k < plan->n_collectives; k++) {
        const clt_node *node = plan->nodes[plan->collectives[k].node].node;
        const int block = node->op->effect && node->n_in ? m->block_of[node->in[0]->id] : -1;
        if (block < 0)
            continue;
        m->blocks[block].flight = true;
        if (node->backward)
            m->blocks[block].born = 0;
    }
}

/* Whether nodes read the block after node `after`. */
static bool is_read_after(const memory *m, int block, int after)
{
    for (int i = after + 1; i < m->plan->n_nodes; i++) {
        const clt_node *node = m->plan->nodes[i].node;
        for (int j = 0; j < node->n_in; j++)
            if (node->in[j] && m->block_of[node->in[j]->id] == block)
                return true;
    }
    return false;
}

/* Whether a collective works in place. A gather does in its result, to which the operand is copied.
 * A scatter does in its operand if nothing else reads it later. A shift sends from one block, and
 * receives in the other. */
static bool is_in_place(const memory *m, const clt_plan_collective *c, int in, int out)
{
    if (c->kind == CLT_OP_ALL_GATHER)
        return out >= 0;
    if (c->kind == CLT_OP_REDUCE_SCATTER)
        return in >= 0 && !is_read_after(m, in, c->node);
    if (c->kind == CLT_OP_SHIFT)
        return in >= 0 && out >= 0 && in != out;
    return out >= 0 && (in == out || !m->plan->nodes[c->node].node->n_in);
}

/* The host reads and writes operands and results of collectives while kernels run. Parts of one
 * buffer object may not be mapped then, so these blocks get objects of their own. */
static void mark_own(memory *m)
{
    const clt_plan *plan = m->plan;
    for (int k = 0; k < plan->n_collectives; k++) {
        clt_plan_collective *c = &plan->collectives[k];
        const clt_node *node = plan->nodes[c->node].node;
        const int in = node->n_in ? m->block_of[node->in[0]->id] : -1;
        const int out = m->block_of[node->out[0]->id];
        c->whole = is_in_place(m, c, in, out);
        if (in >= 0 && !(c->whole && c->kind == CLT_OP_ALL_GATHER))
            m->blocks[in].own = true;
        if (out >= 0 && !(c->whole && c->kind == CLT_OP_REDUCE_SCATTER))
            m->blocks[out].own = true;
    }
}

/* A way to place blocks: the order, and the tightest or the lowest gap. */
typedef struct packing {
    int (*order)(const void *, const void *);
    bool tightest;
} packing;

static int by_birth(const clt_block *x, const clt_block *y)
{
    return x->born != y->born ? (x->born > y->born) - (x->born < y->born)
                              : (x->dies < y->dies) - (x->dies > y->dies);
}

static int by_size(const void *a, const void *b)
{
    const clt_block *x = *(clt_block *const *)a, *y = *(clt_block *const *)b;
    return x->bytes != y->bytes ? (x->bytes < y->bytes) - (x->bytes > y->bytes) : by_birth(x, y);
}

static int by_duration(const void *a, const void *b)
{
    const clt_block *x = *(clt_block *const *)a, *y = *(clt_block *const *)b;
    const int dx = x->dies - x->born, dy = y->dies - y->born;
    return dx != dy ? (dx < dy) - (dx > dy) : by_size(a, b);
}

static int by_area(const void *a, const void *b)
{
    const clt_block *x = *(clt_block *const *)a, *y = *(clt_block *const *)b;
    const double ax = (double)x->bytes * (x->dies - x->born + 1);
    const double ay = (double)y->bytes * (y->dies - y->born + 1);
    return ax != ay ? (ax < ay) - (ax > ay) : by_birth(x, y);
}

/* Orders blocks as a stack: the backward pass uses values in the opposite order of their making. */
static int by_first(const void *a, const void *b)
{
    const clt_block *x = *(clt_block *const *)a, *y = *(clt_block *const *)b;
    return x->born != y->born || x->dies != y->dies ? by_birth(x, y) : by_size(a, b);
}

static clt_status check_size(const memory *m, const clt_block *b)
{
    const int64_t limit = m->target->caps->max_alloc_bytes;
    if (b->bytes <= limit)
        return CLT_OK;
    return clt_fail(CLT_OUT_OF_DEVICE_MEMORY,
                    "a value of %lld bytes is needed at batch %lld; %s allocates at most %lld "
                    "bytes at once: a smaller batch is needed",
                    (long long)b->bytes, (long long)m->plan->options.max_batch,
                    m->target->caps->name, (long long)limit);
}

/* Finds a place in the slabs that are there, or in the next one. A block with an object of its own
 * takes a whole slab as long as it lives. */
static clt_status find_place(const memory *m, clt_occupied *occupied, bool tightest, clt_block *b)
{
    clt_block taken = *b;
    if (b->own)
        taken.bytes = m->target->caps->max_alloc_bytes;
    CLT_TRY(clt_occupied_place(occupied, tightest, &taken));
    b->slab = taken.slab;
    b->offset = taken.offset;
    return CLT_OK;
}

/* Places blocks one by one, in further slabs: those that exist once for each micro-batch in flight,
 * or the others; with objects of their own, or without. `occupied` NULL: each block has its own
 * slab. */
static clt_status place_in_slabs(memory *m, clt_block **sorted, clt_occupied *occupied,
                                 bool tightest, bool flight, bool own)
{
    clt_plan *plan = m->plan;
    const int first = plan->n_slabs;
    if (occupied)
        clt_occupied_clear(occupied);
    for (int i = 0; i < m->n_blocks; i++) {
        clt_block *b = sorted[i];
        if (b->flight != flight || b->own != own)
            continue;
        CLT_TRY(check_size(m, b));
        b->slab = plan->n_slabs - first;
        b->offset = 0;
        if (occupied)
            CLT_TRY(find_place(m, occupied, tightest, b));
        b->slab += first;
        if (b->slab == plan->n_slabs)
            CLT_TRY(CLT_PUSH(plan->slabs, plan->n_slabs, m->room_slabs, 0));
        if (b->offset + b->bytes > plan->slabs[b->slab])
            plan->slabs[b->slab] = b->offset + b->bytes;
    }
    return CLT_OK;
}

static clt_status find_alive(memory *m)
{
    int64_t *change = clt_calloc((size_t)m->plan->n_nodes + 2, sizeof *change);
    int64_t alive = 0;
    CLT_TRY_MEMORY(change);
    for (int i = 0; i < m->n_blocks; i++) {
        const int64_t bytes =
            (m->blocks[i].bytes + CLT_TENSOR_ALIGN - 1) / CLT_TENSOR_ALIGN * CLT_TENSOR_ALIGN;
        change[m->blocks[i].born] += bytes;
        change[m->blocks[i].dies + 1] -= bytes;
    }
    for (int i = 0; i <= m->plan->n_nodes; i++) {
        alive += change[i];
        if (alive > m->plan->alive_bytes)
            m->plan->alive_bytes = alive;
    }
    clt_free(change);
    return CLT_OK;
}

static clt_status pack(memory *m, clt_block **sorted, clt_occupied *occupied, const packing *how)
{
    m->plan->n_slabs = 0;
    if (m->n_blocks)
        qsort(sorted, (size_t)m->n_blocks, sizeof *sorted, how->order);
    for (int own = 0; own < 2; own++)
        CLT_TRY(place_in_slabs(m, sorted, occupied, how->tightest, true, own));
    m->plan->n_flight_slabs = m->plan->n_slabs;
    for (int own = 0; own < 2; own++)
        CLT_TRY(place_in_slabs(m, sorted, occupied, how->tightest, false, own));
    return CLT_OK;
}

/* Returns the bytes of values that exist once for each micro-batch in flight, without the first. */
static int64_t bytes_in_further_flights(const memory *m)
{
    int64_t bytes = 0;
    for (int i = 0; i < m->n_blocks; i++)
        bytes += m->blocks[i].flight ? m->blocks[i].bytes : 0;
    return m->plan->options.in_flight > 1 ? bytes * (m->plan->options.in_flight - 1) : 0;
}

/* Tries all packings and keeps the smallest. Stops early near the lower bound. */
static clt_status pack_best(memory *m, clt_block **sorted, clt_occupied *occupied)
{
    static const packing packings[] = {{by_size, false},     {by_area, false},  {by_size, true},
                                       {by_duration, false}, {by_first, false}, {by_area, true},
                                       {by_duration, true},  {by_first, true}};
    const int n = occupied ? (int)(sizeof packings / sizeof *packings) : 1;
    const int64_t enough = m->plan->alive_bytes + m->plan->alive_bytes / 256;
    const int64_t more = bytes_in_further_flights(m);
    int best = 0, last = -1;
    int64_t least = INT64_MAX;
    for (int i = 0; i < n && least > enough + more; i++) {
        CLT_TRY(pack(m, sorted, occupied, &packings[i]));
        last = i;
        if (clt_plan_arena_bytes(m->plan) < least) {
            least = clt_plan_arena_bytes(m->plan);
            best = i;
        }
    }
    return best != last ? pack(m, sorted, occupied, &packings[best]) : CLT_OK;
}

static clt_status place_blocks(memory *m)
{
    clt_occupied *occupied = NULL;
    clt_block **sorted = clt_calloc((size_t)m->n_blocks + 1, sizeof(clt_block *));
    clt_status status = sorted ? find_alive(m) : CLT_OUT_OF_MEMORY;
    if (status == CLT_OK && !m->plan->options.separate)
        status = clt_occupied_create(m->plan->n_nodes, m->target->caps->max_alloc_bytes, &occupied);
    for (int i = 0; i < m->n_blocks && sorted; i++)
        sorted[i] = &m->blocks[i];
    CLT_NEXT(status, pack_best(m, sorted, occupied));
    clt_occupied_destroy(occupied);
    clt_free(sorted);
    return status;
}

static clt_place place_of(const memory *m, int block, int64_t offset)
{
    const clt_block *b = &m->blocks[block];
    return (clt_place){CLT_PLACE_ARENA, b->slab, b->offset + offset};
}

static void write_places(memory *m, const int *scratch_blocks)
{
    clt_plan *plan = m->plan;
    for (int i = 0; i < plan->graph->n_values; i++) {
        clt_place *further = plan->further ? &plan->further[i] : NULL;
        if (m->block_of[i] >= 0)
            plan->places[i] = place_of(m, m->block_of[i], 0);
        if (further && further->kind != CLT_PLACE_NONE)
            *further = place_of(m, further->index, further->offset);
    }
    int next = 0;
    for (int i = 0; i < plan->n_nodes; i++)
        for (int j = 0; j < plan->nodes[i].program.n_scratch; j++)
            plan->nodes[i].scratch[j] = place_of(m, scratch_blocks[next++], 0);
}

clt_status clt_plan_memory(clt_plan *plan, const clt_target *target)
{
    const size_t n = (size_t)plan->graph->n_values + 1;
    memory m = {.plan = plan, .target = target};
    int *scratch_blocks = NULL;
    clt_status status = CLT_OUT_OF_MEMORY;
    m.block_of = clt_calloc(n, sizeof *m.block_of);
    m.whole = clt_calloc((size_t)plan->buckets.n_buckets + 1, sizeof *m.whole);
    m.last_use = clt_calloc(n, sizeof *m.last_use);
    if (plan->options.accumulates)
        plan->further = clt_calloc(n, sizeof *plan->further);
    if (!m.block_of || !m.whole || !m.last_use || !plan->further != !plan->options.accumulates)
        goto done;
    find_last_uses(&m);
    place_fixed(&m);
    place_under_gradients(&m);
    CLT_TRY_GOTO(status, clt_plan_totals(plan), done);
    CLT_TRY_GOTO(status, clt_plan_carried(plan), done);
    CLT_TRY_GOTO(status, collect_blocks(&m, &scratch_blocks), done);
    if (plan->options.in_flight)
        mark_flight(&m);
    mark_own(&m);
    CLT_TRY_GOTO(status, place_blocks(&m), done);
    write_places(&m, scratch_blocks);
done:
    CLT_FREE(scratch_blocks, m.block_of, m.whole, m.last_use, m.blocks);
    return status;
}
