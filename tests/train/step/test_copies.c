/*
 * Copies between tensors and the caller's memory, of the host and of devices. All ways to read a
 * tensor give the same bits, and so do all ways to write it.
 */
#include "train/step/given.h"

#include <CL/cl.h>

#include <cltrain/opencl.h>

enum { ROOM = 256 }; /* floats of a buffer */

static cl_mem buffer_on(const lab *l, int device)
{
    cl_int code;
    const float junk = -77;
    cl_mem mem = clCreateBuffer(clt_device_cl_context(l->devices[device]), CL_MEM_READ_WRITE,
                                ROOM * sizeof(float), NULL, &code);
    assert_int_equal(code, CL_SUCCESS);
    assert_int_equal(clEnqueueFillBuffer(clt_device_cl_queue(l->devices[device]), mem, &junk,
                                         sizeof junk, 0, ROOM * sizeof junk, 0, NULL, NULL),
                     CL_SUCCESS);
    return mem;
}

static void read_buffer(const lab *l, int device, cl_mem mem, float *data)
{
    assert_int_equal(clEnqueueReadBuffer(clt_device_cl_queue(l->devices[device]), mem, CL_TRUE, 0,
                                         ROOM * sizeof *data, data, 0, NULL, NULL),
                     CL_SUCCESS);
}

static void write_buffer(const lab *l, int device, cl_mem mem, const float *data)
{
    assert_int_equal(clEnqueueWriteBuffer(clt_device_cl_queue(l->devices[device]), mem, CL_TRUE, 0,
                                          ROOM * sizeof *data, data, 0, NULL, NULL),
                     CL_SUCCESS);
}

static clt_tensor_copy copy_of(const char *name, clt_copy_of of, int device)
{
    clt_tensor_copy copy;
    clt_tensor_copy_init(&copy);
    copy.name = name;
    copy.of = of;
    copy.device = device;
    copy.array.whole = 1;
    return copy;
}

static clt_status run(lab *l, const clt_tensor_copy *copy, bool in, cl_event *event)
{
    if (copy->of == CLT_COPY_VALUE)
        return in ? clt_store_copy_in(l->store, copy, event)
                  : clt_store_copy_out(l->store, copy, event);
    return in ? clt_trainer_copy_in(l->trainer, copy, event)
              : clt_trainer_copy_out(l->trainer, copy, event);
}

/* Reads by the calls without clt_tensor_copy. */
static void read_whole(lab *l, clt_copy_of of, int device, int i, float *data)
{
    if (of == CLT_COPY_VALUE)
        ok(clt_store_get(l->store, names[i], data, bytes_of(i)));
    else if (of == CLT_COPY_GRADIENT)
        ok(clt_trainer_gradient(l->trainer, device, names[i], data, bytes_of(i)));
    else
        ok(clt_trainer_slot_get(l->trainer, 1, names[i], data, bytes_of(i)));
}

/* --- reading -----------------------------------------------------------------------------------
 */

/* Copies to the host, and to a buffer from float 3 on, and expects `count` floats `want`. */
static void reads(lab *l, clt_tensor_copy copy, const float *want, int count)
{
    float host[ROOM], device[ROOM];
    cl_mem mem = buffer_on(l, copy.device);
    cl_event event;
    for (int k = 0; k < ROOM; k++)
        host[k] = -77;
    copy.array.host = host;
    copy.array.offset = 3 * sizeof(float);
    copy.array.bytes = copy.array.offset + count * (int64_t)sizeof(float);
    ok(run(l, &copy, false, NULL));
    copy.array.host = NULL;
    copy.array.buffer = mem;
    copy.array.bytes = 0;
    ok(run(l, &copy, false, &event));
    assert_int_equal(clWaitForEvents(1, &event), CL_SUCCESS);
    clReleaseEvent(event);
    read_buffer(l, copy.device, mem, device);
    assert_memory_equal(host, device, sizeof host);
    assert_memory_equal(host + 3, want, (size_t)count * sizeof *want);
    assert_true(host[2] == -77 && host[3 + count] == -77);
    clReleaseMemObject(mem);
}

static void read_all_of(lab *l, clt_copy_of of, int device)
{
    for (int i = 0; i < TENSORS; i++) {
        const int64_t rows[] = {3, 4, 1, 1, 2, 0};
        const int width = i == 0 ? IN : i == 2 ? WIDE : 1;
        float whole[MOST], picked[6 * WIDE];
        clt_tensor_copy copy = copy_of(names[i], of, device);
        copy.slot = of == CLT_COPY_SLOT;
        read_whole(l, of, device, i, whole);
        reads(l, copy, whole, sizes[i]);
        copy.first = 2;
        reads(l, copy, whole + 2, sizes[i] - 2);
        copy.count = 3;
        reads(l, copy, whole + 2, 3);
        copy.first = copy.count = 0;
        copy.rows = rows;
        copy.n_rows = 6;
        for (int r = 0; r < 6; r++)
            memcpy(picked + r * width, whole + rows[r] * width, (size_t)width * sizeof *whole);
        reads(l, copy, picked, 6 * width);
        copy.n_rows = 0;
        reads(l, copy, picked, 0);
    }
}

static void read_on(const setting *s)
{
    lab l = lab_of(s);
    backward(&l, COUNT);
    end(&l);
    backward(&l, COUNT);
    for (int d = 0; d < l.n; d++) {
        read_all_of(&l, CLT_COPY_GRADIENT, d);
        read_all_of(&l, CLT_COPY_VALUE, d);
        if (!l.trainer->sharded)
            read_all_of(&l, CLT_COPY_SLOT, d);
    }
    end(&l);
    if (!l.trainer->sharded)
        read_all_of(&l, CLT_COPY_GRADIENT, 0); /* of the step that was applied */
    lab_close(&l);
}

static void read(void **state)
{
    (void)state;
    read_on(&(setting){"pocl", NULL, CLT_ADAM, CLT_F32, 0, 0, 0, 0});
    read_on(&(setting){"pocl", NULL, CLT_ADAM, CLT_F16, 0, 0, 0, 0});
    if (clt_test_oclgrind())
        return;
    read_on(&(setting){"pocl/2", NULL, CLT_ADAM, CLT_F32, 0, 0, 0, 0});
    read_on(&(setting){"pocl/2", NULL, CLT_ADAM, CLT_BF16, 0, 0, 0, 0});
}

/* --- writing -----------------------------------------------------------------------------------
 */

static float number(int i, int k)
{
    return (float)((i + 3 * k) % 11 - 5) / 64;
}

/* Writes numbers to all tensors: whole, or in two ranges and a buffer on each device. */
static void write_all(lab *l, clt_copy_of of, bool buffers)
{
    for (int i = 0; i < TENSORS; i++) {
        float data[ROOM];
        clt_tensor_copy copy = copy_of(names[i], of, -1);
        for (int k = 0; k < sizes[i]; k++)
            data[k] = number(i, k);
        copy.array.host = data;
        if (!buffers)
            ok(run(l, &copy, true, NULL));
        for (int d = 0; buffers && d < l->n; d++) {
            cl_mem mem = buffer_on(l, d);
            write_buffer(l, d, mem, data);
            copy.device = d;
            copy.array.host = NULL;
            copy.array.buffer = mem;
            copy.first = 0;
            copy.count = 2;
            copy.array.offset = 0;
            ok(run(l, &copy, true, NULL));
            copy.first = 2;
            copy.count = 0;
            copy.array.offset = 2 * sizeof(float);
            ok(run(l, &copy, true, NULL));
            clReleaseMemObject(mem);
        }
    }
}

static void write_on(const setting *s)
{
    float want[ROOM], have[ROOM];
    lab plain = lab_of(s), l = lab_of(s);
    for (int buffers = 0; buffers < 2; buffers++) {
        for (int i = 0; i < TENSORS; i++) {
            for (int k = 0; k < sizes[i]; k++)
                want[k] = number(i, k);
            ok(clt_store_set(plain.store, names[i], want, bytes_of(i)));
        }
        write_all(&l, CLT_COPY_VALUE, buffers);
        ok(clt_store_check(l.store));
        backward(&plain, COUNT);
        backward(&l, COUNT);
        for (int i = 0; i < TENSORS; i++) {
            for (int k = 0; k < sizes[i]; k++)
                want[k] = number(i, k);
            ok(clt_trainer_set_gradient(plain.trainer, -1, names[i], want, bytes_of(i)));
        }
        write_all(&l, CLT_COPY_GRADIENT, buffers);
        for (int i = 0; i < TENSORS; i++) {
            ok(clt_trainer_gradient(plain.trainer, 0, names[i], want, bytes_of(i)));
            ok(clt_trainer_gradient(l.trainer, 0, names[i], have, bytes_of(i)));
            assert_memory_equal(have, want, bytes_of(i));
        }
        ok(clt_trainer_reduced(plain.trainer));
        ok(clt_trainer_reduced(l.trainer));
        assert_true(apply(&plain).norm == apply(&l).norm);
        for (int i = 0; i < TENSORS; i++) {
            ok(clt_store_get(plain.store, names[i], want, bytes_of(i)));
            ok(clt_store_get(l.store, names[i], have, bytes_of(i)));
            assert_memory_equal(have, want, bytes_of(i));
        }
        ok(clt_store_check(l.store));
    }
    lab_close(&plain);
    lab_close(&l);
}

static void written(void **state)
{
    (void)state;
    write_on(&(setting){"pocl", NULL, CLT_SGD, CLT_F32, 0, 0.25, 0, 0});
    write_on(&(setting){"pocl", NULL, CLT_SGD, CLT_BF16, 0, 0.25, 0, 0});
    if (clt_test_oclgrind())
        return;
    write_on(&(setting){"pocl/2", NULL, CLT_MOMENTUM, CLT_F32, 0, 0.25, 0, 0});
    write_on(&(setting){"pocl/2", NULL, CLT_MOMENTUM, CLT_F16, 0, 0.25, 0, 0});
}

/* Rows that are written change, in their order, and others stay. */
static void rows(void **state)
{
    (void)state;
    const setting s = {"pocl", NULL, CLT_SGD, CLT_F32, 0, 0, 0, 0};
    const int64_t at[] = {4, 2, 4};
    float before[MOST], after[MOST], data[3 * IN];
    lab l = lab_of(&s);
    clt_tensor_copy copy = copy_of("a.weight", CLT_COPY_VALUE, -1);
    for (int k = 0; k < 3 * IN; k++)
        data[k] = (float)k;
    ok(clt_store_get(l.store, "a.weight", before, bytes_of(0)));
    copy.rows = at;
    copy.n_rows = 3;
    copy.array.host = data;
    copy.array.bytes = sizeof data;
    ok(clt_store_copy_in(l.store, &copy, NULL));
    ok(clt_store_get(l.store, "a.weight", after, bytes_of(0)));
    memcpy(before + 2 * IN, data + IN, IN * sizeof *data);
    memcpy(before + 4 * IN, data + 2 * IN, IN * sizeof *data);
    assert_memory_equal(before, after, bytes_of(0));
    lab_close(&l);
}

/* --- events ------------------------------------------------------------------------------------
 */

/* A copy waits for the caller's event, and no call waits for the copy. */
static void events(void **state)
{
    (void)state;
    const setting s = {"pocl", NULL, CLT_SGD, CLT_F32, 0, 0, 0, 0};
    lab l = lab_of(&s);
    if (clt_test_oclgrind()) { /* it runs commands when the host waits */
        lab_close(&l);
        return;
    }
    cl_int code, ran = 0;
    float data[ROOM], want[MOST];
    cl_mem mem = buffer_on(&l, 0);
    cl_event done, begin = clCreateUserEvent(clt_device_cl_context(l.devices[0]), &code);
    clt_tensor_copy copy = copy_of("a.weight", CLT_COPY_VALUE, 0);
    assert_int_equal(code, CL_SUCCESS);
    ok(clt_store_get(l.store, "a.weight", want, bytes_of(0)));
    copy.array.buffer = mem;
    copy.wait = &begin;
    copy.n_wait = 1;
    ok(clt_store_copy_out(l.store, &copy, &done));
    assert_int_equal(
        clGetEventInfo(done, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof ran, &ran, NULL),
        CL_SUCCESS);
    assert_true(ran > CL_COMPLETE);
    assert_int_equal(clSetUserEventStatus(begin, CL_COMPLETE), CL_SUCCESS);
    assert_int_equal(clWaitForEvents(1, &done), CL_SUCCESS);
    read_buffer(&l, 0, mem, data);
    assert_memory_equal(data, want, bytes_of(0));
    clReleaseEvent(done);
    clReleaseEvent(begin);
    clReleaseMemObject(mem);
    lab_close(&l);
}

/* --- mistakes ----------------------------------------------------------------------------------
 */

static void fails(clt_status status, clt_status want, const char *text)
{
    assert_int_equal(status, want);
    if (!strstr(clt_error_message(), text))
        fail_msg("'%s' is not in: %s", text, clt_error_message());
}

static void mistakes(void **state)
{
    (void)state;
    const setting s = {"pocl/2", NULL, CLT_SGD, CLT_F32, 0, 0, 0, 0};
    const int64_t beyond[] = {0, WIDE};
    float data[MOST];
    lab l = lab_of(&s);
    const clt_tensor_copy good = {
        .struct_size = sizeof good, .name = "a.weight", .array = CLT_HOST(data)};
    const int64_t bytes = (int64_t)bytes_of(0);
    clt_tensor_copy c = good;
    cl_event event;
#define FAILS(change, in, status, text)                                                            \
    (c = good, change, fails(run(&l, &c, in, NULL), status, text))
    ok(run(&l, &c, false, NULL));
    FAILS(c.struct_size = 0, false, CLT_INVALID_ARGUMENT, "clt_tensor_copy");
    FAILS(c.name = "a.weigh", false, CLT_NOT_FOUND, "did you mean a.weight");
    FAILS(c.name = NULL, false, CLT_INVALID_ARGUMENT, "no name");
    FAILS(c.device = -1, false, CLT_INVALID_ARGUMENT, "no device -1");
    FAILS(c.device = l.n, true, CLT_INVALID_ARGUMENT, "no device");
    FAILS(c.array.host = NULL, false, CLT_INVALID_ARGUMENT, "neither host nor buffer");
    FAILS(c.array.offset = -4, false, CLT_INVALID_ARGUMENT, "at least 0");
    FAILS(c.array.bytes = bytes - 4, false, CLT_INVALID_ARGUMENT, "needs 264");
    FAILS((c.array.bytes = bytes, c.array.offset = 4), false, CLT_INVALID_ARGUMENT, "needs 264");
    FAILS(c.first = sizes[0] + 1, false, CLT_INVALID_ARGUMENT, "not within its 66");
    FAILS((c.first = 60, c.count = 7), false, CLT_INVALID_ARGUMENT, "elements 60 to 67");
    FAILS(c.count = -1, false, CLT_INVALID_ARGUMENT, "not within");
    FAILS((c.rows = beyond, c.n_rows = 2), false, CLT_INVALID_ARGUMENT, "no row 11 of 11");
    FAILS((c.rows = beyond, c.n_rows = 1, c.count = 2), false, CLT_INVALID_ARGUMENT,
          "rows and elements");
    FAILS(c.n_rows = 1, false, CLT_INVALID_ARGUMENT, "rows is NULL");
    FAILS(c.n_wait = 1, false, CLT_INVALID_ARGUMENT, "no list of 1 events");
    FAILS(c.of = CLT_COPY_GRADIENT, true, CLT_STATE, "backward has not run");
    FAILS(c.of = CLT_COPY_SLOT, false, CLT_INVALID_ARGUMENT, "no slot 0");
    c = good;
    c.of = CLT_COPY_GRADIENT;
    fails(clt_store_copy_out(l.store, &c, NULL), CLT_INVALID_ARGUMENT, "clt_trainer_copy_out");
    fails(clt_trainer_copy_out(l.trainer, &good, NULL), CLT_INVALID_ARGUMENT, "clt_store_copy_out");
    c = good;
    fails(clt_store_copy_out(l.store, &c, &event), CLT_INVALID_ARGUMENT, "an event needs a buffer");
    if (l.n == 2) {
        cl_mem other = buffer_on(&l, 1);
        c.array.host = NULL;
        c.array.buffer = other;
        fails(clt_store_copy_out(l.store, &c, &event), CLT_INVALID_ARGUMENT, "of another context");
        c.device = 1;
        c.array.offset = 2;
        fails(clt_store_copy_out(l.store, &c, &event), CLT_INVALID_ARGUMENT,
              "no multiple of the 4 bytes");
        c.array.offset = (ROOM - 10) * (int64_t)sizeof(float);
        fails(clt_store_copy_out(l.store, &c, &event), CLT_INVALID_ARGUMENT, "from byte ");
        clReleaseMemObject(other);
    }
    lab_close(&l);
}

/* Expects that some device does not have all of the tensor, and is told what to call. */
static void apart(lab *l, clt_copy_of of, bool in, const char *instead)
{
    float data[MOST] = {0};
    int refused = 0;
    for (int d = 0; d < l->n; d++) {
        clt_tensor_copy copy = copy_of("a.weight", of, d);
        copy.array.host = data;
        const clt_status status = run(l, &copy, in, NULL);
        if (status == CLT_OK)
            continue;
        fails(status, CLT_UNSUPPORTED, instead);
        refused++;
    }
    assert_true(refused > 0);
}

/* Devices that have a part or a shard of a tensor say so. */
static void parts(void **state)
{
    (void)state;
    for (int zero = 0; zero <= 3; zero += zero ? 2 : 1) {
        const setting s = {"pocl/2", zero ? NULL : "tp=2", CLT_ADAM, CLT_F32, zero, 0, 0, 0};
        if (!is_possible(&s))
            continue;
        lab l = lab_of(&s);
        backward(&l, COUNT);
        if (zero != 1)
            apart(&l, CLT_COPY_VALUE, true, "clt_store_set");
        apart(&l, CLT_COPY_SLOT, false, "clt_trainer_slot_get");
        if (zero != 1)
            apart(&l, CLT_COPY_GRADIENT, true, "clt_trainer_set_gradient");
        ok(clt_trainer_reduce(l.trainer));
        apart(&l, CLT_COPY_GRADIENT, false, "clt_trainer_gradient");
        lab_close(&l);
    }
}

/* --- asynchronous training ---------------------------------------------------------------------
 */

/* Hands the parameters of one store to another, on the device. */
static void hand_values(lab *from, lab *to, cl_mem mem)
{
    for (int i = 0; i < TENSORS; i++) {
        clt_tensor_copy copy = copy_of(names[i], CLT_COPY_VALUE, 0);
        copy.array.buffer = mem;
        ok(clt_store_copy_out(from->store, &copy, NULL));
        ok(clt_store_copy_in(to->store, &copy, NULL));
    }
}

static void hand_gradients(lab *from, lab *to, cl_mem mem)
{
    for (int i = 0; i < TENSORS; i++) {
        clt_tensor_copy copy = copy_of(names[i], CLT_COPY_GRADIENT, 0);
        copy.array.buffer = mem;
        ok(clt_trainer_copy_out(from->trainer, &copy, NULL));
        ok(clt_trainer_copy_in(to->trainer, &copy, NULL));
    }
}

/* The server's trainer applies what a worker has computed. */
static void push(lab *worker, lab *server, cl_mem mem)
{
    const clt_step_batch none = batch_of(0);
    ok(clt_trainer_forward(server->trainer, &none));
    ok(clt_trainer_backward(server->trainer));
    hand_gradients(worker, server, mem);
    ok(clt_trainer_reduced(server->trainer));
    ok(clt_trainer_apply(server->trainer, NULL));
}

static clt_graph *parameters_alone(void)
{
    const int64_t a[] = {WIDE, IN}, b[] = {CLASSES, WIDE}, *dims[] = {a, a, b, b};
    clt_graph *g;
    ok(clt_graph_create(&g));
    for (int i = 0; i < TENSORS; i++)
        clt_parameter(g, names[i], i % 2 ? 1 : 2, dims[i], (clt_init){CLT_INIT_UNIFORM, 0.25, 0});
    return g;
}

/*
 * A server has the parameters and their optimizer. Two workers pull version 0 and compute gradients
 * of it. The server applies one after the other, so the second is a version old. All live on one
 * device, and nothing goes through the host.
 */
static void asynchronous(void **state)
{
    (void)state;
    const setting s = {"pocl", NULL, CLT_MOMENTUM, CLT_F32, 0, 0, 0, 0};
    clt_trainer_options o = options_of(&s);
    double want[TENSORS][MOST];
    float data[2][TENSORS][MOST], p[MOST];
    lab workers[2] = {lab_of(&s)}, server = {.devices = workers[0].devices, .n = workers[0].n};
    if (server.n == 1) {
        const clt_trainer_options same = o;
        workers[1] = (lab){.devices = server.devices, .n = 1};
        lab_store(&workers[1], split_network(false), 9);
        lab_trainer(&workers[1], &same);
        o.batch = 1;
        o.momentum = 0.5;
        lab_store(&server, parameters_alone(), 2);
        lab_trainer(&server, &o);
        cl_mem mem = buffer_on(&server, 0);
        for (int w = 0; w < 2; w++) {
            hand_values(&server, &workers[w], mem);
            backward(&workers[w], 5 + w);
        }
        for (int i = 0; i < TENSORS; i++) {
            ok(clt_store_get(server.store, names[i], p, bytes_of(i)));
            for (int w = 0; w < 2; w++)
                ok(clt_trainer_gradient(workers[w].trainer, 0, names[i], data[w][i], bytes_of(i)));
            for (int k = 0; k < sizes[i]; k++) { /* velocity g0, then g0 / 2 + g1 */
                const double g0 = data[0][i][k], g1 = data[1][i][k];
                want[i][k] = p[k] - 0.25 * g0 - 0.25 * (0.5 * g0 + g1);
            }
        }
        push(&workers[0], &server, mem);
        push(&workers[1], &server, mem);
        assert_int_equal(clt_trainer_steps(server.trainer), 2);
        hand_values(&server, &workers[0], mem);
        for (int i = 0; i < TENSORS; i++) {
            ok(clt_store_get(workers[0].store, names[i], p, bytes_of(i)));
            for (int k = 0; k < sizes[i]; k++)
                assert_true(fabs(p[k] - want[i][k]) < 1e-6);
        }
        clReleaseMemObject(mem);
        lab *const own[] = {&server, &workers[1]};
        for (int i = 0; i < 2; i++) { /* the devices are those of the first worker */
            clt_trainer_destroy(own[i]->trainer);
            clt_store_destroy(own[i]->store);
            clt_graph_destroy(own[i]->graph);
        }
    }
    lab_close(&workers[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(read),         cmocka_unit_test(written),  cmocka_unit_test(rows),
        cmocka_unit_test(events),       cmocka_unit_test(mistakes), cmocka_unit_test(parts),
        cmocka_unit_test(asynchronous),
    };
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
