# SPDX-License-Identifier: MIT
# Two processes of one job that were told different things: both say so at once,
# and neither trains. One option at a time, every one that train has.
. ./lib.sh
dir=$tmp
sluice=$(realpath "$sluice")
head -c 20000 /dev/zero | tr '\0' 'a' >"$dir/text"
sed 's/a/b/g' "$dir/text" >"$dir/other"
printf '{"batch": 16}' >"$dir/o.json"
"$sluice" schedule gpipe -p 2 -m 4 >"$dir/own.csv"
small="--d 16 --layers 2 --heads 2 --seq 16 --batch 8 --steps 2 --timeout 20"
"$sluice" train "$dir/text" $small --out "$dir/weights" >"$out" 2>"$err" ||
    bad "a run alone: $(cat "$err")"
sed 's/"n_layer": 2/"n_layer": 3/' "$dir/weights/latest/config.json" \
    >"$dir/config.json"

if ! has_mpi; then
    echo "no MPI: skipped"
    finish
    exit
fi
. ../comm/mpirun.sh

# differ NAME OPTIONS...: the second rank has these as well. Most of it is waiting
# for mpirun, so some go on beside each other.
differ() {
    passed=$((passed + 1))
    compare "$passed" "$@" &
    [ $((passed % 6)) != 0 ] || wait
}

compare() {
    said=$dir/said.$1 name=$2
    export TMPDIR="$dir/mpi.$1"
    mkdir "$TMPDIR"
    shift 2
    timeout 60 mpirun -n 1 "$sluice" train "$dir/text" $small : \
        -n 1 "$sluice" train "$dir/text" $small "$@" >"$said" 2>&1 &&
        echo "$name: it trains" >>"$dir/wrong"
    [ "$(grep -c "told different things: $name is .* on rank 0 and .* on rank 1" \
        "$said")" = 2 ] ||
        echo "$name: not both are told: $(cat "$said")" >>"$dir/wrong"
}

timeout 60 mpirun -n 1 "$sluice" eval "$dir/weights" "$dir/text" --precision bf16 : \
    -n 1 "$sluice" eval "$dir/weights" "$dir/text" >"$out" 2>&1 &&
    bad "eval in two precisions"
grep -q "precision is 'bf16' on rank 0 and 'f32' on rank 1" "$out" ||
    bad "eval in two precisions: $(cat "$out")"

# Later ones win, so each of these changes what `small` says.
differ val --val "$dir/other"
differ val-fraction --val-fraction 0.2
differ seq --seq 8
differ stride --stride 4
differ batch --batch 16
differ batch --options "$dir/o.json" --batch 16
differ config --config "$dir/config.json"
differ layers --layers 3
differ d --d 32
differ heads --heads 4
differ vocab --vocab 300
differ positions --positions 64
differ untied --untied
differ init --init "$dir/weights/latest"
differ schedule --schedule GPipe
differ schedule --schedule "$dir/own.csv"
differ passes --passes delay-w=2
differ ranks -p 2
differ stages-per-rank -v 1
differ microbatches -m 8
differ cut --cut transformer.h.1
differ recompute --recompute
differ precision --precision bf16
differ save-dtype --save-dtype bf16
differ threads -t 2
differ no-work-stealing --no-work-stealing
differ device --device cuda
differ no-graph --no-graph
differ deterministic --deterministic
differ optimizer --optimizer sgd
differ lr --lr 0.002
differ lr-decay --lr-decay linear
differ lr-last --lr-last 0.5
differ warmup --warmup 1
differ weight-decay --weight-decay 0.2
differ decay-all --decay-all
differ beta1 --beta1 0.8
differ beta2 --beta2 0.8
differ eps --eps 1e-6
differ momentum --momentum 0.5
differ clip --clip 2
differ steps --steps 3
differ epochs --epochs 1
differ seed --seed 7
differ eval-every --eval-every 1
differ eval-batches --eval-batches 2
differ out --out "$dir/elsewhere"
differ save-every --save-every 1
differ keep --keep 2
differ resume --resume
differ log --log "$dir/log"
differ trace --trace "$dir/trace"
differ report --report "$dir/report.html"
differ timeout --timeout 30
differ dry-run --dry-run
wait
[ ! -s "$dir/wrong" ] || bad "$(cat "$dir/wrong")"

# No option is left out.
"$sluice" train --help | grep -o '^ .*--[a-z0-9-]*' | sed 's/.*--//' | sort -u |
    grep -vxE 'data|options|help|usage' >"$dir/known"
grep -o '^differ [a-z0-9-]*' ranks.sh | sed 's/differ //' | sort -u >"$dir/tried"
[ -z "$(comm -23 "$dir/known" "$dir/tried")" ] ||
    bad "not tried: $(comm -23 "$dir/known" "$dir/tried")"

# Another file, and the same name with another text behind it.
timeout 60 mpirun -n 1 "$sluice" train "$dir/text" $small : \
    -n 1 "$sluice" train "$dir/other" $small >"$out" 2>"$err" &&
    bad "another file: it trains"
[ "$(grep -c 'told different things: data is' "$err")" = 2 ] ||
    bad "another file: $(cat "$err")"
cp "$dir/text" "$dir/here"
mkdir "$dir/node"
cp "$dir/other" "$dir/node/here"
passed=$((passed + 2))
timeout 60 mpirun -n 1 -wdir "$dir" "$sluice" train here $small : \
    -n 1 -wdir "$dir/node" "$sluice" train here $small >"$out" 2>"$err" &&
    bad "other data: it trains"
[ "$(grep -c 'told different things: the data is' "$err")" = 2 ] ||
    bad "other data: $(cat "$err")"
finish
