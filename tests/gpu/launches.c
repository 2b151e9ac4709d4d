/*
 * Prints the kernels that plans for GPUs would launch, for tools/gpu-compile. A line has file,
 * build options, kernel, work-group size and role, separated by tabs. The role is `chosen` (a
 * plan's own choice) or `fallback` (a variant that is listed behind another one, which declines
 * groups of 256 or 2^30 elements). Fails if a variant that a GPU may run is in none of the plans
 * (covered.h). The layers of the plans are in the other files of this folder, by subject. Opens no
 * device.
 *
 *     gpu_launches amd | nvidia | intel [tiles]     tiles: more shapes, and a tuner's tiles
 *     gpu_launches h200 | mi300x | mi210            counts of launches (plans.h) of large models
 *                                                   and of the layers
 */
#include <stdio.h>
#include <string.h>

#include "gpu/covered.h"
#include "gpu/plans.h"
#include <cltrain/models.h>

/* Properties that the vendors' drivers report of a GPU in the middle of their range. */
static const clt_caps devices[] = {
    {.name = "amd",
     .vendor = "Advanced Micro Devices, Inc.",
     .kind = CLT_KIND_GPU,
     .compute_units = 60,
     .vector_width = 1,
     .memory_bytes = (int64_t)16 << 30,
     .max_alloc_bytes = (int64_t)4 << 30,
     .align_bytes = 128,
     .local_bytes = 65536,
     .max_work_group = 256,
     .clblast = true,
     .fp16 = true,
     .fp64 = true,
     .subgroups = true},
    {.name = "nvidia",
     .vendor = "NVIDIA Corporation",
     .kind = CLT_KIND_GPU,
     .compute_units = 108,
     .vector_width = 1,
     .memory_bytes = (int64_t)16 << 30,
     .max_alloc_bytes = (int64_t)4 << 30,
     .align_bytes = 128,
     .local_bytes = 49152,
     .max_work_group = 1024,
     .clblast = true,
     .fp64 = true},
    {.name = "intel",
     .vendor = "Intel(R) Corporation",
     .kind = CLT_KIND_GPU,
     .compute_units = 512,
     .vector_width = 1,
     .memory_bytes = (int64_t)16 << 30,
     .max_alloc_bytes = (int64_t)4 << 30,
     .align_bytes = 128,
     .local_bytes = 65536,
     .max_work_group = 512,
     .clblast = true,
     .fp16 = true,
     .subgroups = true},
};

/* `text`: the data include tokens, which the LSTM then takes. */
static void plan_model(const char *name, int text, const clt_caps *caps)
{
    clt_model_field fields[] = {{.name = ""},
                                {.name = ""},
                                {"x", CLT_F32, 2, {16, 4}, 0},
                                {"y", CLT_F32, 1, {2}, 0},
                                {"tokens", CLT_I32, 1, {64}, 256},
                                {"targets", CLT_I32, 1, {64}, 256}};
    clt_model_images(1, 28, 28, 10, fields);
    if (!strcmp(name, "unet"))
        for (int i = 2; i < 4; i++)
            fields[i] = (clt_model_field){fields[i].name, CLT_F32, 3, {2, 32, 32}, 0};
    const clt_model_input input = {
        .fields = fields, .n_fields = text ? 6 : 4, .ignore_index = -100};
    clt_graph *graph;
    OK(clt_graph_create(&graph));
    OK(clt_model_build(name, &input, graph));
    plan_graph(graph, caps, CLT_PLAN_TRAIN, 256);
}

/* Models whose values are kept in 16 bits. */
static void plan_in_half(const clt_caps *caps)
{
    static const clt_dtype types[] = {CLT_BF16, CLT_F16};
    for (int i = 0; i < 2; i++) {
        kept_in = types[i];
        plan_model("gpt2:nano", 1, caps);
        plan_model("lenet", 0, caps);
    }
    kept_in = CLT_F32;
}

/* The same kernels for GPUs with matrix units: of the vendor's kinds. */
static void plan_with_units(const clt_caps *caps)
{
    clt_caps with = *caps;
    const bool amd = !strcmp(caps->name, "amd");
    if (!strcmp(caps->name, "intel"))
        return;
    for (int i = 0; i < 1 + amd; i++) {
        with.matrix = (clt_matrix_unit){
            .kind = amd ? CLT_MATRIX_MFMA + (clt_matrix_kind)i : CLT_MATRIX_MMA, true, true};
        plan_in_half(&with);
        plan_matrix_units(&with);
        print_matrix_probes(&with);
    }
}

/* The layers of the other files of this folder. */
static void plan_layers(const clt_caps *caps)
{
    plan_products(caps);
    plan_long_products(caps);
    plan_convolutions(caps);
    plan_reductions(caps);
    plan_portable_parts(caps);
    plan_rows(caps);
    plan_subgroups(caps);
    plan_moves(caps);
    plan_places(caps);
    plan_casts(caps);
    plan_activations(caps);
    plan_pooling(caps);
    plan_norms(caps);
    plan_resampling(caps);
    plan_indices(caps);
    plan_recurrent(caps);
    plan_functions(caps);
    plan_masks(caps);
    plan_parts(caps);
    plan_pair_losses(caps);
    plan_attention(caps);
}

/* Plans a training step of a model and prints its counts. */
static void count_model(const char *name, int size, int classes, int64_t batch, clt_dtype type,
                        const clt_caps *caps)
{
    char title[64];
    const bool text = !strncmp(name, "gpt2", 4);
    clt_model_field fields[2] = {{"tokens", CLT_I32, 1, {size}, classes},
                                 {"targets", CLT_I32, 1, {size}, classes}};
    if (!text)
        clt_model_images(size == 28 ? 1 : 3, size, size, classes, fields);
    const clt_model_input input = {.fields = fields, .n_fields = 2, .ignore_index = -100};
    clt_graph *graph;
    snprintf(title, sizeof title, "%s %s", name, type == CLT_F32 ? "f32" : "bf16");
    kept_in = type;
    counted = title;
    OK(clt_graph_create(&graph));
    OK(clt_model_build(name, &input, graph));
    plan_graph(graph, caps, CLT_PLAN_TRAIN, batch);
    kept_in = CLT_F32;
}

/* Prints the counts of models at sizes that keep a large GPU busy, then of all layers. Properties
 * that are not of this GPU alone are those of its vendor's GPU. */
static int count_for(const char *gpu)
{
    static const struct {
        const char *name;
        int vendor, compute_units, memory_gib;
    } gpus[] = {{"mi210", 0, 104, 64}, {"mi300x", 0, 304, 192}, {"h200", 1, 132, 141}};
    for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++) {
        clt_caps caps = devices[gpus[i].vendor];
        if (strcmp(gpu, gpus[i].name))
            continue;
        caps.compute_units = gpus[i].compute_units;
        caps.matrix =
            (clt_matrix_unit){gpus[i].vendor ? CLT_MATRIX_MMA : CLT_MATRIX_MFMA, true, true, false};
        caps.memory_bytes = (int64_t)gpus[i].memory_gib << 30;
        caps.max_alloc_bytes = caps.memory_bytes / 2;
        for (int half = 0; half < 2; half++) {
            const clt_dtype type = half ? CLT_BF16 : CLT_F32;
            count_model("gpt2", 1024, 50257, 8, type, &caps);
            count_model("resnet18", 224, 1000, 64, type, &caps);
            count_model("lenet", 28, 10, 256, type, &caps);
        }
        counted = "layer";
        plan_layers(&caps);
        return 0;
    }
    return 2;
}

int main(int argc, char **argv)
{
    if (argc == 2 && !count_for(argv[1]))
        return 0;
    with_tiles = argc == 3 && !strcmp(argv[2], "tiles");
    for (size_t i = 0; argc == 2 + with_tiles && i < sizeof devices / sizeof *devices; i++) {
        const clt_caps *caps = &devices[i];
        if (strcmp(argv[1], caps->name))
            continue;
        for (int m = 0; m < clt_model_count(); m++)
            for (int text = 0; text < 2; text++)
                if (clt_model_takes(m) & (text ? CLT_MODEL_TEXT : ~CLT_MODEL_TEXT))
                    plan_model(clt_model_name(m), text, caps);
        plan_in_half(caps);
        plan_with_units(caps);
        plan_layers(caps);
        print_beside(caps);
        print_sums(caps);
        return covered_report(caps) ? 1 : 0;
    }
    fprintf(stderr, "usage: gpu_launches amd | nvidia | intel [tiles], or h200 | mi300x | mi210\n");
    return 2;
}
