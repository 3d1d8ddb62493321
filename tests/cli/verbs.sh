#!/bin/sh
# SPDX-License-Identifier: MIT
# The verbs do what their help says, and compose.
. ./lib.sh

# --as: the forms of the golden table.
is "1F1B order" 0 "0F0,0F1,0B0,0F2,0B1,0B2
1F0,1B0,1F1,1B1,1F2,1B2" -- schedule 1f1b -p 2 -m 3
for form in order compute comms lowered; do
    for case in ZBVZeroBubble_pp4_v2_mb8 DualPipeV_pp3_v2_mb6 \
        Interleaved1F1B_pp4_v2_mb10 LoopedBFS_pp2_v2_mb4; do
        name=${case%%_*} rest=${case#*_pp}
        p=${rest%%_*} m=${rest##*_mb}
        v=${rest#*_v} v=${v%%_*}
        for= && [ $form != lowered ] || for="--for torch-2.11"
        "$sluice" schedule "$name" -p "$p" -v "$v" -m "$m" --as "$form" $for |
            cmp -s - "../goldens/schedules/$case.$form.csv" ||
            bad "$case --as $form differs from PyTorch's"
    done
done
for name in DualPipeV Interleaved1F1B InterleavedZeroBubble LoopedBFS \
    ZBVZeroBubble; do
    for case in lowered: deferred:--recv=defer sends1:--send-budget=1 \
        sends4:--send-budget=4 auto:--unshard-lookahead=auto \
        latereduce:--reduce-wait=late; do
        "$sluice" schedule "$name" -p 2 -v 2 -m 4 --as lowered ${case#*:} |
            cmp -s - "../goldens/schedules-2.15/$name-2x2x4-${case%%:*}.csv" ||
            bad "$name ${case#*:} differs from PyTorch 2.15's"
    done
done

# Either form of a lowered schedule becomes the other, by its waits alone.
"$sluice" schedule zbv -p 4 -m 8 --as lowered >"$out.new"
"$sluice" schedule zbv -p 4 -m 8 --as lowered --for torch-2.11 >"$out.old"
"$sluice" lower "$out.new" --for torch-2.11 >"$out"
grep -q WAIT "$out" && bad "waits in 2.11"
"$sluice" lower "$out" | "$sluice" lower --for torch-2.11 | cmp -s - "$out" ||
    bad "2.15 to 2.11 and back"
"$sluice" lower "$out.old" | "$sluice" lower --for torch-2.11 | cmp -s - "$out.old" ||
    bad "2.11 to 2.15 and back"
"$sluice" lower "$out.new" | cmp -s - "$out.new" || bad "2.15 to 2.15"
"$sluice" lower "$out.old" | "$sluice" check >/dev/null ||
    bad "2.11 as 2.15 is unsound"
"$sluice" schedule zbv -p 4 -m 8 --as lowered --recv defer --send-budget 2 >"$out"
"$sluice" schedule zbv -p 4 -m 8 --as lowered --recv defer |
    "$sluice" lower --send-budget 2 | cmp -s - "$out" ||
    bad "a budget for what is lowered"
"$sluice" lower "$out.new" --recv defer | "$sluice" check >/dev/null ||
    bad "receives of what is lowered deferred"
for form in torch-2.11 torch-2.15; do
    "$sluice" schedule 1f1b -p 2 -m 4 --as comms |
        "$sluice" lower --for $form >"$out"
    [ "$(grep -o '[0-9]REDUCE_GRAD' "$out" | wc -l)" = 2 ] ||
        bad "messages alone are not divided by the microbatches, for $form"
    "$sluice" check "$out" >/dev/null || bad "lowered messages for $form"
done
"$sluice" schedule zbv -p 1 -m 2 --as lowered --for torch-2.11 |
    "$sluice" lower | grep -q WAIT_REDUCE_GRAD || bad "one rank's 2.11 as 2.15"
# So does one whose other ranks are idle, and that has no messages either.
printf '0F0,1F0,1B0,0B0\n\n' | "$sluice" lower >"$out.new"
"$sluice" lower "$out.new" --for torch-2.11 >"$out" || bad "an idle rank to 2.11"
"$sluice" lower "$out" | cmp -s - "$out.new" || bad "an idle rank, and back"
is "default stages per rank of a V" 0 "0F0,1F0,1I0,1W0,0I0,0W0" \
    -- schedule zbv -p 1 -m 1
is "grid" 0 "        Rank 0 Rank 1
Step 0: 0F0
Step 1: 0F1    1F0
Step 2:        1F1" -- schedule forward -p 2 -m 2 --as grid
"$sluice" schedule 1f1b -p 2 -m 2 --as json | grep -q '"placement": \[0, 1\]' ||
    bad "--as json lacks its placement"
"$sluice" schedule --list | grep -q '^ZBVZeroBubble *zbv ' || bad "--list"
"$sluice" schedule --list --json | grep -q '"short_name": "zbv"' ||
    bad "--list --json"

# Sizes with a name win over options.
"$sluice" schedule interleaved -p 2 -v 3 -m 4 >"$out"
"$sluice" schedule interleaved:v=3,m=4 -p 2 -m 16 | cmp -s - "$out" ||
    bad "sizes with a name"
refuses "sizes that are none" "as in 1f1b:v=2,m=16, not 'p=two'" \
    -- schedule 1f1b:p=two -m 4

# Composition, through pipes and `-`.
"$sluice" schedule zbv -p 4 -m 8 | "$sluice" lower | "$sluice" check >"$out" ||
    bad "schedule | lower | check"
grep -q '^sound: 4 ranks, 8 stages, 8 microbatches' "$out" || bad "check's words"
"$sluice" schedule zbv -p 4 -m 8 | "$sluice" lower - >"$out"
"$sluice" schedule zbv -p 4 -m 8 --as lowered | cmp -s - "$out" ||
    bad "lower differs from --as lowered"
"$sluice" schedule zbv -p 4 -m 8 --as comms --recv late >"$out"
"$sluice" schedule zbv -p 4 -m 8 |
    "$sluice" lower --passes send-recv --recv late | cmp -s - "$out" ||
    bad "--recv late"
"$sluice" schedule zbv -p 4 -m 8 --as lowered --unshard-window 1 >"$out"
"$sluice" schedule zbv -p 4 -m 8 | "$sluice" lower --unshard-window 1 |
    cmp -s - "$out" || bad "--unshard-window"
"$sluice" schedule zb1p -p 2 -v 2 -m 8 |
    "$sluice" lower --passes merge-bw,send-recv |
    "$sluice" simulate --unit --json | grep -q '"steps": 113' ||
    bad "113 steps"

# check: exit status and words.
printf '0F0,0F1,0SEND_F0,0SEND_F1\n1RECV_F0,1F0,1F1\n' >"$out.csv"
run check "$out.csv"
[ "$status" = 1 ] || bad "check of a fault leaves with $status"
grep -q 'missing-receive .*rank 0, step 3: 0SEND_F1' "$out" ||
    bad "check's finding"
grep -q 'ERROR HERE' "$out" || bad "check's grid"
run check "$out.csv" --json
[ "$status" = 1 ] || bad "check --json of a fault leaves with $status"
grep -q '"sound": false' "$out" || bad "check --json"
"$sluice" schedule 1f1b -p 2 -m 3 --as comms --recv late >"$out.csv"
run check "$out.csv"
[ "$status" = 0 ] || bad "late receives are sound under async"
run check "$out.csv" --comm ordered
[ "$status" = 1 ] || bad "late receives of 1F1B deadlock under ordered"
grep -q 'rank 0 at step 3 (0SEND_F1) waits for rank 1' "$out" ||
    bad "the cycle is told"
run check "$out.csv" -p 3 --stages 2 -m 3
[ "$status" = 1 ] && grep -q 'expected 3 ranks, found 2' "$out" ||
    bad "expected sizes"

# simulate.
is "simulate" 0 "makespan 9, bubble 0.3333

  rank         busy         idle     peak bytes
     0            6            3              2
     1            6            3              1

critical path: 0F0 1F0 1B0 1F1 1B1 0B1" -- simulate "$tmp/1f1b.csv"
is "costs on the command line" 0 "makespan 12, bubble 0.3333

  rank         busy         idle     peak bytes
     0            8            4              2
     1            8            4              1

critical path: 0F0 1F0 1B0 1F1 1B1 0B1" -- simulate "$tmp/1f1b.csv" --cost B=3
printf '{"F": 1, "B": 3}' >"$out.json"
"$sluice" simulate "$tmp/1f1b.csv" --costs "$out.json" --json |
    grep -q '"makespan": 12' || bad "--costs"
"$sluice" simulate "$tmp/1f1b.csv" --costs "$out.json" --cost B=2 --json |
    grep -q '"makespan": 9' || bad "--cost over --costs"
printf '0F0,0B0,0REDUCE_GRAD\n1F0,1B0,1REDUCE_GRAD\n' >"$tmp/reduced.csv"
printf '{"stages": [{"REDUCE_GRAD": 3}, {"REDUCE_GRAD": 1}]}' >"$out.json"
"$sluice" simulate "$tmp/reduced.csv" --costs "$out.json" --json |
    grep -q '"makespan": 9' || bad "a cost of a stage's REDUCE_GRAD"
"$sluice" simulate "$tmp/reduced.csv" --costs "$out.json" \
    --cost REDUCE_GRAD=9 --json |
    grep -q '"makespan": 15' || bad "a cost of REDUCE_GRAD over the file's"
"$sluice" simulate "$tmp/1f1b.csv" --latency 1 --bandwidth 2 \
    --message-bytes 4 --json | grep -q '"makespan": 15' || bad "messages"
"$sluice" simulate "$tmp/1f1b.csv" --comm blocking --json |
    grep -q '"comm": "blocking"' || bad "--comm"
"$sluice" simulate "$tmp/1f1b.csv" --trace "$out.trace" >/dev/null &&
    grep -q '"traceEvents"' "$out.trace" || bad "--trace"
"$sluice" simulate "$tmp/1f1b.csv" --trace - | grep -q '"traceEvents"' ||
    bad "--trace -"
"$sluice" schedule 1f1b -p 2 -m 3 --as comms --recv late |
    "$sluice" simulate --comm ordered >"$out" 2>"$err"
[ $? = 1 ] && grep -q 'deadlocks under ordered' "$err" ||
    bad "a deadlock in simulate"
for verb in "" schedule lower check simulate view cut bench train eval generate; do
    "$sluice" $verb --help >"$out" 2>"$err" || bad "$verb --help"
    grep -q 'sluice' "$out" || bad "$verb --help teaches nothing"
done
"$sluice" help check | grep -q 'Usage: sluice check' || bad "help VERB"
"$sluice" schedule dualpipev -p 2 -m 4 | "$sluice" simulate --unit --json |
    grep -q '"makespan": 16' || bad "an overlap costs one unit"
"$sluice" --version | grep -q '^sluice [0-9]' || bad "--version"
finish
