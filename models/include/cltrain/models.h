/* The models of the command line, built with the public interface only. */
#ifndef CLTRAIN_MODELS_H
#define CLTRAIN_MODELS_H

#include <cltrain/graph.h>
#include <cltrain/ops.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a classifier of images is built for. */
typedef struct clt_model_input {
    int64_t channels, height, width;
    int64_t classes;
    int ignore_index; /* labels that count neither in the loss nor in the accuracy */
} clt_model_input;

/*
 * Builds a model by name into an empty graph. A name may end in arguments, where its description
 * says so: "mlp:512,256". The graph has inputs "image" f32 [B, C, H, W] and "label" i32 [B],
 * output "logits" [B, classes], loss "loss" (cross entropy) and metric "accuracy". Errors:
 * NOT_FOUND for an unknown name (the message suggests the nearest), INVALID_ARGUMENT for arguments
 * that the model does not take, and those of the graph.
 */
clt_status clt_model_build(const char *name, const clt_model_input *input, clt_graph *graph);

/* Number of models, and name and one-line description of each. */
int clt_model_count(void);
const char *clt_model_name(int index);
const char *clt_model_text(int index);

/* Shared by the builders: layers with PyTorch's names and default initialisation. */
clt_value *clt_layer_linear(clt_graph *graph, clt_value *x, const char *name, int64_t out);
clt_value *clt_layer_conv2d(clt_graph *graph, clt_value *x, const char *name, int64_t out,
                            int kernel, const clt_conv2d_options *options);

/* Of torch.nn.LSTM and torch.nn.GRU with batch_first: what is 0 or NULL is left out. Entry
 * layer * directions + direction (1: reverse) of h0, c0, h_n and c_n is what PyTorch has there. */
enum { CLT_LAYER_STATES = 32 };
typedef struct clt_layer_recurrent {
    int64_t hidden;
    int layers; /* layers * directions is at most CLT_LAYER_STATES */
    int bidirectional;
    double dropout;     /* between layers */
    clt_value *lengths; /* i32 [B], as clt_recurrent_options has it */
    clt_value *h0[CLT_LAYER_STATES], *c0[CLT_LAYER_STATES];   /* [B, hidden] */
    clt_value *h_n[CLT_LAYER_STATES], *c_n[CLT_LAYER_STATES]; /* set: the states at the end */
} clt_layer_recurrent;

/* x [B, T, I] to [B, T, directions * hidden]; parameters NAME.weight_ih_l0, NAME.weight_hh_l0,
 * NAME.bias_ih_l0, NAME.bias_hh_l0, .._l0_reverse, .._l1 ..; without a name, weight_ih_l0 .. NULL
 * for numbers of layers or units that are not possible. */
clt_value *clt_layer_lstm(clt_graph *graph, clt_value *x, const char *name,
                          clt_layer_recurrent *layer);
clt_value *clt_layer_gru(clt_graph *graph, clt_value *x, const char *name,
                         clt_layer_recurrent *layer);

/* The builders: from images to logits. `arguments`: what stands behind the name's colon; NULL:
 * nothing. On a mistake there they return NULL and set the error message. */
clt_value *clt_model_softmax(clt_graph *graph, clt_value *image, int64_t classes,
                             const char *arguments);
clt_value *clt_model_mlp(clt_graph *graph, clt_value *image, int64_t classes,
                         const char *arguments);
clt_value *clt_model_lenet(clt_graph *graph, clt_value *image, int64_t classes,
                           const char *arguments);

#ifdef __cplusplus
}
#endif

#endif
