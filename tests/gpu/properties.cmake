# Kernels for GPUs through the vendors' offline compilers. Exit 77: no compiler is there.
file(GLOB CLT_GPU_PLANS CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.c)
add_executable(gpu_launches ${CLT_GPU_PLANS})
target_include_directories(gpu_launches PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(gpu_launches PRIVATE cltrain_static cltrain_models_objects m)
if(CLT_PYTHON3)
    # compile: plans' choices, for an old GPU of each vendor and AMD's gfx90a, compared with the
    # tables in gpu/table. targets: the same for all GPUs. tiles: also the tiles that a tuner would
    # try, for one GPU of each vendor (tools/gpu-compile BUILD --tiles: for all).
    foreach(name compile targets tiles)
        set(more gfx906 gfx90a gfx940 gfx1100 sm_80 dg2)
        if(name STREQUAL tiles)
            set(more --tiles gfx906 gfx940 gfx1100 sm_80 dg2)
        elseif(name STREQUAL targets)
            set(more)
        endif()
        clt_add_test(gpu.${name} ${CLT_PYTHON3} -B
            ${PROJECT_SOURCE_DIR}/tools/gpu_compile/main.py --launches $<TARGET_FILE:gpu_launches>
            --compilers ${PROJECT_BINARY_DIR}/gpu-compilers ${more})
        set_tests_properties(gpu.${name} PROPERTIES LABELS op TIMEOUT 3600 SKIP_RETURN_CODE 77)
    endforeach()
    set_tests_properties(gpu.targets gpu.tiles PROPERTIES LABELS "op;slow")
    # These tests keep all cores busy.
    set_tests_properties(gpu.compile gpu.targets gpu.tiles PROPERTIES PROCESSORS 2)
    clt_add_test(gpu.gate ${CLT_PYTHON3} -B ${CMAKE_CURRENT_SOURCE_DIR}/gpu/gate.py
        ${PROJECT_SOURCE_DIR}/tools/gpu_compile/main.py ${PROJECT_BINARY_DIR}/gpu-compilers)
    set_tests_properties(gpu.gate PROPERTIES LABELS op SKIP_RETURN_CODE 77)
    clt_add_test(gpu.figures ${CLT_PYTHON3} -B ${CMAKE_CURRENT_SOURCE_DIR}/gpu/figures.py
        ${PROJECT_SOURCE_DIR}/tools/gpu_compile)
    clt_add_test(gpu.parsers ${CLT_PYTHON3} -B ${CMAKE_CURRENT_SOURCE_DIR}/gpu/parsers.py
        ${PROJECT_SOURCE_DIR}/tools/gpu_compile)
    set_tests_properties(gpu.figures gpu.parsers PROPERTIES LABELS op)
endif()
