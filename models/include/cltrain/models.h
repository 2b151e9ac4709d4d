/*
 * The models of the command line, built with the public interface only, and models described in
 * files. What a model is built for is the data: the fields that a sample has, by name.
 */
#ifndef CLTRAIN_MODELS_H
#define CLTRAIN_MODELS_H

#include <cltrain/graph.h>
#include <cltrain/ops.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A field of the data: what one sample has of it, without the batch. */
typedef struct clt_model_field {
    const char *name;
    clt_dtype dtype; /* u8 with classes feeds an i32 input, u8 without them an f32 one */
    int rank;
    int64_t dims[CLT_MAX_RANK - 1];
    int64_t classes; /* the values are labels 0 .. classes - 1, or tokens; 0: they are numbers */
} clt_model_field;

typedef struct clt_model_input {
    const clt_model_field *fields;
    int n_fields;
    int ignore_index; /* labels that count neither in the loss nor in the accuracy */
    int64_t batch;    /* samples of the largest batch, for models that carry states; 0: unknown */
} clt_model_input;

/* The fields of images with labels, which classifiers are built for: "image" f32
 * [channels, height, width] and "label" i32 []. */
void clt_model_images(int64_t channels, int64_t height, int64_t width, int64_t classes,
                      clt_model_field fields[2]);

/*
 * Builds a model into an empty graph. `name` is one of the list below, and may end in arguments
 * where its description says so, as "mlp:512,256"; or it is the path of a model file, which ends in
 * ".json" (docs/models.md). The graph's inputs carry the names of the fields that the model
 * uses. Classifiers of images have inputs "image" and "label", output "logits" [B, classes], loss
 * "loss" (cross entropy) and metric "accuracy".
 *
 * lstm, with tokens and a field "continues" f32 [] (CLT_WINDOWS_CONTINUED of <cltrain/data.h>),
 * carries its states from batch to batch: carried.h.L and carried.c.L [batch, hidden] of layer L.
 * The other graphs of lstm pass over them in files (clt_file_names).
 *
 * Errors: NOT_FOUND for an unknown name (the message suggests the nearest) or a file that is not
 * there, FORMAT (file, line, node and what is wrong), INVALID_ARGUMENT for arguments that the model
 * does not take and for data that lack a field or have it in another shape, and those of the graph.
 */
clt_status clt_model_build(const char *name, const clt_model_input *input, clt_graph *graph);

/* Data that a model can be built for: "image" with "label", "tokens" with "targets", and arrays x
 * and y. */
enum { CLT_MODEL_IMAGES = 1, CLT_MODEL_TEXT = 2, CLT_MODEL_ARRAYS = 4 };

/* A run of a graph that continues texts. */
typedef struct clt_decoder {
    int64_t vocabulary; /* numbers of tokens */
    int64_t positions;  /* of gpt2: rows of wpe.weight, the longest text, and of the cache */
    int64_t samples;    /* texts side by side, of equal length */
    int64_t length;     /* tokens of each that a run reads: 1 to go on, more to begin with */
} clt_decoder;

/*
 * Builds into an empty graph what continues text with the parameters of the model `name` (gpt2 or
 * lstm, with the arguments of clt_model_build), for a predictor (<cltrain/predict.h>). A run reads
 * the next `length` tokens of each text and gives the logits of the token behind one of them; what
 * came before is not computed again: keys and values of attention, and the state of recurrent
 * layers, are carried states. Graphs of several lengths and the same other numbers work on one
 * store, whose carried states are theirs together.
 *
 *     inputs   tokens     i32 [samples, length]
 *              positions  i32 [length]: the tokens' places in the text, P, P + 1, ..; below
 *                         `positions` (gpt2)
 *              last       i32 [1]: the row of the run that logits are wanted of (length > 1)
 *     output   logits     f32 [samples, vocabulary]
 *
 * gpt2: rows may be computed again, and rows behind the text may hold anything: a row is read only
 * once a token at or behind its place comes. A new text begins at position 0; nothing needs to be
 * cleared. lstm: `length` is 1; a new text begins after its states, lstm.h.I and lstm.c.I, are set
 * to zero (clt_store_set).
 *
 * Errors: NOT_FOUND (a model that does not continue text), INVALID_ARGUMENT, those of the graph.
 */
clt_status clt_model_decoder(const char *name, const clt_decoder *decoder, clt_graph *graph);

/* Number of models, name and one-line description of each, and the kinds of data that it takes. */
int clt_model_count(void);
const char *clt_model_name(int index);
const char *clt_model_text(int index);
int clt_model_takes(int index);

/* Whether a name is the path of a model file. */
int clt_model_is_file(const char *name);

/*
 * Shared by the builders: layers with PyTorch's names and default initialisation, for the operators
 * of the same names in <cltrain/ops.h>, whose shapes and errors they have. `bias` 0: none. Except
 * for recurrent layers and batch norm, a layer whose parameters the graph has already uses them
 * again. They return NULL for a NULL x and on failure, which the graph keeps; values belong to the
 * graph.
 *
 *     linear            x [.., K] -> [.., out]
 *     conv2d            x [B, C, H, W] -> [B, out, OH, OW]
 *     conv1d, conv3d, conv_transpose2d, batch_norm: x as <cltrain/ops_conv.h> and ops_norm.h say
 */
clt_value *clt_layer_linear(clt_graph *graph, clt_value *x, const char *name, int64_t out);
clt_value *clt_layer_linear_with(clt_graph *graph, clt_value *x, const char *name, int64_t out,
                                 int bias);
clt_value *clt_layer_conv2d(clt_graph *graph, clt_value *x, const char *name, int64_t out,
                            int kernel, const clt_conv2d_options *options);
clt_value *clt_layer_conv2d_with(clt_graph *graph, clt_value *x, const char *name, int64_t out,
                                 const int kernel[2], int bias, const clt_conv2d_options *options);
clt_value *clt_layer_conv1d(clt_graph *graph, clt_value *x, const char *name, int64_t out,
                            int kernel, const clt_conv1d_options *options);
clt_value *clt_layer_conv3d(clt_graph *graph, clt_value *x, const char *name, int64_t out,
                            int kernel, const clt_conv3d_options *options);
clt_value *clt_layer_conv_transpose2d(clt_graph *graph, clt_value *x, const char *name, int64_t out,
                                      int kernel, const clt_conv_transpose2d_options *options);

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

/* Batch norm with torch.nn.BatchNorm2d's parameters and states: NAME.weight, NAME.bias,
 * NAME.running_mean, NAME.running_var, NAME.num_batches_tracked. */
clt_value *clt_layer_batch_norm(clt_graph *graph, clt_value *x, const char *name,
                                const clt_batch_norm_options *options);

/* Layer norm over the last axis; NAME.weight and NAME.bias. */
clt_value *clt_layer_layer_norm(clt_graph *graph, clt_value *x, const char *name, double eps);

#ifdef __cplusplus
}
#endif

#endif
