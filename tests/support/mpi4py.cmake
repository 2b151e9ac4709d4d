# For tests of the Python package. CLT_PYTHON_NUMPY is a Python with NumPy, or empty. CLT_MPI4PY_ENVIRONMENT is the
# environment in which it imports the package of the build folder, and mpi4py of BUILD/mpi4py, which tools/test fetches:
#   set_tests_properties(TEST PROPERTIES SKIP_RETURN_CODE 77 ENVIRONMENT "${CLT_MPI4PY_ENVIRONMENT}")
include_guard(DIRECTORY)
set(CLT_PYTHON_NUMPY "")
foreach(python ${CLT_BINDINGS_PYTHON} ${CLT_PYTHON3} /usr/bin/python3)
    if(NOT CLT_PYTHON_NUMPY)
        execute_process(COMMAND ${python} -c "import numpy" RESULT_VARIABLE status OUTPUT_QUIET ERROR_QUIET)
        if(status EQUAL 0)
            set(CLT_PYTHON_NUMPY ${python})
        endif()
    endif()
endforeach()

# mpi4py looks for libmpi.so.12, MPICH's own name. Debian names the same library libmpich.so.12.
set(links ${PROJECT_BINARY_DIR}/mpi4py-links)
foreach(library ${MPI_C_LIBRARIES})
    get_filename_component(file ${library} REALPATH)
    if(file MATCHES "/libmpich\\.so\\.12")
        file(MAKE_DIRECTORY ${links})
        file(CREATE_LINK ${file} ${links}/libmpi.so.12 SYMBOLIC)
    endif()
endforeach()
set(CLT_MPI4PY_ENVIRONMENT "PYTHONPATH=${PROJECT_BINARY_DIR}/bindings/python:${PROJECT_BINARY_DIR}/mpi4py"
    "LD_LIBRARY_PATH=${links}:$ENV{LD_LIBRARY_PATH}")
