#!/bin/bash
# Fetches Intel's CPU OpenCL runtime from its wheels on PyPI, for use together with the installed
# platforms. It runs on any x86-64 CPU and is a second vendor for tests. Nothing outside DIR is
# changed.
#   tools/intel-runtime.sh DIR                  prepares DIR (once) and prints the environment to set
#   tools/intel-runtime.sh DIR -- COMMAND...    the same, then runs COMMAND in that environment
# DIR/lib has the runtime's files, DIR/vendors the list of platforms for the OpenCL loader. Exit 1
# if the wheels are not available.
set -euo pipefail

name=$(basename "$0")
packages="intel-opencl-rt intel-cmplr-lib-rt"

fail() {
    printf '%s: %s\n' "$name" "$*" >&2
    exit 1
}

# Finds a python3 that has pip.
find_python() {
    local python
    for python in python3 /usr/bin/python3; do
        if "$python" -m pip --version >/dev/null 2>&1; then
            echo "$python"
            return
        fi
    done
    fail "no python3 with pip (Debian: python3-pip)"
}

# Fetches the wheels and leaves their lib/ in $1, which exists only when complete.
fetch() {
    local python wheel file other part=$1.part
    [ "$(uname -m)" = x86_64 ] || fail "the wheels are for x86_64 only"
    python=$(find_python)
    rm -rf "$part"
    mkdir -p "$part/wheels" "$part/lib"
    echo "$name: downloading $packages from PyPI (about 280 MB)" >&2
    # shellcheck disable=SC2086
    "$python" -m pip --disable-pip-version-check --timeout 15 --retries 1 download --quiet \
        --only-binary :all: --dest "$part/wheels" $packages >&2 || {
        rm -rf "$part"
        fail "pip could not download $packages: is PyPI reachable?"
    }
    for wheel in "$part"/wheels/*.whl; do
        "$python" -m zipfile -e "$wheel" "$part/unpacked"
    done
    # The wheels' own loader would hide the system's.
    find "$part/unpacked" -path '*.data/data/lib/*' -type f ! -name 'libOpenCL*' \
        -exec mv -t "$part/lib" {} +
    rm -rf "$part/wheels" "$part/unpacked"
    # A wheel has a copy for each name of a library. Copies become one file, because the library
    # would be loaded twice.
    for file in "$part"/lib/*.so.*; do
        for other in "${file%%.so.*}".so*; do
            if [ "$other" != "$file" ] && cmp -s "$file" "$other"; then
                ln -f "$file" "$other"
            fi
        done
    done
    [ -e "$part/lib/libintelocl.so" ] || fail "the wheels hold no libintelocl.so"
    mv "$part/lib" "$1"
    rmdir "$part"
}

[ $# -ge 1 ] || fail "usage: $name DIR [-- COMMAND...]"
mkdir -p "$1"
dir=$(cd "$1" && pwd)
shift
if [ $# -gt 0 ]; then
    [ "$1" = -- ] && [ $# -ge 2 ] || fail "usage: $name DIR [-- COMMAND...]"
    shift
fi

[ -d "$dir/lib" ] || fetch "$dir/lib"
mkdir -p "$dir/vendors"
for icd in /etc/OpenCL/vendors/*.icd; do
    [ ! -e "$icd" ] || cp "$icd" "$dir/vendors/"
done
echo "$dir/lib/libintelocl.so" >"$dir/vendors/intel-cpu.icd"

library_path=$dir/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
if [ $# -gt 0 ]; then
    LD_LIBRARY_PATH=$library_path OCL_ICD_VENDORS=$dir/vendors exec "$@"
fi
printf 'export LD_LIBRARY_PATH=%q OCL_ICD_VENDORS=%q\n' "$library_path" "$dir/vendors"
