# tools/quickstart and tools/test source this file: Debian packages, and a build in its own folder.
# shellcheck shell=bash

# Packages for the build.
PACKAGES_BUILD="gcc libc6-dev cmake ninja-build pkg-config opencl-headers ocl-icd-opencl-dev
    zlib1g-dev libjansson-dev libxxhash-dev libpopt-dev libyajl-dev libturbojpeg0-dev libpng-dev
    libpcre2-dev libhdf5-dev libzip-dev libcsv-dev libzmq3-dev libsodium-dev
    libprotobuf-c-dev protobuf-c-compiler libisal-dev python3 python3-pycparser"
# Packages to train LeNet on the CPU and to plot the result.
PACKAGES_RUN="pocl-opencl-icd dataset-fashion-mnist gnuplot-nox"
# Packages for the tests.
PACKAGES_TEST="g++ gfortran opencl-clhpp-headers libcmocka-dev python3 python3-pip python3-venv python3-numpy
    python3-pyopencl clang clang-format-14 oclgrind libopenblas-dev libclblast1 mpich libmpich-dev
    groff-base patch git valgrind"
# Packages for tools/debian-packages.
PACKAGES_DEBIAN="dpkg-dev debhelper dh-python fakeroot git help2man libmpich-dev lintian mmdebstrap python3"

say() {
    printf '\n==> %s\n' "$*"
}

fail() {
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 1
}

# Prints the packages that are not installed.
missing_packages() {
    local package
    for package in "$@"; do
        if ! dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed; then
            printf '%s ' "$package"
        fi
    done
}

# Installs missing packages. Changes nothing and asks for nothing if all are there.
install_packages() {
    local missing as_root=()
    command -v dpkg-query >/dev/null && command -v apt-get >/dev/null ||
        fail "this script installs Debian packages; elsewhere, see 'Build without root' in README.md"
    missing=$(missing_packages "$@")
    if [ -z "$missing" ]; then
        say "All Debian packages are installed"
        return
    fi
    say "Installing Debian packages: $missing"
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null ||
            fail "run as root, or install sudo, or have these installed: $missing"
        as_root=(sudo)
    fi
    "${as_root[@]}" apt-get update -q ||
        fail "apt-get update failed: are the package sources reachable?"
    # shellcheck disable=SC2086
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -q -y --no-install-recommends $missing ||
        fail "apt-get could not install: $missing"
}

# configure_and_build FOLDER OPTION...: uses ccache if it is installed.
configure_and_build() {
    local folder=$1 launcher=()
    shift
    if command -v ccache >/dev/null; then
        launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache)
    fi
    say "Building in $folder"
    cmake -S . -B "$folder" -G Ninja "${launcher[@]}" "$@"
    cmake --build "$folder"
}

# print_core_seconds FILE TIMES: prints core-seconds by cause. FILE was written by
# tests/support/account.c. TIMES has the shell's `times`, with the time of the build. Also prints
# the longest tests.
print_core_seconds() {
    local build
    build=$(awk 'NR == 2 {
        for (i = 1; i <= 2; i++) {
            split($i, part, /[ms]/)
            sum += 60 * part[1] + part[2]
        }
        print sum
    }' "$2")
    say "Core-seconds by cause"
    awk -F '\t' -v build="$build" '
        function cause(test) {
            if (test ~ /^oclgrind\./) return "kernels on Oclgrind"
            if (test ~ /^vendor\.ops\./) return "operators on the second platform"
            if (test ~ /^vendor\./) return "all else on the second platform"
            if (test ~ /^ops\./) return "operators on PoCL"
            if (test ~ /^gpu\./) return "compilers for GPUs"
            if (test ~ /^mpi\./) return "ranks"
            if (test ~ /^cli\./) return "the command"
            if (test ~ /^train\./) return "training on PoCL"
            if (test ~ /^check\./) return "sources and installation"
            return "all else on PoCL"
        }
        BEGIN { sum["building and setting up"] = build; all = build }
        { sum[cause($1)] += $3; all += $3 }
        END {
            for (name in sum) printf "%8.0f  %s\n", sum[name], name | "sort -rn"
            close("sort -rn")
            printf "%8.0f  in all\n", all
        }' "$1"
    printf '\nLongest, in core-seconds and seconds by the clock:\n'
    # awk reads to the end. With `head`, sort may die of SIGPIPE, and pipefail would end the run
    # with 141.
    sort -t "$(printf '\t')" -k 3 -rn "$1" |
        awk -F '\t' 'NR <= 15 { printf "%8.0f %7.0f  %s\n", $3, $2, $1 }'
}
