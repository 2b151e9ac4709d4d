#!/bin/sh
# Installs the build to a folder of its own and moves that folder. Then builds programs against it:
# with find_package, with pkg-config, and the installed example programs. Checks the links of the
# installed pages.
set -eu
root=$1 build=$2 cmake=$3 cc=$4 generator=$5 python=$6 mpiexec=$7
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM

"$cmake" --install "$build" --prefix "$work/first" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
mv "$work/first" "$work/prefix"
prefix=$work/prefix

build_with_cmake() {
    "$cmake" -S "$1" -B "$2" -G "$generator" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$cc" \
        -DCMAKE_C_FLAGS="-Wall -Wextra -Werror" >"$work/log" 2>&1 &&
        "$cmake" --build "$2" >>"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
}

build_with_cmake "$root/tests/check/consumer" "$work/consumer"
"$work/consumer/consumer"
if [ -x "$work/consumer/consumer_cxx" ]; then
    "$work/consumer/consumer_cxx"
    echo "find_package: C and C++"
else
    echo "find_package: C (no C++ compiler)"
fi

pc=$(dirname "$(find "$prefix" -name cltrain.pc)")
export PKG_CONFIG_PATH="$pc"
models=""
if [ -f "$pc/cltrain-models.pc" ]; then
    models=cltrain-models
fi
# The flags are words.
# shellcheck disable=SC2046
"$cc" "$root/tests/check/consumer/consumer.c" $(pkg-config --cflags --libs cltrain) -o "$work/by_pc"
"$work/by_pc"
echo "pkg-config: C, finds the library by itself"

if [ -x "$prefix/bin/cltrain" ]; then
    "$prefix/bin/cltrain" --help >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
    echo "the command runs from the prefix"
    for command in $("$prefix/bin/cltrain" help | sed -n 's/^  \([a-z]*\) .*/\1/p'); do
        case $command in models | help) continue ;; esac
        [ -s "$(find "$prefix" -name "cltrain-$command.1")" ] || { echo "no man page of $command"; exit 1; }
    done
    [ -s "$(find "$prefix" -name cltrain.1)" ] || { echo "no man page"; exit 1; }
    bash -n "$(find "$prefix" -path '*/completions/cltrain')" || { echo "no completion"; exit 1; }
    echo "man pages and bash completion are installed"
fi
if [ -x "$prefix/bin/cltrain-launch" ]; then
    "$prefix/bin/cltrain-launch" --help >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
    echo "the launcher runs from the prefix"
fi

doc=$(dirname "$(find "$prefix" -name README.md -path '*/cltrain/README.md')")
"$python" -B "$root/tests/check/docs.py" --installed "$doc"
examples=$doc/models/examples
diff -r "$root/models/examples" "$examples"
build_with_cmake "$examples" "$work/examples"
set -- "$examples"/*.c
for source in "$@"; do
    name=$(basename "$source" .c)
    package=cltrain start=
    case $name in
        *_mpi)
            if [ ! -f "$pc/cltrain-mpi.pc" ]; then
                echo "example $name: left out, there is no libcltrain-mpi"
                continue
            fi
            package=cltrain-mpi start="$mpiexec -n 2"
            ;;
    esac
    # shellcheck disable=SC2046,SC2086
    "$cc" -std=gnu11 -Wall -Wextra -Werror "$source" \
        $(pkg-config --cflags --libs $models $package OpenCL) -lm -o "$work/example"
    if ldd "$work/example" | grep "not found"; then
        echo "example $name: pkg-config's flags leave out where these libraries are"
        exit 1
    fi
    # shellcheck disable=SC2086
    (cd "$work" && $start "$work/examples/$name") >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
    echo "example $name: built with find_package and pkg-config, runs"
done
if [ -f "$prefix/include/cltrain/cltrain.hpp" ] && [ -x "$work/examples/surrogate_cxx" ]; then
    # shellcheck disable=SC2046
    c++ -std=c++17 -Wall -Wextra -Werror "$examples/surrogate.cpp" $(pkg-config --cflags --libs cltrain-models) \
        -o "$work/example"
    for program in "$work/examples/surrogate_cxx" "$work/example"; do
        (cd "$work" && "$program") >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
    done
    echo "example surrogate.cpp: built with find_package and pkg-config, runs"
fi

# The pages' lines for CMake and for compilers, as they are. docs/fortran.md has a test of its own.
"$python" -B "$root/tests/check/snippets.py" --extract "$root" "$work/pages"
cp "$root/tests/check/consumer/consumer.c" "$work/pages/program.c"
cp "$examples/first.c" "$work/pages"
"$python" - "$root/docs/cpp.md" >"$work/pages/program.cpp" <<'P'
import re
import sys
print(re.search(r"^```cpp\n(.*?)^```$", open(sys.argv[1], encoding="utf-8").read(), re.M | re.S)[1])
P
cp "$work/pages/program.c" "$work/pages/embedding"
cp "$work/pages/program.cpp" "$work/pages/cpp"
pages=embedding
if [ -f "$prefix/include/cltrain/cltrain.hpp" ] && [ -x "$work/examples/surrogate_cxx" ]; then
    pages="$pages cpp"
fi
for page in $pages; do
    build_with_cmake "$work/pages/$page" "$work/pages/$page/build"
    (cd "$work" && "$work/pages/$page/build/program") >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
    echo "docs/$page.md: its lines for CMake build, and the program runs"
done
while read -r line; do
    case $line in
        gfortran* | "") continue ;;
        c++*) case $pages in *cpp*) ;; *) continue ;; esac ;;
    esac
    (cd "$work/pages" && sh -euc "$line") >"$work/log" 2>&1 || { echo "$line"; cat "$work/log"; exit 1; }
    echo "$line"
done <"$work/pages/lines"

# The simulation with a surrogate, in each language that was built.
for language in c cxx fortran; do
    for name in heat heat_mpi; do
        program=$work/examples/${name}_$language start=
        [ -x "$program" ] || continue
        if [ "$name" = heat_mpi ]; then
            start="$mpiexec -n 3"
        fi
        # shellcheck disable=SC2086
        (cd "$work" && $start "$program") >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
        [ "$(grep -c "^loss " "$work/log")" = 200 ] || { cat "$work/log"; exit 1; }
        echo "example ${name}_$language: built with find_package, runs"
    done
done
[ -x "$work/examples/heat_c" ]
# shellcheck disable=SC2046
"$cc" -std=gnu11 -Wall -Wextra -Werror "$examples/heat/heat.c" $(pkg-config --cflags --libs $models cltrain OpenCL) \
    -o "$work/example"
echo "example heat.c: built with pkg-config"
