#!/bin/sh
# SPDX-License-Identifier: MIT
# `sluice cut` shows where models fall apart, and refuses what cannot be cut.
. ./lib.sh

small="--layers 3 --d 8 --heads 2 --vocab 11 --seq 4"

# A layer has 6464 flops forward, three times that with backward, and 512 for
# elements; the first stage 128 more for its embeddings: 20.0 k.
is "two stages by name" 0 "gpt2: 3 layers of width 8, 2 heads, vocabulary 11, tied; microbatch of 1 x 4

stage   parameters      compute   share  modules
    0       9.15 k   20.0 kFLOP   32.3%  transformer.wte .. transformer.h.0
    1       1.85 k   42.0 kFLOP   67.7%  transformer.h.1 .. lm_head

    0 -> 1      128 B forward, 128 B backward
tied: transformer.wte.weight = lm_head.weight in stages 0, 1, 352 B each
balance 0.739: the mean stage over the largest, stage 1" \
    -- cut $small --at transformer.h.1

run cut $small -p 5
[ $status = 0 ] || bad "five stages: $(cat "$err")"
[ "$(grep -c -e '->' "$out")" = 4 ] || bad "four boundaries"
run cut $small -p 2 -v 2 --json
[ $status = 0 ] || bad "json: $(cat "$err")"
for word in '"stage": 3' '"forward_bytes": 128' '"balance": 0\.' \
    '"names": \["transformer.wte.weight", "lm_head.weight"\]' \
    '"cost_unit": "flops"' '"cut_s": 0\.'; do
    grep -q -e "$word" "$out" || bad "--json without $word"
done
run cut $small -p 2 --untied --json
grep -q '"ties": \[\]' "$out" || bad "--untied is tied"
run cut --model mlp --layers 3 --d 4 --microbatch-size 2 -p 3 --measure
[ $status = 0 ] || bad "--measure: $(cat "$err")"
grep -q 'measured' "$out" && [ "$(grep -c ' ms ' "$out")" = 3 ] ||
    bad "--measure shows no times"
# More stages than modules go inside of some, unless that is forbidden.
run cut $small -p 9
[ $status = 0 ] || bad "more stages than modules: $(cat "$err")"
# A cut inside of a module has to gain something: at the sizes of GPT-2 on 4 it
# does not, on 2 it does.
run cut -p 4
[ "$(grep -c '3.15 MB forward' "$out")" = 3 ] || bad "4 stages: $(cat "$out")"
run cut -p 2
grep -q 'mlp.c_fc' "$out" || bad "2 stages are even: $(cat "$out")"
# Less than 3% does not pay for twice the bytes.
run cut -p 2 --layers 24
grep -q '3.15 MB forward' "$out" || bad "24 layers: $(cat "$out")"
run cut -p 2 --whole
grep -q 'balance 0.949' "$out" || bad "--whole: $(cat "$out")"

cat >"$tmp/config.json" <<'JSON'
{"model_type": "gpt2", "n_layer": 3, "n_head": 2, "n_embd": 8,
 "vocab_size": 11, "n_positions": 4, "activation_function": "gelu_new"}
JSON
run cut $small --at transformer.h.1
cp "$out" "$tmp/sizes"
run cut --config "$tmp/config.json" --at transformer.h.1
[ $status = 0 ] || bad "--config: $(cat "$err")"
# All but the title and the parameters: the config has fewer positions.
strip() { sed '1d; s/  */ /g; s/^\( [0-9]*\) [0-9.]* k* *\([0-9.]* kFLOP\)/\1 \2/' "$1"; }
[ "$(strip "$tmp/sizes")" = "$(strip "$out")" ] ||
    bad "--config differs from the same sizes"

refuses "nothing to do" "say how many stages: -p RANKS, or where: --at NAMES" \
    -- cut
refuses "no such module" "there is no module 'h.1' to cut at; there are transformer.wte, transformer.wpe, transformer.h.0" \
    -- cut $small --at h.1
refuses "an empty first stage" "leaves the first stage empty" \
    -- cut $small --at transformer.wte
refuses "too many stages" "8 stages of 7 modules leave some empty" \
    -- cut $small -p 8 --whole
refuses "two ways" "--at says where" -- cut $small --at transformer.h.1 -p 2
refuses "nonsense points" "is no place to cut at" -- cut $small --at "a,,b"
refuses "heads" "3 heads do not divide a width of 10" \
    -- cut --d 10 --heads 3 -p 2
refuses "a model" "--model takes gpt2 or mlp, not 'bert'" -- cut --model bert -p 2
refuses "idle heads" "go with gpt2" -- cut --model mlp --heads 2 -p 2
refuses "idle threads" "--threads goes with --measure" -- cut -t 2 -p 2
refuses "config and sizes" "--config says what" \
    -- cut --config "$tmp/config.json" --layers 2 -p 2
refuses "a long sequence" "--seq is 9, and the config has 4 positions" \
    -- cut --config "$tmp/config.json" --seq 9 -p 2
refuses "no file" "cannot read $tmp/none" -- cut --config "$tmp/none" -p 2
refuses "whole and points" "--at says where; -p, -v, --whole" \
    -- cut $small --at transformer.h.1 --whole
refuses "a route" "--route takes direct or hop, not 'fast'" \
    -- cut $small -p 2 --route fast
refuses "an argument" "nothing goes with 'gpt2'" -- cut gpt2 -p 2
refuses "stages past counting" "are too many" \
    -- cut $small -p 2000000000 -v 2000000000
for broken in '{' '[]' '{"n_layer": 1}' \
    '{"n_layer": 0, "n_head": 1, "n_embd": 1, "vocab_size": 1, "n_positions": 1}' \
    '{"model_type": "llama"}' \
    '{"n_layer": 1, "n_head": 1, "n_embd": 1, "vocab_size": 1, "n_positions": 1, "activation_function": "tanh"}' \
    '{"n_layer": 1, "n_head": 1, "n_embd": 1, "vocab_size": 1, "n_positions": 1, "scale_attn_weights": false}' \
    '{"n_layer": 1, "n_head": 2, "n_embd": 3, "vocab_size": 1, "n_positions": 1}'; do
    echo "$broken" >"$tmp/broken.json"
    refuses "config $broken" "$tmp/broken.json: " \
        -- cut --config "$tmp/broken.json" -p 1
done
echo '{"n_layer": 1, "n_head": 1}' >"$tmp/broken.json"
refuses "a missing key" "the config has no 'n_embd'" \
    -- cut --config "$tmp/broken.json" -p 1
finish
