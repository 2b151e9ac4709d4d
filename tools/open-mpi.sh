#!/bin/bash
# Fetches Debian's packages of Open MPI and unpacks them, for a second build beside the installed
# MPI. Nothing outside DIR is changed.
#   tools/open-mpi.sh DIR                 prepares DIR (once) and prints options for cmake
#   tools/open-mpi.sh DIR -- BUILD        the same, then makes the build folder BUILD with them and
#                                         runs all its tests mpi.*
# DIR/mpiexec starts ranks, more than there are cores too, and also for root. Programs that are built
# with these options need the variables of DIR/environment. Exit 1 if the packages are not available.
set -euo pipefail

name=$(basename "$0")
source=$(cd "$(dirname "$0")/.." && pwd)
packages="libopenmpi3 libopenmpi-dev openmpi-bin openmpi-common libpmix2 libhwloc15 libmunge2
    libevent-core-2.1-7 libevent-pthreads-2.1-7"

fail() {
    printf '%s: %s\n' "$name" "$*" >&2
    exit 1
}

# Leaves the packages' files in $1, which exists only when complete.
fetch() {
    local part=$1.part package
    command -v apt-get >/dev/null && command -v dpkg >/dev/null ||
        fail "this needs apt-get and dpkg (Debian or Ubuntu)"
    rm -rf "$part"
    mkdir -p "$part/packages"
    # shellcheck disable=SC2086
    (cd "$part/packages" && apt-get -qq download $packages) || {
        rm -rf "$part"
        fail "apt-get could not download the packages: does 'apt-get update' help?"
    }
    for package in "$part"/packages/*.deb; do
        dpkg -x "$package" "$part"
    done
    rm -rf "$part/packages"
    mv "$part" "$1"
}

# Open MPI looks for its files below /usr, unless it is told otherwise.
write_environment() {
    cat >"$1/environment" <<END
export OPAL_PREFIX='$1/root/usr' PMIX_PREFIX='$1/root/usr'
export LD_LIBRARY_PATH='$libraries:$libraries/pmix2/lib'\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}
export OMPI_MCA_mca_base_component_path='$libraries/openmpi/lib/openmpi3'
export PMIX_MCA_mca_base_component_path='$libraries/pmix2/lib/pmix'
export OMPI_MCA_mca_base_component_show_load_errors=0
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
END
}

# CMake asks mpicc for options of the compiler and the linker.
write_programs() {
    cat >"$1/mpiexec" <<END
#!/bin/bash
. '$1/environment'
exec -a mpiexec '$1/root/usr/bin/orterun' "\$@"
END
    cat >"$1/mpicc" <<END
#!/bin/bash
compile='-I$libraries/openmpi/include'
link='-L$libraries/openmpi/lib -lmpi -Wl,-rpath-link,$libraries'
case \$1 in
-showme:compile) echo "\$compile" ;;
-showme:link) echo "\$link" ;;
*) exec cc \$compile "\$@" \$link ;;
esac
END
    chmod +x "$1/mpiexec" "$1/mpicc"
}

[ $# -eq 1 ] || { [ $# -eq 3 ] && [ "$2" = -- ]; } || fail "usage: $name DIR [-- BUILD]"
mkdir -p "$1"
dir=$(cd "$1" && pwd)
build=${3:-}
[ -d "$dir/root" ] || fetch "$dir/root"
libraries=$(dirname "$(find "$dir/root/usr/lib" -name 'libmpi.so.*' -print -quit)")
write_environment "$dir"
write_programs "$dir"

options=("-DMPI_C_COMPILER=$dir/mpicc" "-DMPIEXEC_EXECUTABLE=$dir/mpiexec")
if [ -z "$build" ]; then
    printf '%q ' "${options[@]}"
    echo
    exit
fi
cmake -S "$source" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCLT_BUILD_TESTS=ON -DCLT_TESTING=ON \
    "${options[@]}"
. "$dir/environment" # the build runs the command, which prints its manual
cmake --build "$build"
ctest --test-dir "$build" -R '^mpi\.' --output-on-failure
