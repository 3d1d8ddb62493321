# SPDX-License-Identifier: MIT
# What a run keeps, refuses, logs and shows before it runs.
. ./lib.sh
dir=$tmp
sluice=$(realpath "$sluice")
seq 1 4000 >"$dir/text"
small="--d 16 --layers 2 --heads 2 --seq 16 --batch 8"

# A run keeps its options: --resume alone goes on, from any folder.
run train "$dir/text" $small --lr 0.01 --steps 4 --out "$dir/a" --log "$dir/a.log"
[ $status = 0 ] || bad "a run: $(cat "$err")"
(cd / && "$sluice" train --out "$dir/a" --resume --steps 6) >"$out" 2>"$err" ||
    bad "--resume alone: $(cat "$err")"
grep -q 'continuing from .*step-00000004' "$err" || bad "goes on from elsewhere"
grep -q -- '--steps 6 instead of 4' "$err" || bad "--steps is not told"
grep -q -- '--lr' "$err" && bad "what is the same is told"
[ "$(wc -l <"$dir/a.log")" = 6 ] || bad "not every step is logged"
run train --out "$dir/a" --resume --steps 8 --batch 16 --recompute
grep -q -- '--batch 16 instead of 8' "$err" || bad "a batch is not told"
grep -q -- '--recompute  as well' "$err" || bad "a switch is not told: $(cat "$err")"
# Another schedule brings its own stages; another number of ranks its own CSV.
run train --out "$dir/a" --resume --steps 9 --schedule zbv -p 2
[ $status = 0 ] || bad "as zbv: $(cat "$err")"
grep -q '2 ranks, 4 stages' "$err" || bad "zbv has two stages a rank"
run train --out "$dir/a" --resume --steps 10 --schedule 1f1b
[ $status = 0 ] || bad "as 1F1B again: $(cat "$err")"
grep -q '2 ranks, 2 stages' "$err" || bad "ranks are dropped: $(cat "$err")"
# A schedule from a file brings all of its sizes, and is no place for a log.
"$sluice" schedule gpipe -p 3 -m 2 >"$dir/own.csv"
cp "$dir/own.csv" "$dir/was.csv"
run train --out "$dir/a" --resume --steps 11 --schedule "$dir/own.csv"
[ $status = 0 ] && grep -q '3 ranks, 3 stages' "$err" || bad "a CSV: $(cat "$err")"
grep -q -- '--schedule .*own.csv instead of 1f1b' "$err" ||
    bad "a CSV is not told: $(cat "$err")"
run train --out "$dir/a" --resume --steps 12 --schedule gpipe
grep -q -- '--schedule gpipe instead of .*own.csv' "$err" ||
    bad "no CSV is not told: $(cat "$err")"
refuses "a log over a schedule" "--schedule and --log name one file" \
    -- train "$dir/text" $small --schedule "$dir/own.csv" --log "$dir/own.csv"
cmp -s "$dir/own.csv" "$dir/was.csv" || bad "a schedule is written to"
refuses "a log over options" "is a file that the run keeps itself" \
    -- train --out "$dir/a" --resume --steps 13 --log "$dir/a/options.json"
refuses "a log in the data" "all files of which are trained on" \
    -- train "$dir" $small --log "$dir/in.log"
refuses "a run in the data" "all files of which are trained on" \
    -- train "$dir" $small --out "$dir/inner"
[ -e "$dir/inner" ] && bad "a refused run makes a folder"
refuses "no run" "there is no run in $dir/nowhere" \
    -- train --out "$dir/nowhere" --resume
refuses "another width" "the run has --d 16, and cannot continue with 32" \
    -- train --out "$dir/a" --resume --d 32
refuses "another seed" "the run has seed 1, and cannot continue with 3" \
    -- train --out "$dir/a" --resume --seed 3
refuses "no more steps" "is at step 12 already" \
    -- train --out "$dir/a" --resume --steps 12

# A log has every step once, also where a run was killed behind its last
# checkpoint; what is not of the run stays.
for name in l.jsonl l.csv; do
    log=$dir/$name
    rm -rf "$dir/l"
    run train "$dir/text" $small --steps 4 --save-every 2 --out "$dir/l" --log "$log"
    rm -rf "$dir/l/step-00000004"
    case $name in
    *.csv) printf '5,1.0,half a li' >>"$log" ;;
    *) printf '{"step": 5, "loss": half a li' >>"$log" ;;
    esac
    run train --out "$dir/l" --resume --steps 6
    [ $status = 0 ] || bad "resume of $name: $(cat "$err")"
    sed 's/^{"step": //' "$log" | grep -v '^step,' | cut -d, -f1 >"$dir/steps"
    [ "$(tr '\n' ' ' <"$dir/steps")" = "1 2 3 4 5 6 " ] ||
        bad "$name has steps $(tr '\n' ' ' <"$dir/steps")"
done
[ "$(head -1 "$dir/l.csv" | cut -d, -f1-3)" = step,loss,norm ] ||
    bad "a CSV has no head"
[ "$(awk -F, '{ print NF }' "$dir/l.csv" | sort -u)" = 12 ] ||
    bad "rows of a CSV differ"

# What is not finite is never saved, and the last good checkpoint stays.
run train "$dir/text" $small --steps 2 --keep 1 --out "$dir/n"
run train --out "$dir/n" --resume --steps 3 --lr 1e39 --warmup 0
[ $status = 1 ] && grep -q "has numbers that are not finite: nothing is saved" "$err" ||
    bad "infinite weights: $status $(cat "$err")"
[ "$(ls "$dir/n" | grep step)" = step-00000002 ] || bad "saved over what was good"
run train --out "$dir/n" --resume --steps 9 --lr 1e39 --warmup 0
[ $status = 1 ] && grep -q "the gradient of step 4 is not finite, first that of '" "$err" ||
    bad "an infinite gradient: $status $(cat "$err")"
run train "$dir/text" $small --steps 1 --lr 1e39 --warmup 0
[ $status = 1 ] && grep -q "has numbers that are not finite" "$err" ||
    bad "infinite weights and no --out: $status $(cat "$err")"
# Four bytes of a weight that are NaN are neither loaded nor continued.
cp -r "$dir/n/step-00000002" "$dir/nan"
size=$(wc -c <"$dir/nan/model.safetensors")
printf '\377\377\377\177' | dd of="$dir/nan/model.safetensors" bs=1 \
    seek=$((size - 4)) conv=notrunc 2>/dev/null
for verb in "generate $dir/nan --prompt a" "eval $dir/nan $dir/text" \
    "train $dir/text $small --steps 1 --init $dir/nan"; do
    refuses "NaN, $verb" "has numbers that are not finite" -- $verb
done

# Text for a model whose tokens are not bytes.
sed 's/"vocab_size": 256/"vocab_size": 500/' "$dir/n/latest/config.json" \
    >"$dir/500.json"
mkdir "$dir/hf"
cp "$dir/500.json" "$dir/hf/config.json"
cp "$dir/n/latest/model.safetensors" "$dir/hf"
refuses "text for ids" "has a vocabulary of 500: give a .bin file" \
    -- train "$dir/text" --seq 16 --init "$dir/hf"
refuses "text for ids, eval" "has a vocabulary of 500: give a .bin file" \
    -- eval "$dir/hf" "$dir/text"
refuses "text for ids, generate" "a vocabulary of 500" \
    -- generate "$dir/hf" --prompt a

# A run is a model too: its latest checkpoint.
run eval "$dir/n" "$dir/text" --max 2
[ $status = 0 ] || bad "eval of a run: $(cat "$err")"
run generate "$dir/n" --prompt a --tokens 2
[ $status = 0 ] || bad "generate of a run: $(cat "$err")"

# Too little to validate with is said, and trained on.
run train "$dir/text" $small --steps 1 --batch 32 --val-fraction 0.001 --eval-every 1
grep -q 'no validation: --val-fraction 0.001 of the data is' "$err" ||
    bad "no word of a validation that is not there"
run train "$dir/text" $small --steps 1 --val-fraction 0
grep -q 'no validation' "$err" && bad "none was asked for"

# Before it runs: the layout, the memory of every rank, messages. Nothing is made.
run train "$dir/text" $small -p 2 -m 8 --out "$dir/none" --dry-run
[ $status = 0 ] || bad "--dry-run: $(cat "$err")"
[ -e "$dir/none" ] && bad "a dry run makes a folder"
grep -Eq 'rank 0 -> rank 1 +[0-9]+ messages' "$out" || bad "messages: $(cat "$out")"
grep -q 'optimizer' "$out" || bad "no optimizer in: $(cat "$out")"
refuses "weights that are not there" "cannot open" \
    -- train "$dir/text" $small --init "$dir/nope" --dry-run
refuses "weights of another model" "of the weights is" \
    -- train "$dir/text" $small --d 32 --init "$dir/n/latest/model.safetensors" \
    --dry-run
run train "$dir/text" --seq 16 --batch 8 --init "$dir/n" --dry-run
[ $status = 0 ] && grep -q '2 layers of width 16' "$out" ||
    bad "a run to start with: $(cat "$err")"
run train "$dir/text" $small -p 2 -m 8 --dry-run
# It is what the run then takes.
planned=$(awk '/planned \(kB\)/ { on = 1; next } on { print $NF } /^ *1 / { if (on) exit }' "$out")
run train "$dir/text" $small -p 2 -m 8 --steps 1
measured=$(awk '/measured \(kB\)/ { on = 1; next } on { print $NF }' "$out")
[ -n "$planned" ] && [ "$planned" = "$measured" ] ||
    bad "planned '$planned', then measured '$measured'"
# Recompute saves nearly as much where backward is in two, for what I hands to W
# counts from I on, not from F.
planned() {
    run train "$dir/text" --d 128 --layers 16 --heads 8 --seq 64 --batch 32 -m 8 -p 2 \
        --schedule "$@" --dry-run
    sed -n 's/all ranks \([0-9.]*\) MB.*/\1/p' "$out" "$err" | head -n 1
}
saved() {
    awk "BEGIN { print $(planned "$1") - $(planned "$1" --recompute) }"
}
awk "BEGIN { exit !($(saved zb1p:v=2) > 0.8 * $(saved interleaved:v=2)) }" ||
    bad "recompute under zb1p saves $(saved zb1p:v=2) MB of $(saved interleaved:v=2)"

finish
