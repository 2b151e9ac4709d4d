/* Graphs that continue text token by token. */
#include <string.h>

#include "builders.h"

typedef struct decoder_row {
    const char *name;
    clt_decoder_fn *build;
} decoder_row;

static const decoder_row rows[] = {
    {"gpt2", clt_decoder_gpt2},
    {"lstm", clt_decoder_lstm},
};
enum { ROWS = sizeof rows / sizeof *rows };

clt_value *clt_decoder_row_of(clt_value *x, const clt_decoder *decoder, clt_value *last)
{
    if (!x)
        return NULL;
    const int64_t dims[] = {decoder->samples, clt_value_dim(x, 2)};
    return clt_reshape(last ? clt_index_select(x, 1, last) : x, 2, dims);
}

static clt_status check(const clt_decoder *d)
{
    if (d->vocabulary < 1 || d->positions < 1 || d->samples < 1 || d->length < 1 ||
        d->length > d->positions)
        return clt_model_fail(CLT_INVALID_ARGUMENT,
                              "a decoder for %lld tokens of a vocabulary of %lld in %lld texts of "
                              "up to %lld tokens is not possible",
                              (long long)d->length, (long long)d->vocabulary, (long long)d->samples,
                              (long long)d->positions);
    if (d->weights != CLT_F32 && d->weights != CLT_BF16 && d->weights != CLT_F16)
        return clt_model_fail(CLT_INVALID_ARGUMENT,
                              "weights of a decoder are f32, bf16 or f16, not %s",
                              clt_dtype_name(d->weights));
    return CLT_OK;
}

clt_status clt_model_decoder(const char *name, const clt_decoder *decoder, clt_graph *graph)
{
    const size_t length = strcspn(name, ":");
    const char *arguments = name[length] ? name + length + 1 : NULL;
    clt_status status = check(decoder);
    if (status != CLT_OK)
        return status;
    for (int i = 0; i < ROWS; i++)
        if (strlen(rows[i].name) == length && !strncmp(rows[i].name, name, length))
            return rows[i].build(name, decoder, arguments, graph);
    return clt_model_fail(CLT_NOT_FOUND,
                          "model %s does not continue text; gpt2 and lstm do (models that files "
                          "describe do not)",
                          name);
}
