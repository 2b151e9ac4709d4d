# Each test writes the variants that it compared to ops_run/. A check then finds variants without a
# case.
file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/ops_run/usual ${CMAKE_CURRENT_BINARY_DIR}/ops_run/vendor)

# settled/NAME: hashes of the plans that test NAME found right, which need not run again
# (ops/harness/settled.h). settled/code: the code that decides results besides kernels and plans.
set(settled ${CMAKE_CURRENT_BINARY_DIR}/settled)
file(MAKE_DIRECTORY ${settled})
file(GLOB_RECURSE code CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/runtime/exec/*.[ch]
    ${PROJECT_SOURCE_DIR}/runtime/device/*.[ch] ${CMAKE_CURRENT_SOURCE_DIR}/ops/*/*.h)
list(APPEND code ${CLT_TEST_HARNESS} ${PROJECT_SOURCE_DIR}/tools/oclgrind.sh
    ${CMAKE_CURRENT_SOURCE_DIR}/device/test_clblast.c ${PROJECT_SOURCE_DIR}/runtime/base/blas_sets.c)
add_custom_command(OUTPUT ${settled}/code COMMAND sh -c "cat \"$@\" >\"$0\"" ${settled}/code ${code}
    DEPENDS ${code} VERBATIM)
add_custom_target(settled_code ALL DEPENDS ${settled}/code)

# Runs every operator's test on Oclgrind too, and on Intel's runtime if it is there.
foreach(test ${CLT_TESTS})
    if(NOT test MATCHES "/tests/ops/")
        continue()
    endif()
    get_filename_component(subject ${test} NAME_WE)
    string(REGEX REPLACE "^test_" "ops." subject ${subject})
    set_tests_properties(${subject} PROPERTIES LABELS op TIMEOUT 1200 FIXTURES_SETUP ops_run
        ENVIRONMENT "CLT_OPS_RUN=${CMAKE_CURRENT_BINARY_DIR}/ops_run/usual/${subject}.txt")
    string(REPLACE "." "_" target test_${subject})
    add_dependencies(${target} settled_code)
    clt_test_on_oclgrind(${subject})
    # Oclgrind's check for uninitialised values does not know an instruction that the optimiser
    # generates.
    if(TEST oclgrind.${subject})
        set_tests_properties(oclgrind.${subject} PROPERTIES TIMEOUT 1200)
        set_property(TEST oclgrind.${subject} APPEND PROPERTY ENVIRONMENT
            "OCLGRIND_BUILD_OPTIONS=-cl-opt-disable" "CLT_TEST_SETTLED=${settled}/oclgrind.${subject}")
    endif()
    clt_test_on_vendor(${subject} intel)
    set_tests_properties(vendor.${subject} PROPERTIES FIXTURES_SETUP ops_run_vendor)
    set_property(TEST vendor.${subject} APPEND PROPERTY ENVIRONMENT
        "CLT_OPS_RUN=${CMAKE_CURRENT_BINARY_DIR}/ops_run/vendor/${subject}.txt"
        "CLT_TEST_SETTLED=${settled}/vendor.${subject}")
endforeach()

# Runs on a device with small work-groups, which PoCL simulates.
clt_add_test(ops.small_work_groups test_ops_mse)
set_tests_properties(ops.small_work_groups PROPERTIES LABELS op
    ENVIRONMENT "POCL_MAX_WORK_GROUP_SIZE=4")

if(CLT_PYTHON3)
    foreach(where usual vendor)
        set(test ops.variants_compared)
        set(fixture ops_run)
        set(label op)
        if(where STREQUAL vendor)
            set(test vendor.variants_compared)
            set(fixture ops_run_vendor)
            set(label vendor)
        endif()
        clt_add_test(${test} ${CLT_PYTHON3} -B ${CMAKE_CURRENT_SOURCE_DIR}/ops/coverage.py
            ${PROJECT_SOURCE_DIR}/runtime/ops/core/ops.def ${CMAKE_CURRENT_BINARY_DIR}/ops_run/${where})
        set_tests_properties(${test} PROPERTIES LABELS ${label} FIXTURES_REQUIRED ${fixture})
    endforeach()
    clt_add_test(ops.pocl_locals ${CLT_PYTHON3} -B ${CMAKE_CURRENT_SOURCE_DIR}/ops/pocl_locals.py
        ${PROJECT_BINARY_DIR}/embedded_kernels.c)
    set_tests_properties(ops.pocl_locals PROPERTIES LABELS op FIXTURES_REQUIRED ops_run)
    clt_add_test(check.pocl_locals ${CLT_PYTHON3} -B ${CMAKE_CURRENT_SOURCE_DIR}/ops/pocl_locals.py
        --selftest ${CMAKE_C_COMPILER})
    set_tests_properties(check.pocl_locals PROPERTIES LABELS unit)
endif()

# Plants bugs in the kernels: each must fail a test. check.mutations tests that the texts to replace
# exist.
if(CLT_PYTHON3)
    clt_add_test(check.mutations ${CLT_PYTHON3} -B ${CMAKE_CURRENT_SOURCE_DIR}/ops/mutate.py
        --texts ${PROJECT_SOURCE_DIR})
    set_tests_properties(check.mutations PROPERTIES LABELS unit)
endif()
if(CLT_PYTHON3 AND CMAKE_GENERATOR STREQUAL "Ninja" AND NOT CLT_SANITIZE)
    clt_add_test(ops.mutations ${CLT_PYTHON3} -B ${CMAKE_CURRENT_SOURCE_DIR}/ops/mutate.py
        ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
    set_tests_properties(ops.mutations PROPERTIES LABELS "op;slow" TIMEOUT 1800 RUN_SERIAL TRUE)
endif()
