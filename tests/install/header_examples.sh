#!/bin/sh
# SPDX-License-Identifier: MIT
# The example at the head of each public header compiles.
set -eu
source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for header in base schedule view; do
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
