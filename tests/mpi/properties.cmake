# Programs that mpiexec runs, if MPI was found.
if(TARGET cltrain-mpi AND NOT CLT_SANITIZE)
    # Builds mpi_NAME from NAME.c beside the shared libraries.
    function(clt_mpi_program name)
        add_executable(mpi_${name} ${CMAKE_CURRENT_SOURCE_DIR}/mpi/${name}.c ${ARGN})
        target_include_directories(mpi_${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}
            ${PROJECT_SOURCE_DIR}/runtime)
        target_link_libraries(mpi_${name} PRIVATE cltrain-mpi PkgConfig::CMOCKA Threads::Threads m)
        target_compile_definitions(mpi_${name} PRIVATE _GNU_SOURCE CL_TARGET_OPENCL_VERSION=120)
    endfunction()

    # The same for programs that need internals of the libraries, whose objects they have instead.
    function(clt_mpi_inner_program name)
        add_executable(mpi_${name} mpi/${name}.c ${CLT_MPI_SOURCES})
        target_include_directories(mpi_${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
        target_link_libraries(mpi_${name} PRIVATE cltrain_static cltrain_models_objects MPI::MPI_C
            PkgConfig::CMOCKA m)
        target_compile_definitions(mpi_${name} PRIVATE $<$<BOOL:${CLT_TESTING}>:CLT_TESTING>)
    endfunction()

    # Adds mpi.NAME: a program with arguments on RANKS ranks. Ranks that compute take two cores. Ranks that
    # mostly wait share one core.
    function(clt_mpi_test name ranks program)
        clt_add_test(mpi.${name}
            ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks}
                $<TARGET_FILE:mpi_${program}> ${ARGN})
        set_tests_properties(mpi.${name} PROPERTIES LABELS mpi TIMEOUT 600)
        if(program MATCHES "^(collective|collectives|memory|parallel|parity)$")
            set_tests_properties(mpi.${name} PROPERTIES PROCESSORS 2)
        endif()
    endfunction()

    # The library hides its internals, so this program compiles the file of runtime/base that it needs.
    clt_mpi_program(collectives ${PROJECT_SOURCE_DIR}/runtime/base/philox.c)
    foreach(case 2x1 3x1 4x1 2x2)
        string(REPLACE "x" ";" numbers ${case})
        list(GET numbers 0 ranks)
        list(GET numbers 1 devices)
        clt_mpi_test(collectives_${case} ${ranks} collectives ${devices})
    endforeach()

    # Several nodes, which a testing hook of libcltrain-mpi makes of this node's ranks, at every level of
    # MPI's thread support. RANKSxDEVICES:ranks a node:level.
    if(CLT_TESTING)
        foreach(case 2x1:1:single 2x1:1:multiple 3x1:1:serialized 4x1:2:funneled 3x1:2:multiple 2x2:1:single)
            string(REGEX MATCH "^([0-9])x([0-9]):([0-9]):([a-z]+)$" matched ${case})
            set(name nodes_${CMAKE_MATCH_1}x${CMAKE_MATCH_2}_by_${CMAKE_MATCH_3}_${CMAKE_MATCH_4})
            set(ranks_a_node ${CMAKE_MATCH_3})
            clt_mpi_test(${name} ${CMAKE_MATCH_1} collectives ${CMAKE_MATCH_2} ${CMAKE_MATCH_4})
            set_tests_properties(mpi.${name} PROPERTIES
                ENVIRONMENT "CLT_TESTING_NODE_RANKS=${ranks_a_node}")
        endforeach()
    endif()

    # clt_comm_counts against intercepted MPI calls. RANKSxDEVICES:ranks a node:level. A testing hook makes
    # the nodes.
    clt_mpi_program(counts)
    if(CLT_TESTING)
        foreach(case 2x2:1:multiple 3x1:1:single 4x1:2:multiple)
            string(REGEX MATCH "^([0-9])x([0-9]):([0-9]):([a-z]+)$" matched ${case})
            set(name counts_${CMAKE_MATCH_1}x${CMAKE_MATCH_2}_by_${CMAKE_MATCH_3}_${CMAKE_MATCH_4})
            set(ranks_a_node ${CMAKE_MATCH_3})
            clt_mpi_test(${name} ${CMAKE_MATCH_1} counts ${CMAKE_MATCH_2} ${CMAKE_MATCH_4})
            set_tests_properties(mpi.${name} PROPERTIES
                ENVIRONMENT "CLT_TESTING_NODE_RANKS=${ranks_a_node}")
        endforeach()
    endif()

    # Groups of 4 ranks. Ranks a node:level.
    clt_mpi_program(groups)
    clt_mpi_test(groups 4 groups single)
    if(CLT_TESTING)
        foreach(case 1:single 2:single 2:multiple)
            string(REGEX MATCH "^([0-9]):([a-z]+)$" matched ${case})
            set(name groups_by_${CMAKE_MATCH_1}_${CMAKE_MATCH_2})
            set(ranks_a_node ${CMAKE_MATCH_1})
            clt_mpi_test(${name} 4 groups ${CMAKE_MATCH_2})
            set_tests_properties(mpi.${name} PROPERTIES
                ENVIRONMENT "CLT_TESTING_NODE_RANKS=${ranks_a_node}")
        endforeach()
    endif()

    # One rank ends. RANKS:ranks a node:level.
    clt_mpi_program(ends)
    foreach(what fails aborts finalizes differs is-late)
        clt_mpi_test(${what}_2 2 ends ${what} single)
        if(CLT_TESTING)
            foreach(case 2:1:single 2:1:multiple 4:2:multiple)
                string(REPLACE ":" ";" numbers ${case})
                list(GET numbers 0 ranks)
                list(GET numbers 1 ranks_a_node)
                list(GET numbers 2 level)
                if(what STREQUAL finalizes AND ranks_a_node GREATER 1)
                    continue()
                endif()
                set(name ${what}_${ranks}_by_${ranks_a_node}_${level})
                clt_mpi_test(${name} ${ranks} ends ${what} ${level} 1)
                set_tests_properties(mpi.${name} PROPERTIES TIMEOUT 60
                    ENVIRONMENT "CLT_TESTING_NODE_RANKS=${ranks_a_node}")
            endforeach()
        endif()
    endforeach()

    # Communicators that were freed, and the caller's error handlers.
    clt_mpi_program(lent)
    clt_mpi_test(lent 2 lent)

    # MPI objects that are held. RANKS:ranks a node (0: one node):level.
    clt_mpi_program(finish)
    foreach(case 2:0:single 2:1:single 2:1:multiple 4:2:single)
        string(REPLACE ":" ";" numbers ${case})
        list(GET numbers 0 ranks)
        list(GET numbers 1 ranks_a_node)
        list(GET numbers 2 level)
        if(ranks_a_node AND NOT CLT_TESTING)
            continue()
        endif()
        foreach(who all one now)
            if(who STREQUAL now AND NOT ranks_a_node)
                continue()
            endif()
            set(name finish_${who}_${ranks}_by_${ranks_a_node}_${level})
            clt_mpi_test(${name} ${ranks} finish ${level} ${who})
            if(ranks_a_node)
                set_tests_properties(mpi.${name} PROPERTIES
                    ENVIRONMENT "CLT_TESTING_NODE_RANKS=${ranks_a_node}")
            endif()
        endforeach()
    endforeach()

    # Collectives of the graph on RANKS ranks, with DEVICES and micro-batches.
    clt_mpi_program(collective)
    clt_mpi_test(collective_2x1 2 collective pocl@1 1)
    clt_mpi_test(collective_2x2 2 collective pocl/2 1)
    clt_mpi_test(collective_2x2_micro 2 collective pocl/2 2)
    if(CLT_TESTING)
        clt_mpi_test(collective_nodes_2x2_by_1 2 collective pocl/2 1)
        clt_mpi_test(collective_nodes_2x1_by_1_micro 2 collective pocl@1 2)
        set_tests_properties(mpi.collective_nodes_2x2_by_1 mpi.collective_nodes_2x1_by_1_micro PROPERTIES
            ENVIRONMENT "CLT_TESTING_NODE_RANKS=1")
    endif()

    # Meshes: on RANKS ranks, then on nodes. RANKS:ranks a node:level.
    clt_mpi_inner_program(parallel)
    clt_mpi_test(parallel_2 2 parallel single)
    clt_mpi_test(parallel_4 4 parallel single)
    if(CLT_TESTING)
        foreach(case 2:1:single 2:1:multiple 4:2:multiple)
            string(REPLACE ":" ";" numbers ${case})
            list(GET numbers 0 ranks)
            list(GET numbers 1 ranks_a_node)
            list(GET numbers 2 level)
            set(name parallel_${ranks}_by_${ranks_a_node}_${level})
            clt_mpi_test(${name} ${ranks} parallel ${level})
            set_tests_properties(mpi.${name} PROPERTIES
                ENVIRONMENT "CLT_TESTING_NODE_RANKS=${ranks_a_node}")
        endforeach()
    endif()

    clt_mpi_program(unlike)
    clt_mpi_test(unlike 2 unlike)

    clt_mpi_inner_program(memory)
    clt_mpi_test(memory 2 memory)
    if(CLT_TESTING)
        clt_mpi_test(memory_by_1 2 memory)
        set_tests_properties(mpi.memory_by_1 PROPERTIES ENVIRONMENT "CLT_TESTING_NODE_RANKS=1")
    endif()

    # Residuals of gradients in 16 bits: RANKS with DEVICES, then on nodes.
    clt_mpi_inner_program(wire)
    clt_mpi_test(wire_2x1 2 wire pocl@1)
    clt_mpi_test(wire_2x2 2 wire pocl/2)
    clt_mpi_test(wire_3x1 3 wire pocl@1)
    if(CLT_TESTING)
        clt_mpi_test(wire_nodes_2x2_by_1 2 wire pocl/2)
        clt_mpi_test(wire_nodes_4x1_by_2 4 wire pocl@1)
        set_tests_properties(mpi.wire_nodes_2x2_by_1 PROPERTIES ENVIRONMENT "CLT_TESTING_NODE_RANKS=1")
        set_tests_properties(mpi.wire_nodes_4x1_by_2 PROPERTIES ENVIRONMENT "CLT_TESTING_NODE_RANKS=2")
    endif()

    # Reservoirs, of which one is empty at first.
    clt_mpi_program(reservoir)
    clt_mpi_test(reservoir_2_single 2 reservoir single)
    clt_mpi_test(reservoir_3_multiple 3 reservoir multiple)

    # Weights of losses that labels on all ranks decide.
    clt_mpi_program(labels)
    target_link_libraries(mpi_labels PRIVATE cltrain_models_objects)
    clt_mpi_test(labels_2x1 2 labels pocl@1)
    clt_mpi_test(labels_2x2 2 labels pocl/2)
    clt_mpi_test(labels_3x1 3 labels pocl@1)

    clt_mpi_program(parity)
    target_link_libraries(mpi_parity PRIVATE cltrain_models_objects)
    clt_mpi_test(parity_2x1 2 parity pocl@1)
    clt_mpi_test(parity_2x2 2 parity pocl/2)
    # Twelve steps of each run; all of them with tools/test --all.
    clt_mpi_test(parity_4x1 4 parity pocl@1 12)
    # Uneven divisions, and a rank without samples.
    clt_mpi_test(parity_2x1_uneven 2 parity pocl@1 12 3,1)
    clt_mpi_test(parity_2x1_idle 2 parity pocl@1 12 0,1)
    clt_mpi_test(parity_2x2_uneven 2 parity pocl/2 12 1,5,0,2)
    if(CLT_TESTING)
        clt_mpi_test(parity_nodes_4x1_by_2 4 parity pocl@1 12)
        clt_mpi_test(parity_nodes_2x2_by_1 2 parity pocl/2 12)
        set_tests_properties(mpi.parity_nodes_4x1_by_2 PROPERTIES
            ENVIRONMENT "CLT_TESTING_NODE_RANKS=2")
        set_tests_properties(mpi.parity_nodes_2x2_by_1 PROPERTIES
            ENVIRONMENT "CLT_TESTING_NODE_RANKS=1")
    endif()

    # The example program of <cltrain/mpi.h>. check.package builds it out of tree.
    add_executable(mpi_embed ${PROJECT_SOURCE_DIR}/models/examples/embed_mpi.c)
    target_link_libraries(mpi_embed PRIVATE cltrain-mpi m)
    clt_mpi_test(embed_1 1 embed)
    clt_mpi_test(embed_3 3 embed)
    if(TARGET cltrain-models)
        add_executable(mpi_power_sgd ${PROJECT_SOURCE_DIR}/models/examples/power_sgd_mpi.c)
        target_link_libraries(mpi_power_sgd PRIVATE cltrain-mpi cltrain-models m)
        clt_mpi_test(power_sgd 2 power_sgd pocl@1)
    endif()

    # mpi.SUBJECT: the command on several ranks, in Python.
    if(CLT_PYTHON3)
        foreach(subject disturbed division elastic elastic_hosts elastic_local failures launch launch_causes launch_ends launch_helper local lora metrics parallel policies precision setup
                virtual_shards)
            clt_add_test(mpi.${subject}
                ${CLT_PYTHON3} -B ${CMAKE_CURRENT_LIST_DIR}/test_${subject}.py
                    $<TARGET_FILE:cltrain_command> ${MPIEXEC_EXECUTABLE}
                    ${PROJECT_SOURCE_DIR}/tools/cltrain-launch)
            set_tests_properties(mpi.${subject} PROPERTIES LABELS mpi TIMEOUT 600 SKIP_RETURN_CODE 77)
        endforeach()
        # This test measures which of two ranks is slow.
        set_tests_properties(mpi.division PROPERTIES RUN_SERIAL TRUE)
        set_tests_properties(mpi.elastic PROPERTIES TIMEOUT 1800)
    endif()
endif()
