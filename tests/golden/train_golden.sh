#!/bin/sh
# SPDX-License-Identifier: MIT
# The golden GPT-2 trains from the command line as it did in PyTorch, on every
# number of ranks, under every schedule: train_golden.sh SLUICE EXPORT.
set -eu
sluice=$1
export=$2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
batch=$("$export" "$dir" 2>/dev/null | grep '^--seq')
steps=$(wc -l <"$dir/losses")
layouts() {
    for ranks in 1 2 4; do
        for schedule in GPipe 1F1B; do
            echo "-p $ranks --schedule $schedule"
        done
        for schedule in LoopedBFS Interleaved1F1B InterleavedZeroBubble \
            ZBVZeroBubble DualPipeV; do
            # Its batch of 4 is too small for the 8 stages of DualPipeV.
            [ "$ranks $schedule" = "4 DualPipeV" ] ||
                echo "-p $ranks -v 2 --schedule $schedule"
        done
    done
}
layouts >"$dir/layouts"
while read -r layout; do
    rm -rf "$dir/log" "$dir/out"
    "$sluice" train "$dir/tokens.bin" --init "$dir" $batch $layout \
        --steps "$steps" --lr 1e-3 --lr-decay constant --warmup 0 --decay-all \
        --eval-every 0 --val-fraction 0 --log "$dir/log" --out "$dir/out" \
        >"$dir/said" 2>"$dir/err" ||
        { cat "$dir/err"; exit 1; }
    sed 's/.*"loss": \([0-9.]*\).*/\1/' "$dir/log" | paste - "$dir/losses" |
        awk -v layout="$layout" -v steps="$steps" '
            { d = $1 / $2 - 1; if (d < 0) d = -d; if (!(d < 1e-4)) bad = 1
              if (d > worst) worst = d }
            END { if (bad || NR != steps) {
                      print layout ": off by " worst ", " NR " steps"; exit 1 } }'
done <"$dir/layouts"
# Names, shapes and dtypes of what is exported are those of what was given.
names() { head -c 20000 "$1" | tr ',{' '\n\n' | grep -ao '"[a-z_.0-9]*\.[a-z_.0-9]*":' | sort; }
"$sluice" train "$dir/tokens.bin" --init "$dir" $batch --steps 1 --val-fraction 0 \
    --out "$dir/one" >"$dir/said" 2>&1
names "$dir/model.safetensors" >"$dir/given"
names "$dir/one/latest/model.safetensors" >"$dir/made"
echo '"lm_head.weight":' >>"$dir/given"
sort -u "$dir/given" | cmp -s - "$dir/made" || {
    echo "other names than were given:"
    sort -u "$dir/given" | diff - "$dir/made"
    exit 1
}
