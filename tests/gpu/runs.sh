#!/bin/sh
# SPDX-License-Identifier: MIT
# Whole runs on a GPU: the same bits replayed and enqueued, close losses under every
# schedule and on the CPU, faults. runs.sh SLUICE; tools/gpu-test takes it along.
set -u
sluice=$1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
failed=0
bad() {
    failed=$((failed + 1))
    echo "FAILED: $*"
}
begun=$(date +%s)
said() { echo "$(($(date +%s) - begun)) s: $*"; }
awk 'BEGIN { for (i = 0; i < 400; i++) print "The schedule", i, "waits for rank", i % 7 }' >"$tmp/text"
small="--layers 4 --d 128 --heads 4 --seq 64 --batch 16 --steps 12 --eval-every 0 --seed 3"
log() { # NAME OPTIONS...: the losses of a run
    name=$1
    rm -f "$tmp/$name.csv"
    shift
    timeout 60 "$sluice" train "$tmp/text" $small --log "$tmp/$name.csv" "$@" \
        >"$tmp/out" 2>&1 || bad "$name: exit $?, $(tail -n 1 "$tmp/out")"
    said "$name $*"
    cut -d, -f2 "$tmp/$name.csv" >"$tmp/$name"
}
same() { cmp -s "$tmp/$1" "$tmp/$2" || bad "$1 and $2 differ"; }
close() { # NAME NAME TOLERANCE
    paste "$tmp/$1" "$tmp/$2" | awk -v most="$3" \
        'NR > 1 { off = $1 / $2 - 1; if (off < 0) off = -off; if (!(off <= most)) exit 1 }' ||
        bad "$1 and $2 differ by more than $3"
}
gpu="--device cuda --deterministic"
log cpu
log f32 $gpu
log f32-again $gpu
log f32-eager $gpu --no-graph
same f32 f32-again
same f32 f32-eager
close f32 cpu 1e-4
log half $gpu --precision bf16
log half-eager $gpu --precision bf16 --no-graph
log half-fast --device cuda --precision bf16
same half half-eager
close half f32 5e-3
close half-fast half 5e-3
for how in "-p 2 --schedule 1f1b -m 8" "-p 4 --schedule interleaved -m 8" \
    "-p 2 --schedule zbv -m 8" "-p 2 --schedule dualpipev -m 8" \
    "-p 4 --schedule gpipe -m 4 --recompute"; do
    log other $gpu $how
    close other f32 1e-4
    log other-half $gpu $how --precision bf16
    close other-half half 5e-3
done

# A run that is killed is resumed.
"$sluice" train "$tmp/text" $small --device cuda --steps 4000 --save-every 20 \
    --out "$tmp/run" >/dev/null 2>&1 &
pid=$!
n=0
while [ ! -e "$tmp/run/latest/config.json" ] && [ $n -lt 300 ]; do
    sleep 0.1
    n=$((n + 1))
done
kill -9 $pid
wait $pid 2>/dev/null
"$sluice" train --out "$tmp/run" --resume --steps 5000 --device cuda --timeout 20 \
    >"$tmp/out" 2>&1 &
pid=$!
sleep 3
kill -INT $pid
wait $pid
[ $? = 130 ] || bad "a resumed run: $(tail -n 1 "$tmp/out")"
loss() { "$sluice" eval "$tmp/run" "$tmp/text" "$@" 2>&1 | grep -oE '[0-9]+\.[0-9]{4}' | head -n 1; }
here=$(loss) there=$(loss --device cuda)
[ "${here%?}" = "${there%?}" ] || bad "eval: $here on the CPU, $there on the GPU"
"$sluice" generate "$tmp/run" --prompt 'The schedule ' --tokens 20 --device cuda \
    >"$tmp/out" 2>&1 || bad "generate: $(cat "$tmp/out")"

# Faults.
"$sluice" train "$tmp/text" --layers 96 --d 16384 --heads 128 --seq 64 --batch 1 -m 1 \
    --device cuda --steps 1 >"$tmp/out" 2>&1 && bad "a model that cannot fit fits"
grep -q 'out of memory: a pool of' "$tmp/out" || bad "memory: $(cat "$tmp/out")"
"$sluice" train "$tmp/text" $small --device cuda --lr 1e30 --clip 0 >"$tmp/out" 2>&1 &&
    bad "a run that diverges ends well"
grep -q 'not finite' "$tmp/out" || bad "divergence: $(cat "$tmp/out")"
echo "runs: $failed failed"
[ $failed = 0 ]
