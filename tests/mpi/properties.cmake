# Programs run by mpiexec, where MPI was found.
if(TARGET cltrain-mpi AND NOT CLT_SANITIZE)
    # Beside the shared library, whose internals are hidden, the base folder's helpers.
    add_executable(mpi_collectives ${CMAKE_CURRENT_LIST_DIR}/collectives.c
        ${PROJECT_SOURCE_DIR}/runtime/base/philox.c)
    target_include_directories(mpi_collectives PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}
        ${PROJECT_SOURCE_DIR}/runtime)
    target_link_libraries(mpi_collectives PRIVATE cltrain-mpi PkgConfig::CMOCKA Threads::Threads m)
    target_compile_definitions(mpi_collectives PRIVATE _GNU_SOURCE CL_TARGET_OPENCL_VERSION=120)
    foreach(case 2x1 3x1 4x1 2x2)
        string(REPLACE "x" ";" numbers ${case})
        list(GET numbers 0 ranks)
        list(GET numbers 1 devices)
        add_test(NAME mpi.collectives_${case}
            COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks}
                $<TARGET_FILE:mpi_collectives> ${devices})
        set_tests_properties(mpi.collectives_${case} PROPERTIES LABELS mpi TIMEOUT 200 PROCESSORS 2)
    endforeach()
endif()
