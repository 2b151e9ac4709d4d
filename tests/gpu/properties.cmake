# Kernels for GPUs through the vendors' offline compilers. Exit 77: no compiler is there.
add_executable(gpu_launches gpu/launches.c)
target_link_libraries(gpu_launches PRIVATE cltrain_static test_models m)
if(CLT_PYTHON3)
    add_test(NAME gpu.compile COMMAND ${CLT_PYTHON3} -B ${PROJECT_SOURCE_DIR}/tools/gpu_compile/main.py
        --launches $<TARGET_FILE:gpu_launches> --compilers ${PROJECT_BINARY_DIR}/gpu-compilers)
    set_tests_properties(gpu.compile PROPERTIES LABELS op TIMEOUT 600 SKIP_RETURN_CODE 77)
endif()
