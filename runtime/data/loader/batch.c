#include "data/loader/batch.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "data/image/augment.h"

void clt_gather_init(clt_gather *gather, clt_dataset *dataset)
{
    *gather = (clt_gather){.dataset = dataset, .labels = -1};
}

static void free_scaling(clt_data_output *output)
{
    CLT_FREE(output->table, output->scale, output->shift);
    output->table = output->scale = output->shift = NULL;
    output->channels = 0;
}

void clt_gather_free(clt_gather *gather)
{
    for (int i = 0; i < gather->count; i++)
        free_scaling(&gather->outputs[i]);
    gather->count = 0;
}

clt_status clt_gather_add(clt_gather *gather, const char *field, clt_dtype dtype, int *out)
{
    clt_dataset *d = gather->dataset;
    int index;
    CLT_TRY(clt_dataset_find_field(d, field, &index));
    const clt_data_field *f = &d->fields[index];
    if (gather->count == CLT_DATA_MAX_FIELDS)
        return clt_fail(CLT_INVALID_ARGUMENT, "data set '%s': output '%s' is one more than %d",
                        d->name, field, CLT_DATA_MAX_FIELDS);
    bool converts = (dtype == CLT_F32 && (f->dtype == CLT_U8 || f->dtype == CLT_I32)) ||
                    (dtype == CLT_I32 && f->dtype == CLT_U8);
    if (dtype != f->dtype && !converts)
        return clt_fail(CLT_UNSUPPORTED, "data set '%s', field '%s': %s is not converted to %s",
                        d->name, field, clt_dtype_name(f->dtype), clt_dtype_name(dtype));
    int64_t bytes;
    if (__builtin_mul_overflow(f->elements, (int64_t)clt_dtype_size(dtype), &bytes))
        return clt_fail(CLT_SHAPE, "data set '%s', field '%s': too large as %s", d->name, field,
                        clt_dtype_name(dtype));
    gather->outputs[gather->count] = (clt_data_output){
        .field = index, .dtype = dtype, .bytes = bytes, .plain = dtype == f->dtype};
    gather->count++;
    if (dtype == CLT_F32 && f->dtype != CLT_F32) {
        clt_status status = clt_gather_normalize(gather, gather->count - 1,
                                                 f->dtype == CLT_U8 ? 255.0 : 1.0, 1, NULL, NULL);
        if (status != CLT_OK) {
            gather->count--;
            return status;
        }
    }
    if (out)
        *out = gather->count - 1;
    return CLT_OK;
}

static clt_status check_output(const clt_gather *g, int output)
{
    if (output < 0 || output >= g->count)
        return clt_fail(CLT_INVALID_ARGUMENT, "data set '%s': there is no output %d, there are %d",
                        g->dataset->name, output, g->count);
    return CLT_OK;
}

/* Whether division of a byte gives the same bits as the tables of all channels. */
static bool quotients(const float *table, int channels, float divisor)
{
    bool same = table != NULL;
    for (int i = 0; same && i < channels * 256; i++) {
        const float quotient = (float)(i % 256) / divisor;
        same = memcmp(&quotient, &table[i], sizeof quotient) == 0;
    }
    return same;
}

clt_status clt_gather_normalize(clt_gather *gather, int output, double divisor, int channels,
                                const double *mean, const double *std)
{
    CLT_TRY(check_output(gather, output));
    clt_data_output *o = &gather->outputs[output];
    const clt_data_field *f = &gather->dataset->fields[o->field];
    if (o->dtype != CLT_F32)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "field '%s': only an f32 output is normalised, not %s", f->name,
                        clt_dtype_name(o->dtype));
    if (!isfinite(divisor) || divisor == 0)
        return clt_fail(CLT_INVALID_ARGUMENT, "field '%s': the divisor %g must be finite and not 0",
                        f->name, divisor);
    if (channels != 1 && (f->rank == 0 || channels != f->shape[0]))
        return clt_fail(CLT_SHAPE, "field '%s': %d channels of mean and std, but it has %lld",
                        f->name, channels, f->rank ? (long long)f->shape[0] : 1LL);
    for (int c = 0; c < channels; c++)
        if ((mean && !isfinite(mean[c])) || (std && (!isfinite(std[c]) || std[c] == 0)))
            return clt_fail(
                CLT_INVALID_ARGUMENT,
                "field '%s', channel %d: mean %g and std %g must be finite, and std not 0", f->name,
                c, mean ? mean[c] : 0.0, std ? std[c] : 1.0);
    bool bytes = f->dtype == CLT_U8;
    float *table = bytes ? clt_calloc((size_t)channels, 256 * sizeof *table) : NULL;
    float *scale = bytes ? NULL : clt_calloc((size_t)channels, sizeof *scale);
    float *shift = bytes ? NULL : clt_calloc((size_t)channels, sizeof *shift);
    if (bytes ? !table : !scale || !shift) {
        CLT_FREE(table, scale, shift);
        return CLT_OUT_OF_MEMORY;
    }
    free_scaling(o);
    for (int c = 0; c < channels; c++) {
        double m = mean ? mean[c] : 0.0, s = std ? std[c] : 1.0;
        for (int v = 0; bytes && v < 256; v++)
            table[c * 256 + v] = (float)((v / divisor - m) / s);
        if (!bytes) {
            scale[c] = (float)(1.0 / (divisor * s));
            shift[c] = (float)(-m / s);
        }
    }
    o->divisor = quotients(table, channels, (float)divisor) ? (float)divisor : 0;
    o->table = table;
    o->scale = scale;
    o->shift = shift;
    o->channels = channels;
    o->channel_elements = f->elements / channels;
    o->plain = false;
    return CLT_OK;
}

clt_status clt_gather_set_labels(clt_gather *gather, int output, const int64_t *ignore)
{
    CLT_TRY(check_output(gather, output));
    const clt_data_field *f = &gather->dataset->fields[gather->outputs[output].field];
    if (f->dtype != CLT_U8 && f->dtype != CLT_I32)
        return clt_fail(CLT_INVALID_ARGUMENT, "field '%s': labels are u8 or i32, not %s", f->name,
                        clt_dtype_name(f->dtype));
    gather->labels = output;
    gather->has_ignore = ignore != NULL;
    gather->ignore = ignore ? *ignore : 0;
    return CLT_OK;
}

/* Whether a field is augmented here, not by the data set's own reader. */
static bool is_augmented_here(const clt_dataset *d, const clt_data_field *f)
{
    return f->augmented && !d->augments;
}

clt_status clt_scratch_init(clt_scratch *scratch, const clt_gather *gather, int64_t samples)
{
    *scratch = (clt_scratch){{NULL}, NULL};
    size_t largest = 0;
    for (int i = 0; i < gather->count; i++) {
        const clt_data_field *f = &gather->dataset->fields[gather->outputs[i].field];
        if (is_augmented_here(gather->dataset, f) && (size_t)f->bytes > largest)
            largest = (size_t)f->bytes;
    }
    if (largest && !(scratch->sample = clt_alloc_pages(largest)))
        return CLT_OUT_OF_MEMORY;
    if (gather->dataset->kind != CLT_DATA_CALLBACK)
        return CLT_OK;
    for (int i = 0; i < gather->count; i++) {
        int field = gather->outputs[i].field;
        int64_t bytes;
        if (scratch->fields[field])
            continue;
        if (!__builtin_mul_overflow(gather->dataset->fields[field].bytes, samples, &bytes))
            scratch->fields[field] = clt_alloc_pages((size_t)bytes);
        if (!scratch->fields[field]) {
            clt_scratch_free(scratch);
            return clt_fail_prefix(CLT_OUT_OF_MEMORY, "data set '%s': ", gather->dataset->name);
        }
    }
    return CLT_OK;
}

void clt_scratch_free(clt_scratch *scratch)
{
    clt_free(scratch->sample);
    scratch->sample = NULL;
    for (int i = 0; i < CLT_DATA_MAX_FIELDS; i++) {
        clt_free(scratch->fields[i]);
        scratch->fields[i] = NULL;
    }
}

/* Converts one sample. The compiler vectorises all loops but the table look-up, which costs a load
 * an element. */
static void convert(const clt_data_output *o, const clt_data_field *f, const void *restrict from,
                    void *restrict to)
{
    if (o->plain) {
        memcpy(to, from, (size_t)f->bytes);
        return;
    }
    const unsigned char *restrict u8 = from;
    if (o->dtype == CLT_I32) {
        int32_t *restrict i32 = to;
        for (int64_t i = 0; i < f->elements; i++)
            i32[i] = u8[i];
        return;
    }
    const int64_t n = o->channel_elements;
    for (int c = 0; c < o->channels; c++) {
        float *restrict f32 = (float *)to + c * n;
        if (f->dtype == CLT_U8) {
            const float *restrict table = o->table + c * 256;
            const float divisor = o->divisor;
            for (int64_t i = 0; divisor == 0 && i < n; i++)
                f32[i] = table[u8[c * n + i]];
            for (int64_t i = 0; divisor != 0 && i < n; i++)
                f32[i] = (float)u8[c * n + i] / divisor;
            continue;
        }
        const float scale = o->scale[c], shift = o->shift[c];
        if (f->dtype == CLT_I32) {
            const int32_t *restrict i32 = (const int32_t *)from + c * n;
            for (int64_t i = 0; i < n; i++)
                f32[i] = (float)i32[i] * scale + shift;
        } else {
            const float *restrict in = (const float *)from + c * n;
            for (int64_t i = 0; i < n; i++)
                f32[i] = in[i] * scale + shift;
        }
    }
}

static int64_t label_at(const clt_data_field *f, const void *labels, int64_t i)
{
    return f->dtype == CLT_U8 ? ((const unsigned char *)labels)[i] : ((const int32_t *)labels)[i];
}

/* Counts the labels of one sample that are not ignored, and checks their range. */
static clt_status check_labels(const clt_gather *g, const clt_data_output *o, const void *labels,
                               int64_t sample, int64_t *weight)
{
    const clt_data_field *f = &g->dataset->fields[o->field];
    bool targets = g->labels >= 0 && o == &g->outputs[g->labels];
    for (int64_t i = 0; i < f->elements; i++) {
        int64_t label = label_at(f, labels, i);
        if (targets && g->has_ignore && label == g->ignore)
            continue;
        if (f->classes && (label < 0 || label >= f->classes))
            return clt_fail(CLT_FORMAT,
                            "data set '%s', field '%s': label %lld of sample %lld is out of range: "
                            "0 to %lld",
                            g->dataset->name, f->name, (long long)label, (long long)sample,
                            (long long)f->classes - 1);
        *weight += targets;
    }
    return CLT_OK;
}

/* Makes the callback write the samples. Fields that are only copied go straight to their place,
 * others to the scratch memory. from[f] gets the place of field f. */
static clt_status call_back(const clt_gather *g, const clt_sample_key *key, const int64_t *indices,
                            int64_t count, void *const *to, const clt_scratch *scratch,
                            void *from[CLT_DATA_MAX_FIELDS])
{
    memset(from, 0, CLT_DATA_MAX_FIELDS * sizeof *from);
    for (int i = 0; i < g->count; i++) {
        const clt_data_output *o = &g->outputs[i];
        if (!from[o->field])
            from[o->field] =
                o->plain && !is_augmented_here(g->dataset, &g->dataset->fields[o->field])
                    ? to[i]
                    : scratch->fields[o->field];
    }
    return clt_dataset_fill(g->dataset, key, indices, count, from);
}

clt_status clt_gather_run(const clt_gather *gather, const clt_sample_key *key,
                          const int64_t *indices, int64_t count, void *const *to,
                          const clt_scratch *scratch, int64_t *weight)
{
    const clt_dataset *d = gather->dataset;
    void *from[CLT_DATA_MAX_FIELDS];
    if (gather->labels < 0)
        *weight += count;
    bool called = d->kind == CLT_DATA_CALLBACK && gather->count > 0 && count > 0;
    if (called)
        CLT_TRY(call_back(gather, key, indices, count, to, scratch, from));
    for (int k = 0; k < gather->count; k++) {
        const clt_data_output *o = &gather->outputs[k];
        const clt_data_field *f = &d->fields[o->field];
        bool labels = k == gather->labels || f->classes > 0;
        const bool augmented = is_augmented_here(d, f);
        bool in_place = called && from[o->field] == to[k];
        for (int64_t i = 0; i < count; i++) {
            const char *sample = called ? (const char *)from[o->field] + i * f->bytes
                                        : (const char *)f->data + indices[i] * f->bytes;
            if (labels)
                CLT_TRY(check_labels(gather, o, sample, indices[i], weight));
            if (augmented) {
                clt_augment_planes(f, key, indices[i], sample, scratch->sample);
                sample = scratch->sample;
            }
            if (!in_place)
                convert(o, f, sample, (char *)to[k] + i * o->bytes);
        }
    }
    return CLT_OK;
}

/* Readers of files write labels in range only. A callback of a program may write others that are
 * ignored. */
static bool ignores_none(const clt_gather *g)
{
    const clt_data_field *f = &g->dataset->fields[g->outputs[g->labels].field];
    return g->dataset->fetch && f->classes && (g->ignore < 0 || g->ignore >= f->classes);
}

bool clt_gather_must_count(const clt_gather *gather)
{
    return gather->labels >= 0 && gather->has_ignore && !ignores_none(gather);
}

bool clt_gather_can_count(const clt_gather *gather)
{
    return !clt_gather_must_count(gather) || gather->dataset->kind == CLT_DATA_HOST;
}

int64_t clt_gather_targets(const clt_gather *gather)
{
    return gather->labels < 0
               ? 1
               : gather->dataset->fields[gather->outputs[gather->labels].field].elements;
}

void clt_gather_weigh(const clt_gather *gather, const int64_t *indices, int64_t count,
                      int64_t *weight)
{
    const clt_data_field *f = &gather->dataset->fields[gather->outputs[gather->labels].field];
    for (int64_t s = 0; s < count; s++) {
        const char *sample = (const char *)f->data + indices[s] * f->bytes;
        for (int64_t i = 0; i < f->elements; i++)
            *weight += label_at(f, sample, i) != gather->ignore;
    }
}
