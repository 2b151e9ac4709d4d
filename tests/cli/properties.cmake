# cli.sampling compiles the file of the command that it tests.
target_sources(test_cli_sampling PRIVATE ${PROJECT_SOURCE_DIR}/tools/cltrain/saved/sampling.c)
target_include_directories(test_cli_sampling PRIVATE ${PROJECT_SOURCE_DIR}/tools/cltrain)

# Tests of the command, in Python: tests/cli/test_<subject>.py is cli.<subject>.
if(CLT_PYTHON3 AND TARGET cltrain_command)
    # A driver whose text is not UTF-8, for cli.commands. Sanitizers must be the first library.
    add_library(latin_driver MODULE ${CMAKE_CURRENT_LIST_DIR}/latin_driver.c)
    target_compile_definitions(latin_driver PRIVATE CL_TARGET_OPENCL_VERSION=120)
    target_include_directories(latin_driver PRIVATE $<TARGET_PROPERTY:OpenCL::OpenCL,INTERFACE_INCLUDE_DIRECTORIES>)
    target_link_libraries(latin_driver PRIVATE ${CMAKE_DL_LIBS})
    set(latin $<TARGET_FILE:latin_driver>)
    if(CLT_SANITIZE)
        set(latin)
    endif()
    # tests/support/oclgrind_stores.c, for cli.oclgrind.
    set(stores)
    if(CLT_OCLGRIND AND NOT CLT_SANITIZE)
        set(stores $<TARGET_FILE:oclgrind_stores>)
    endif()
    file(GLOB CLT_CLI_TESTS CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/test_*.py)
    foreach(source ${CLT_CLI_TESTS})
        get_filename_component(subject ${source} NAME_WE)
        string(REGEX REPLACE "^test_" "" subject ${subject})
        clt_add_test(cli.${subject}
            ${CLT_PYTHON3} -B ${source} $<TARGET_FILE:cltrain_command>)
        set_tests_properties(cli.${subject} PROPERTIES LABELS train TIMEOUT 1200
            SKIP_RETURN_CODE 77 ENVIRONMENT
            "CLT_TEST_OPENBLAS=$<BOOL:${CLT_OPENBLAS}>;CLT_TEST_HOOKS=$<BOOL:${CLT_TESTING}>;CLT_TEST_LATIN=${latin};CLT_TEST_STORES=${stores};CLT_TEST_TENSORBOARD=${PROJECT_BINARY_DIR}/tensorboard")
    endforeach()
endif()
