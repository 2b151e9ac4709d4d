#include "device/discover/probe_matrix.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"

enum { WARPS = 2, MOST_M = 16, MOST_N = 16, DEPTH = 32 };

static const struct unit {
    const char *option, *name;
    int lanes, n;
} units[] = {[CLT_MATRIX_MMA] = {"MMA", "mma.m16n8k16", 32, 8},
             [CLT_MATRIX_MFMA] = {"MFMA", "mfma 16x16x16", 64, 16},
             [CLT_MATRIX_WMMA] = {"WMMA", "wmma 16x16x16", 32, 16}};

/* The matrices, whose products f32 holds exactly: 32 products of numbers with at most 8 bits. */
typedef struct matrices {
    uint16_t a[WARPS * MOST_M * DEPTH], b[WARPS * MOST_N * DEPTH];
    float sums[WARPS * MOST_M * MOST_N], wanted[WARPS * MOST_M * MOST_N];
} matrices;

/* Encodes an integer of at most 8 bits, or with `small` its 2^-24 part, which is subnormal in f16.
 */
static uint16_t encode(clt_dtype type, int value, bool small)
{
    const int size = value < 0 ? -value : value, sign = value < 0 ? 0x8000 : 0;
    int exponent = 0;
    if (small && type == CLT_F16)
        return (uint16_t)(sign | size);
    if (!size)
        return 0;
    while (size >> (exponent + 1))
        exponent++;
    if (type == CLT_F16)
        return (uint16_t)(sign | (exponent + 15) << 10 | (size << (10 - exponent) & 0x3FF));
    return (uint16_t)(sign | (exponent + 127 - (small ? 24 : 0)) << 7 |
                      (size << (7 - exponent) & 0x7F));
}

/* Fills the matrices so that no two rows or columns are equal. The last row of each A is small. */
static void fill(matrices *m, clt_dtype type, int n)
{
    int a[WARPS * MOST_M * DEPTH], b[WARPS * MOST_N * DEPTH];
    for (int i = 0; i < WARPS * MOST_M * DEPTH; i++) {
        a[i] = i * 37 % 511 - 255;
        m->a[i] = encode(type, a[i], i / DEPTH % MOST_M == MOST_M - 1);
    }
    for (int i = 0; i < WARPS * n * DEPTH; i++) {
        b[i] = i * 91 % 509 - 254;
        m->b[i] = encode(type, b[i], false);
    }
    for (int w = 0; w < WARPS; w++)
        for (int r = 0; r < MOST_M; r++)
            for (int c = 0; c < n; c++) {
                const int at = (w * MOST_M + r) * n + c;
                int64_t sum = 0;
                for (int k = 0; k < DEPTH; k++)
                    sum += (int64_t)a[(w * MOST_M + r) * DEPTH + k] * b[(w * n + c) * DEPTH + k];
                m->sums[at] = r == MOST_M - 1 ? 0.0f : (float)(at % 13 - 6);
                m->wanted[at] =
                    r == MOST_M - 1 ? ldexpf((float)sum, -24) : (float)sum + m->sums[at];
            }
}

static clt_status make(clt_device *device, const void *from, size_t bytes, cl_mem *out)
{
    CLT_TRY(clt_device_buffer_create_raw(device, (int64_t)bytes, CL_MEM_READ_WRITE, "matrix probe",
                                         out));
    CLT_CL(clEnqueueWriteBuffer(device->queue, *out, CL_TRUE, 0, bytes, from, 0, NULL, NULL),
           "clEnqueueWriteBuffer", device);
    return CLT_OK;
}

static clt_status run(clt_device *device, cl_kernel kernel, matrices *m, size_t threads,
                      cl_mem buffers[3])
{
    const void *const from[] = {m->a, m->b, m->sums};
    const size_t bytes[] = {sizeof m->a, sizeof m->b, sizeof m->sums};
    for (cl_uint i = 0; i < 3; i++) {
        CLT_TRY(make(device, from[i], bytes[i], &buffers[i]));
        CLT_CL(clSetKernelArg(kernel, i, sizeof buffers[i], &buffers[i]), "clSetKernelArg", device);
    }
    CLT_CL(
        clEnqueueNDRangeKernel(device->queue, kernel, 1, NULL, &threads, &threads, 0, NULL, NULL),
        "clEnqueueNDRangeKernel", device);
    CLT_CL(clEnqueueReadBuffer(device->queue, buffers[2], CL_TRUE, 0, sizeof m->sums, m->sums, 0,
                               NULL, NULL),
           "clEnqueueReadBuffer", device);
    return CLT_OK;
}

bool clt_probe_matrix_exact(clt_device *device, clt_matrix_unit unit, clt_dtype type, char *why,
                            size_t bytes)
{
    static const char *const letters[] = {[CLT_F16] = "h", [CLT_BF16] = "w"};
    const struct unit *u = &units[unit.kind];
    const size_t threads = (size_t)(WARPS * u->lanes);
    char options[96];
    matrices m;
    cl_kernel kernel = NULL;
    cl_mem buffers[3] = {NULL, NULL, NULL};
    memset(&m, 0, sizeof m);
    fill(&m, type, u->n);
    snprintf(options, sizeof options, "-DUNIT_%s -DUNIT_T=%s%s", u->option, letters[type],
             unit.emulated ? " -DUNIT_EMULATED" : "");
    /* The compilers of other devices do not know the instruction. */
    device->probes = true;
    clt_status status =
        clt_device_kernel(device, "core/gpu/matrix_probe.cl", options, "matrix_probe", &kernel);
    device->probes = false;
    CLT_NEXT(status, run(device, kernel, &m, threads, buffers));
    clt_release_kernel(kernel);
    for (int i = 0; i < 3; i++)
        clt_release_buffer(buffers[i]);
    if (status != CLT_OK) {
        snprintf(why, bytes, "%s", clt_error_message());
        return false;
    }
    for (int i = 0; i < WARPS * MOST_M * u->n; i++)
        if (m.sums[i] != m.wanted[i]) {
            snprintf(why, bytes, "row %d, column %d of a product is %.9g, not %.9g",
                     i / u->n % MOST_M, i % u->n, (double)m.sums[i], (double)m.wanted[i]);
            return false;
        }
    return true;
}

static bool has(const char *text, const char *part)
{
    return strstr(text, part) != NULL;
}

void clt_probe_matrix(clt_device *device)
{
    const clt_caps *caps = &device->caps;
    const bool nvidia = has(caps->vendor, "NVIDIA") || has(caps->platform, "NVIDIA");
    const bool amd = has(caps->vendor, "Advanced Micro Devices") || has(caps->vendor, "AMD");
    const clt_matrix_kind first = nvidia ? CLT_MATRIX_MMA : CLT_MATRIX_MFMA;
    const clt_matrix_kind last = nvidia ? CLT_MATRIX_MMA : CLT_MATRIX_WMMA;
    if (caps->kind != CLT_KIND_GPU || (!nvidia && !amd))
        return;
    for (clt_matrix_kind kind = first; kind <= last; kind++) {
        clt_matrix_unit unit = {.kind = kind};
        char why[2][256];
        unit.bf16 = clt_probe_matrix_exact(device, unit, CLT_BF16, why[0], sizeof why[0]);
        unit.f16 = clt_probe_matrix_exact(device, unit, CLT_F16, why[1], sizeof why[1]);
        if (!unit.bf16)
            clt_log(CLT_LOG_INFO, "%s: no %s for bf16: %s", device->label, units[kind].name,
                    why[0]);
        if (!unit.f16)
            clt_log(CLT_LOG_INFO, "%s: no %s for f16: %s", device->label, units[kind].name, why[1]);
        if (!unit.bf16 && !unit.f16)
            continue;
        device->caps.matrix = unit;
        snprintf(device->info.matrix_unit, sizeof device->info.matrix_unit, "%s%s%s",
                 units[kind].name, unit.bf16 ? " bf16" : "", unit.f16 ? " f16" : "");
        return;
    }
}
