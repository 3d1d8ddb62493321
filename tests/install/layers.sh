#!/bin/sh
# SPDX-License-Identifier: MIT
# The rules for layers (docs/architecture.md): a layer includes only those that it may,
# and headers can be included alone and in any order: layers.sh SOURCE.
set -eu
cd "$1"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
bad() {
    echo "FAILED: $*"
    failed=1
}

# layer NAME ALLOWED...: what a layer and its public header may include besides their
# own. A layer stands for all its headers, `pipeline.h` for the public one alone.
layer() {
    name=$1
    shift
    files="src/$name"
    [ ! -f "include/sluice/$name.h" ] || files="$files include/sluice/$name.h"
    # Lists each as PLACE ["<]PATH.
    grep -rnE '^ *# *include' $files --include='*.[ch]' |
        sed 's/^\([^:]*:[0-9]*\): *# *include *\(["<][^">]*\).*/\1 \2/' >"$work/includes"
    [ -s "$work/includes" ] || bad "src/$name includes nothing: is it there?"
    while read -r place path; do
        case $path in
        *..*) from=.. ;;                          # written as from elsewhere
        ?sluice/*.def) continue ;;                # a list, which has no layer
        ?sluice/*) from=${path#?sluice/} ;;       # a public header
        '"'*/*) from=${path#?} from=${from%%/*} ;; # an internal one
        *) continue ;;                            # the system's, or beside it
        esac
        case " $name $name.h $* " in
        *" $from "* | *" ${from%.h} "*) ;;
        *) bad "$place includes ${path#?}, which $name may not" ;;
        esac
    done <"$work/includes"
}
layer base
layer schedule base
layer tensor base
layer comm base
layer pipeline base schedule tensor comm
layer train base tensor comm pipeline
layer view base schedule pipeline.h
layer cli sluice.h

# A backend is a table in backend.h; its own headers are for itself.
grep -rn '# *include.*tensor/backends/' src --include='*.[ch]' |
    grep -v '^src/tensor/backends/' >"$work/backends" &&
    bad "a header of a backend is included outside: $(cat "$work/backends")"

# Parts of a source file, made to be included in one place.
# Those of `cuda` include the toolkit's, which need not be there.
fragments='backends/cuda/|backends/cpu/kernels/|gemm/(amx|bf16_pairs|bf16_product|dot_product|split_product|panels|rank_update)\.h|ref/kernels\.h'
flags="-std=c17 -D_GNU_SOURCE -Wall -Wextra -Werror -fsyntax-only -Iinclude -Isrc -Isrc/cli"
headers=$(find include src -name '*.h' | sort | grep -vE "$fragments")
for header in $headers; do
    echo "#include \"$PWD/$header\"" >"$work/alone.c"
    cc $flags "$work/alone.c" || bad "$header does not stand alone"
done
for order in sort "sort -r"; do
    echo "$headers" | $order | sed "s|.*|#include \"$PWD/&\"|" >"$work/all.c"
    cc $flags "$work/all.c" || bad "headers do not go together: $order"
done
exit $failed
