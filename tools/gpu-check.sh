#!/bin/bash
# On a machine with a GPU: builds, measures kernels and training, and runs the operators' tests. Measures cuBLAS and
# PyTorch too, if they are found. Writes one report in Markdown, again after every step.
#   tools/gpu-check.sh [--devices LIST] [--build DIR] [--parts LIST] [--minutes N] [--all-tests] [--quick]
#                      [--report FILE]
# --devices: as for `cltrain`; default gpu (pocl is a dry run). --build: a build folder with tests, which may have been
# built elsewhere; default: builds in build-gpu. --parts: some of kernels,training,peers,tests, in that order; results
# of other calls stay in the build folder's gpu-check/ and in the report. --minutes: stops in time for this limit; each
# step also has its own limit. --all-tests: all tests, not only the operators'. --quick: small shapes, few blocks.
# --report: default tests/gpu/report-DATE.md on a GPU.
# Installs nothing and needs no network. README.md says what the build needs.
# PYTHON: an interpreter that has PyTorch with CUDA.
# Exit 1: a test or a benchmark failed, or did not end in time.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=tools/setup.sh
. tools/setup.sh

devices=gpu build='' parts=kernels,training,peers,tests tests=ops quick='' report='' minutes=1440
while [ $# -gt 0 ]; do
    case $1 in
    --devices | --build | --report | --parts | --minutes)
        [ $# -gt 1 ] || fail "$1 needs a value"
        declare "${1#--}=$2"
        shift
        ;;
    --all-tests) tests=all ;;
    --quick) quick=1 ;;
    -h | --help)
        sed -n '2,13s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    *) fail "unknown option $1 (try --help)" ;;
    esac
    shift
done
[[ $minutes =~ ^[1-9][0-9]*$ ]] || fail "--minutes $minutes is no number"
for part in ${parts//,/ }; do
    [[ " kernels training peers tests " = *" $part "* ]] ||
        fail "--parts: there is no $part; there are kernels, training, peers and tests"
done
end=$((EPOCHSECONDS + 60 * minutes - 10))

# left SECONDS: prints the seconds that a step may take, at most SECONDS; fails if almost no time is
# left.
left() {
    local rest=$((end - EPOCHSECONDS))
    [ "$rest" -ge 5 ] && echo $((rest < $1 ? rest : $1))
}

# limited SECONDS COMMAND...: returns its status; 124 if it did not end in time, 125 if there was no
# time to begin.
limited() {
    local seconds
    seconds=$(left "$1") || return 125
    shift
    timeout -k 10 "$seconds" "$@"
}

if [ -z "$build" ]; then
    for tool in cmake cc pkg-config; do
        command -v "$tool" >/dev/null ||
            fail "no $tool here: install it, or give --build a folder that was built elsewhere"
    done
    build=$PWD/build-gpu
    generator=()
    ! command -v ninja >/dev/null || generator=(-G Ninja)
    say "Building in $build"
    limited 120 cmake -S . -B "$build" "${generator[@]}" -DCLT_BUILD_TESTS=ON || fail "configuring failed, see above"
    limited 600 cmake --build "$build" --parallel "$(nproc)" || fail "building failed, see above"
fi
build=$(realpath "$build")
cltrain=$build/bin/cltrain
[ -x "$cltrain" ] || fail "$build has no bin/cltrain: give a build folder, or none to build"
missing=$(ldd "$cltrain" 2>/dev/null | sed -n 's/=> not found//p' | xargs) || true
[ -z "$missing" ] || fail "$cltrain needs $missing: install them, or unpack them and set LD_LIBRARY_PATH"
python=${PYTHON:-python3}
command -v "$python" >/dev/null || python=''
found=$build/gpu-check
mkdir -p "$found"
[ -n "$report" ] || { [ "$devices" = gpu ] && report=tests/gpu/report-$(date +%F).md || report=$build/gpu-report.md; }
commit=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
[ -z "$(git status --porcelain --untracked-files=no 2>/dev/null)" ] || commit="$commit with changes"
failures=0

# Writes everything that is known so far. The file is complete at any time.
write_report() {
    if [ -n "$python" ]; then
        "$python" -B tools/peers/gpu_report.py "$found" "$devices" "$commit" >"$report.part"
    else
        for file in "$found"/*.txt "$found"/*.json*; do
            printf '## %s\n\n' "$(basename "$file")"
            cat "$file"
        done >"$report.part"
    fi
    mv "$report.part" "$report"
}

# problem NAME TEXT...: puts the text into the report instead of NAME's result.
problem() {
    local name=$1
    shift
    echo "$*" >"$found/$name.problem"
    echo "$(basename "$0"): $*" >&2
    failures=$((failures + 1))
}

why() {
    case $1 in
    124 | 137) echo "did not end in time" ;;
    125) echo "was not begun for want of time" ;;
    *) echo "failed: $(tail -n 1 "$2")" ;;
    esac
}

# In containers the driver's library often has no ICD file, so no loader finds it.
vendors=${OCL_ICD_VENDORS:-/etc/OpenCL/vendors}
if ! grep -qs nvidia-opencl "$vendors"/*.icd; then
    for folder in $(ldconfig -p 2>/dev/null | sed -n 's|.*=> \(.*\)/libnvidia-opencl.so.1$|\1|p') $(tr : " " <<<"${LD_LIBRARY_PATH:-}") \
        /usr/local/nvidia/lib64 /usr/lib/x86_64-linux-gnu /usr/lib64; do
        [ -e "$folder/libnvidia-opencl.so.1" ] || continue
        rm -rf "$found/vendors"
        mkdir "$found/vendors"
        cp "$vendors"/*.icd "$found/vendors" 2>/dev/null || true
        echo "$folder/libnvidia-opencl.so.1" >"$found/vendors/nvidia.icd"
        export OCL_ICD_VENDORS=$found/vendors
        say "No ICD file names $folder/libnvidia-opencl.so.1: OCL_ICD_VENDORS=$OCL_ICD_VENDORS"
        break
    done
fi

say "OpenCL devices"
limited 60 "$cltrain" devices 2>&1 | tee "$found/devices.txt" || true
# A first kernel, so that a missing or hanging device does not take the time of everything else.
limited 120 "$cltrain" bench op relu --devices "$devices" --blocks 1 --tune off >"$found/first.log" 2>&1 || {
    status=$?
    ! command -v nvidia-smi >/dev/null || [ -n "$(ls /usr/lib*/*/libnvidia-opencl.so* 2>/dev/null)" ] ||
        echo "nvidia-smi is here, but no libnvidia-opencl.so: the driver was installed without OpenCL" >&2
    cat "$found/first.log" >&2
    fail "a first kernel on $devices $(why $status "$found/first.log")"
}
cat "$found/first.log"

# bench NAME SECONDS WORD...: writes the result of `cltrain bench WORD...` to NAME.json.
bench() {
    local name=$1 seconds=$2 status=0
    shift 2
    say "bench $*"
    rm -f "$found/$name".*
    limited "$seconds" "$cltrain" bench "$@" --devices "$devices" --json "${few[@]}" \
        >"$found/$name.json" 2>"$found/$name.log" || status=$?
    if [ $status = 0 ]; then
        echo "$*" >"$found/$name.command"
    else
        rm "$found/$name.json"
        problem "$name" "bench $* $(why $status "$found/$name.log")"
    fi
    write_report
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

measure_kernels() {
    local i=0 shape
    for shape in "${gemms[@]}"; do
        i=$((i + 1))
        # shellcheck disable=SC2086  # several words
        bench "gemm$i" 120 gemm $shape
    done
    for shape in "${convs[@]}"; do
        i=$((i + 1))
        # shellcheck disable=SC2086
        bench "conv$i" 120 conv $shape
    done
    bench op 240 op "${operators[@]}"
}

measure_peers() {
    local status=0 said
    rm -f "$found"/peers.*
    say "Peers"
    if [ -z "$python" ]; then
        echo "${PYTHON:-python3} was not found: no peers, and no table beside them" >"$found/peers.txt"
    elif said=$(limited 120 "$python" -B tools/peers/torch_gpu.py --probe 2>&1); then
        echo "cuBLAS and cuDNN through $said" >"$found/peers.txt"
        limited 300 "$python" -B tools/peers/torch_gpu.py "${quick:+--quick}" "${gemms[@]/#/gemm }" \
            "${convs[@]/#/conv }" lenet >"$found/peers.jsonl" 2>"$found/peers.log" || status=$?
        [ $status = 0 ] || problem peers "the peers' measurement $(why $status "$found/peers.log")"
    else
        echo "not measured: cuBLAS, cuDNN and PyTorch on CUDA (${said:-no answer in time})" >"$found/peers.txt"
    fi
    cat "$found/peers.txt"
}

# test_one PROGRAM: prints a line of tests.txt.
test_one() {
    local name status=0
    name=$(basename "$1")
    limited 300 "$1" >"$found/tests/$name.log" 2>&1 || status=$?
    if [ $status = 0 ]; then
        echo "passed $name ($SECONDS s)"
    else
        echo "FAILED $name: $(grep -m 1 '^ERROR' "$found/tests/$name.log" || why $status "$found/tests/$name.log")"
    fi
}

run_tests() {
    local programs
    say "Tests on $devices"
    rm -rf "$found"/tests*
    mkdir "$found/tests"
    if [ "$tests" = all ]; then
        (cd "$build" && CLT_TEST_DEVICES=$devices limited 3600 ctest --output-on-failure --timeout 600 \
            --no-tests=error -LE '^vendor$') >"$found/tests/ctest.log" 2>&1 ||
            problem tests "ctest $(why $? "$found/tests/ctest.log")"
        sed -n 's|^ *[0-9]*/[0-9]* Test *#[0-9]*: \([^ ]*\) \.* *Passed.*|passed \1|p
            s|^ *[0-9]*/[0-9]* Test *#[0-9]*: \([^ ]*\) \.*\*\*\*\(.*[^ ]\)  .*|FAILED \1: \2|p' \
            "$found/tests/ctest.log" >"$found/tests.txt"
    else
        programs=$(ls "$build"/tests/test_ops_* 2>/dev/null) ||
            { problem tests "$build has no tests: they need cmocka when it is configured" && return; }
        export end found CLT_TEST_DEVICES=$devices CLT_GOLDENS=$PWD/tests/goldens
        export -f test_one limited left why
        # shellcheck disable=SC2016  # the other shell's
        xargs -P "$(nproc)" -n 1 bash -c 'test_one "$0"' <<<"$programs" | tee "$found/tests.txt"
    fi
    ! grep -q ^FAILED "$found/tests.txt" || failures=$((failures + 1))
}

for part in ${parts//,/ }; do
    case $part in
    kernels) measure_kernels ;;
    training) bench train 180 train --model lenet --data synthetic --batch 256 "${training[@]}" ;;
    peers) measure_peers ;;
    tests) run_tests ;;
    esac
    write_report
done

cat "$report"
say "The report is $report"
[ "$failures" = 0 ] || fail "$failures of the steps failed, or did not end in time"
