/*
 * An all-reduce between two devices: [1, 1] and [2, 2] become [3, 3] on both.
 *
 * The program takes the first two devices of the first platform. With a single device it makes two
 * contexts with a queue each, which stand for two devices. The program creates all buffers, queues
 * and contexts itself, and uses only <cltrain/comm.h> of the library.
 */
#define CL_TARGET_OPENCL_VERSION 120

#include <stdio.h>
#include <stdlib.h>

#include <cltrain/comm.h>

static void check(cl_int error, const char *what)
{
    if (error == CL_SUCCESS)
        return;
    fprintf(stderr, "allreduce: %s: OpenCL error %d\n", what, error);
    exit(1);
}

static void must(clt_status status)
{
    if (status == CLT_OK)
        return;
    fprintf(stderr, "allreduce: %s: %s\n", clt_status_name(status), clt_error_message());
    exit(1);
}

int main(void)
{
    cl_platform_id platform;
    cl_device_id found[2];
    cl_uint count = 0;
    cl_int error;
    check(clGetPlatformIDs(1, &platform, NULL), "no OpenCL platform");
    check(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 2, found, &count), "no OpenCL device");

    clt_comm_device devices[2];
    cl_mem buffers[2];
    for (int i = 0; i < 2; i++) {
        const float mine[2] = {1.0f + (float)i, 1.0f + (float)i};
        clt_comm_device_init(&devices[i]);
        devices[i].device = found[count > 1 ? i : 0];
        devices[i].context = clCreateContext(NULL, 1, &devices[i].device, NULL, NULL, &error);
        check(error, "context");
        devices[i].compute = clCreateCommandQueue(devices[i].context, devices[i].device, 0, &error);
        check(error, "queue");
        buffers[i] =
            clCreateBuffer(devices[i].context, CL_MEM_READ_WRITE, sizeof mine, NULL, &error);
        check(error, "buffer");
        check(clEnqueueWriteBuffer(devices[i].compute, buffers[i], CL_TRUE, 0, sizeof mine, mine, 0,
                                   NULL, NULL),
              "writing");
    }

    clt_comm *comm;
    must(clt_comm_create(devices, 2, NULL, &comm));

    /* clt_comm_start does not block, so one thread can serve both devices. Start on both devices
     * first. */
    clt_comm_request *requests[2];
    for (int i = 0; i < 2; i++) {
        clt_comm_op op;
        clt_comm_op_init(&op);
        op.kind = CLT_COMM_ALL_REDUCE;
        op.dtype = CLT_F32;
        op.reduction = CLT_COMM_SUM;
        op.mem = buffers[i];
        op.count = 2;
        must(clt_comm_start(comm, i, -1, &op, 0, NULL, &requests[i]));
    }
    /* Then complete both. The queues are in order, so reading needs no event. */
    for (int i = 0; i < 2; i++) {
        float sum[2];
        must(clt_comm_complete(requests[i], i, NULL, NULL));
        check(clEnqueueReadBuffer(devices[i].compute, buffers[i], CL_TRUE, 0, sizeof sum, sum, 0,
                                  NULL, NULL),
              "reading");
        printf("device %d: [%g, %g]\n", i, (double)sum[0], (double)sum[1]);
    }

    clt_comm_destroy(comm);
    for (int i = 0; i < 2; i++) {
        clReleaseMemObject(buffers[i]);
        clReleaseCommandQueue(devices[i].compute);
        clReleaseContext(devices[i].context);
    }
    return 0;
}
