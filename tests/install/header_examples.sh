#!/bin/sh
# SPDX-License-Identifier: MIT
# The example at the head of each public header compiles; those that need nothing
# around them also run: header_examples.sh SOURCE BUILD.
set -eu
source=$1
build=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for header in base schedule tensor comm pipeline train view; do
    {
        echo '#include <sluice/sluice.h>'
        echo '#include <stdio.h>'
        echo 'void example(sl_schedule *schedule, sl_simulation *simulation);'
        echo 'void example(sl_schedule *schedule, sl_simulation *simulation)'
        echo '{ (void)schedule; (void)simulation;'
        sed -n '1,/^#ifndef/s/^ \*     //p' "$source/include/sluice/$header.h"
        echo '}'
    } >"$work/$header.c"
    [ "$(wc -l <"$work/$header.c")" -gt 8 ] || { echo "no example: $header"; exit 1; }
    cc -std=c17 -Wall -Wextra -Werror -I"$source/include" -c "$work/$header.c" \
        -o "$work/$header.o"
done
echo 'void example(void *, void *); int main(void) { example(0, 0); }' \
    >"$work/main.c"
runs() {
    cc "$work/main.c" "$work/$1.o" -o "$work/$1" -L"$build" -lsluice
    LD_LIBRARY_PATH=$build "$work/$1" >"$work/out" 2>&1
    grep -q "$2" "$work/out" || { cat "$work/out"; exit 1; }
}
runs tensor ' bytes$'
runs comm "^7$"
runs pipeline '^3 stages, balance 0\.[0-9]*$'
cc "$work/main.c" "$work/train.o" -o "$work/train" -L"$build" -lsluice
[ -z "$(LD_LIBRARY_PATH=$build "$work/train" 2>&1)" ]
