#!/bin/bash
# On a machine with a GPU: builds, runs every test with --devices gpu, then the benchmarks.
#   tools/gpu-check.sh [DEVICES]    DEVICES: in the notation of --devices; gpu if not given
# Installs nothing: the build's requirements are in README.md.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=tools/setup.sh
. tools/setup.sh

devices=${1:-gpu}
build=$PWD/build-gpu
generator=()
! command -v ninja >/dev/null || generator=(-G Ninja)
say "Building in $build"
cmake -S . -B "$build" "${generator[@]}" -DCLT_BUILD_TESTS=ON
cmake --build "$build" --parallel
cltrain=$build/bin/cltrain

say "OpenCL devices"
"$cltrain" devices

say "Tests on $devices"
(cd "$build" && CLT_TEST_DEVICES=$devices \
    ctest --output-on-failure --timeout 1200 --no-tests=error -LE '^vendor$')

say "Benchmarks on $devices"
"$cltrain" bench train --model lenet --data fashion-mnist --devices "$devices"
