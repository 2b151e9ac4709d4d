#!/bin/sh
# Compiles each program of docs/fortran.md by the command that the page has for pkg-config, and runs what is a
# whole program, and the example.
set -eu
root=$1 prefix=$2 fc=$3 python=$4
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name cltrain-fortran.pc)")
export PKG_CONFIG_PATH
rm -rf docs && mkdir docs && cd docs
"$python" - "$root/docs/fortran.md" <<'P'
import re
import sys
blocks = re.findall(r"^```fortran\n(.*?)^```$", open(sys.argv[1], encoding="utf-8").read(), re.M | re.S)
for i, text in enumerate(blocks):
    kind = "program" if re.search(r"^program ", text, re.M) else "ranks" if "cltrain_mpi" in text else "part"
    open(f"{kind}{i}.f90", "w", encoding="utf-8").write(text)
print(len(blocks), "programs and parts in docs/fortran.md")
P
sources=$(pkg-config --variable=sources cltrain-fortran)
flags=$(pkg-config --cflags --libs cltrain-fortran)
# The lists are words.
# shellcheck disable=SC2086
build() {
    "$fc" $sources "$1" $flags -o "$2"
}
for program in program*.f90; do
    build "$program" "${program%.f90}"
    "./${program%.f90}"
done
# The page's lines for CMake, as they are.
"$python" -B "$root/tests/check/snippets.py" --extract "$root" pages
cp "$root/models/examples/heat/heat.f90" pages/fortran
{ cmake -S pages/fortran -B pages/build -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_Fortran_COMPILER="$fc" &&
    cmake --build pages/build; } >log 2>&1 || { cat log; exit 1; }
# The first build has left the modules here.
for part in part*.f90; do
    "$fc" -Wall -c "$part"
done
if [ -f "$PKG_CONFIG_PATH/cltrain-fortran-mpi.pc" ]; then
    # shellcheck disable=SC2046,SC2086
    if command -v mpif90 >/dev/null; then
        for file in $(pkg-config --variable=sources cltrain-fortran-mpi); do
            mpif90 -DCLT_MPI_F08 $(pkg-config --cflags cltrain-fortran-mpi) -c "$file"
        done
        for part in ranks*.f90; do
            mpif90 -c "$part"
        done
    fi
fi
build "$root/models/examples/heat/heat.f90" heat
./heat | tail -n 2
