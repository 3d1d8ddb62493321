#!/bin/sh
# SPDX-License-Identifier: MIT
# The benchmarks run, print what they promise, and refuse what makes no sense.
# No figure is judged here.
. ./lib.sh

quick="--seconds 0.01"
run bench kernels $quick --size 4x8x16
[ $status = 0 ] || bad "bench kernels: $(cat "$err")"
for word in forward dI dW "overhead per kernel: [0-9]* ns"; do
    grep -q "$word" "$out" || bad "bench kernels without $word"
done
run bench kernels $quick --size 4x8x16 --size 5x3x1 --threads 2 --json
[ "$(grep -c '"gflops": [0-9.]*' "$out")" = 6 ] || bad "bench kernels --json"
grep -q '"overhead_ns": [0-9.]*}' "$out" || bad "overhead in --json"

run bench stage $quick --d 8 --rows 3 --heads 2 --seq 5 --sequences 1
[ $status = 0 ] || bad "bench stage: $(cat "$err")"
grep -q '^mlp' "$out" && grep -q '^gpt2' "$out" || bad "bench stage"
run bench stage $quick --model gpt2 --d 8 --heads 2 --seq 5 --recompute --json
grep -q '"model": "gpt2".*"iw_over_b": [0-9.]*' "$out" ||
    bad "bench stage --json"
# 2 sequences of 5 rows of 8 floats: with recompute, the input alone is saved.
grep -q '"saved_bytes": 320' "$out" || bad "saved bytes in --json"
grep -q mlp "$out" && bad "--model gpt2 shows the mlp"

run bench step --d 8 --layers 4 -p 2 -v 2 -m 4 --schedule Interleaved1F1B \
    --steps 2 --warmup 1 --json
[ $status = 0 ] || bad "bench step: $(cat "$err")"
for word in median_s min_s bubble_planned bubble_measured bytes_planned \
    bytes_measured action_s rows_per_s; do
    grep -q "\"$word\": [0-9.]\+" "$out" || bad "bench step --json without $word"
done
run bench step --model empty -p 2 -m 4 --steps 2 --trace "$out.trace"
[ $status = 0 ] || bad "bench step --model empty: $(cat "$err")"
grep -q 'us an action' "$out" || bad "bench step shows no time of an action"
grep -q '"traceEvents"' "$out.trace" || bad "bench step --trace"
run bench step --model empty -p 2 -m 4 --steps 2 --trace -
[ $status = 0 ] && grep -q '^{"displayTimeUnit"' "$out" || bad "--trace -"
grep -q median "$out" && bad "--trace - writes more than the trace"
rm -f "$out.trace"
refuses "a folder" "cannot write /nowhere/at/all" \
    -- bench step --model empty --trace /nowhere/at/all
refuses "both" "both want standard output" \
    -- bench step --model empty --trace - --json
refuses "a model" "--model takes mlp, gpt2 or empty" -- bench step --model llama
run bench step --model gpt2 --d 8 --layers 2 --heads 2 --seq 4 --vocab 9 -p 2 \
    --schedule zbv -v 2 -m 4 --steps 2 --warmup 1
[ $status = 0 ] || bad "bench step gpt2: $(cat "$err")"
grep -q 'tokens/s' "$out" || bad "bench step gpt2 shows no tokens"
refuses "a schedule" "unknown schedule" -- bench step --schedule nothing
refuses "a transport" "--transport takes threads or mpi" \
    -- bench step --transport pigeon
refuses "more" "nothing goes with" -- bench step stage
refuses "stages of few layers" "leave some empty" \
    -- bench step --layers 1 -p 40 --d 8

# A schedule from a file brings its sizes; V schedules have two stages a rank.
"$sluice" schedule gpipe -p 3 -m 2 >"$tmp/own.csv"
run bench step --schedule "$tmp/own.csv" --d 8 --layers 3 --steps 1 --warmup 1 --json
[ $status = 0 ] && grep -q '"ranks": 3, "stages_per_rank": 1, "stages": 3' "$out" ||
    bad "a CSV: $(cat "$err" "$out")"
run bench step --schedule zbv --d 8 --layers 4 --steps 1 --warmup 1 --json
grep -q '"ranks": 2, "stages_per_rank": 2' "$out" || bad "zbv: $(cat "$err" "$out")"
refuses "sizes of a CSV" "-p, -v or -m says otherwise" \
    -- bench step --schedule "$tmp/own.csv" -p 2
refuses "no backward" "has no backward: there is no step" \
    -- bench step --schedule forward
run bench --help
grep -q 'sluice bench step' "$out" || bad "bench --help does not name step"

refuses "no benchmark" "say what to time" -- bench
refuses "another" "unknown benchmark 'stages'; expected kernels, stage" \
    -- bench stages
refuses "two" "one benchmark at a time" -- bench kernels stage
refuses "a size of two" "--size takes three sizes like 16x2048x512" \
    -- bench kernels --size 4x8
refuses "a size of none" "--size takes three sizes" -- bench kernels --size 0x8x8
refuses "no threads" "--threads must be at least 1" -- bench kernels -t 0
refuses "a million threads" "1000000 threads, expected 1 to 1024" \
    -- bench kernels $quick -t 1000000
export OMP_THREAD_LIMIT=1
refuses "more threads than OpenMP grants" \
    "2 threads, but OMP_THREAD_LIMIT is 1" -- bench kernels $quick -t 2
unset OMP_THREAD_LIMIT
refuses "heads" "3 heads do not divide a width of 8" \
    -- bench stage $quick --model gpt2 --d 8 --heads 3
refuses "model" "--model takes mlp or gpt2, not 'bert'" -- bench stage --model bert
refuses "idle size" "--size goes with kernels" -- bench stage --size 1x1x1
refuses "idle d" "go with stage" -- bench kernels --d 8
refuses "idle rows" "--rows goes with mlp" -- bench stage --model gpt2 --rows 8
refuses "idle heads" "go with gpt2" -- bench stage --model mlp --heads 8
refuses "a width past counting" "no size above 131072" \
    -- bench stage --d 600000000
refuses "rows past counting" "no size above 131072" \
    -- bench stage --seq 100000 --sequences 100000
refuses "negative time" "--seconds" -- bench kernels --seconds -1
finish
