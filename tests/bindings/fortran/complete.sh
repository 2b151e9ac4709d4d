#!/bin/sh
# Every function of the headers is in module cltrain, or has a reason in runtime/bindings/fortran/tables.py.
if [ -s "$1" ]; then
    echo "emit.py could not write these functions. Give them rows in runtime/bindings/fortran/tables.py:"
    cat "$1"
    exit 1
fi
