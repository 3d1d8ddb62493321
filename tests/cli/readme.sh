#!/bin/sh
# SPDX-License-Identifier: MIT
# The commands of the README's training example, as written there.
. ./lib.sh

dir=$(mktemp -d)
trap 'rm -rf "$dir" "$tmp"' EXIT
root=$(cd ../.. && pwd)
ln -s "$root/docs" "$root/README.md" "$dir"
sed -n '/^A GPT-2 on this manual/,/^Four ranks/s/^\$ sluice //p' \
    "$root/README.md" >"$dir/commands"
[ "$(wc -l <"$dir/commands")" = 4 ] || bad "the README has other commands"
cd "$dir" || exit 1
while read -r line; do
    eval "\"\$sluice\" $line" >"$out" 2>"$err" </dev/null ||
        bad "sluice $line: $(cat "$err")"
done <"$dir/commands"
[ -f "$dir/run/step-00000030/model.safetensors.index.json" ] ||
    bad "no checkpoint after 30 steps"
grep -q '^The schedule ' "$out" || bad "no text"
exit $failed
