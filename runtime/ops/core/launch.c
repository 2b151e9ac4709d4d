#include "ops/core/launch.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/vec.h"

clt_extent clt_extent_ceil(clt_extent count, int64_t div, int64_t mul)
{
    if (!count.pre)
        return clt_fixed((count.mul + count.add + div - 1) / div * mul);
    /* Counts of batch blocks: each block is rounded up separately. */
    if (count.div != 1)
        return (clt_extent){(count.mul + div - 1) / div * mul, count.pre, count.div, 0};
    return (clt_extent){mul, count.mul * count.pre, div, 0};
}

clt_extent clt_extent_dim(int64_t dim)
{
    return dim < 0 ? clt_times_batch(-dim) : clt_fixed(dim);
}

clt_extent clt_extent_elements(const clt_type *type)
{
    const int64_t c = clt_type_coefficient(type);
    return clt_type_has_batch(type) ? clt_times_batch(c) : clt_fixed(c);
}

clt_extent clt_extent_stored(const clt_value *value, int lanes)
{
    if (value->layout != CLT_LAYOUT_BATCH_BLOCKED)
        return clt_extent_elements(&value->type);
    return (clt_extent){clt_type_coefficient(&value->type) * lanes, 1, lanes, 0};
}

static void failed(clt_program *p, clt_status status)
{
    if (p->status == CLT_OK)
        p->status = status;
}

void clt_launch_begin(clt_program *p, const char *file, const char *kernel, const char *options,
                      ...)
{
    char text[1024];
    va_list args;
    va_start(args, options);
    int length = vsnprintf(text, sizeof text, options, args);
    va_end(args);
    if (length < 0 || length >= (int)sizeof text) {
        failed(p, clt_fail(CLT_INTERNAL, "build options of kernel %s are too long", kernel));
        return;
    }
    clt_launch launch = {.file = clt_strdup(file),
                         .options = clt_strdup(text),
                         .kernel = clt_strdup(kernel),
                         .work_dim = 1,
                         .global = {clt_fixed(1), clt_fixed(1), clt_fixed(1)}};
    if (!launch.file || !launch.options || !launch.kernel ||
        CLT_PUSH(p->launches, p->n_launches, p->room_launches, launch) != CLT_OK) {
        CLT_FREE(launch.file, launch.options, launch.kernel);
        failed(p, CLT_OUT_OF_MEMORY);
    }
}

void clt_launch_sums(clt_program *p)
{
    if (p->status == CLT_OK)
        p->launches[p->n_launches - 1].sums = true;
}

void clt_launch_packed(clt_program *p)
{
    if (p->status == CLT_OK)
        p->launches[p->n_launches - 1].packed = true;
}

/* The letter of core/storage.clh; 0 for f32 and for types that kernels do not compute with. */
static char storage_of(const clt_value *value)
{
    const clt_dtype dtype = value ? value->type.dtype : CLT_F32;
    return dtype == CLT_F16 ? 'h' : dtype == CLT_BF16 ? 'w' : 0;
}

static clt_status tell(clt_launch *launch, const clt_node *node)
{
    clt_str options = {0};
    clt_str_add(&options, "%s", launch->options);
    for (int i = 0; i < launch->n_args; i++) {
        const clt_arg *arg = &launch->args[i];
        const bool in = arg->kind == CLT_ARG_IN;
        if (!in && arg->kind != CLT_ARG_OUT)
            continue;
        const char letter = storage_of(in ? node->in[arg->index] : node->out[arg->index]);
        bool told = !letter;
        for (int j = 0; j < i; j++)
            told =
                told || (launch->args[j].kind == arg->kind && launch->args[j].index == arg->index);
        if (!told)
            clt_str_add(&options, " -D%s%d=%c", in ? "IN" : "OUT", arg->index, letter);
    }
    char *text = clt_strdup(clt_str_text(&options));
    clt_str_free(&options);
    CLT_TRY_MEMORY(text);
    clt_free(launch->options);
    launch->options = text;
    return CLT_OK;
}

void clt_program_tell_storage(clt_program *p, const clt_node *node)
{
    bool half = false;
    for (int i = 0; i < node->n_in + node->n_out; i++)
        half = half || storage_of(i < node->n_in ? node->in[i] : node->out[i - node->n_in]);
    for (int i = 0; half && i < p->n_launches; i++)
        if (!p->launches[i].blas)
            failed(p, tell(&p->launches[i], node));
}

bool clt_half_all(const clt_node *node, const clt_target *target, int index, bool output)
{
    (void)target;
    const clt_value *value = output ? node->out[index] : node->in[index];
    return value->type.dtype != CLT_I32 && value->type.dtype != CLT_U8;
}

clt_status clt_infer_same(const clt_node *node, clt_type *out)
{
    *out = node->in[0]->type;
    return CLT_OK;
}

clt_status clt_no_gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                           clt_value **dx)
{
    (void)node;
    (void)dy;
    (void)wanted;
    (void)dx;
    return CLT_OK;
}

double clt_no_flops(const clt_node *node, int64_t n)
{
    (void)node;
    (void)n;
    return 0;
}

double clt_flops_operand(const clt_node *node, int64_t n)
{
    return (double)clt_type_elements(&node->in[0]->type, n);
}

int clt_wants_batch_blocked(const clt_node *node)
{
    return clt_value_leads_with_batch(node->in[0]) ? CLT_BATCH_BLOCKED_WANT : CLT_BATCH_BLOCKED_NO;
}

int clt_follows_batch_blocked(const clt_node *node)
{
    return clt_value_leads_with_batch(node->in[0]) ? CLT_BATCH_BLOCKED_FOLLOW
                                                   : CLT_BATCH_BLOCKED_NO;
}

bool clt_accepts_f32(const clt_node *node, char *why)
{
    for (int i = 0; i < node->n_in + node->n_out; i++)
        if (storage_of(i < node->n_in ? node->in[i] : node->out[i - node->n_in]))
            return clt_decline(why, "made for f32, not 16 bits");
    return true;
}

void clt_launch_clblast(clt_program *p, const clt_blas_gemm *gemm)
{
    clt_launch_begin(p, "CLBlast", "sgemm", "");
    if (p->status != CLT_OK)
        return;
    clt_blas_gemm *own = CLT_NEW(clt_blas_gemm);
    if (!own) {
        failed(p, CLT_OUT_OF_MEMORY);
        return;
    }
    *own = *gemm;
    p->launches[p->n_launches - 1].blas = own;
}

void clt_args(clt_program *p, const clt_arg *args, int count)
{
    if (p->status != CLT_OK || !p->n_launches)
        return;
    clt_launch *launch = &p->launches[p->n_launches - 1];
    for (int i = 0; i < count; i++)
        failed(p, CLT_PUSH(launch->args, launch->n_args, launch->room_args, args[i]));
    if (launch->packed && launch->n_args > CLT_PACKED_MOST)
        failed(p, clt_fail(CLT_INTERNAL, "kernel %s has %d packed arguments", launch->kernel,
                           launch->n_args));
}

void clt_args_in(clt_program *p, int count)
{
    for (int i = 0; i < count; i++)
        CLT_ARGS(p, CLT_IN(i));
}

int clt_scratch_add(clt_program *p, clt_extent bytes)
{
    clt_status status = CLT_PUSH(p->scratch, p->n_scratch, p->room_scratch, bytes);
    if (status != CLT_OK)
        failed(p, status);
    return p->n_scratch - 1;
}

void clt_range3(clt_program *p, clt_extent gx, clt_extent gy, clt_extent gz, int64_t lx, int64_t ly,
                int64_t lz)
{
    if (p->status != CLT_OK || !p->n_launches)
        return;
    clt_launch *launch = &p->launches[p->n_launches - 1];
    launch->work_dim = 3;
    launch->global[0] = gx;
    launch->global[1] = gy;
    launch->global[2] = gz;
    launch->local[0] = lx;
    launch->local[1] = ly;
    launch->local[2] = lz;
}

void clt_range1(clt_program *p, clt_extent global, int64_t local)
{
    clt_range3(p, global, clt_fixed(1), clt_fixed(1), local, 1, 1);
    if (p->n_launches)
        p->launches[p->n_launches - 1].work_dim = 1;
}

void clt_range_items(clt_program *p, const clt_target *target, clt_extent items)
{
    (void)target;
    clt_range1(p, clt_extent_ceil(items, 64, 64), 64);
}

static uint64_t hash_extent(clt_extent e, uint64_t hash)
{
    const int64_t numbers[] = {e.mul, e.pre, e.div, e.add};
    return clt_hash(numbers, sizeof numbers, hash);
}

static uint64_t hash_launch(const clt_launch *l, uint64_t hash)
{
    hash = clt_hash_text(l->file, hash);
    hash = clt_hash_text(l->options, hash);
    hash = clt_hash_text(l->kernel, hash);
    for (int i = 0; i < l->n_args; i++) {
        const int which[] = {(int)l->args[i].kind, l->args[i].index};
        hash = clt_hash(which, sizeof which, hash_extent(l->args[i].extent, hash));
        hash = clt_hash(&l->args[i].value, sizeof l->args[i].value, hash);
    }
    for (int d = 0; d < l->work_dim; d++)
        hash = clt_hash(&l->local[d], sizeof l->local[d], hash_extent(l->global[d], hash));
    const int packed = l->blas ? 1 + l->blas->packed : 0;
    if (l->blas)
        hash = clt_hash(&l->blas->sets[l->blas->packed ? CLT_BLAS_PACKED : CLT_BLAS_DIRECT],
                        sizeof *l->blas->sets, hash);
    return clt_hash(&packed, sizeof packed, hash);
}

uint64_t clt_program_hash(const clt_program *p)
{
    uint64_t hash = 0;
    for (int i = 0; i < p->n_launches; i++)
        hash = hash_launch(&p->launches[i], hash);
    return hash;
}

void clt_program_free(clt_program *p)
{
    for (int i = 0; i < p->n_launches; i++) {
        CLT_FREE(p->launches[i].file, p->launches[i].options, p->launches[i].kernel,
                 p->launches[i].args, p->launches[i].blas);
    }
    CLT_FREE(p->launches, p->scratch);
    *p = (clt_program){0};
}

bool clt_decline(char *why, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(why, CLT_WHY, format, args);
    va_end(args);
    return false;
}

bool clt_all_plain(const clt_node *node)
{
    for (int i = 0; i < node->n_in; i++)
        if (node->in[i] && node->in[i]->layout != CLT_LAYOUT_PLAIN)
            return false;
    for (int i = 0; i < node->n_out; i++)
        if (node->out[i]->layout != CLT_LAYOUT_PLAIN)
            return false;
    return true;
}

bool clt_accepts_plain(const clt_node *node, const clt_target *target, char *why)
{
    (void)target;
    return clt_all_plain(node) || clt_decline(why, "values are batch-blocked");
}

bool clt_accepts_vectors(const clt_target *target, char *why)
{
    const clt_caps *caps = target->caps;
    if (!clt_caps_is_cpu(caps))
        return clt_decline(why, "made for CPUs");
    if (caps->vector_width != 4 && caps->vector_width != 8 && caps->vector_width != 16)
        return clt_decline(why, "vectors of %d floats", caps->vector_width);
    return true;
}

bool clt_accepts_cpu_vectors(const clt_node *node, const clt_target *target, char *why)
{
    return clt_accepts_plain(node, target, why) && clt_accepts_vectors(target, why);
}

static bool plain_image(const clt_value *value)
{
    const clt_dtype dtype = value ? value->type.dtype : CLT_I32;
    return dtype != CLT_I32 && dtype != CLT_U8 && value->layout == CLT_LAYOUT_PLAIN &&
           clt_value_leads_with_batch(value);
}

bool clt_accepts_batch_blocked(const clt_node *node, const clt_target *target, char *why)
{
    bool images = false;
    (void)target;
    for (int i = 0; i < node->n_in + node->n_out; i++) {
        const clt_value *value = i < node->n_in ? node->in[i] : node->out[i - node->n_in];
        if (plain_image(value))
            return clt_decline(why, "values lie plain");
        images = images || (value && value->layout == CLT_LAYOUT_BATCH_BLOCKED);
    }
    /* A tensor without a batch has the plain layout in every plan. */
    return images || clt_decline(why, "no value leads with the batch");
}

clt_extent clt_extent_blocks(const clt_target *target)
{
    return (clt_extent){1, 1, target->lanes, 0};
}
