# Finds everything that the build uses. If required packages are missing, one message names all of
# them, with the Debian packages. Optional packages are found or not, for the summary.
set(CLT_MISSING "")

find_package(OpenCL QUIET)
if(NOT OpenCL_FOUND)
    list(APPEND CLT_MISSING "OpenCL headers and loader (Debian: opencl-headers ocl-icd-opencl-dev)")
endif()
find_package(ZLIB QUIET)
if(NOT ZLIB_FOUND)
    list(APPEND CLT_MISSING "zlib (Debian: zlib1g-dev)")
endif()
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

find_package(PkgConfig QUIET)
if(PKG_CONFIG_FOUND)
    pkg_check_modules(JANSSON QUIET IMPORTED_TARGET jansson)
    pkg_check_modules(XXHASH QUIET IMPORTED_TARGET libxxhash)
    pkg_check_modules(POPT QUIET IMPORTED_TARGET popt)
    pkg_check_modules(YAJL QUIET IMPORTED_TARGET yajl)
    pkg_check_modules(CMOCKA QUIET IMPORTED_TARGET cmocka)
    foreach(row "JANSSON jansson libjansson-dev" "XXHASH xxHash libxxhash-dev" "POPT popt libpopt-dev"
            "YAJL yajl libyajl-dev")
        separate_arguments(row)
        list(GET row 0 variable)
        list(GET row 1 name)
        list(GET row 2 package)
        if(NOT ${variable}_FOUND)
            list(APPEND CLT_MISSING "${name} (Debian: ${package})")
        endif()
    endforeach()
else()
    list(APPEND CLT_MISSING "pkg-config (Debian: pkg-config)")
endif()

if(CLT_MISSING)
    string(REPLACE ";" "\n  " CLT_MISSING "${CLT_MISSING}")
    message(FATAL_ERROR "cltrain needs, and did not find:\n  ${CLT_MISSING}")
endif()

# Readers of data, and the sockets of asynchronous training. What lacks its library is left out, and
# reports this when it is asked for.
set(CLT_READERS "")
set(CLT_READER_DEFINITIONS "")
foreach(row "TURBOJPEG libturbojpeg" "PNG libpng" "PCRE2 libpcre2-8" "HDF5 hdf5-serial hdf5" "LIBZIP libzip"
        "ZMQ libzmq" "SODIUM libsodium" "PROTOBUF_C libprotobuf-c" "ISAL libisal")
    separate_arguments(row)
    list(GET row 0 variable)
    list(GET row 1 module)
    list(SUBLIST row 1 -1 names) # Debian calls hdf5 hdf5-serial
    option(CLT_${variable} "Use ${module} where it is found" ON)
    if(CLT_${variable})
        pkg_search_module(${variable} QUIET IMPORTED_TARGET ${names})
    endif()
    if(CLT_${variable} AND ${variable}_FOUND)
        list(APPEND CLT_READERS PkgConfig::${variable})
        list(APPEND CLT_READER_DEFINITIONS CLT_HAVE_${variable})
    endif()
endforeach()

# The messages of TensorBoard are compiled. Without the compiler protobuf-c counts as missing.
find_program(CLT_PROTOC_C protoc-c)
mark_as_advanced(CLT_PROTOC_C)
if(NOT CLT_PROTOC_C)
    set(PROTOBUF_C_FOUND FALSE)
    list(REMOVE_ITEM CLT_READER_DEFINITIONS CLT_HAVE_PROTOBUF_C)
endif()

# libcltrain-mpi, and the command's ranks.
option(CLT_MPI "Build libcltrain-mpi where MPI is found" ON)
if(CLT_MPI)
    find_package(MPI QUIET COMPONENTS C)
endif()

# Programs for run time or tests only. The summary says which features will be missing.
find_program(CLT_GNUPLOT gnuplot)
find_program(CLT_PYTHON3 python3)
# The description of the headers for other languages is written by Python 3 with pycparser. The
# package of the system's Python counts even if another python3 comes first in PATH.
set(CLT_BINDINGS_PYTHON "")
if(CLT_BUILD_BINDINGS)
    foreach(python ${CLT_PYTHON3} /usr/bin/python3)
        if(NOT CLT_BINDINGS_PYTHON)
            execute_process(COMMAND ${python} -c "import pycparser" RESULT_VARIABLE status OUTPUT_QUIET ERROR_QUIET)
            if(status EQUAL 0)
                set(CLT_BINDINGS_PYTHON ${python})
            endif()
        endif()
    endforeach()
endif()
find_program(CLT_CLANG_FORMAT NAMES clang-format-14 clang-format)
find_program(CLT_CLANG NAMES clang clang-15 clang-14 clang-16)
find_program(CLT_CXX NAMES c++ g++ clang++)
find_program(CLT_OCLGRIND oclgrind)
foreach(program CLT_GNUPLOT CLT_PYTHON3 CLT_CLANG_FORMAT CLT_CLANG CLT_CXX CLT_OCLGRIND)
    mark_as_advanced(${program})
endforeach()

# For `cltrain bench gemm --compare`. Nothing links it.
if(PKG_CONFIG_FOUND)
    pkg_check_modules(OPENBLAS QUIET openblas)
endif()
find_library(CLT_OPENBLAS openblas HINTS ${OPENBLAS_LIBRARY_DIRS})
mark_as_advanced(CLT_OPENBLAS)

# The format is defined by version 14's output. Other versions differ in places.
set(CLT_CLANG_FORMAT_OK OFF)
if(CLT_CLANG_FORMAT)
    execute_process(COMMAND ${CLT_CLANG_FORMAT} --version OUTPUT_VARIABLE version ERROR_QUIET)
    if(version MATCHES "version 14\\.")
        set(CLT_CLANG_FORMAT_OK ON)
    endif()
endif()
