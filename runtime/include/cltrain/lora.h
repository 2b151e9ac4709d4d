/*
 * Low-rank adapters of linear layers (LoRA; Hu et al., ICLR 2022), as Hugging Face's peft has them.
 * A layer y = x W becomes y = x W + alpha / rank * B (A dropout(x)). A and B are trained,
 * everything else is frozen. So gradients and the optimizer's state are those of A and B alone.
 *
 *     clt_lora_options options;
 *     clt_lora_options_init(&options);
 *     options.pattern = "*.attn.c_attn";
 *     clt_model_build("gpt2:124M", &input, graph);
 *     clt_lora(graph, &options, NULL);
 *     clt_store_create(graph, ...);
 *     clt_store_load_skipping(store, "model.safetensors", CLT_LORA_TENSORS, NULL);
 *
 * The functions on stores need a graph that clt_lora was called for, and a store of that graph.
 * They read and write whole tensors on this process' devices, one thread at a time.
 */
#ifndef CLTRAIN_LORA_H
#define CLTRAIN_LORA_H

#include <cltrain/store.h>

CLT_BEGIN_DECLS

/* A pattern for the names of adapters: LAYER.lora_A.weight [rank, in], LAYER.lora_B.weight [out,
 * rank]. */
#define CLT_LORA_TENSORS "*.lora_A.weight|*.lora_B.weight"

/* Set up by clt_lora_options_init, with the defaults that stand at the members. */
typedef struct clt_lora_options {
    size_t struct_size;  /* set by clt_lora_options_init */
    const char *pattern; /* NULL; layers by name, such as "fc1" or "h.*.attn.c_attn", or their
                            weights; patterns as for clt_freeze */
    int rank;            /* 8 */
    double alpha;        /* 0: the rank */
    double dropout;      /* 0; the probability with which elements of A's input become zero */
} clt_lora_options;

/* Sets struct_size and the defaults. */
CLT_API void clt_lora_options_init(clt_lora_options *options);

/*
 * Adds adapters to the linear layers that match, and freezes all other parameters. Call it when the
 * model is complete, before a store is made. It may be called again for other layers. A layer is
 * clt_linear, or clt_matmul with a parameter as its second operand, as the layers of gpt2 are. A
 * begins with random numbers as Kaiming's uniform initialisation in peft, and B with zeros, so the
 * model computes the same at first. Values that the caller holds stay valid, but are those without
 * the adapters.
 *
 * *count (may be NULL) is the number of layers. Errors: NOT_FOUND (no layer matches),
 * INVALID_ARGUMENT (a rank below 1 or above the layer's sizes; alpha or dropout out of range; a
 * layer that has adapters), UNSUPPORTED (a weight with several uses, such as an embedding that is
 * tied to the output layer), OUT_OF_MEMORY. A failure leaves the graph as it was.
 */
CLT_API clt_status clt_lora(clt_graph *graph, const clt_lora_options *options, int *count);

/* Saves the adapters alone, as peft does: adapter_model.safetensors and adapter_config.json in the
 * folder `folder`, which is made. PeftModel.from_pretrained loads them onto the model whose layers
 * have the same names. Errors: INVALID_ARGUMENT (the graph has no adapters), IO, those of
 * clt_store_get. */
CLT_API clt_status clt_lora_save(const clt_graph *graph, clt_store *store, const char *folder);

/* Loads adapters from such a folder, or from a safetensors file. Errors: those of clt_tensors_open;
 * MISMATCH (a tensor is missing, has another shape, or belongs to a layer without adapters). A
 * failure changes nothing. */
CLT_API clt_status clt_lora_load(const clt_graph *graph, clt_store *store, const char *path);

/* Adds the adapters to the weights of their layers, and sets each B to zero. The model computes the
 * same as before, up to rounding. Errors: as clt_lora_save. */
CLT_API clt_status clt_lora_merge(const clt_graph *graph, clt_store *store);

/* Saves the model with merged weights and without adapters, as a safetensors file of the model
 * before clt_lora. The store stays as it is. Errors: as clt_lora_save. */
CLT_API clt_status clt_lora_save_merged(const clt_graph *graph, clt_store *store, const char *path);

CLT_END_DECLS

#endif
