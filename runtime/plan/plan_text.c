/* Prints a plan as a table for people. */
#include <stdio.h>
#include <string.h>

#include "plan/plan.h"

static void bytes_text(int64_t bytes, char *text, size_t room)
{
    if (bytes < 10 * 1024)
        snprintf(text, room, "%lld B", (long long)bytes);
    else if (bytes < 10 * 1024 * 1024)
        snprintf(text, room, "%.1f KiB", (double)bytes / 1024);
    else
        snprintf(text, room, "%.1f MiB", (double)bytes / 1048576);
}

static void print_node(const clt_plan *plan, int index, bool explain, clt_str *text)
{
    const clt_plan_node *pn = &plan->nodes[index];
    const clt_node *node = pn->node;
    const int64_t n = plan->options.max_batch;
    char type[CLT_TYPE_TEXT];
    clt_str details = {0};
    if (node->op->describe)
        node->op->describe(node, &details);
    const double flops = node->op->flops ? node->op->flops(node, n)
                                         : (double)clt_type_elements(&node->out[0]->type, n);
    clt_str_add(text, "%4d  %-30.30s %-20.20s %-22.22s %-13s %-22.22s %9.2f  %s\n", index,
                node->name, node->op->name, clt_type_text(&node->out[0]->type, type),
                node->out[0]->layout == CLT_LAYOUT_BATCH_BLOCKED ? "batch_blocked" : "plain",
                node->op->view         ? "(view)"
                : node->op->collective ? "(host)"
                                       : pn->variant->name,
                flops * 1e-6, clt_str_text(&details));
    clt_str_free(&details);
    if (explain && pn->tuned)
        clt_str_add(text, "          measured best: %s%s%s, %.1f us\n", pn->tuned->variant,
                    *pn->tuned->options ? " " : "", pn->tuned->options, 1e6 * pn->tuned->seconds);
    for (const char *line = explain ? pn->declined : NULL; line && *line;) {
        const char *end = strchr(line, '\n');
        clt_str_add(text, "          declined %.*s\n", (int)(end - line), line);
        line = end + 1;
    }
}

static void print_buckets(const clt_plan *plan, clt_str *text)
{
    char size[32];
    clt_str_add(text, "\nBuckets (parameters, in the order in which gradients become ready)\n");
    for (int b = 0; b < plan->buckets.n_buckets; b++) {
        const clt_bucket *bucket = &plan->buckets.buckets[b];
        bytes_text(bucket->bytes, size, sizeof size);
        clt_str_add(text, "  bucket %d: %s%s:", b, size, bucket->state ? " without gradients" : "");
        for (int s = bucket->first; s < bucket->end; s++)
            clt_str_add(text, " %s", plan->buckets.slots[s].name);
        clt_str_add(text, "\n");
    }
}

static void print_segments(const clt_plan *plan, clt_str *text)
{
    static const char *const kinds[] = {[CLT_OP_ALL_REDUCE] = "all-reduce",
                                        [CLT_OP_ALL_GATHER] = "all-gather",
                                        [CLT_OP_REDUCE_SCATTER] = "reduce-scatter",
                                        [CLT_OP_SEND] = "send",
                                        [CLT_OP_RECEIVE] = "receive",
                                        [CLT_OP_SHIFT] = "shift"};
    clt_str_add(text, "\nSegments (between them the host acts)\n");
    for (int i = 0; i < plan->n_segments; i++) {
        const clt_segment *s = &plan->segments[i];
        clt_str_add(text, "  nodes %d to %d%s", s->first, s->end - 1,
                    s->end <= plan->n_forward ? " (forward)" : "");
        if (s->begins >= 0)
            clt_str_add(text, ", then %s %s, complete before node %d",
                        kinds[plan->collectives[s->begins].kind],
                        plan->nodes[plan->collectives[s->begins].node].node->name,
                        plan->collectives[s->begins].needed);
        for (int r = s->first_ready; r < s->end_ready; r++)
            clt_str_add(text, "%s %d", r == s->first_ready ? ", then reduce bucket" : " and",
                        plan->ready[r]);
        clt_str_add(text, "\n");
    }
}

static double flops_of(const clt_plan *plan, const clt_node *node)
{
    if (node->op->view || node->op->collective)
        return 0;
    return node->op->flops
               ? node->op->flops(node, plan->options.max_batch)
               : (double)clt_type_elements(&node->out[0]->type, plan->options.max_batch);
}

/* Prints what recomputation saves and costs. A copy whose origin is gone was only moved. */
static void print_recomputed(const clt_plan *plan, clt_str *text)
{
    int copies = 0;
    double forward = 0, recomputed = 0;
    char saved[32], of[32];
    if (!plan->plain_bytes)
        return;
    for (int i = 0; i < plan->n_nodes; i++) {
        const clt_node *node = plan->nodes[i].node;
        const bool copy = node->recomputed && node->origin;
        copies += copy && !node->op->view;
        recomputed += copy ? flops_of(plan, node) : 0;
        forward += !node->backward || (node->recomputed && !copy) ? flops_of(plan, node) : 0;
    }
    bytes_text(plan->plain_bytes - clt_plan_arena_bytes(plan), saved, sizeof saved);
    bytes_text(plan->plain_bytes, of, sizeof of);
    clt_str_add(
        text,
        "\nBackward recomputes %d nodes (*.recomputed): %s of %s of intermediates less, for "
        "%.1f %% of forward's arithmetic\n",
        copies, saved, of, forward > 0 ? 100 * recomputed / forward : 0);
}

static int64_t gradient_bytes(const clt_plan *plan)
{
    int64_t bytes = 0;
    for (int b = 0; b < plan->buckets.n_buckets; b++)
        if (!plan->buckets.buckets[b].state)
            bytes += clt_bucket_gradient_bytes(&plan->buckets.buckets[b], plan->options.precision);
    return bytes;
}

static void print_partition(const clt_plan *plan, clt_str *text)
{
    char size[32];
    if (plan->partition.text.length)
        clt_str_add(text, "\nParts of this place, and what places exchange:\n%s",
                    clt_str_text(&plan->partition.text));
    for (int a = 0; a < CLT_AXES; a++) {
        int count;
        bytes_text(clt_plan_payload(plan, (clt_axis)a, plan->options.max_batch, &count), size,
                   sizeof size);
        if (count)
            clt_str_add(text, "axis %s: %d collectives of %s together, for %lld samples\n",
                        clt_axis_name((clt_axis)a), count, size,
                        (long long)plan->options.max_batch);
    }
}

static void print_merges(const clt_plan *plan, clt_str *text)
{
    clt_str_add(text, "\nMerged launches (%s)\n", plan->merging);
    if (plan->apart[0])
        clt_str_add(text, "  apart: node %s\n", plan->apart);
    for (int i = 0; i < plan->n_merges; i++)
        clt_str_add(text, "  nodes %d to %d: %d launches become one%s\n", plan->merges[i].first,
                    plan->merges[i].end - 1, plan->merges[i].launches,
                    plan->merges[i].wide ? ", whose first one keeps its work-items" : "");
}

void clt_plan_print(const clt_plan *plan, bool explain, clt_str *text)
{
    static const char *const modes[] = {"training", "evaluation", "prediction"};
    char size[32];
    clt_str_add(text, "Plan for %s, up to %lld images at once, %s\n", plan->caps.name,
                (long long)plan->options.max_batch, modes[plan->options.mode]);
    clt_str_add(text, "%4s  %-30s %-20s %-22s %-13s %-22s %9s  %s\n", "", "node", "operator",
                "result", "layout", "variant", "MFLOP", "attributes");
    for (int i = 0; i < plan->n_nodes; i++) {
        if (i == plan->n_forward)
            clt_str_add(text, "      -- backward --\n");
        print_node(plan, i, explain, text);
    }
    print_recomputed(plan, text);
    if (explain)
        print_partition(plan, text);
    print_buckets(plan, text);
    print_segments(plan, text);
    if (explain)
        print_merges(plan, text);
    bytes_text(clt_plan_arena_bytes(plan), size, sizeof size);
    clt_str_add(text, "\nMemory a device: intermediates %s", size);
    if (plan->alive_bytes < clt_plan_arena_bytes(plan)) {
        bytes_text(plan->alive_bytes, size, sizeof size);
        clt_str_add(text, " (%s alive at most)", size);
    }
    const bool trains = plan->options.mode == CLT_PLAN_TRAIN;
    bytes_text(clt_plan_store_bytes(plan, 0), size, sizeof size);
    clt_str_add(text, ", %s %s", trains ? "parameters and gradients" : "parameters", size);
    if (trains && plan->options.precision != CLT_F32) {
        bytes_text(gradient_bytes(plan), size, sizeof size);
        clt_str_add(text, " (gradients in %s: %s)", clt_dtype_name(plan->options.precision), size);
    }
    clt_str_add(text, "\n");
}
