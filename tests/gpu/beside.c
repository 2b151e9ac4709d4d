/* Kernels that are in no plan. */
#include <stdio.h>
#include <string.h>

#include "gpu/plans.h"
#include "ops/core/matrix_unit.h"

/* Prints the update kernels, for gradients in f32 or as `half` says. */
static void print_updates(const char *fp64, const char *half)
{
    static const struct {
        const char *kernel;
        enum { ALL, FULL, HALF } gradients;
    } updates[] = {{"square_sum", ALL},
                   {"step_status", ALL},
                   {"loss_upstream", ALL},
                   {"scale_upstream", ALL},
                   {"add_to", FULL},
                   {"add_half", HALF},
                   {"round_sum", HALF},
                   {"add_mean", ALL},
                   {"assign_state", ALL},
                   {"merge_gradients", ALL},
                   {"merge_floats", ALL},
                   {"add_zeros", FULL},
                   {"send_rounded", HALF},
                   {"keep_residual", HALF},
                   {"sgd", ALL},
                   {"momentum", ALL},
                   {"adam", ALL},
                   {"rmsprop", ALL},
                   {"rmsprop_momentum", ALL},
                   {"rmsprop_centered", ALL},
                   {"rmsprop_centered_momentum", ALL},
                   {"adagrad", ALL},
                   {"lion", ALL},
                   {"muon_average", ALL},
                   {"muon_step", ALL}};
    char options[96];
    snprintf(options, sizeof options, "%s%s%s", fp64, *fp64 && *half ? " " : "", half);
    for (size_t i = 0; i < sizeof updates / sizeof *updates; i++) {
        const int items = strstr(updates[i].kernel, "upstream") ? 1 : 256;
        if (updates[i].gradients == (*half ? FULL : HALF))
            continue;
        print_line("train/gpu/update.cl", options, updates[i].kernel, items, "chosen");
        print_line("train/portable/update.cl", options, updates[i].kernel, 1, "fallback");
    }
}

/* Prints the kernels of exec/update/average.c. */
static void print_averages(void)
{
    static const char *const kernels[] = {"average", "follow", "counted", "exchange"};
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        print_line("train/portable/average.cl", "", kernels[i], 64, "fallback");
}

/* Prints the kernels of exec/update/convert.c. */
static void print_conversions(void)
{
    for (int f16 = 0; f16 < 2; f16++) {
        const char *options = f16 ? "-DOUT0=h -DSCALED" : "-DOUT0=w";
        print_line("train/portable/convert.cl", options, "round_gradient", 64, "fallback");
        print_line("train/portable/convert.cl", options, "widen_gradient", 64, "fallback");
    }
}

/* Prints kernels that run beside plans: of exec/update/update.c, checksum.c, convert.c and
 * batch_gather.c, and of measurements in tune and comm. */
void print_beside(const clt_caps *caps)
{
    static const char *const types[] = {"uchar", "ushort", "uint", "ulong"};
    const char *fp64 = caps->fp64 ? "-DCLT_FP64" : "";
    print_updates(fp64, "");
    print_updates(fp64, "-DG_T=w -DHALF_GRADIENTS");
    print_updates(fp64, "-DG_T=h -DHALF_GRADIENTS -DLOSS_SCALED");
    print_conversions();
    print_averages();
    print_line("train/gpu/checksum.cl", "", "checksum", 64, "chosen");
    print_line("train/portable/checksum.cl", "", "checksum", 64, "fallback");
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char options[64];
        snprintf(options, sizeof options, "-DT=%s -DV=%d", types[i], i < 3 ? 4 : 2);
        print_line("train/gpu/gather.cl", options, "gather_copy", 256, "chosen");
        snprintf(options, sizeof options, "-DT=%s", types[i]);
        print_line("train/portable/gather.cl", options, "gather_copy", 256, "fallback");
    }
    for (int gpu = 0; gpu < 2; gpu++) {
        const char *file = gpu ? "train/gpu/gather.cl" : "train/portable/gather.cl";
        const char *role = gpu ? "chosen" : "fallback", *v = gpu ? " -DV=4" : "";
        char options[64];
        snprintf(options, sizeof options, "-DT=uchar%s", v);
        print_line(file, options, "gather_look_up", 256, role);
        snprintf(options, sizeof options, "-DT=float%s", v);
        print_line(file, options, "gather_scale", 256, role);
        snprintf(options, sizeof options, "-DT=int%s", v);
        print_line(file, options, "gather_scale", 256, role);
    }
    print_line("train/gpu/gather.cl", "-DT=uchar -DV=1", "gather_widen", 256, "chosen");
    print_line("train/portable/gather.cl", "-DT=uchar", "gather_widen", 256, "fallback");
    print_line("bench/limits.cl", "-DVW=1 -DCHAINS=8 -DCPU=0 -DAHEAD=0", "clt_fma_peak", 256,
               "fallback");
    print_line("bench/limits.cl", "-DVW=4 -DCHAINS=1 -DCPU=0 -DAHEAD=0", "clt_copy", 256,
               "fallback");
    print_line("bench/limits.cl", "-DVW=4 -DCHAINS=1 -DCPU=0 -DAHEAD=0", "clt_exchange", 256,
               "fallback");
    print_line("bench/allreduce.cl", "-DCPU=0 -DSAMPLES=64 -DDELAY=1000", "clt_allreduce_write", 64,
               "fallback");
    print_line("bench/allreduce.cl", "-DCPU=0 -DSAMPLES=64 -DDELAY=1000", "clt_allreduce_read", 1,
               "fallback");
    print_line("bench/allreduce.cl", "-DCPU=0 -DSAMPLES=64 -DDELAY=1000", "clt_allreduce_check", 64,
               "fallback");
}

/* Prints the kernels of sums between devices, of comm/transports/peer_kernels.c. */
void print_sums(const clt_caps *caps)
{
    static const char *const types[] = {"f32", "i32", "f16", "bf16", "f64"};
    char options[64], kernel[64];
    snprintf(options, sizeof options, "-DCPU=0 -DDOUBLE=%d -DLANES=16", caps->fp64);
    for (size_t i = 0; i < sizeof types / sizeof *types - !caps->fp64; i++) {
        snprintf(kernel, sizeof kernel, "clt_comm_reduce_%s", types[i]);
        print_line("comm/reduce.cl", options, kernel, 64, "fallback");
        snprintf(kernel, sizeof kernel, "clt_comm_measure_%s", types[i]);
        if (caps->fp64)
            print_line("comm/reduce.cl", options, kernel, 64, "fallback");
    }
}

/* Prints the kernels of device/discover/probe_matrix.c. */
void print_matrix_probes(const clt_caps *caps)
{
    static const clt_dtype types[] = {CLT_BF16, CLT_F16};
    for (int i = 0; i < 2; i++) {
        char options[CLT_MATRIX_OPTIONS];
        print_line("core/gpu/matrix_probe.cl", clt_matrix_options(caps, types[i], options),
                   "matrix_probe", 2 * clt_matrix_shape_of(caps).lanes, "chosen");
    }
}
