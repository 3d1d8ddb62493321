#!/bin/sh
# SPDX-License-Identifier: MIT
# `sluice train`: learning, checkpoints, resuming on any layout, interrupts, and
# what it refuses.
. ./lib.sh

dir=$(mktemp -d -p "$tmp")
cat ../../README.md ../../docs/*.md >"$dir/text"
small="--d 16 --layers 4 --heads 2 --seq 16 --batch 8 --warmup 2 --lr 0.003"

# The loss goes down, is logged, and ends in a checkpoint.
run train "$dir/text" $small --steps 40 --eval-every 20 --out "$dir/a" \
    --save-every 10 --keep 2 --log "$dir/a.jsonl"
[ $status = 0 ] || bad "train: $(cat "$err")"
[ "$(wc -l <"$dir/a.jsonl")" = 40 ] || bad "not a line of JSON per step"
loss() { sed -n "$2s/.*\"loss\": \([0-9.]*\).*/\1/p" "$1"; }
awk "BEGIN { exit !($(loss "$dir/a.jsonl" 40) < $(loss "$dir/a.jsonl" 1) - 0.5) }" ||
    bad "the loss has not gone down"
grep -q '"val_loss": [0-9]' "$dir/a.jsonl" || bad "nothing was validated"
[ -f "$dir/a/latest/model.safetensors" ] || bad "no model"
[ -f "$dir/a/best/config.json" ] || bad "no config of the best"
[ "$(ls -d "$dir"/a/step-* | wc -l)" -le 3 ] || bad "old checkpoints stay"

# Every layout sees the same data, and learns the same.
# At a rate at which training is stable: else the last bits grow.
calm="$small --lr 0.0005 --warmup 20 --steps 100 --eval-every 0"
run train "$dir/text" $calm --log "$dir/h.jsonl"
# same WHAT LOG: the losses of all steps are those of one rank, to 1e-4.
losses() { sed 's/.*"loss": \([0-9.]*\).*/\1/' "$1"; }
same() {
    losses "$2" >"$dir/theirs"
    losses "$dir/h.jsonl" | paste - "$dir/theirs" |
        awk '{ d = $1 - $2; if (!(d * d < 1e-8 * $1 * $1)) bad = 1 }
             END { exit bad || NR != 100 }' || bad "$1 learns something else"
}
for layout in "-p 4 -m 8" "-p 4 -v 1 -m 4 --schedule GPipe" \
    "-p 4 -v 1 -m 5 --schedule 1F1B" \
    "-p 4 -v 2 -m 8 --schedule Interleaved1F1B" \
    "-p 4 -v 2 -m 4 --schedule zbv" "-p 4 -v 2 -m 8 --schedule DualPipeV" \
    "-p 2 --recompute --cut transformer.h.2"; do
    rm -f "$dir/b.jsonl"
    run train "$dir/text" $calm $layout --log "$dir/b.jsonl"
    [ $status = 0 ] || bad "train $layout: $(cat "$err")"
    same "$layout" "$dir/b.jsonl"
done
if has_mpi; then
    rm -f "$dir/b.jsonl"
    (. ../comm/mpirun.sh && exec timeout 100 mpirun -n 4 "$sluice" train \
        "$dir/text" $calm -m 8 --log "$dir/b.jsonl" --out "$dir/mpi") >"$out" 2>"$err" ||
        bad "under mpirun: $(cat "$err")"
    same "mpirun -n 4" "$dir/b.jsonl"
    [ -f "$dir/mpi/latest/model-00004-of-00004.safetensors" ] ||
        bad "no checkpoint under mpirun"
fi

# A run that is stopped and resumed is the run that was not: to the last digit on
# its layout, closely on another.
run train "$dir/text" $small --steps 40 -p 2 --out "$dir/c" --log "$dir/c.jsonl"
run train "$dir/text" $small --steps 40 -p 2 --out "$dir/d" --save-every 15 \
    --keep 9 --log "$dir/d1.jsonl"
rm -rf "$dir/d/step-00000040"
run train "$dir/text" $small --steps 40 -p 2 --out "$dir/d" --resume \
    --log "$dir/d2.jsonl"
[ $status = 0 ] || bad "resume: $(cat "$err")"
grep -q 'continuing from .*step-00000030' "$err" || bad "resumes from elsewhere"
[ "$(loss "$dir/c.jsonl" 40)" = "$(loss "$dir/d2.jsonl" 10)" ] ||
    bad "a resumed run goes another way"
rm -rf "$dir/d/step-00000040"
run train "$dir/text" $small --steps 40 -p 4 -m 8 --out "$dir/d" --resume \
    --log "$dir/d3.jsonl"
awk "BEGIN { d = $(loss "$dir/c.jsonl" 40) - $(loss "$dir/d3.jsonl" 10);
    exit !(d * d < 1e-8) }" || bad "resumed on 4 ranks, it goes another way"

# A damaged checkpoint is said, and the one before it used.
rm -rf "$dir/d/step-00000040"
part=$dir/d/step-00000030/model-00001-of-00002.safetensors
was=$(dd if="$part" bs=1 skip=5000 count=1 2>/dev/null | od -An -tu1)
[ "$was" -eq 120 ] && damage=y || damage=x
printf $damage | dd of="$part" bs=1 seek=5000 conv=notrunc 2>/dev/null
run train "$dir/text" $small --steps 20 -p 2 --out "$dir/d" --resume
[ $status = 0 ] || bad "resume past damage: $(cat "$err")"
grep -q 'step-00000030. is damaged: model-00001-of-00002.safetensors' "$err" ||
    bad "damage is not said"
grep -q 'continuing from .*step-00000015' "$err" || bad "the one before is not used"

# Ctrl-C finishes the step, and writes a checkpoint.
"$sluice" train "$dir/text" $small --steps 100000 --out "$dir/e" \
    --eval-every 0 --log "$dir/e.jsonl" 2>/dev/null &
pid=$!
while [ ! -s "$dir/e.jsonl" ]; do sleep 0.05; done
kill -INT $pid
wait $pid
[ $? = 130 ] || bad "an interrupt leaves with another status"
last=$(sed -n '$s/.*"step": \([0-9]*\).*/\1/p' "$dir/e.jsonl")
[ -d "$dir/e/step-$(printf %08d "$last")" ] || bad "an interrupt saves nothing"
run train "$dir/text" $small --steps $((last + 2)) --out "$dir/e" --resume
[ $status = 0 ] || bad "resume after an interrupt: $(cat "$err")"

# Killed at any moment, most of which is spent writing checkpoints, it goes on
# from what was whole, and as if nothing had happened. A run of few steps takes
# this many milliseconds: kills come around then.
steady="$small --lr-decay constant --eval-every 0"
began=$(date +%s%N)
run train "$dir/text" $steady --steps 4 --out "$dir/few" --save-every 1
took=$((($(date +%s%N) - began) / 1000000 + 1))
kills=0
while [ $kills -lt 55 ]; do
    wait=$((took * (60 + kills * 37 % 90)))
    timeout -s KILL "$((wait / 100000)).$(printf %05d $((wait % 100000)))" \
        "$sluice" train "$dir/text" $steady --steps 100000 --out "$dir/f" \
        --save-every 1 --keep 2 --log "$dir/f.jsonl" \
        $(ls "$dir/f" 2>/dev/null | grep -q '^step-' && echo --resume) \
        >"$out" 2>"$err"
    grep -q damaged "$err" && bad "a kill damaged a checkpoint: $(cat "$err")"
    kills=$((kills + 1))
done
# Every step that was logged is that of the run that nobody killed. (Between a
# checkpoint and its line in the log a kill may come, too.)
grep '}$' "$dir/f.jsonl" | sed 's/, "norm.*//' | sort -u >"$dir/killed"
last=$(sed 's/.*"step": \([0-9]*\),.*/\1/' "$dir/killed" | sort -n | tail -1)
[ "${last:-0}" -gt 20 ] || bad "killed, it does not get on"
run train "$dir/text" $steady --steps "$last" --log "$dir/u.jsonl"
sed 's/, "norm.*//' "$dir/u.jsonl" | sort -u >"$dir/unkilled"
[ -z "$(comm -23 "$dir/killed" "$dir/unkilled")" ] ||
    bad "killed, it goes another way"
run train "$dir/text" $steady --steps "$((last + 2))" --out "$dir/f" --resume
[ $status = 0 ] || bad "resume after kills: $(cat "$err")"

# A full disk: clear words, and the last checkpoint as it was.
rm -rf "$dir/i"
run train "$dir/text" $small --steps 3 --out "$dir/i"
(ulimit -f 8 && run train "$dir/text" $small --steps 5 --out "$dir/i" --resume
    [ $status = 1 ] && grep -q 'File too large' "$err") ||
    bad "a full disk: $(cat "$err")"
ls -A "$dir/i" | grep -q '^\.step' && bad "a full disk leaves rests"
run train "$dir/text" $small --steps 4 --out "$dir/i" --resume
grep -q 'continuing from .*step-00000003' "$err" || bad "after a full disk"

# A damaged one is put aside, and never counts as one to keep.
run train "$dir/text" $small --steps 6 --save-every 2 --keep 9 --out "$dir/j"
echo x >>"$dir/j/step-00000006/model.safetensors"
run train "$dir/text" $small --steps 5 --save-every 1 --keep 1 --out "$dir/j" \
    --resume
[ $status = 0 ] || bad "past a damaged one: $(cat "$err")"
[ "$(ls "$dir/j" | tr '\n' ' ')" = "best latest options.json step-00000005 step-00000006.damaged " ] ||
    [ "$(ls "$dir/j" | tr '\n' ' ')" = "latest options.json step-00000005 step-00000006.damaged " ] ||
    bad "after a damaged one: $(ls "$dir/j")"
# What is not ours stays, also behind links.
mkdir -p "$dir/k/step-notes" "$dir/precious"
echo hi | tee "$dir/k/step-notes/a" >"$dir/precious/data"
ln -s ../precious "$dir/k/step-00000001"
run train "$dir/text" $small --steps 6 --save-every 2 --keep 1 --out "$dir/k"
[ $status = 0 ] || bad "beside what is not ours: $(cat "$err")"
[ -f "$dir/precious/data" ] && [ -f "$dir/k/step-notes/a" ] ||
    bad "removes what is not ours"

# Models in bf16: half the bytes, and a run goes on from them as from f32.
for dtype in f32 bf16; do
    for steps in 3 6; do
        resume=""
        [ $steps = 3 ] || resume=--resume
        run train "$dir/text" $small --steps $steps --lr-decay constant \
            --save-dtype $dtype --out "$dir/$dtype" $resume --log "$dir/$dtype.jsonl"
        [ $status = 0 ] || bad "--save-dtype $dtype: $(cat "$err")"
    done
    sed 's/.*"loss": \([0-9.]*\).*/\1/' "$dir/$dtype.jsonl" >"$dir/$dtype.losses"
done
[ "$(wc -l <"$dir/bf16.losses")" = 6 ] || bad "--save-dtype bf16 --resume"
cmp -s "$dir/f32.losses" "$dir/bf16.losses" || bad "--save-dtype changes a run"
wide=$(wc -c <"$dir/f32/latest/model.safetensors")
narrow=$(wc -c <"$dir/bf16/latest/model.safetensors")
[ $((wide - narrow)) -gt $((wide / 3)) ] || bad "bf16 takes $narrow bytes of $wide"
run eval "$dir/bf16" "$dir/text"
[ $status = 0 ] || bad "eval of bf16: $(cat "$err")"
run train "$dir/text" --seq 16 --batch 8 --steps 1 --init "$dir/bf16/latest"
[ $status = 0 ] || bad "--init of bf16: $(cat "$err")"
refuses "a third dtype" "--save-dtype takes f32 or bf16" -- \
    train "$dir/text" $small --save-dtype f16

# In bf16: the same curve within 0.5%, whatever the schedule and the ranks, and
# half the bytes in messages.
run train "$dir/text" $small --steps 4 --log "$dir/wide.jsonl"
losses "$dir/wide.jsonl" >"$dir/wide"
[ "$(wc -l <"$dir/wide")" = 4 ] || bad "losses of f32: $(cat "$err")"
runs=0
for schedule in $("$sluice" schedule --list | awk '{ print $1 }'); do
    for layout in "-p 1 -v 1" "-p 1 -v 2" "-p 2 -v 1" "-p 2 -v 2" "-p 4 -v 1"; do
        rm -f "$dir/narrow.jsonl"
        run train "$dir/text" $small --steps 4 --precision bf16 \
            --schedule $schedule $layout -m 8 --log "$dir/narrow.jsonl"
        [ $status = 0 ] || continue
        losses "$dir/narrow.jsonl" | paste "$dir/wide" - | awk '
            { off = ($1 - $2) / $1; if (off < 0) off = -off; if (!(off < 0.005)) exit 1 }
            END { if (NR != 4) exit 1 }' || bad "$schedule $layout in bf16: $(losses "$dir/narrow.jsonl" | tr '\n' ' ')"
        runs=$((runs + 1))
    done
done
[ $runs -ge 20 ] || bad "only $runs runs in bf16"
if has_mpi; then
    four="--steps 4 --precision bf16 -m 8 --schedule 1F1B"
    run train "$dir/text" $small $four -p 2 --log "$dir/threads.jsonl"
    (. ../comm/mpirun.sh && exec timeout 100 mpirun -n 2 "$sluice" train \
        "$dir/text" $small $four --log "$dir/mpi.jsonl") >"$out" 2>"$err" ||
        bad "bf16 under mpirun: $(cat "$err")"
    losses "$dir/threads.jsonl" >"$dir/threads"
    [ "$(losses "$dir/mpi.jsonl")" = "$(cat "$dir/threads")" ] ||
        bad "bf16 under mpirun: $(losses "$dir/mpi.jsonl" | tr '\n' ' ')"
fi
for precision in f32 bf16; do
    run train "$dir/text" $small -p 2 --precision $precision --dry-run
    sed -n 's/^rank 0 -> rank 1 .* messages, \([0-9.]*\) .*/\1/p' "$out"
done | paste -s | awk '{ exit $1 == 2 * $2 ? 0 : 1 }' || bad "messages of bf16 are not half"

# Any precision goes on from any; eval and generate take one.
for from in f32 bf16; do
    for to in f32 bf16; do
        rm -rf "$dir/p"
        for precision in $from $to; do
            resume=""
            [ ! -d "$dir/p" ] || resume=--resume
            steps=3
            [ -z "$resume" ] || steps=6
            run train "$dir/text" $small --steps $steps --lr-decay constant \
                --precision $precision --out "$dir/p" $resume --log "$dir/p.jsonl"
            [ $status = 0 ] || bad "$from, then $to: $(cat "$err")"
        done
        grep -c . "$dir/p.jsonl" | grep -qx 6 || bad "$from, then $to: $(cat "$dir/p.jsonl")"
        rm -f "$dir/p.jsonl"
        run eval "$dir/p" "$dir/text" --precision $to
        [ $status = 0 ] || bad "eval in $to: $(cat "$err")"
        run generate "$dir/p" --prompt a --tokens 4 --precision $to
        [ $status = 0 ] || bad "generate in $to: $(cat "$err")"
    done
done
refuses "a third precision" "--precision takes f32 or bf16" -- \
    train "$dir/text" $small --precision f16

# From weights, and from a file of options, over which the command line wins.
run train "$dir/text" --seq 16 --batch 8 --steps 1 --init "$dir/a/latest"
[ $status = 0 ] || bad "--init: $(cat "$err")"
grep -q '4 layers of width 16' "$err" || bad "--init takes no config"
echo '{"d": 16, "layers": 2, "heads": 2, "seq": 16, "batch": 8, "lr": 0.01,
    "untied": true, "schedule": "GPipe", "steps": 9}' >"$dir/o.json"
run train "$dir/text" --options "$dir/o.json" --steps 2 --log "$dir/o.jsonl"
[ $status = 0 ] || bad "--options: $(cat "$err")"
[ "$(wc -l <"$dir/o.jsonl")" = 2 ] || bad "the command line does not win"

# What is exported is what was trained: eval of the folder is the run's own.
head -c 4097 "$dir/text" >"$dir/held"
run train "$dir/text" $small --steps 4 --val "$dir/held" --eval-batches 1000 \
    --eval-every 4 --out "$dir/g" --log "$dir/g.jsonl" -p 2
val=$(sed -n 's/.*"val_loss": \([0-9.]*\).*/\1/p' "$dir/g.jsonl")
for layout in "" "-p 4 -m 3" "-p 2 -v 2 --schedule zbv -m 4"; do
    run eval "$dir/g/latest" "$dir/held" --json $layout
    [ $status = 0 ] || bad "eval $layout: $(cat "$err")"
    grep -q '"sequences": 256, "tokens": 4096' "$out" || bad "eval of others"
    awk "BEGIN { d = $val - $(sed 's/.*"loss": \([0-9.]*\).*/\1/' "$out");
        exit !(d * d < 1e-10) }" || bad "eval $layout is not the run's own"
done
run eval "$dir/g/latest" "$dir/held" --max 5
grep -q '^loss [0-9.]*, perplexity [0-9.]*, over 5 sequences of 16' "$out" ||
    bad "eval as text"

# The likeliest text is the same on any layout; chance is by the seed.
run generate "$dir/a/latest" --prompt 'The ' --tokens 30 --temperature 0
[ $status = 0 ] || bad "generate: $(cat "$err")"
[ "$(wc -c <"$out")" = 35 ] || bad "generate makes another number of tokens"
cp "$out" "$dir/said"
run generate "$dir/a/latest" --prompt 'The ' --tokens 30 --temperature 0 -p 4
cmp -s "$out" "$dir/said" || bad "generate on 4 ranks says something else"
run generate "$dir/a/latest" --prompt 'The ' --tokens 30 -m 3 --top-k 5 --seed 4
[ "$(grep -c '^---$' "$out")" = 2 ] || bad "not three samples"
cp "$out" "$dir/said"
run generate "$dir/a/latest" --prompt 'The ' --tokens 30 -m 3 --top-k 5 --seed 4
cmp -s "$out" "$dir/said" || bad "the same seed says something else"
run generate "$dir/a/latest" --ids 84,104 --tokens 2 --temperature 0
[ "$(head -c 2 "$out")" = Th ] || bad "--ids"

refuses "a model" "say which model" -- eval
refuses "no model" "cannot read" -- eval /no/where "$dir/held"
refuses "too long" "and the model has 16 positions" \
    -- eval "$dir/g/latest" "$dir/held" --seq 17
refuses "no prompt" "say which model, and a --prompt" -- generate "$dir/g/latest"
refuses "ids" "token 256 of the prompt is past the vocabulary" \
    -- generate "$dir/g/latest" --ids 1,256
refuses "no ids" "--ids takes numbers" -- generate "$dir/g/latest" --ids 1,x
refuses "a CSV of others" "has 2 ranks, 2 stages and 2 microbatches, and -p" \
    -- train "$dir/text" $small --schedule "$tmp/1f1b.csv" -m 4
refuses "a used folder" "is there: --resume to continue that run, or another" \
    -- train "$dir/text" $small --out "$dir/j"
refuses "a seed" "the run has seed 1, and cannot continue with 7" \
    -- train "$dir/text" $small --steps 50 --out "$dir/j" --resume --seed 7
refuses "no more steps" "is at step 5 already: give more --steps" \
    -- train "$dir/text" $small --steps 5 --out "$dir/j" --resume
refuses "no folder" "cannot make the folder" \
    -- train "$dir/text" $small --out /proc/no/such
refuses "a small --val" "fewer than a batch of 8" \
    -- train "$dir/text" $small --val "$dir/o.json"
refuses "an abbreviation" "write --options once, and in full" \
    -- train "$dir/text" --optio="$dir/o.json"
mkfifo "$dir/fifo"
refuses "a pipe" "is not a file or a folder" -- train "$dir/fifo"
"$sluice" schedule 1f1b -p 1 -m 3 >"$dir/s.csv"
run generate "$dir/a/latest" --prompt 'The ' --tokens 8 --schedule "$dir/s.csv"
[ "$(grep -c '^---$' "$out")" = 2 ] || bad "samples of a schedule from a file"
# A folder is its text; what has zero bytes is no text.
mkdir -p "$dir/mixed/sub"
cp "$dir/text" "$dir/mixed/a.txt"
head -c 3000 /dev/zero >"$dir/mixed/b.png"
cp "$dir/text" "$dir/mixed/sub/c.txt"
mkdir "$dir/plain"
cat "$dir/text" "$dir/text" >"$dir/plain/all.txt"
for kind in mixed plain; do
    run train "$dir/$kind" $small --steps 4 --log "$dir/$kind.log"
    [ "$status" = 0 ] || bad "a folder: $(cat "$err")"
    sed 's/.*\("loss": [0-9.]*\).*/\1/' "$dir/$kind.log" >"$dir/$kind.losses"
done
cmp -s "$dir/mixed.losses" "$dir/plain.losses" || bad "a picture was learnt"
# DATA may stand in the options' file; the command line wins.
echo "{\"data\": \"$dir/plain\", \"steps\": 4}" >"$dir/data.json"
run train --options "$dir/data.json" $small --log "$dir/data.log"
[ "$status" = 0 ] && [ "$(wc -l <"$dir/data.log")" = 4 ] ||
    bad "data from the options: $(cat "$err")"
refuses "other data" "cannot open '/no/where'" \
    -- train --options "$dir/data.json" $small /no/where
# A bad id far from the beginning is found before the first step.
{ head -c 40000 /dev/zero; printf '\377\377'; head -c 4000 /dev/zero; } \
    >"$dir/late.bin"
head -c 4000 /dev/zero >"$dir/good.bin"
refuses "a late id" "near place 20000 of the data is past" \
    -- train "$dir/late.bin" --vocab 100 --seq 4 --batch 2 -m 1 --d 8 --heads 2 \
    --log "$dir/late.log"
[ -s "$dir/late.log" ] && bad "it was trained on before it was refused"
# The last step as a trace and as a page; the batch was read before it.
run train "$dir/text" $small --steps 3 --out "$dir/shown" \
    --trace "$dir/step.json" --report "$dir/step.html"
[ "$status" = 0 ] || bad "a report: $(cat "$err")"
grep -q "^Report: $dir/step.html" "$out" || bad "the page is not told of"
grep -q '"title": "measured", "measured": true' "$dir/step.html" &&
    grep -q '"title": "planned", "measured": false' "$dir/step.html" ||
    bad "the page does not have both"
[ "$(grep -c '^"curve": {"loss": \[\[1, 1, .*\[3, 3, [0-9.]*\]\],$' \
    "$dir/step.html")" = 1 ] || bad "the page does not have three losses"
grep -q '"cat": "data"' "$dir/step.json" || bad "the trace has no data"
refuses "a report elsewhere" "--report writes a page" \
    -- train "$dir/text" $small --report -
refuses "a trace into a folder" "cannot write $dir: Is a directory" \
    -- train "$dir/text" $small --trace "$dir"
refuses "a trace without a name" "cannot write a file without a name" \
    -- train "$dir/text" $small --trace ""
ln -s /no/where/at.json "$dir/dangling.json"
refuses "a trace into a link to nowhere" "cannot write $dir/dangling.json" \
    -- train "$dir/text" $small --trace "$dir/dangling.json"
refuses "one file for two" "--trace and --report name one file" \
    -- train "$dir/text" $small --trace "$dir/x.html" --report "$dir/x.html"
refuses "the data overwritten" "DATA and --trace name one file" \
    -- train "$dir/text" $small --trace "$dir/./text"
refuses "two DATA" "one DATA at a time" \
    -- train "$dir/text" $small --data "$dir/text"
refuses "validation ids" "of the validation data is past the vocabulary" \
    -- train "$dir/good.bin" --vocab 100 --val "$dir/late.bin" --seq 4 \
    --batch 2 -m 1 --d 8 --heads 2
"$sluice" train "$dir/text" $small --steps 2 --trace - 2>/dev/null |
    "$sluice" view --run - -o "$dir/piped.html" 2>"$err" ||
    bad "a trace through a pipe: $(cat "$err")"
refuses "a page into nowhere" "cannot write $dir/no/step.html" \
    -- train "$dir/text" $small --report "$dir/no/step.html"
refuses "nothing" "say what to train on" -- train
refuses "nowhere" "cannot open '/no/where'" -- train /no/where
refuses "an option" "unknown option '--stepz'; the nearest one is '--steps'" \
    -- train "$dir/text" --stepz 3
refuses "a batch" "a batch of 2 sequences is fewer than the 4 microbatches" \
    -- train "$dir/text" $small --batch 2 -m 4
echo '{"n_layer": 2}' >"$dir/config.json"
refuses "a config" "the config has no 'n_head'" \
    -- train "$dir/text" --config "$dir/config.json"
printf '\377\377\1\0\2\0\3\0\4\0\5\0\6\0\7\0' >"$dir/t.bin"
refuses "ids" "is past the vocabulary of 100" \
    -- train "$dir/t.bin" --vocab 100 --seq 4 --batch 1 -m 1 --d 8 --heads 2
refuses "weights" "'transformer.wte.weight' of the weights is f32 (256, 16), expected f32 (256, 32); 'transformer.wpe.weight' of" \
    -- train "$dir/text" --seq 16 --init "$dir/a/latest" --d 32
refuses "options" "p.json has an unknown option 'stepz'" \
    -- train "$dir/text" --options "$(echo '{"stepz": 3}' >"$dir/p.json"; echo "$dir/p.json")"
refuses "resume" "--resume needs --out" -- train "$dir/text" --resume
refuses "a folder" "no sound checkpoint" \
    -- train "$dir/text" --resume --out "$dir"
exit $failed
