/* Interface between the files of this folder: the builders, and helpers for data, arguments and
 * parameters. */
#ifndef CLTRAIN_MODELS_BUILDERS_H
#define CLTRAIN_MODELS_BUILDERS_H

#include <cltrain/models.h>

/* Sets the thread's error message (printf format) and returns `status`. */
clt_status clt_model_fail(clt_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* MODEL_TRY returns the status of `expression` from the calling function unless it is CLT_OK.
 * MODEL_NEXT is the next of several steps: it evaluates `expression` and stores its status, unless
 * `variable` has the failure of an earlier step. */
#define MODEL_TRY(expression)                                                                      \
    do {                                                                                           \
        const clt_status try_status_ = (expression);                                               \
        if (try_status_ != CLT_OK)                                                                 \
            return try_status_;                                                                    \
    } while (0)
#define MODEL_NEXT(variable, expression)                                                           \
    do {                                                                                           \
        if ((variable) == CLT_OK)                                                                  \
            (variable) = (expression);                                                             \
    } while (0)

/* Returns the field of that name, or NULL. */
const clt_model_field *clt_model_field_find(const clt_model_input *in, const char *name);

/* Writes the data's fields, such as "image u8 [1,28,28], label u8 [] of 10 classes". */
void clt_model_fields_text(const clt_model_input *in, char *text, size_t room);

/* Adds the graph input that a field feeds, with a batch axis in front. */
clt_value *clt_model_input_of(clt_graph *graph, const clt_model_field *field);

/* Axis space splits the rows of images [B, C, H, W]. Returns the image. */
clt_value *clt_model_split_rows(clt_value *image);

/* Sets the error "model MODEL is `what`; the data have ...". Returns INVALID_ARGUMENT. */
clt_status clt_model_misfit(const char *model, const clt_model_input *in, const char *what);

/* An argument behind a model's name: a word, or NAME=NUMBER with a number from `least` to
 * `most`. */
typedef struct clt_model_argument {
    const char *name;
    int word, whole;
    int choice; /* words with the same `choice` exclude each other; 0: excludes none */
    double least, most;
    double value; /* of a number; initially the default */
    int given;
} clt_model_argument;

/* Reads arguments that are separated by commas. NULL stands for no arguments. Returns
 * INVALID_ARGUMENT for an unknown argument, or for two words of a choice. */
clt_status clt_model_arguments(const char *model, const char *text, clt_model_argument *list,
                               int count);

/* The fields of text: tokens [T], and as targets the token behind each of them. */
typedef struct clt_model_text_fields {
    const clt_model_field *tokens, *targets;
    int64_t length, vocabulary;
} clt_model_text_fields;

/* Finds the fields of text. Returns INVALID_ARGUMENT if the data have no text. */
clt_status clt_model_find_text(const char *model, const clt_model_input *in,
                               clt_model_text_fields *out);

/* Adds the graph input that a field of text feeds. Axis time splits its positions. */
clt_value *clt_model_text_of(clt_graph *graph, const clt_model_field *field);

/* Adds the output "logits" [B, T, vocabulary] of a language model, and its cross entropy with the
 * targets. */
clt_status clt_model_predict_tokens(clt_graph *graph, clt_value *logits,
                                    const clt_model_text_fields *text, int ignore_index);

/* Adds the output "prediction" and its mean squared error to a field. */
clt_status clt_model_regress(clt_graph *graph, clt_value *prediction, const clt_model_field *y);

/* A builder of a model that is not a classifier of images. */
typedef clt_status clt_model_fn(const char *model, const clt_model_input *in, const char *arguments,
                                clt_graph *graph);

/* A builder of a classifier: images [B, C, H, W] -> logits [B, classes]. `arguments` is the text
 * behind the colon of the name, or NULL. For wrong arguments it returns NULL and sets the error
 * message. */
typedef clt_value *clt_classifier_fn(clt_graph *graph, clt_value *image, int64_t classes,
                                     const char *arguments);
clt_classifier_fn clt_model_softmax, clt_model_mlp, clt_model_lenet, clt_model_resnet18,
    clt_model_resnet34, clt_model_resnet50, clt_model_vit_tiny;
clt_model_fn clt_model_lstm, clt_model_lstm_regressor, clt_model_gpt2, clt_model_two_branch,
    clt_model_unet;

/* A builder of a graph that continues text. clt_model_decoder has checked the sizes. */
typedef clt_status clt_decoder_fn(const char *model, const clt_decoder *decoder,
                                  const char *arguments, clt_graph *graph);
clt_decoder_fn clt_decoder_gpt2, clt_decoder_lstm;

/* Returns the type of the input that a field feeds. */
clt_dtype clt_model_input_dtype(const clt_model_field *field);

/* Returns the parameter of a layer. Shares a parameter of the graph that has this name and shape.
 * The graph fails if the shape differs. */
clt_value *clt_model_parameter(clt_graph *graph, const char *name, int rank, const int64_t *dims,
                               clt_init init);

/* A row of clt_model_shard: parameters that axis tp splits, see clt_shard. */
typedef struct clt_model_split {
    const char *pattern;
    int dim, blocks;
} clt_model_split;

/* Splits parameters over axis tp. The last row has a NULL pattern. */
clt_status clt_model_shard(clt_graph *graph, const clt_model_split *rows);

/* Returns row `last` of each text: x [samples, T, W] -> [samples, W]. `last` is i32 [1], or NULL if
 * T is 1. */
clt_value *clt_decoder_row_of(clt_value *x, const clt_decoder *decoder, clt_value *last);

/* Builds a classifier of the data's images with its loss and accuracy. */
clt_status clt_model_classify(const char *model, clt_classifier_fn *build,
                              const clt_model_input *in, const char *arguments, clt_graph *graph);

/* Returns whether the data have features x instead of images. */
int clt_model_has_features(const clt_model_input *in);

/* Builds the same from features x [...] to the field label, or with mean squared error to the field
 * y. */
clt_status clt_model_of_features(const char *model, clt_classifier_fn *build,
                                 const clt_model_input *in, const char *arguments,
                                 clt_graph *graph);

/* Builds a model from a file (models/file/). */
clt_status clt_model_file_build(const char *path, const clt_model_input *in, clt_graph *graph);

#endif
