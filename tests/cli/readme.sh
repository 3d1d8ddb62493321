#!/bin/sh
# SPDX-License-Identifier: MIT
# The commands of the README and of the page's manual, as written there.
. ./lib.sh

dir=$(mktemp -d -p "$tmp")
root=$(cd ../.. && pwd)
mkdir "$dir/bin"
ln -s "$(cd "$(dirname "$sluice")" && pwd)/$(basename "$sluice")" "$dir/bin/sluice"
ln -s "$root/docs" "$root/README.md" "$dir"
PATH=$dir/bin:$PATH
cd "$dir" || exit 1
# The file that it shows, and the lines that it says to type.
sed -n '/^\$ cat mine.csv/,/^$/p' README.md | sed '1d;/^$/d' >mine.csv
sed -n 's/^\$ \(sluice .*\)/\1/p' README.md docs/reading-a-timeline.md >commands
[ "$(wc -l <commands)" -ge 13 ] || bad "the README has fewer commands"
while read -r line; do
    eval "$line" >"$out" 2>"$err" </dev/null
    status=$?
    # One is shown to find a deadlock.
    case $line in *'check --comm ordered') status=$((status - 1)) ;; esac
    [ $status = 0 ] || bad "$line: $(cat "$err")"
    passed=$((passed + 1))
done <commands
[ -f run/step-00000030/model.safetensors.index.json ] ||
    bad "no checkpoint after 30 steps"
for file in compared.svg compared.html small.html step.html; do
    [ -s "$file" ] || bad "no $file"
done
exit $failed
