#!/bin/sh
# SPDX-License-Identifier: MIT
# Pipes by name: text comes out of one, a file cannot be one, and nobody waits
# for a reader who does not come.
. ./lib.sh

# Whatever waits is ended, and then has another exit status.
program=$sluice
waiting() {
    timeout 20 "$program" "$@"
}
sluice=waiting
run() {
    waiting "$@" <"$input" >"$out" 2>"$err"
    status=$?
}

dir=$tmp/pipes
mkdir -p "$dir/model" "$dir/folder"
mkfifo "$dir/pipe" "$dir/model/config.json"
head -c 4000 /dev/zero | tr '\0' a >"$dir/text"
small="--layers 1 --d 8 --heads 2 --seq 8 --batch 2 -p 1 -m 2 --steps 1"

# What must be a file.
refuses "a config" "cannot read $dir/pipe: it is not a file" \
    -- cut --config "$dir/pipe" -p 2
refuses "a config to train" "it is not a file" \
    -- train "$dir/text" --config "$dir/pipe"
refuses "a config of a folder" "config.json: it is not a file" \
    -- train "$dir/text" --init "$dir/model" --steps 1
refuses "a config to evaluate" "config.json: it is not a file" \
    -- eval "$dir/model" "$dir/text"
refuses "options" "cannot read $dir/pipe: it is not a file" \
    -- train "$dir/text" --options "$dir/pipe"
refuses "a folder of options" "it is not a file" \
    -- train "$dir/text" --options "$dir/folder"
refuses "weights" "'$dir/pipe' is not a file" \
    -- train "$dir/text" $small --init "$dir/pipe"
refuses "data" "is not a file or a folder" -- train "$dir/pipe" $small
refuses "a device" "/dev/zero: it is not a file" -- check /dev/zero
refuses "a device of costs" "/dev/zero: it is not a file" \
    -- simulate "$tmp/1f1b.csv" --costs /dev/zero

# Nobody reads these.
refuses "a log" "cannot write $dir/pipe: it is a pipe that nobody reads" \
    -- train "$dir/text" $small --log "$dir/pipe"
refuses "a page" "cannot write $dir/pipe: it is a pipe that nobody reads" \
    -- view "$tmp/1f1b.csv" -o "$dir/pipe" --as html
refuses "a trace" "cannot write $dir/pipe: it is a pipe that nobody reads" \
    -- simulate "$tmp/1f1b.csv" --trace "$dir/pipe"

# Text comes out of a pipe, also where its writer comes later.
for verb in check simulate; do
    run $verb "$tmp/1f1b.csv"
    cp "$out" "$dir/expected"
    { sleep 0.2; cat "$tmp/1f1b.csv"; } >"$dir/pipe" &
    run $verb "$dir/pipe"
    wait
    [ "$status" = 0 ] && cmp -s "$out" "$dir/expected" ||
        bad "$verb of a pipe: exit $status: $(cat "$err")"
done
{ sleep 0.2; echo '{"F": 3}'; } >"$dir/pipe" &
run simulate "$tmp/1f1b.csv" --costs "$dir/pipe"
wait
[ "$status" = 0 ] && grep -q 'makespan' "$out" || bad "costs: $(cat "$err")"
"$program" check /dev/stdin <"$tmp/1f1b.csv" >"$out" || bad "/dev/stdin"

# Somebody reads these: everything goes through, however slowly. The reader has
# opened the pipe before its writer does, and sees its end when both are closed.
read_slowly() {
    exec 3<>"$dir/pipe" 4<"$dir/pipe" 5>"$dir/pipe" 3>&-
    { sleep 0.5; cat; } <&4 >"$1" 5>&- &
    exec 4<&-
}
read_slowly "$dir/log"
run train "$dir/text" $small --steps 2 --log "$dir/pipe"
exec 5>&-
wait
[ "$status" = 0 ] && [ "$(wc -l <"$dir/log")" = 2 ] ||
    bad "a log that is read: exit $status: $(cat "$err")"
"$program" schedule zbv -p 16 -m 64 >"$dir/large.csv"
read_slowly "$dir/page"
run view "$dir/large.csv" -o "$dir/pipe" --as svg
exec 5>&-
wait
run view "$dir/large.csv" -o "$dir/page.svg"
[ "$status" = 0 ] && [ "$(wc -c <"$dir/page")" -gt 65536 ] &&
    cmp -s "$dir/page" "$dir/page.svg" || bad "a page that is read: $(cat "$err")"

# A log goes on behind what is there; what eats everything is no file either.
echo before >"$dir/kept"
run train "$dir/text" $small --log "$dir/kept"
[ "$(wc -l <"$dir/kept")" = 2 ] && head -n 1 "$dir/kept" | grep -q before ||
    bad "a log is written anew"
run train "$dir/text" $small --log /dev/null
[ "$status" = 0 ] || bad "/dev/null: $(cat "$err")"
refuses "a log that is a folder" "cannot write $dir/folder: Is a directory" \
    -- train "$dir/text" $small --log "$dir/folder"
passed=$((passed + 8))

finish
