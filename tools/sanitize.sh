#!/bin/bash
# Builds with sanitizers and runs the tests under them. A sanitizer's report fails its test. Only
# leaks and threads of OpenCL implementations are suppressed, by library (tests/suppressions).
#   tools/sanitize.sh address [CTEST OPTION...]    AddressSanitizer and UndefinedBehaviorSanitizer
#   tools/sanitize.sh thread [CTEST OPTION...]     ThreadSanitizer
# Tests labelled slow and vendor are left out.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=tools/setup.sh
. tools/setup.sh

case ${1:-} in
    address) sanitizers=address,undefined ;;
    thread) sanitizers=thread ;;
    *) fail "usage: $(basename "$0") address|thread [CTEST OPTION...]" ;;
esac
build=$PWD/build-$1
shift
configure_and_build "$build" "-DCLT_SANITIZE=$sanitizers" -DCLT_BUILD_TESTS=ON -DCLT_TESTING=ON
say "Running the tests under $sanitizers"
cd "$build"
ctest --output-on-failure --timeout 1200 --no-tests=error -LE '^(slow|vendor)$' "$@"
