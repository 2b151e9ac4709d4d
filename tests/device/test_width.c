/* The vector width that a driver compiles for, if it reports the width of the host. PoCL is told to
 * compile for a processor without AVX-512. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "device/core/device.h"
#include <cltrain/cltrain.h>

static char folder[] = "/tmp/cltrain-width-XXXXXX";

static void the_compilers_width_counts(void **state)
{
    (void)state;
    clt_runtime_options options;
    clt_runtime *runtime;
    clt_device **devices;
    int count;
    clt_runtime_options_init(&options);
    options.cache_dir = folder;
    assert_int_equal(clt_runtime_create(&options, &runtime), CLT_OK);
    if (clt_devices_open(runtime, "pocl", NULL, &devices, &count) != CLT_OK)
        skip();
    assert_int_equal(devices[0]->caps.vector_width, 8);
    assert_int_equal(devices[0]->caps.vector_registers, 16);
    clt_device_info info;
    clt_device_info_init(&info);
    assert_int_equal(clt_device_get_info(devices[0], &info), CLT_OK);
    assert_int_equal(info.vector_width, 8);
    clt_devices_close(devices, count);
    clt_runtime_destroy(runtime);
}

static int remove_folder(void **state)
{
    (void)state;
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_compilers_width_counts)};
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2") && mkdtemp(folder)) {
        setenv("POCL_LLVM_CPU_NAME", "haswell", 1);
        setenv("POCL_KERNELLIB_NAME", "avx2", 1);
        setenv("POCL_CACHE_DIR", folder, 1);
        return cmocka_run_group_tests(tests, NULL, remove_folder);
    }
#endif
    (void)tests;
    (void)remove_folder;
    print_message("needs an x86-64 processor with AVX2: skipped\n");
    return 0;
}
