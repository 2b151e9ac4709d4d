/* What the models' files share: the builders by name, and the data that they are built for. */
#ifndef CLTRAIN_MODELS_BUILDERS_H
#define CLTRAIN_MODELS_BUILDERS_H

#include <cltrain/models.h>

/* Sets the thread's message (printf) and returns the status. */
clt_status clt_model_fail(clt_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The field of that name, or NULL. */
const clt_model_field *clt_model_field_find(const clt_model_input *in, const char *name);

/* The data's fields as text: "image u8 [1,28,28], label u8 [] of 10 classes". */
void clt_model_fields_text(const clt_model_input *in, char *text, size_t room);

/* The input of the graph that a field feeds, with the batch in front. */
clt_value *clt_model_input_of(clt_graph *graph, const clt_model_field *field);

/* Fails: "model MODEL is WHAT FOR; the data have ...". */
clt_status clt_model_misfit(const char *model, const clt_model_input *in, const char *what);

/* An argument behind a model's name: a word, or NAME=NUMBER from least to most. */
typedef struct clt_model_argument {
    const char *name;
    int word, whole;
    int choice; /* of the words with the same one, but 0, at most one may be given */
    double least, most;
    double value; /* of a number; the default at first */
    int given;
} clt_model_argument;

/* Reads arguments by comma (NULL: none). INVALID_ARGUMENT for one that is not in the list,
 * and for two of a choice. */
clt_status clt_model_arguments(const char *model, const char *text, clt_model_argument *list,
                               int count);

/* The fields of text: tokens [T], and the tokens behind each of them. */
typedef struct clt_model_text_fields {
    const clt_model_field *tokens, *targets;
    int64_t length, vocabulary;
} clt_model_text_fields;

/* INVALID_ARGUMENT where the data are others. */
clt_status clt_model_find_text(const char *model, const clt_model_input *in,
                               clt_model_text_fields *out);

/* Of a language model's logits [B, T, vocabulary]: the output, and the cross entropy with the
 * targets, a token each. */
clt_status clt_model_predict_tokens(clt_graph *graph, clt_value *logits,
                                    const clt_model_text_fields *text, int ignore_index);

/* The output "prediction" and its mean squared error to a field. */
clt_status clt_model_regress(clt_graph *graph, clt_value *prediction, const clt_model_field *y);

/* Other models than classifiers of images. */
typedef clt_status clt_model_fn(const char *model, const clt_model_input *in, const char *arguments,
                                clt_graph *graph);

/* From images [B, C, H, W] to logits [B, classes]. `arguments`: what stands behind the name's
 * colon; NULL: nothing. On a mistake there they return NULL and set the error message. */
typedef clt_value *clt_classifier_fn(clt_graph *graph, clt_value *image, int64_t classes,
                                     const char *arguments);
clt_classifier_fn clt_model_softmax, clt_model_mlp, clt_model_lenet, clt_model_resnet18,
    clt_model_resnet34, clt_model_resnet50, clt_model_vit_tiny;
clt_model_fn clt_model_lstm, clt_model_lstm_regressor, clt_model_gpt2, clt_model_two_branch,
    clt_model_unet;

/* Builders of graphs that continue text; clt_model_decoder has checked the numbers. */
typedef clt_status clt_decoder_fn(const char *model, const clt_decoder *decoder,
                                  const char *arguments, clt_graph *graph);
clt_decoder_fn clt_decoder_gpt2, clt_decoder_lstm;

/* Of the input that a field feeds. */
clt_dtype clt_model_input_dtype(const clt_model_field *field);

/* A layer's parameter. One that the graph has already is shared if it has this shape; else the
 * graph fails. */
clt_value *clt_model_parameter(clt_graph *graph, const char *name, int rank, const int64_t *dims,
                               clt_init init);

/* Row `last` (i32 [1]; NULL: the only one) of each text of x [samples, T, W]: [samples, W]. */
clt_value *clt_decoder_row_of(clt_value *x, const clt_decoder *decoder, clt_value *last);

/* A classifier of the data's images with its loss and accuracy. */
clt_status clt_model_classify(const char *model, clt_classifier_fn *build,
                              const clt_model_input *in, const char *arguments, clt_graph *graph);

/* A model file (models/file/). */
clt_status clt_model_file_build(const char *path, const clt_model_input *in, clt_graph *graph);

#endif
