# Tests of the command, in Python: tests/cli/test_<subject>.py is cli.<subject>.
if(CLT_PYTHON3 AND TARGET cltrain_command)
    file(GLOB CLT_CLI_TESTS CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/test_*.py)
    foreach(source ${CLT_CLI_TESTS})
        get_filename_component(subject ${source} NAME_WE)
        string(REGEX REPLACE "^test_" "" subject ${subject})
        clt_add_test(cli.${subject}
            ${CLT_PYTHON3} -B ${source} $<TARGET_FILE:cltrain_command>)
        set_tests_properties(cli.${subject} PROPERTIES LABELS train TIMEOUT 1200
            SKIP_RETURN_CODE 77 ENVIRONMENT "CLT_TEST_OPENBLAS=$<BOOL:${CLT_OPENBLAS}>")
    endforeach()
endif()
