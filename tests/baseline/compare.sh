#!/bin/sh
# Builds two commits on this machine and compares the bits of their training runs.
#   tests/baseline/compare.sh OLD_COMMIT [NEW_COMMIT]     NEW_COMMIT: the working tree if not given
# Build folders are build-baseline/COMMIT; ccache is used if it is there. Exit 1: something differs.
set -eu
cd "$(dirname "$0")/../.."
if [ $# -lt 1 ] || [ $# -gt 2 ]; then
    sed -n '2,4s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
launcher=
if command -v ccache >/dev/null; then
    launcher=-DCMAKE_C_COMPILER_LAUNCHER=ccache
    export CCACHE_BASEDIR="$PWD/build-baseline" CCACHE_NOHASHDIR=1
fi

# build TREE OUT: builds the command with the usual settings, without tests.
build() {
    cmake -S "$1" -B "$2" -G Ninja -DCLT_BUILD_TESTS=OFF $launcher >"$2.log"
    cmake --build "$2" --target cltrain_command >>"$2.log"
}

# bits_of COMMIT: sets `bits` to the commit's file. A commit's bits are computed once, so other
# machines need other folders.
bits_of() {
    if [ -z "$1" ]; then
        mkdir -p build-baseline
        build . build-baseline/tree
        bits=build-baseline/tree.json
        python3 -B tests/baseline/bits.py --command build-baseline/tree/bin/cltrain --out $bits
        return
    fi
    id=$(git rev-parse --short=12 --verify "$1^{commit}")
    bits=build-baseline/$id.json
    if [ ! -s "$bits" ]; then
        mkdir -p "build-baseline/$id.source"
        git archive "$id" | tar -x -C "build-baseline/$id.source"
        build "build-baseline/$id.source" "build-baseline/$id"
        python3 -B tests/baseline/bits.py --command "build-baseline/$id/bin/cltrain" --out "$bits"
    fi
}

bits_of "$1"
old=$bits
bits_of "${2:-}"
python3 -B tests/baseline/bits.py --compare "$old" "$bits"
