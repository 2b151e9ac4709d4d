#!/bin/bash
# On a machine with a GPU: builds, runs the operators' tests on it, measures kernels and training, and beside
# them cuBLAS and PyTorch where those are found; one report in Markdown.
#   tools/gpu-check.sh [--devices LIST] [--build DIR] [--all-tests | --no-tests] [--quick] [--report FILE]
# --devices: in the notation of `cltrain`, gpu if not given (pocl is a dry run); --build: a build folder with
# tests, instead of building in build-gpu; --quick: small shapes, few blocks; --report: tests/gpu/report-DATE.md
# on a GPU. Installs nothing and needs no network: what the build needs is in README.md. PYTHON: an interpreter
# that has PyTorch with CUDA. Exit 1: a test failed or a benchmark could not run.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=tools/setup.sh
. tools/setup.sh

devices=gpu build='' tests=ops quick='' report=''
while [ $# -gt 0 ]; do
    case $1 in
    --devices | --build | --report)
        [ $# -gt 1 ] || fail "$1 needs a value"
        declare "${1#--}=$2"
        shift
        ;;
    --all-tests) tests=all ;;
    --no-tests) tests= ;;
    --quick) quick=1 ;;
    *)
        sed -n '2,9s/^# \{0,1\}//p' "$0"
        exit 2
        ;;
    esac
    shift
done

if [ -z "$build" ]; then
    build=$PWD/build-gpu
    generator=()
    ! command -v ninja >/dev/null || generator=(-G Ninja)
    say "Building in $build"
    cmake -S . -B "$build" "${generator[@]}" -DCLT_BUILD_TESTS=ON
    cmake --build "$build" --parallel
fi
cltrain=$build/bin/cltrain
[ -x "$cltrain" ] || fail "$build has no bin/cltrain: give a build folder, or none to build"
python=${PYTHON:-python3}
found=$(mktemp -d)
trap 'rm -rf "$found"' EXIT
failures=0

say "OpenCL devices"
"$cltrain" devices | tee "$found/devices.txt"
"$cltrain" devices --json >"$found/devices.json"

if [ -n "$tests" ]; then
    say "Tests on $devices"
    chosen=(-R '^ops\.' -E '^ops\.mutations$')
    [ "$tests" = ops ] || chosen=(-LE '^vendor$')
    (cd "$build" && CLT_TEST_DEVICES=$devices ctest --output-on-failure --timeout 1200 --no-tests=error \
        "${chosen[@]}") 2>&1 | tee "$found/tests.txt" || failures=$((failures + 1))
fi

# bench NAME WORD...: `cltrain bench WORD...` into NAME.json
bench() {
    local name=$1
    shift
    say "bench $*"
    if "$cltrain" bench "$@" --devices "$devices" --json "${few[@]}" >"$found/$name.json" 2>"$found/$name.err"; then
        echo "$*" >"$found/$name.command"
    else
        cat "$found/$name.err" >&2
        failures=$((failures + 1))
        rm "$found/$name.json"
    fi
}

few=()
gemms=("4096 4096 4096" "1024 1024 1024" "256 128 800" "256 3072 768" "256 50257 768")
convs=("256x20x13x13 50x5x5" "32x64x56x56 64x3x3 --padding 1" "32x256x14x14 512x1x1 --stride 2"
    "32x128x28x28 128x3x3 --padding 1 --groups 128")
operators=()
training=(--steps 100)
if [ -n "$quick" ]; then
    few=(--blocks 3 --tune off)
    gemms=("256 128 800")
    convs=("16x20x13x13 50x5x5")
    operators=(softmax)
    training=(--steps 5)
fi
i=0
for shape in "${gemms[@]}"; do
    i=$((i + 1))
    # shellcheck disable=SC2086  # several words
    bench "gemm$i" gemm $shape
done
for shape in "${convs[@]}"; do
    i=$((i + 1))
    # shellcheck disable=SC2086
    bench "conv$i" conv $shape
done
bench op op "${operators[@]}"
bench train train --model lenet --data synthetic --batch 256 "${training[@]}"

say "Peers"
if ! command -v "$python" >/dev/null; then
    echo "$python was not found: no peers, and no table beside them" | tee "$found/peers.txt"
elif problem=$("$python" -B tools/peers/torch_gpu.py --probe 2>&1); then
    echo "cuBLAS and cuDNN through $problem" | tee "$found/peers.txt"
    "$python" -B tools/peers/torch_gpu.py "${quick:+--quick}" "${gemms[@]/#/gemm }" "${convs[@]/#/conv }" lenet \
        >"$found/peers.json" || failures=$((failures + 1))
else
    echo "not measured: cuBLAS, cuDNN and PyTorch on CUDA ($problem)" | tee "$found/peers.txt"
fi

commit=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
[ -z "$(git status --porcelain 2>/dev/null)" ] || commit="$commit with changes"
if [ -z "$report" ]; then
    report=$build/gpu-report.md
    [ "$devices" != gpu ] || report=tests/gpu/report-$(date +%F).md
fi
if command -v "$python" >/dev/null; then
    "$python" -B tools/peers/gpu_report.py "$found" "$devices" "$commit" >"$report"
else
    for file in "$found"/*.txt "$found"/*.json; do
        printf '## %s\n\n' "$(basename "$file")"
        cat "$file"
    done >"$report"
fi
cat "$report"
say "The report is $report"
[ "$failures" = 0 ] || fail "$failures of the tests and benchmarks failed"
