#!/bin/sh
# SPDX-License-Identifier: MIT
# Wrong requests and wrong input get one sentence and exit 2.
. ./lib.sh

# Names and sizes.
refuses "unknown verb" "unknown verb 'shedule'; expected schedule, lower" \
    -- shedule
refuses "unknown name" "unknown schedule 'zbw'; known ones: GPipe" \
    -- schedule zbw -p 4 -m 8
refuses "no name" "which schedule?" -- schedule -p 4 -m 8
refuses "two names" "one NAME at a time" -- schedule zbv 1f1b -p 4 -m 8
refuses "no ranks" "how many ranks?" -- schedule zbv -m 8
refuses "no microbatches" "how many microbatches?" -- schedule zbv -p 4
refuses "zero ranks" "--ranks must be at least 1, not 0" \
    -- schedule 1f1b -p 0 -m 8
refuses "negative microbatches" "--microbatches must be at least 1, not -4" \
    -- schedule 1f1b -p 4 -m -4
refuses "zero stages" "--stages-per-rank must be at least 1" \
    -- schedule bfs -p 4 -v 0 -m 8
refuses "a billion microbatches" "1000000000 microbatches are too many" \
    -- schedule 1f1b -p 4 -m 1000000000
refuses "more than an int" "--microbatches 99999999999 is out of range" \
    -- schedule 1f1b -p 4 -m 99999999999
refuses "a word for a number" "takes a whole number, not 'four'" \
    -- schedule 1f1b -p four -m 8
refuses "half a number" "takes a whole number, not '4x'" \
    -- schedule 1f1b -p 4x -m 8
refuses "sizes that do not fit" "the nearest that works: 8 or 10 microbatches" \
    -- schedule interleaved -p 4 -v 2 -m 9
refuses "a form there is not" "--as takes order, compute" \
    -- schedule 1f1b -p 4 -m 8 --as tree

# Options.
refuses "unknown option" "unknown option '--rnaks'; the nearest one is '--ranks'" \
    -- schedule 1f1b --rnaks 4
refuses "an option of the past" "unknown option '--no-lending'; the nearest" \
    -- train --no-lending
refuses "unknown letter" "unknown option '-z'" -- schedule 1f1b -z
refuses "option without its value" "option '--microbatches' needs a value" \
    -- schedule 1f1b -p 4 --microbatches
refuses "letter without its value" "option '-m' needs a value" \
    -- schedule 1f1b -p 4 -m
refuses "flag with a value" "option '--json' takes no value" \
    -- check --json=yes
refuses "an option that would do nothing" "--recv goes with --as comms" \
    -- schedule 1f1b -p 4 -m 8 --recv late
refuses "another one" "--unshard-window goes with --as lowered" \
    -- schedule 1f1b -p 4 -m 8 --as comms --unshard-window 2
refuses "and in lower" "--recv goes with the pass send-recv" \
    -- lower "$tmp/1f1b.csv" --passes unshard --recv late
refuses "--json without --list" "--json goes with --list" \
    -- schedule 1f1b -p 4 -m 8 --json
refuses "a receive there is not" "--recv takes asap, late or defer, not 'soon'" \
    -- lower --recv soon
refuses "a reading there is not" "--comm takes async, per-edge, ordered or blocking" \
    -- check --comm quick
refuses "a pass there is not" "unknown pass 'unshrad'; known ones" \
    -- lower "$tmp/1f1b.csv" --passes unshrad
refuses "a version there is not" "--for takes torch-2.15 or torch-2.11, not" \
    -- lower "$tmp/1f1b.csv" --for torch-2.13
refuses "a budget of less than nothing" "--send-budget must be from 0" \
    -- lower "$tmp/1f1b.csv" --send-budget -1
refuses "a budget without waits" "--send-budget moves waits, and there are none" \
    -- lower "$tmp/1f1b.csv" --for torch-2.11 --send-budget 1
refuses "a wait without waits" "--reduce-wait places waits, and there are none" \
    -- schedule 1f1b -p 4 -m 8 --as lowered --for torch-2.11 --reduce-wait late
refuses "a wait there is not" "--reduce-wait takes now or late, not 'soon'" \
    -- lower "$tmp/1f1b.csv" --reduce-wait soon
refuses "no lookahead" "--unshard-lookahead takes full, auto, or a number" \
    -- lower "$tmp/1f1b.csv" --unshard-lookahead 1,,2
refuses "a lookahead for other ranks" "has 8 numbers, expected one for each of" \
    -- lower "$tmp/1f1b.csv" --unshard-lookahead 1,2,3,3,3,3,3,3
refuses "passes and a version" "--for chooses passes, and --passes names them" \
    -- lower "$tmp/1f1b.csv" --passes send-recv --for torch-2.11
refuses "a pass by its option" "--recv defer is the pass defer-recv" \
    -- lower "$tmp/1f1b.csv" --passes send-recv --recv defer
refuses "another pass by its option" "--send-budget is the pass send-budget=2" \
    -- lower "$tmp/1f1b.csv" --passes send-recv --send-budget 2
refuses "a wait of no pass" "--reduce-wait goes with the pass reduce-grad" \
    -- lower "$tmp/1f1b.csv" --passes send-recv --reduce-wait late
refuses "a lowering of an order" "--send-budget goes with --as lowered" \
    -- schedule 1f1b -p 4 -m 8 --send-budget 2
"$sluice" schedule 1f1b -p 4 -m 8 --as lowered >"$tmp/lowered.csv"
refuses "receives placed again" "--recv late places the messages of a schedule" \
    -- lower "$tmp/lowered.csv" --recv late
refuses "stages fetched again" "--unshard-window is for a compute-only schedule" \
    -- lower "$tmp/lowered.csv" --unshard-window 2
refuses "reductions waited for again" "wait-reduce: rank 0, step" \
    -- lower "$tmp/lowered.csv" --reduce-wait late
refuses "no window" "--unshard-window must be at least 1, not 0" \
    -- lower "$tmp/1f1b.csv" --unshard-window 0
refuses "a cost of nothing" "--cost takes KIND=NUMBER pairs" \
    -- simulate "$tmp/1f1b.csv" --cost F
refuses "a cost of an unknown kind" "--cost: unknown kind 'G'" \
    -- simulate "$tmp/1f1b.csv" --cost G=1
refuses "a negative cost" "--cost: F must cost a number from 0 up" \
    -- simulate "$tmp/1f1b.csv" --cost F=-1
refuses "no bandwidth" "--bandwidth must be above 0" \
    -- simulate "$tmp/1f1b.csv" --bandwidth 0
refuses "costs twice" "--unit fixes what compute costs" \
    -- simulate "$tmp/1f1b.csv" --unit --cost F=2
refuses "both from stdin" "cannot both come from standard input" \
    -- simulate --costs -

refuses "an option short for two" "'--co' is short for more than one" \
    -- simulate --co F=1
refuses "a list and more" "--list goes alone" -- schedule --list gpipe -p 4
refuses "a version of something" "nothing goes after '--version'" \
    -- --version check
refuses "no pass" "--passes names no pass" -- lower "$tmp/1f1b.csv" --passes ""
refuses "half a list of passes" "unknown pass ''" \
    -- lower "$tmp/1f1b.csv" --passes send-recv,
refuses "no costs" "--cost takes KIND=NUMBER pairs" \
    -- simulate "$tmp/1f1b.csv" --cost ""
refuses "half a list of costs" "--cost takes KIND=NUMBER pairs" \
    -- simulate "$tmp/1f1b.csv" --cost F=1,
refuses "a cost beyond numbers" "the cost of F must be from 0 to 1e+100" \
    -- simulate "$tmp/1f1b.csv" --cost F=1e200
refuses "a message that never comes" "latency must be from 0 to 1e+100" \
    -- simulate "$tmp/1f1b.csv" --latency 1e308

# Input.
refuses "no such file" "cannot read nowhere.csv: No such file" \
    -- check nowhere.csv
refuses "a directory" "Is a directory" -- check "$tmp"
refuses "an empty file" "the schedule is empty" -- check /dev/null
{ yes '' | head -n 4096; echo 0F0; } >"$tmp/lines.csv"
refuses "too many lines" "more than 4096 lines" -- check "$tmp/lines.csv"
refuses "two files" "one FILE at a time" -- check a.csv b.csv
printf '\377\000\001\033[31m,\n\n0F0' >"$tmp/binary"
for verb in lower check simulate; do
    refuses "a binary file in $verb" "is not an action: expected" \
        -- $verb "$sluice"
    refuses "strange bytes in $verb" "row 1, column 1 (rank 0, step 0): '???" \
        -- $verb "$tmp/binary"
    refuses "an empty stdin in $verb" "standard input: the schedule is empty" \
        -- $verb
done
printf '0F0,0B0\n1F0,x\n' >"$tmp/bad.csv"
refuses "a wrong cell" \
    "row 2, column 2 (rank 1, step 1): 'x' is not an action: expected a stage" \
    -- check "$tmp/bad.csv"
printf ',,,\n,\n' >"$tmp/idle.csv"
refuses "only idle cells" "has no actions" -- check "$tmp/idle.csv"
printf '{"F": }' >"$tmp/bad.json"
refuses "broken costs" "bad.json: costs: line 1" \
    -- simulate "$tmp/1f1b.csv" --costs "$tmp/bad.json"
printf '{"a\\n\\u001b[31m": 1}' >"$tmp/bad.json"
refuses "a hostile key" 'unknown key "a??[31m"' \
    -- simulate "$tmp/1f1b.csv" --costs "$tmp/bad.json"
printf '{"f": 1}' >"$tmp/bad.json"
refuses "misspelt costs" 'unknown key "f"' \
    -- simulate "$tmp/1f1b.csv" --costs "$tmp/bad.json"
printf '{"stages": [{}]}' >"$tmp/bad.json"
refuses "costs of another model" "the costs are of 1 stages" \
    -- simulate "$tmp/1f1b.csv" --costs "$tmp/bad.json"

# Ragged rows are rows like any other: what matters is what they hold.
printf '0F0,0F1,0B0,0B1\n1F0\n' >"$tmp/ragged.csv"
run check "$tmp/ragged.csv"
[ "$status" = 1 ] || bad "ragged rows: exit $status, not 1"
printf '60000F16000000\n' >"$tmp/sparse.csv"
run check "$tmp/sparse.csv"
[ "$status" = 1 ] || bad "absurd numbers: exit $status, not 1"

# What is quoted of a request does not reach the terminal raw.
esc=$(printf '\033[31m\nx')
refuses "a hostile name" "unknown schedule '?[31m?x'" -- schedule "$esc" -p 1 -m 1
refuses "a hostile verb" "unknown verb '?[31m?x'" -- "$esc"
refuses "a hostile option" "unknown option '--?[31m?x'" -- check "--$esc"
refuses "a hostile path" "cannot read ?[31m?x" -- check "$esc"

# Output that cannot be written.
refuses "a trace into nowhere" "cannot write $tmp/no/trace.json" \
    -- simulate "$tmp/1f1b.csv" --trace "$tmp/no/trace.json"
full() {
    "$sluice" "$@" >/dev/full 2>"$err"
    status=$?
    [ "$status" = 2 ] || bad "a full disk, $1: exit $status, not 2"
    grep -q 'cannot write to standard output: No space left' "$err" ||
        bad "a full disk, $1: $(cat "$err")"
}
full schedule 1f1b -p 4 -m 8
full schedule --list
full lower "$tmp/1f1b.csv"
full check "$tmp/1f1b.csv"
full simulate "$tmp/1f1b.csv" --json
full check --help
full --help
closed() {
    # The reader leaves at once; more than a pipe holds is written.
    { "$sluice" "$@" 2>"$err"; echo $? >"$tmp/status"; } | true
    [ "$(cat "$tmp/status")" = 2 ] ||
        bad "a closed pipe, $1: exit $(cat "$tmp/status"), not 2"
    grep -q 'cannot write to standard output: Broken pipe' "$err" ||
        bad "a closed pipe, $1: $(cat "$err")"
}
closed schedule bfs -p 32 -v 2 -m 512
"$sluice" schedule bfs -p 32 -v 2 -m 512 >"$tmp/large.csv"
closed lower "$tmp/large.csv"
closed simulate "$tmp/large.csv" --json --actions
finish
