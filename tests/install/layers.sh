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

# layer NAME ALLOWED...: what a layer may include.
layer() {
    name=$1
    shift
    grep -rnoE '#include "[a-z_]+/' "src/$name" --include='*.[ch]' |
        sed 's/\(.*\):#include "\(.*\)\//\1 \2/' >"$work/includes"
    while read -r place from; do
        case " sluice $name $* " in
        *" $from "*) ;;
        *) bad "$place includes $from, which is not above $name" ;;
        esac
    done <"$work/includes"
}
layer base
layer schedule base
layer tensor base
layer comm base
layer pipeline base schedule tensor comm
layer train base tensor comm pipeline
layer view base schedule
layer cli

# Parts of a source file, made to be included in one place.
fragments='backends/cpu/kernels/|gemm/(dot_product|split_product|panels|rank_update)\.h|ref/kernels\.h'
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
