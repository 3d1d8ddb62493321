#!/bin/sh
# SPDX-License-Identifier: MIT
# What the host does for a GPU, on a driver that computes nothing (tests/fake): plans,
# recordings over ranks, replays, traces, faults. Numbers mean nothing here.
. ./lib.sh
fakes=${SLUICE_FAKES:-}
if [ -z "$fakes" ] || [ ! -e "$fakes/libcuda.so.1" ]; then
    echo "built without CUDA: skipped"
    finish
    exit
fi
export LD_LIBRARY_PATH="$fakes${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export SLUICE_CACHE="$tmp" FAKE_CUDA_REPORT="$tmp/report"
report() { sed -E "s/.*$1 ([0-9]+).*/\1/" "$tmp/report"; }
field() { sed -E "s/.*\"$1\": ([0-9.]+).*/\1/" "$out"; }

run devices
grep -q '^cuda:0 *Fake GPU, compute capability 9.0' "$out" || bad "$(cat "$out" "$err")"
FAKE_CUDA_NONE=1 run devices
grep -q '^cuda *none: there is no GPU here' "$out" || bad "$(cat "$out" "$err")"
refuses "another GPU" "--device cuda:1: there is 1 GPU, numbered from 0" \
    -- bench step --device cuda:1
refuses "threads" "--threads is of CPUs" -- bench step --device cuda -t 2

# A step replayed launches what a step enqueued does; nothing is allocated from step to
# step; what is allocated is the plan.
small="--model gpt2 --d 32 --layers 8 --heads 2 --seq 16 --vocab 64 -m 8"
step() { run bench step $small --device cuda --json "$@"; }
for how in "-p 1 --schedule gpipe" "-p 2 --schedule 1f1b" \
    "-p 4 --schedule interleaved:v=2 --precision bf16" "-p 2 --schedule zbv" \
    "-p 4 --schedule dualpipev --precision bf16 --recompute" \
    "-p 2 --schedule interleavedzerobubble:v=2"; do
    for optimizer in descent adamw; do
        step $how --optimizer $optimizer --steps 4
        [ "$status" = 0 ] || bad "$how: $(cat "$err")"
        [ "$(field bytes_planned)" = "$(field bytes_measured)" ] ||
            bad "$how: planned $(field bytes_planned), measured $(field bytes_measured)"
        launches=$(report launches) late=$(report late) replays=$(report replays)
        [ "$replays" -ge 7 ] || bad "$how: only $replays replays"
        step $how --optimizer $optimizer --steps 24
        [ "$(report late)" = "$late" ] || bad "$how: steps allocate: $(cat "$tmp/report")"
        step $how --optimizer $optimizer --steps 4 --no-graph
        [ "$(report launches) $(report replays)" = "$launches 0" ] ||
            bad "$how: $launches launches, eager: $(cat "$tmp/report" "$err")"
        passed=$((passed + 1))
    done
done

# Between processes messages are copied through memory that the driver has pinned.
if has_mpi; then
    step -p 1 --schedule gpipe --steps 3
    alone=$(report pinned)
    for how in "--schedule 1f1b" "--schedule zbv --precision bf16"; do
        (
            . ../comm/mpirun.sh
            timeout 60 mpirun -n 2 "$sluice" bench step $small $how --device cuda \
                --optimizer adamw --steps 3 >"$out" 2>"$err"
        ) || bad "MPI, $how: $(cat "$err")"
        [ "$(report pinned)" -gt "$alone" ] || bad "MPI: $(cat "$tmp/report"), alone $alone"
        passed=$((passed + 1))
    done
fi

# A file of choices that is damaged costs time, no more.
for damage in 'printf "nonsense\n\tx\n"' 'head -c 3000 /dev/zero' \
    'tr 0-9 z <"$file.kept"' 'head -c 700 "$file.kept"'; do
    for file in "$tmp"/products-*.txt; do
        [ -e "$file.kept" ] || cp "$file" "$file.kept"
        eval "$damage" >"$file"
    done
    step -p 2 --schedule 1f1b --steps 1
    [ "$status" = 0 ] || bad "$damage: $(cat "$err")"
    passed=$((passed + 1))
done

# Whole runs.
head -c 20000 /dev/zero | tr '\0' a >"$tmp/text"
model="--d 32 --layers 4 --heads 2 --seq 16 --batch 8"
for how in "" "-p 2 --schedule 1f1b --no-graph" "-p 4 -m 8 --precision bf16"; do
    run train "$tmp/text" $model --device cuda $how --steps 3 --eval-every 1 --clip 1 \
        --out "$tmp/run" --trace "$tmp/trace.json"
    # The fake's loss is nothing, and so is its gradient.
    [ "$status" = 0 ] || bad "train $how: $(cat "$err")"
    rm -rf "$tmp/run.kept"
    mv "$tmp/run" "$tmp/run.kept"
done
run eval "$tmp/run.kept" "$tmp/text" --device cuda
[ "$status" = 0 ] || bad "eval: $(cat "$err")"
run generate "$tmp/run.kept" --prompt a --tokens 2 --device cuda
[ "$status" = 0 ] || bad "generate: $(cat "$err")"
run train "$tmp/text" $model --device cuda --dry-run
[ "$status" = 0 ] && grep -q "activations" "$out" || bad "dry run: $(cat "$out" "$err")"

# Too little memory.
for bytes in 1000 300000 900000 1500000 1700000 2200000; do
    FAKE_CUDA_BYTES=$bytes run train "$tmp/text" $model --device cuda --steps 1
    if [ "$status" = 0 ] || [ "$(wc -l <"$err")" != 1 ] ||
        ! grep -Eq 'train: .*[a-z]: out of memory: a pool of [0-9]* bytes, and GPU 0 has' \
            "$err" ||
        ! grep -q 'fewer or smaller microbatches' "$err"; then
        bad "$bytes bytes: exit $status, $(cat "$err")"
    fi
    passed=$((passed + 1))
done
finish
