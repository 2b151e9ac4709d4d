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

/* From images [B, C, H, W] to logits [B, classes]. `arguments`: what stands behind the name's
 * colon; NULL: nothing. On a mistake there they return NULL and set the error message. */
typedef clt_value *clt_classifier_fn(clt_graph *graph, clt_value *image, int64_t classes,
                                     const char *arguments);
clt_classifier_fn clt_model_softmax, clt_model_mlp, clt_model_lenet;

/* A classifier of the data's images with its loss and accuracy. */
clt_status clt_model_classify(const char *model, clt_classifier_fn *build,
                              const clt_model_input *in, const char *arguments, clt_graph *graph);

/* A model file (models/file/). */
clt_status clt_model_file_build(const char *path, const clt_model_input *in, clt_graph *graph);

#endif
