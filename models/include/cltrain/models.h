/*
 * Builders of the command's models, which use the public interface only, and a builder for models
 * that are described in files. A model is built for the fields of a data set.
 */
#ifndef CLTRAIN_MODELS_H
#define CLTRAIN_MODELS_H

#include <cltrain/graph.h>
#include <cltrain/ops.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A field of the data set: the type and shape of one sample, without the batch. */
typedef struct clt_model_field {
    const char *name;
    clt_dtype dtype; /* u8 with classes feeds an i32 input, u8 without classes an f32 input */
    int rank;
    int64_t dims[CLT_MAX_RANK - 1];
    int64_t classes; /* values are labels or tokens below `classes`; 0 for other numbers */
} clt_model_field;

typedef struct clt_model_input {
    const clt_model_field *fields;
    int n_fields;
    int ignore_index; /* labels of this value count neither in the loss nor in the accuracy */
    int64_t batch;    /* samples of the largest batch, for models that carry states; 0 if unknown */
    /* Of classifiers, see clt_cross_entropy_options; NULL: none. In model files they are for losses
     * cross_entropy, and as many as the size "classes" says. */
    const double *class_weights;
} clt_model_input;

/* Sets the fields of labelled images, which classifiers need: "image" f32 [channels, height, width]
 * and "label" i32 []. */
CLT_API void clt_model_images(int64_t channels, int64_t height, int64_t width, int64_t classes,
                              clt_model_field fields[2]);

/*
 * Builds a model into an empty graph.
 *
 * `name` is a name from clt_model_name, with arguments if its description has some, such as
 * "mlp:512,256". Or it is the path of a model file, which ends in ".json" (docs/models.md).
 *
 * The graph's inputs have the names of the fields that the model uses. Classifiers of images have
 * inputs "image" and "label", output "logits" [B, classes], loss "loss" (cross entropy) and metric
 * "accuracy".
 *
 * lstm carries its states from batch to batch if the data have tokens and a field "continues" f32
 * [] (CLT_WINDOWS_CONTINUED of <cltrain/data.h>). The states of layer L are carried.h.L and
 * carried.c.L [batch, hidden]. Other graphs of lstm skip these states when they read a file
 * (clt_file_names).
 *
 * Errors:
 * - NOT_FOUND: no model has this name (the message suggests the nearest), or the file does not
 *   exist.
 * - FORMAT: the file is wrong. The message has file, line and node.
 * - INVALID_ARGUMENT: the model does not take an argument, or the data lack a field or have another
 *   shape.
 * - The errors of the graph.
 */
CLT_API clt_status clt_model_build(const char *name, const clt_model_input *input,
                                   clt_graph *graph);

/*
 * Makes a graph that learns a function of numbers, such as the surrogate of a part of a simulation:
 * a multilayer perceptron whose hidden layers have `hidden[0]` to `hidden[layers - 1]` units.
 *
 *     inputs   x           f32 [B, in]
 *              y           f32 [B, out]
 *     output   prediction  f32 [B, out]
 *     loss     loss        mean of (prediction - y)^2
 *
 * `activation` is tanh (also for NULL), relu, gelu, silu or sigmoid. Parameters are fc1.weight,
 * fc1.bias, fc2.weight and so on. Errors: INVALID_ARGUMENT (a size), NOT_FOUND (the activation).
 * Destroy *graph with clt_graph_destroy.
 */
CLT_API clt_status clt_mlp_regressor(int64_t in, const int64_t *hidden, int layers, int64_t out,
                                     const char *activation, clt_graph **graph);

/* Data that a model can be built for: "image" with "label", "tokens" with "targets", or arrays x
 * and y. */
enum { CLT_MODEL_IMAGES = 1, CLT_MODEL_TEXT = 2, CLT_MODEL_ARRAYS = 4 };

/* The sizes of a graph that continues texts. */
typedef struct clt_decoder {
    int64_t vocabulary; /* number of different tokens */
    int64_t positions;  /* for gpt2: rows of wpe.weight and of the cache: the longest text */
    int64_t samples;    /* texts of equal length that are continued together */
    int64_t length;     /* tokens of each text that a run reads: 1 to continue, more for a prompt */
    clt_dtype weights;  /* CLT_F32, or for gpt2 CLT_BF16 or CLT_F16: the type in which the store has
                           the matrices. They are states then, which clt_store_load rounds. */
} clt_decoder;

/*
 * Builds into an empty graph a decoder for the parameters of the model `name`: gpt2 or lstm, with
 * the arguments of clt_model_build. Run the graph with a predictor (<cltrain/predict.h>). A run
 * reads the next `length` tokens of each text and computes the logits of the next token. Earlier
 * tokens are not computed again: the keys and values of attention and the states of recurrent
 * layers are carried states. Graphs that differ only in `length` may share a store, and then share
 * the carried states.
 *
 *     inputs   tokens     i32 [samples, length]
 *              positions  i32 [length]: the tokens' places in the text, P, P + 1, ..; below
 *                         `positions` (gpt2)
 *              last       i32 [1]: the row whose logits to compute, in [0, length) (length > 1)
 *     output   logits     f32 [samples, vocabulary]
 *
 * gpt2: rows may be computed again, and rows behind the text may hold any value, since a row is
 * read only by tokens at or behind its place. A new text begins at position 0, and nothing needs to
 * be cleared. lstm: `length` is 1. Before a new text, set the states lstm.h.I and lstm.c.I to zero
 * (clt_store_set).
 *
 * Errors: NOT_FOUND (the model does not continue text), INVALID_ARGUMENT, and those of the graph.
 */
CLT_API clt_status clt_model_decoder(const char *name, const clt_decoder *decoder,
                                     clt_graph *graph);

/* Return the number of models, and for each model its name, one-line description and kinds of
 * data. */
CLT_API int clt_model_count(void);
CLT_API const char *clt_model_name(int index);
CLT_API const char *clt_model_text(int index);
CLT_API int clt_model_takes(int index);

/* Returns whether a name is the path of a model file. */
CLT_API int clt_model_is_file(const char *name);

/*
 * Layers with PyTorch's parameter names and default initialisation. Shapes and errors are those of
 * the operators with the same names in <cltrain/ops.h>. `bias` 0 leaves the bias out. If the graph
 * has the parameters already, a layer shares them, except recurrent layers and batch norm. A layer
 * returns NULL for a NULL x and on failure, which the graph keeps. The graph owns all values.
 *
 *     linear            x [.., K] -> [.., out]
 *     conv2d            x [B, C, H, W] -> [B, out, OH, OW]
 *     conv1d, conv3d, conv_transpose2d, batch_norm: x as <cltrain/ops/conv.h> and ops/norm.h say
 */
CLT_API clt_value *clt_layer_linear(clt_graph *graph, clt_value *x, const char *name, int64_t out);
CLT_API clt_value *clt_layer_linear_with(clt_graph *graph, clt_value *x, const char *name,
                                         int64_t out, int bias);
CLT_API clt_value *clt_layer_conv2d(clt_graph *graph, clt_value *x, const char *name, int64_t out,
                                    int kernel, const clt_conv2d_options *options);
CLT_API clt_value *clt_layer_conv2d_with(clt_graph *graph, clt_value *x, const char *name,
                                         int64_t out, const int kernel[2], int bias,
                                         const clt_conv2d_options *options);
CLT_API clt_value *clt_layer_conv1d(clt_graph *graph, clt_value *x, const char *name, int64_t out,
                                    int kernel, const clt_conv1d_options *options);
CLT_API clt_value *clt_layer_conv3d(clt_graph *graph, clt_value *x, const char *name, int64_t out,
                                    int kernel, const clt_conv3d_options *options);
CLT_API clt_value *clt_layer_conv_transpose2d(clt_graph *graph, clt_value *x, const char *name,
                                              int64_t out, int kernel,
                                              const clt_conv_transpose2d_options *options);

/* Settings of torch.nn.LSTM and torch.nn.GRU with batch_first. Settings that are 0 or NULL are not
 * used. Entries of h0, c0, h_n and c_n have PyTorch's order: layer * directions + direction, where
 * direction 1 is the reverse. */
enum { CLT_LAYER_STATES = 32 };
typedef struct clt_layer_recurrent {
    int64_t hidden;
    int layers; /* layers * directions is at most CLT_LAYER_STATES */
    int bidirectional;
    double dropout;                                         /* between layers */
    clt_value *lengths;                                     /* i32 [B], see clt_recurrent_options */
    clt_value *h0[CLT_LAYER_STATES], *c0[CLT_LAYER_STATES]; /* [B, hidden] */
    clt_value *h_n[CLT_LAYER_STATES], *c_n[CLT_LAYER_STATES]; /* outputs: the final states */
} clt_layer_recurrent;

/* Build recurrent layers: x [B, T, I] -> [B, T, directions * hidden]. Parameters are
 * NAME.weight_ih_l0, NAME.weight_hh_l0, NAME.bias_ih_l0, NAME.bias_hh_l0, .._l0_reverse, .._l1, ...
 * Without a name they are weight_ih_l0 and so on. Return NULL for impossible numbers of layers or
 * units. */
CLT_API clt_value *clt_layer_lstm(clt_graph *graph, clt_value *x, const char *name,
                                  clt_layer_recurrent *layer);
CLT_API clt_value *clt_layer_gru(clt_graph *graph, clt_value *x, const char *name,
                                 clt_layer_recurrent *layer);

/* Builds batch norm with the parameters and states of torch.nn.BatchNorm2d: NAME.weight, NAME.bias,
 * NAME.running_mean, NAME.running_var, NAME.num_batches_tracked. */
CLT_API clt_value *clt_layer_batch_norm(clt_graph *graph, clt_value *x, const char *name,
                                        const clt_batch_norm_options *options);

/* Builds layer norm over the last axis with NAME.weight and NAME.bias. */
CLT_API clt_value *clt_layer_layer_norm(clt_graph *graph, clt_value *x, const char *name,
                                        double eps);

#ifdef __cplusplus
}
#endif

#endif
