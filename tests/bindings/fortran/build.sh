#!/bin/sh
# Installs the build into a folder and builds the test programs against it, as a user's project would be.
#     build.sh BUILD FOLDER CMAKE GENERATOR CC FC MPI FLAGS
set -eu
build=$1 folder=$2 cmake=$3 generator=$4 cc=$5 fc=$6 mpi=$7 flags=$8
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$folder"
{
    "$cmake" --install "$build" --prefix "$folder/prefix" &&
        "$cmake" -S "$here/project" -B "$folder" -G "$generator" -DCMAKE_PREFIX_PATH="$folder/prefix" \
            -DCMAKE_C_COMPILER="$cc" -DCMAKE_Fortran_COMPILER="$fc" -DCMAKE_BUILD_TYPE=Debug -DWITH_MPI="$mpi" \
            -DCMAKE_C_FLAGS="-Wall -Wextra -Werror $flags" \
            -DCMAKE_Fortran_FLAGS="-std=f2018 -Wall -Werror -fcheck=all $flags" \
            -DLAYOUT_TEST="$build/bindings/fortran/layout_test.f90" &&
        "$cmake" --build "$folder"
} >"$folder/log" 2>&1 || { tail -n 80 "$folder/log"; exit 1; }
