#include "ops/harness/bound.h"

clt_runtime *op_runtime;
clt_device **op_devices;
static int op_quirks; /* of the device when it was opened */

enum { OP_LOCAL_BYTES = 16384 };

void op_fill_operand(const op_case *c, int operand, int64_t n, double *to)
{
    const op_operand *o = &c->in[operand];
    const int64_t count = op_count(c, operand, n);
    uint64_t state = (uint64_t)(operand + 1) * 0x9E3779B97F4A7C15u;
    for (int64_t i = 0; i < count; i++) {
        const double u = op_uniform(&state);
        if (o->set)
            to[i] = o->set[i];
        else if (o->fill == OP_DISTINCT)
            to[i] = (double)((i * 31 + 13) % 7919 - 3960) / 64.0;
        else if (o->fill == OP_AWAY)
            to[i] = (double)(float)(u + (u < 0 ? -0.1 : 0.1));
        else if (o->fill == OP_LABELS)
            to[i] = c->ignored && i % 3 == 1 ? -100 : floor((u + 1) / 2 * c->classes);
        else
            to[i] = u;
    }
}

int op_setup(void **state)
{
    int count;
    (void)state;
    OP_OK(clt_runtime_create(NULL, &op_runtime));
    OP_OK(clt_devices_open(op_runtime, clt_test_devices("cpu"), NULL, &op_devices, &count));
    op_quirks = op_devices[0]->quirks;
    op_settled_read(op_devices[0]->identity);
    return 0;
}

int op_teardown(void **state)
{
    (void)state;
    op_write_compared(&op_devices[0]->caps);
    op_settled_write();
    /* core/builtins.clh must declare all functions that the kernels call. */
    assert_int_equal(op_devices[0]->quirks, op_quirks);
    clt_devices_close(op_devices, 1);
    clt_runtime_destroy(op_runtime);
    return 0;
}

void op_build_graph(const op_test *t, const op_case *c, clt_dtype precision, op_bound *b)
{
    clt_value *in[OP_MAX_IN] = {NULL}, *seeds[OP_MAX_OUT], *from[OP_MAX_OUT], *wanted[OP_MAX_IN],
              *got[OP_MAX_IN] = {NULL};
    int n_seeds = 0, n_wanted = 0, operand_of[OP_MAX_IN];
    char name[OP_TEXT];
    OP_OK(clt_graph_create(&b->graph));
    for (int i = 0; i < c->n_in; i++) {
        snprintf(name, sizeof name, "x%d", i);
        if (c->in[i].rank)
            b->in[i] = clt_input(b->graph, name, c->in[i].dtype, c->in[i].rank, c->in[i].dims);
        if (b->in[i] && c->in[i].gradient) {
            operand_of[n_wanted] = i;
            wanted[n_wanted++] = b->in[i];
        }
        in[i] = op_between(b->in[i], precision);
    }
    t->build(c, in, b->out);
    OP_OK(clt_graph_status(b->graph));
    for (int o = 0; o < t->n_out; o++) {
        if (!(t->no_gradient & 1u << o)) {
            snprintf(name, sizeof name, "dy%d", o);
            from[n_seeds] = b->out[o];
            seeds[n_seeds++] = op_between(
                clt_graph_value(b->graph, CLT_VALUE_INPUT, &b->out[o]->type, name), precision);
        }
        b->out[o] = op_between(b->out[o], precision);
        snprintf(name, sizeof name, "y%d", o);
        clt_output(b->out[o], name);
    }
    if (n_wanted)
        OP_OK(clt_autodiff(b->graph, from, seeds, n_seeds, wanted, n_wanted, got));
    for (int i = 0; i < n_wanted; i++) {
        assert_non_null(got[i]);
        /* The gradient may be dy itself, or another operand's gradient too. */
        if (got[i]->kind != CLT_VALUE_INTERMEDIATE || got[i]->name)
            got[i] = clt_copy(got[i]);
        got[i] = op_between(got[i], precision);
        snprintf(name, sizeof name, "dx%d", operand_of[i]);
        clt_output(got[i], name);
    }
    OP_OK(clt_graph_status(b->graph));
    op_give_seed(b->graph, from[0], seeds[0], c->trains);
}

void op_build_programs(const clt_plan *plan)
{
    for (int i = 0; clt_test_oclgrind() && i < plan->n_nodes; i++)
        for (int j = 0; j < plan->nodes[i].program.n_launches; j++) {
            const clt_launch *launch = &plan->nodes[i].program.launches[j];
            cl_kernel kernel;
            OP_OK(clt_device_kernel(op_devices[0], launch->file, launch->options, launch->kernel,
                                    &kernel));
            clt_release_kernel(kernel);
        }
}

bool op_make_plan(const op_test *t, const op_case *c, const op_mode *mode, op_bound *b)
{
    *b = (op_bound){0};
    op_build_graph(t, c, mode->precision, b);
    const clt_bucket_sizes sizes = clt_bucket_sizes_default();
    clt_plan_options options = clt_plan_options_default(op_plan_mode(c->trains), c->batch);
    clt_caps caps = op_devices[0]->caps;
    if (mode->as_gpu) {
        caps.kind = CLT_KIND_GPU;
        /* Small tiles, which Oclgrind interprets faster. */
        if (clt_test_oclgrind() && caps.local_bytes > OP_LOCAL_BYTES && !getenv("CLT_TEST_ALL"))
            caps.local_bytes = OP_LOCAL_BYTES;
        caps.clblast = op_has_clblast();
        if (mode->precision && !caps.matrix.kind)
            caps.matrix = (clt_matrix_unit){mode->matrix, true, true, true};
    }
    options.portable = mode->portable;
    if (mode->precision) {
        options.precision = mode->precision;
        options.fuse = false;
    }
    b->half.precision = mode->precision;
    options.variants = mode->variants;
    options.separate = true;
    /* Batches are small here. They get the batch-blocked layout nevertheless, unless variants ask
     * for another one. */
    options.lanes = caps.vector_width < 4 ? 4 : caps.vector_width;
    OP_OK(clt_buckets_create(b->graph, &sizes, &b->buckets));
    OP_OK(clt_plan_create(b->graph, &b->buckets, &caps, NULL, &options, &b->plan));
    if (mode->tile || mode->options)
        return op_retile(b->graph, &b->buckets, &options, mode->tile - 1, mode->options, &b->plan);
    return true;
}

void op_make_exec(op_bound *b)
{
    OP_OK(clt_replica_create(op_devices[0], &b->buckets, &b->replica));
    clt_arena_init(&b->arena, op_devices[0]);
    op_build_programs(b->plan);
    OP_OK(clt_exec_create(op_devices[0], b->plan, &b->replica, &b->arena, &b->exec));
}

bool op_bind(const op_test *t, const op_case *c, const op_mode *mode, op_bound *b)
{
    const bool tiled = op_make_plan(t, c, mode, b);
    op_make_exec(b);
    return tiled;
}

void op_unbind(op_bound *b)
{
    if (b->exec) {
        clt_exec_destroy(b->exec);
        clt_arena_destroy(&b->arena);
        clt_replica_destroy(&b->replica);
    }
    clt_plan_destroy(b->plan);
    clt_buckets_free(&b->buckets);
    clt_graph_destroy(b->graph);
}

cl_mem op_upload(const clt_value *value, const double *numbers, int64_t n, int lead)
{
    const int64_t count = clt_type_elements(&value->type, n);
    const size_t bytes = (size_t)(lead + (count ? count : 1)) * 4;
    cl_mem buffer;
    int32_t *host = calloc(1, bytes);
    assert_non_null(host);
    memset(host, 0xFF, (size_t)lead * sizeof *host);
    for (int64_t i = 0; i < count; i++)
        if (value->type.dtype == CLT_I32)
            host[lead + i] = (int32_t)numbers[i];
        else
            ((float *)host)[lead + i] = (float)numbers[i];
    OP_OK(clt_device_buffer_create(op_devices[0], (int64_t)bytes, CL_MEM_READ_WRITE, "an operand",
                                   &buffer));
    assert_int_equal(
        clEnqueueWriteBuffer(op_devices[0]->queue, buffer, CL_TRUE, 0, bytes, host, 0, NULL, NULL),
        CL_SUCCESS);
    free(host);
    return buffer;
}

const double *op_numbers(const clt_value *value, double *const *x, double *const *dy)
{
    const int index = atoi(value->name + (value->name[0] == 'x' ? 1 : 2));
    return value->name[0] == 'x' ? x[index] : dy[index];
}
