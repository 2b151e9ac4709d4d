#include "exec/merged.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/vec.h"
#include "device/program/merge_source.h"
#include "device/program/program.h"

/* A kernel may touch whole vectors and blocks beyond the elements of a value. */
enum { SLACK = 64 << 10, MOST_LANES = 16 };

/* Notes that the kernel uses so many bytes of the place, and finds the place's buffer. */
static clt_status find_buffer(clt_merged *m, clt_place place, int64_t bytes, int *index)
{
    for (*index = 0; *index < m->n_places; (*index)++)
        if (m->places[*index].kind == place.kind && m->places[*index].index == place.index)
            break;
    if (*index == m->n_places)
        CLT_TRY(CLT_PUSH(m->places, m->n_places, m->room_places,
                         ((clt_place){place.kind, place.index, 0})));
    clt_place *found = &m->places[*index];
    const int64_t end = place.offset + bytes + SLACK;
    found->offset = found->offset > end ? found->offset : end;
    return CLT_OK;
}

/* A gradient and its sum of micro-batches are in one buffer. */
static clt_place in_bucket(clt_place place)
{
    if (place.kind == CLT_PLACE_TOTAL)
        place.kind = CLT_PLACE_GRADIENT;
    return place;
}

/* Adds a buffer to the arguments `args`, and the index of its first element to `offset`. */
static clt_status add_view(clt_merged *m, clt_place place, int64_t bytes, int element,
                           clt_str *args, clt_str *offset)
{
    int index = 0;
    CLT_TRY(find_buffer(m, in_bucket(place), bytes, &index));
    clt_str_add(args, "b%d", index);
    if (clt_merged_moves(place.kind))
        clt_str_add(offset, "(o%d + %lldL) / %d", index, (long long)place.offset, element);
    else {
        clt_str_add(offset, "p%d", m->n_offsets);
        CLT_TRY(CLT_PUSH(m->offsets, m->n_offsets, m->room_offsets, place.offset / element));
    }
    return CLT_OK;
}

static clt_status add_value(clt_merged *m, const clt_plan *plan, const clt_value *v, clt_str *args,
                            clt_str *offset)
{
    if (!v || plan->places[v->id].kind == CLT_PLACE_NONE) {
        clt_str_add(args, "0");
        clt_str_add(offset, "0L");
        return CLT_OK;
    }
    const int element = clt_dtype_size(v->type.dtype);
    const int64_t elements =
        clt_extent_at(clt_extent_stored(v, MOST_LANES), plan->options.max_batch);
    return add_view(m, plan->places[v->id], elements * element, element, args, offset);
}

static clt_status add_buffer(clt_merged *m, const clt_plan *plan, const clt_plan_node *pn,
                             const clt_arg *arg, clt_str *args, clt_str *offset)
{
    if (arg->kind == CLT_ARG_SCRATCH)
        return add_view(m, pn->scratch[arg->index],
                        clt_extent_at(pn->program.scratch[arg->index], plan->options.max_batch), 4,
                        args, offset);
    return add_value(m, plan, clt_arg_value(arg, pn->node), args, offset);
}

static void add_extent(clt_extent e, clt_str *text)
{
    if (e.pre)
        clt_str_add(text, "(%lldL + %lldL * ((n * %lldL + %lldL) / %lldL))", (long long)e.add,
                    (long long)e.mul, (long long)e.pre, (long long)(e.div - 1), (long long)e.div);
    else
        clt_str_add(text, "%lldL", (long long)clt_extent_at(e, 0));
}

static void add_number(const clt_arg *arg, clt_str *text)
{
    static const char *const run_args[] = {[CLT_RUN_COUNT] = "n",
                                           [CLT_RUN_STEP] = "step",
                                           [CLT_RUN_SEED] = "seed",
                                           [CLT_RUN_SAMPLE] = "sample",
                                           [CLT_RUN_ADDS] = "0"};
    uint32_t bits;
    if (arg->kind == CLT_ARG_RUN) {
        clt_str_add(text, "%s", run_args[arg->index]);
    } else if (arg->kind == CLT_ARG_FLOAT) {
        memcpy(&bits, &arg->value, sizeof bits);
        clt_str_add(text, "as_float(0x%xu)", (unsigned)bits);
    } else {
        clt_str_add(text, arg->kind == CLT_ARG_INT ? "(int)" : "(long)");
        add_extent(arg->extent, text);
    }
}

static clt_status add_args(clt_merged *m, const clt_plan *plan, const clt_plan_node *pn,
                           const clt_launch *launch, clt_str *args)
{
    for (int i = 0; i < launch->n_args; i++) {
        const clt_arg *arg = &launch->args[i];
        if (i)
            clt_str_add(args, ", ");
        if (!clt_arg_is_buffer(arg)) {
            add_number(arg, args);
            continue;
        }
        clt_str offset = {0};
        clt_status status = add_buffer(m, plan, pn, arg, args, &offset);
        clt_str_add(args, ", %s", clt_str_text(&offset));
        CLT_NEXT(status, offset.failed ? CLT_OUT_OF_MEMORY : CLT_OK);
        clt_str_free(&offset);
        CLT_TRY(status);
    }
    return CLT_OK;
}

/* As clt_arguments_give does for a packed launch. */
static clt_status add_packed_args(clt_merged *m, const clt_plan *plan, const clt_plan_node *pn,
                                  const clt_launch *launch, clt_str *args)
{
    clt_str numbers = {0};
    clt_status status = CLT_OK;
    for (int i = 0; i < launch->n_args && status == CLT_OK; i++) {
        const clt_arg *arg = &launch->args[i];
        clt_str_add(&numbers, "%s", i % CLT_PACKED_LANES ? ", " : i ? "), (long16)(" : "(long16)(");
        if (clt_arg_is_buffer(arg)) {
            status = add_buffer(m, plan, pn, arg, args, &numbers);
            clt_str_add(args, ", ");
        } else {
            clt_str_add(&numbers, "%s", arg->kind == CLT_ARG_FLOAT ? "as_int(" : "(long)(");
            add_number(arg, &numbers);
            clt_str_add(&numbers, ")");
        }
    }
    for (int i = launch->n_args; i % CLT_PACKED_LANES; i++)
        clt_str_add(&numbers, ", 0");
    clt_str_add(args, "%s)", clt_str_text(&numbers));
    CLT_NEXT(status, numbers.failed ? CLT_OUT_OF_MEMORY : CLT_OK);
    clt_str_free(&numbers);
    return status;
}

/* The texts of a part, which belong to it. */
typedef struct part_texts {
    clt_str global[3], args;
} part_texts;

static clt_status write_part(clt_merged *m, const clt_plan *plan, const clt_plan_node *pn,
                             const clt_launch *launch, part_texts *texts, clt_merge_part *part)
{
    *part = (clt_merge_part){.key = {launch->file, launch->options, launch->kernel},
                             .comment = pn->node->op->name};
    char why[CLT_MERGE_WHY];
    if (!clt_merge_accepts(&part->key, why))
        return clt_fail(CLT_INTERNAL, "node %s: kernel %s cannot be merged: %s", pn->node->name,
                        launch->kernel, why);
    CLT_TRY((launch->packed ? add_packed_args : add_args)(m, plan, pn, launch, &texts->args));
    for (int d = 0; d < 3; d++) {
        if (d < launch->work_dim)
            add_extent(launch->global[d], &texts->global[d]);
        else
            clt_str_add(&texts->global[d], "1");
        part->global[d] = clt_str_text(&texts->global[d]);
    }
    part->args = clt_str_text(&texts->args);
    for (int d = 0; d < 3; d++)
        if (texts->global[d].failed)
            return CLT_OUT_OF_MEMORY;
    return texts->args.failed ? CLT_OUT_OF_MEMORY : CLT_OK;
}

/* The numbers of a run. */
enum { COUNT, STEP, SEED, SAMPLE, RUN_NUMBERS };

static void name_number(clt_str *text, const char *type, const char *name, int index, int number)
{
    char suffix[12] = "";
    if (index >= 0)
        snprintf(suffix, sizeof suffix, "%d", index);
    clt_str_add(text, "    const %s %s%s = (%s)v%d.s%x;\n", type, name, suffix, type,
                number / CLT_PACKED_LANES, (unsigned)number % CLT_PACKED_LANES);
}

/* Writes the kernel's parameters, and the numbers by the names that the arguments of the parts
 * have. Returns how many numbers there are. */
static int write_parameters(const clt_merged *m, clt_str *parameters, clt_str *numbers)
{
    int n = RUN_NUMBERS;
    name_number(numbers, "int", "n", -1, COUNT);
    name_number(numbers, "uint", "step", -1, STEP);
    name_number(numbers, "ulong", "seed", -1, SEED);
    name_number(numbers, "long", "sample", -1, SAMPLE);
    for (int i = 0; i < m->n_places; i++)
        if (clt_merged_moves(m->places[i].kind))
            name_number(numbers, "long", "o", i, n++);
    for (int i = 0; i < m->n_offsets; i++)
        name_number(numbers, "long", "p", i, n++);
    for (int i = 0; i < m->n_places; i++)
        clt_str_add(parameters, "global void *b%d, ", i);
    if (m->wide)
        clt_str_add(parameters, "global int *" CLT_MERGE_ENDED ", ");
    for (int i = 0; i * CLT_PACKED_LANES < n; i++)
        clt_str_add(parameters, "%slong16 v%d", i ? ", " : "", i);
    return n;
}

cl_uint clt_merged_arguments(const clt_merged *m)
{
    return (cl_uint)(m->n_places + (m->wide != NULL) + m->n_vectors);
}

static uint64_t hash_parts(const clt_merged *m, const clt_merge_part *parts, int n,
                           const char *parameters, const char *numbers)
{
    uint64_t hash = clt_hash_text(numbers, clt_hash_text(parameters, m->wide != NULL));
    for (int i = 0; i < n; i++) {
        const clt_merge_part *p = &parts[i];
        const char *texts[] = {p->key.file,  p->key.options, p->key.kernel, p->global[0],
                               p->global[1], p->global[2],   p->args,       p->comment};
        for (size_t t = 0; t < sizeof texts / sizeof *texts; t++)
            hash = clt_hash_text(texts[t] ? texts[t] : "", hash);
    }
    return hash;
}

/* Equal layers have the same parts. Their source is written once, because that takes 10 ms. */
static clt_status write_source(const clt_merged_list *list, clt_merged *m,
                               const clt_merge_part *parts, int n, const clt_merged_tail *tail)
{
    clt_str parameters = {0}, numbers = {0}, source = {0};
    m->n_vectors =
        (write_parameters(m, &parameters, &numbers) + CLT_PACKED_LANES - 1) / CLT_PACKED_LANES;
    m->numbers = clt_calloc((size_t)m->n_vectors * CLT_PACKED_LANES, sizeof *m->numbers);
    clt_str_add(&parameters, "%s", tail ? tail->parameters : "");
    clt_status status =
        parameters.failed || numbers.failed || !m->numbers ? CLT_OUT_OF_MEMORY : CLT_OK;
    m->parts = hash_parts(m, parts, n, clt_str_text(&parameters), clt_str_text(&numbers));
    for (int i = 0; i < list->count && !m->source; i++)
        if (list->all[i].parts == m->parts) {
            m->source = clt_strdup(list->all[i].source);
            CLT_NEXT(status, m->source ? CLT_OK : CLT_OUT_OF_MEMORY);
        }
    if (!m->source) {
        CLT_NEXT(status, clt_merge_source(parts, n, m->wide, clt_str_text(&parameters),
                                          clt_str_text(&numbers), &source));
        m->source = source.text;
    }
    clt_str_free(&parameters);
    clt_str_free(&numbers);
    return status;
}

static clt_status write_parts(const clt_merged_list *list, const clt_plan *plan, clt_merged *m,
                              const clt_merged_tail *tail, part_texts *texts, clt_merge_part *parts)
{
    const int skip = clt_merged_skip(plan, m->first);
    int n = 0;
    for (int i = m->first; i < m->end; i++)
        for (int j = i == m->first ? skip : 0; j < plan->nodes[i].program.n_launches; j++, n++)
            CLT_TRY(write_part(m, plan, &plan->nodes[i], &plan->nodes[i].program.launches[j],
                               &texts[n], &parts[n]));
    if (m->n_places > CLT_MERGED_BUFFERS)
        return clt_fail(CLT_INTERNAL, "a merged kernel has %d buffers", m->n_places);
    for (int i = 0; tail && i < tail->n; i++)
        parts[n++] = tail->parts[i];
    return write_source(list, m, parts, n, tail);
}

void clt_merged_free(clt_merged *merged)
{
    clt_release_kernel(merged->kernel);
    CLT_FREE(merged->places, merged->offsets, merged->numbers, merged->source);
}

clt_status clt_merged_create(const clt_merged_list *list, const clt_plan *plan, int first, int end,
                             const clt_merged_tail *tail, clt_merged *out)
{
    int n = -clt_merged_skip(plan, first);
    const int more = tail ? tail->n : 0;
    for (int i = first; i < end; i++)
        n += plan->nodes[i].program.n_launches;
    const clt_plan_merge *merge = clt_merged_run(plan, first);
    *out = (clt_merged){.first = first, .end = end};
    if (merge && merge->first == first && merge->wide)
        out->wide = &plan->nodes[first].program.launches[merge->skip];
    snprintf(out->name, sizeof out->name, "%d merged, from %.30s", n + more,
             plan->nodes[first].node->name);
    clt_merge_part *parts = clt_calloc((size_t)(n + more) + 1, sizeof *parts);
    part_texts *texts = clt_calloc((size_t)n + 1, sizeof *texts);
    clt_status status = parts && texts ? CLT_OK : CLT_OUT_OF_MEMORY;
    CLT_NEXT(status, write_parts(list, plan, out, tail, texts, parts));
    for (int i = 0; texts && i < n; i++) {
        clt_str_free(&texts[i].args);
        for (int d = 0; d < 3; d++)
            clt_str_free(&texts[i].global[d]);
    }
    CLT_FREE(parts, texts);
    if (status != CLT_OK)
        clt_merged_free(out);
    return status;
}

clt_program_key clt_merged_key(const clt_merged *merged)
{
    return (clt_program_key){CLT_MERGED_FILE, NULL, CLT_MERGED_KERNEL, merged->source};
}

clt_status clt_merged_build(clt_device *device, clt_merged *merged)
{
    return merged->kernel ? CLT_OK
                          : clt_device_kernel_from_text(device, CLT_MERGED_FILE, merged->source,
                                                        NULL, CLT_MERGED_KERNEL, &merged->kernel);
}

clt_status clt_merged_get(clt_merged_list *list, const clt_plan *plan, int first, int end,
                          clt_merged **merged)
{
    clt_merged made;
    for (int i = 0; i < list->count; i++) {
        *merged = &list->all[i];
        if ((*merged)->first == first && (*merged)->end == end)
            return CLT_OK;
    }
    CLT_TRY(CLT_RESERVE(list->all, list->count, list->room, 1));
    CLT_TRY(clt_merged_create(list, plan, first, end, NULL, &made));
    list->all[list->count++] = made;
    *merged = &list->all[list->count - 1];
    return CLT_OK;
}

void clt_merged_list_free(clt_merged_list *list)
{
    for (int i = list->count - 1; i >= 0; i--)
        clt_merged_free(&list->all[i]);
    clt_free(list->all);
}

const clt_plan_merge *clt_merged_run(const clt_plan *plan, int node)
{
    for (int i = 0; i < plan->n_merges; i++)
        if (plan->merges[i].first <= node && node < plan->merges[i].end)
            return &plan->merges[i];
    return NULL;
}

int clt_merged_skip(const clt_plan *plan, int first)
{
    const clt_plan_merge *merge = clt_merged_run(plan, first);
    return merge && merge->first == first ? merge->skip : 0;
}

bool clt_merged_has(const clt_plan *plan, int node, int launch)
{
    return clt_merged_run(plan, node) && launch >= clt_merged_skip(plan, node);
}

void clt_merged_set_numbers(clt_merged *m, const clt_run *run, const clt_view *buffers)
{
    cl_long *to = m->numbers;
    to[COUNT] = run->count;
    to[STEP] = run->step;
    to[SEED] = (cl_long)run->seed;
    to[SAMPLE] = run->sample;
    to += RUN_NUMBERS;
    for (int i = 0; i < m->n_places; i++)
        if (clt_merged_moves(m->places[i].kind))
            *to++ = buffers ? buffers[i].offset : 0;
    for (int i = 0; i < m->n_offsets; i++)
        *to++ = m->offsets[i];
}

static cl_int set_arguments(const clt_merged *m, const clt_view *buffers, cl_mem ended)
{
    cl_uint at = 0;
    cl_int code = CL_SUCCESS;
    for (int i = 0; code == CL_SUCCESS && i < m->n_places; i++)
        code = clSetKernelArg(m->kernel, at++, sizeof(cl_mem), &buffers[i].buffer);
    if (code == CL_SUCCESS && m->wide)
        code = clSetKernelArg(m->kernel, at++, sizeof(cl_mem), &ended);
    for (int i = 0; code == CL_SUCCESS && i < m->n_vectors; i++)
        code = clSetKernelArg(m->kernel, at++, sizeof(cl_long16),
                              m->numbers + (size_t)i * CLT_PACKED_LANES);
    return code;
}

clt_status clt_merged_enqueue(clt_device *device, clt_merged *m, const clt_run *run,
                              const clt_view *buffers, cl_mem ended, cl_uint n_wait,
                              const cl_event *wait, cl_event *done)
{
    static const size_t ones[] = {1, 1, 1};
    size_t global[] = {1, 1, 1};
    for (int d = 0; m->wide && d < m->wide->work_dim; d++)
        global[d] = (size_t)clt_extent_at(m->wide->global[d], run->count);
    clt_merged_set_numbers(m, run, buffers);
    cl_int code = set_arguments(m, buffers, ended);
    cl_event event = NULL;
    if (code == CL_SUCCESS)
        code = clEnqueueNDRangeKernel(device->queue, m->kernel, 3, NULL, global, ones, n_wait,
                                      n_wait ? wait : NULL,
                                      done ? &event : clt_watch_event(device, &event));
    if (code != CL_SUCCESS)
        return clt_fail_prefix(clt_cl_fail(code, "clEnqueueNDRangeKernel", device),
                               "%s: ", m->name);
    if (done) {
        clt_object_created(CLT_OBJECT_EVENT);
        *done = event;
    }
    const clt_command command = {m->name, NULL, 0, 0, false};
    if (!done || (device->watcher && clRetainEvent(event) == CL_SUCCESS))
        clt_watch(device, &command, event);
    return CLT_OK;
}
