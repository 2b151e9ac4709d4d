#!/bin/sh
# Runs tests/data/fuzz_csv.c and prints the lines of the reader that were reached.
#
#     tests/data/fuzz_csv.sh FOLDER [RUNS]        FOLDER is for files that it makes; 1,000,000 runs
#
# Needs clang with libFuzzer, llvm-profdata and llvm-cov, libcsv and jansson.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=$1
runs=${2:-1000000}
clang=${CLANG:-clang-14}
profdata=${LLVM_PROFDATA:-llvm-profdata-14}
cov=${LLVM_COV:-llvm-cov-14}
mkdir -p "$folder/corpus"
cp "$root"/tests/data/fuzz_csv/* "$folder/corpus"
cd "$root"
reader="runtime/data/csv/csv.c runtime/data/csv/csv_agree.c runtime/data/csv/csv_columns.c runtime/data/csv/csv_json.c
    runtime/data/csv/csv_dates.c runtime/data/csv/csv_options.c runtime/data/csv/csv_table.c"
rest="runtime/data/files/reader.c runtime/data/core/*.c runtime/data/loader/order.c runtime/data/image/augment.c
    runtime/base/*.c"
flags="-g -O1 -D_GNU_SOURCE -DCLT_HAVE_CSV -Iruntime/include -Iruntime -I."
# Only the reader is measured and guided.
# shellcheck disable=SC2086
for file in $rest; do
    "$clang" $flags -fsanitize=address,undefined -c "$file" -o "$folder/$(basename "$file" .c).o"
done
# shellcheck disable=SC2086
for file in $reader tests/data/fuzz_csv.c; do
    "$clang" $flags -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined \
        -fprofile-instr-generate -fcoverage-mapping -c "$file" -o "$folder/$(basename "$file" .c).o"
done
"$clang" -fsanitize=fuzzer,address,undefined -fprofile-instr-generate -fcoverage-mapping "$folder"/*.o -o "$folder/fuzz_csv" \
    -lcsv -ljansson -lxxhash -lz -lpthread -lm
LLVM_PROFILE_FILE=$folder/fuzz.profraw "$folder/fuzz_csv" -runs="$runs" -max_len=1024 -timeout=10 -print_final_stats=1 \
    -artifact_prefix="$folder/" "$folder/corpus"
"$profdata" merge "$folder/fuzz.profraw" -o "$folder/fuzz.profdata"
# shellcheck disable=SC2086
"$cov" report "$folder/fuzz_csv" -instr-profile="$folder/fuzz.profdata" $reader
