#!/bin/bash
# Builds with sanitizers and runs the tests under them. A sanitizer's report fails its test. tests/suppressions has
# leaks and threads of OpenCL implementations, by library, and reads of the loader.
#   tools/sanitize.sh address [CTEST OPTION...]    AddressSanitizer and UndefinedBehaviorSanitizer
#   tools/sanitize.sh thread [CTEST OPTION...]     ThreadSanitizer
#   tools/sanitize.sh valgrind [TEST...]           valgrind's memcheck, by default on a few tests of each subject
# Tests labelled slow and vendor are left out.
#
# Valgrind knows no AVX-512. PoCL asks the emulated processor, and compiles kernels for AVX2. Their binaries are
# kept apart from those of other runs, in build-valgrind/caches.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=tools/setup.sh
. tools/setup.sh

case ${1:-} in
    address) sanitizers=address,undefined ;;
    thread) sanitizers=thread ;;
    valgrind) sanitizers= ;;
    *) fail "usage: $(basename "$0") address|thread [CTEST OPTION...], or valgrind [TEST...]" ;;
esac

# Runs programs of tests (train.cycles is test_train_cycles) one after the other.
run_valgrind() {
    local build=$PWD/build-valgrind test program failed=0
    local tests=("$@")
    command -v valgrind >/dev/null || fail "valgrind is not installed (Debian: valgrind)"
    [ ${#tests[@]} -gt 0 ] || tests=(base.array base.file data.csv data.arrays data.reservoir
        train.event_file train.cycles train.bad_input train.sections train.reservoir_steps)
    configure_and_build "$build" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCLT_BUILD_TESTS=ON -DCLT_TESTING=ON
    mkdir -p "$build/caches"
    export POCL_CACHE_DIR=$build/caches/pocl XDG_CACHE_HOME=$build/caches CLT_TEST_CYCLES=2 CLT_TEST_VALGRIND=1
    export CLT_GOLDENS=${CLT_GOLDENS:-$PWD/tests/goldens}
    for test in "${tests[@]}"; do
        program=$build/tests/test_${test//./_}
        say "$test under valgrind"
        valgrind --quiet --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=definite \
            --show-leak-kinds=definite --num-callers=20 \
            --suppressions="$PWD/tests/suppressions/valgrind.txt" "$program" || failed=1
    done
    [ $failed = 0 ] || fail "valgrind found errors, or a test failed"
}
if [ "$1" = valgrind ]; then
    shift
    run_valgrind "$@"
    exit
fi
build=$PWD/build-$1
shift
configure_and_build "$build" "-DCLT_SANITIZE=$sanitizers" -DCLT_BUILD_TESTS=ON -DCLT_TESTING=ON
say "Running the tests under $sanitizers"
cd "$build"
ctest --output-on-failure --timeout 1200 --no-tests=error -LE '^(slow|vendor)$' "$@"
