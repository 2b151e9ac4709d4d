# Installs libraries, public headers, the command, and files for find_package and pkg-config. All of
# them work if the prefix is moved.
set(targets cltrain)
if(TARGET cltrain-models)
    list(APPEND targets cltrain-models)
endif()
if(TARGET cltrain-cxx)
    list(APPEND targets cltrain-cxx)
    install(FILES ${PROJECT_BINARY_DIR}/bindings/include/cltrain/cltrain.hpp
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/cltrain)
endif()
if(TARGET cltrain_command)
    install(TARGETS cltrain_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
    if(TARGET cltrain-mpi OR (ZMQ_FOUND AND SODIUM_FOUND)) # a Python 3 program, which is told where its modules lie
        file(RELATIVE_PATH CLT_LAUNCH_MODULES "${CMAKE_INSTALL_FULL_BINDIR}"
            "${CMAKE_INSTALL_FULL_DATADIR}/cltrain")
        configure_file(tools/cltrain-launch ${PROJECT_BINARY_DIR}/installed/cltrain-launch @ONLY)
        install(PROGRAMS ${PROJECT_BINARY_DIR}/installed/cltrain-launch
            DESTINATION ${CMAKE_INSTALL_BINDIR})
        install(DIRECTORY tools/launch/ DESTINATION ${CMAKE_INSTALL_DATADIR}/cltrain
            FILES_MATCHING PATTERN "*.py" PATTERN "__pycache__" EXCLUDE)
    endif()
endif()
install(TARGETS ${targets} EXPORT cltrainTargets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})

# libcltrain-mpi has its own export, so that programs without ranks need no MPI.
if(TARGET cltrain-mpi)
    install(TARGETS cltrain-mpi EXPORT cltrainMpiTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
    install(FILES runtime/include/cltrain/mpi.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/cltrain)
endif()

# <cltrain/mpi.h> belongs to libcltrain-mpi and is installed with it only.
install(DIRECTORY runtime/include/cltrain DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
    FILES_MATCHING PATTERN "*.h" PATTERN "mpi.h" EXCLUDE)
if(TARGET cltrain-models)
    install(DIRECTORY models/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h")
endif()

# Pages and example programs have the same places as in the tree, so that the pages' links work.
install(FILES LICENSE README.md CHANGELOG.md CONTRIBUTING.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING
    PATTERN "*.md" PATTERN "*.png")
install(DIRECTORY models/examples DESTINATION ${CMAKE_INSTALL_DOCDIR}/models)
install(FILES tools/peers/README.md DESTINATION ${CMAKE_INSTALL_DOCDIR}/tools/peers)

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/cltrain)
install(EXPORT cltrainTargets NAMESPACE cltrain:: DESTINATION ${package})
if(TARGET cltrain-mpi)
    install(EXPORT cltrainMpiTargets NAMESPACE cltrain:: DESTINATION ${package})
endif()
configure_package_config_file(cmake/cltrainConfig.cmake.in ${PROJECT_BINARY_DIR}/cltrainConfig.cmake
    INSTALL_DESTINATION ${package} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/cltrainConfigVersion.cmake
    COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/cltrainConfig.cmake ${PROJECT_BINARY_DIR}/cltrainConfigVersion.cmake
    DESTINATION ${package})

# pkg-config's prefix follows the file, unless the folders were given as absolute paths.
foreach(folder LIBDIR INCLUDEDIR)
    if(IS_ABSOLUTE "${CMAKE_INSTALL_${folder}}")
        set(CLT_PC_${folder} "${CMAKE_INSTALL_${folder}}")
    else()
        set(CLT_PC_${folder} "\${prefix}/${CMAKE_INSTALL_${folder}}")
    endif()
endforeach()
file(RELATIVE_PATH CLT_PC_PREFIX "${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig" "${CMAKE_INSTALL_PREFIX}")
string(REGEX REPLACE "/$" "" CLT_PC_PREFIX "\${pcfiledir}/${CLT_PC_PREFIX}")
# Programs linked with pkg-config's flags find the library even if the loader does not search its
# folder.
set(CLT_PC_RPATH " -Wl,-rpath,\${libdir}")
if(CMAKE_INSTALL_FULL_LIBDIR IN_LIST CMAKE_C_IMPLICIT_LINK_DIRECTORIES)
    set(CLT_PC_RPATH "")
endif()
configure_file(cmake/cltrain.pc.in cltrain.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/cltrain.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(TARGET cltrain-models)
    configure_file(cmake/cltrain-models.pc.in cltrain-models.pc @ONLY)
    install(FILES ${PROJECT_BINARY_DIR}/cltrain-models.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()
if(TARGET cltrain-mpi)
    # These flags replace MPI's compiler wrapper, because programs may be compiled without it.
    set(CLT_PC_MPI_CFLAGS "")
    foreach(folder ${MPI_C_INCLUDE_DIRS})
        string(APPEND CLT_PC_MPI_CFLAGS " -I${folder}")
    endforeach()
    foreach(flag ${MPI_C_COMPILE_OPTIONS})
        string(APPEND CLT_PC_MPI_CFLAGS " ${flag}")
    endforeach()
    foreach(definition ${MPI_C_COMPILE_DEFINITIONS})
        string(APPEND CLT_PC_MPI_CFLAGS " -D${definition}")
    endforeach()
    set(CLT_PC_MPI_LIBS "")
    foreach(library ${MPI_C_LIBRARIES})
        string(APPEND CLT_PC_MPI_LIBS " ${library}")
    endforeach()
    configure_file(cmake/cltrain-mpi.pc.in cltrain-mpi.pc @ONLY)
    install(FILES ${PROJECT_BINARY_DIR}/cltrain-mpi.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()
