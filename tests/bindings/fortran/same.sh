#!/bin/sh
# The program in Fortran and that in C print the same bits of 200 losses and of the parameters.
set -eu
folder=$1
"$folder/train" >fortran.txt
"$folder/train_c" >c.txt
cmp fortran.txt c.txt
[ "$(wc -l <c.txt)" = 216 ]
echo "200 losses and 32 parameters are equal to the bit"
