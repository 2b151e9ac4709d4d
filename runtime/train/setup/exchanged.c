#include "train/setup/exchanged.h"

void clt_exchanged_count(const clt_plan *plan, const clt_mesh *mesh,
                         const clt_trainer_options *options, int shards, clt_exchanged *e)
{
    const clt_buckets *layout = &plan->buckets;
    const clt_dtype wire = options->wire;
    const int element = clt_dtype_size(wire != CLT_F32 ? wire : plan->options.precision);
    const bool reduces = clt_mesh_places(mesh, CLT_AXIS_SAMPLES) > 1 && !mesh->zero;
    *e = (clt_exchanged){0};
    for (int a = 0; a < CLT_AXES; a++)
        e->axes[a] = options->accumulate *
                     clt_plan_payload(plan, (clt_axis)a, plan->options.max_batch, NULL);
    for (int i = 0; i < layout->n_slots; i++)
        if (clt_slot_tied(&layout->slots[i]))
            e->tied += layout->slots[i].bytes / 4 * element;
    for (int b = 0; reduces && b < layout->n_buckets; b++) {
        const int64_t bytes = clt_shard_bytes(&layout->buckets[b], shards) * shards;
        if (layout->buckets[b].state)
            continue;
        e->gradients += (options->virtual_shards ? layout->buckets[b].bytes : bytes) / 4 * element;
        e->parameters += shards > 1 ? bytes : 0;
    }
}

static void print(const char *what, int64_t bytes, clt_str *text)
{
    if (bytes)
        clt_str_add(text, "  %s: %lld bytes\n", what, (long long)bytes);
}

void clt_exchanged_print(const clt_exchanged *e, clt_str *text)
{
    clt_str_add(text, "\nExchanged in a step, in whole tensors\n");
    for (int a = 0; a < CLT_AXES; a++)
        print(clt_axis_name((clt_axis)a), e->axes[a], text);
    print("gradients of parameters that several stages have", e->tied, text);
    print("gradients of devices that divide the samples", e->gradients, text);
    print("their parameters", e->parameters, text);
}
