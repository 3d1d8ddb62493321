#!/bin/sh
# SPDX-License-Identifier: MIT
# `sluice view`: what it writes, and what it refuses.
. ./lib.sh
cd "$tmp" || exit 1

# writes WHAT FILE WORDS -- ARGS...: expects a file with words, one line on
# standard error that names it, nothing on standard output.
writes() {
    what=$1 file=$2 words=$3
    shift 4
    rm -f "$file"
    run view "$@"
    passed=$((passed + 1))
    [ "$status" = 0 ] || bad "$what: exit $status: $(cat "$err")"
    [ -s "$out" ] && bad "$what: something on standard output"
    [ "$(wc -l <"$err")" = 1 ] && grep -qF "$file" "$err" ||
        bad "$what: does not tell of $file: $(cat "$err")"
    grep -qaF -e "$words" "$file" || bad "$what: '$words' is not in $file"
}

writes "a name" timeline.html '"title": "ZBVZeroBubble"' -- zbv
writes "a file" one.html '"title": "1f1b.csv"' -- 1f1b.csv -o one.html
writes "four" four.html '"title": "DualPipeV"' -- gpipe 1f1b zbv dualpipev \
    -p 2 -m 4 -o four.html
writes "an SVG" one.svg '</svg>' -- 1f1b -o one.svg
writes "an SVG of some width, dark, beside, with memory" dark.svg \
    'width="900"' -- 1f1b zbv --width 900 --dark --beside --memory -o dark.svg
writes "capitals" one.SVG '</svg>' -- 1f1b -o one.SVG
writes "a form that is said" picture '</svg>' -- 1f1b --as svg -o picture
writes "a form without a file" timeline.svg '</svg>' -- 1f1b --as svg
writes "a trace" one.json '"traceEvents"' -- 1f1b -o one.json
writes "costs" costly.html '"makespan": 44,' -- 1f1b -p 4 -m 8 --cost F=2,B=2 \
    -o costly.html
writes "as much work for each" same.html '"makespan": 25.5,' -- zbv -p 4 -m 8 \
    --per-rank -o same.html
writes "microbatches for each" same.html '"microbatchBytes": 1000000,' -- zbv \
    -p 4 -m 8 --per-rank -o same.html
writes "bytes for each" same.html '"microbatchBytes": 0,' -- zbv \
    -p 4 -m 8 --per-rank --activation-bytes 1000000 -o same.html
writes "a reading" same.html '"reading": "blocking", "F": [1, 1]' -- 1f1b \
    --comm blocking -o same.html
writes "as many bytes for each" same.html '"peak": 4000000,' -- zbv -p 4 -m 8 \
    --per-rank -o same.html
"$sluice" schedule interleaved -p 2 -v 2 -m 4 --as lowered >low.csv
"$sluice" lower low.csv --for torch-2.11 >old.csv
writes "state for each" same.html '"overhead": 8,' -- old.csv --per-rank \
    --cost UNSHARD=4,REDUCE_GRAD=4 -o same.html
writes "reductions beside compute" same.html '"overhead": 4,' -- low.csv \
    --per-rank --cost UNSHARD=4,REDUCE_GRAD=4 -o same.html
writes "and named" same.svg '2REDUCE_GRAD' -- low.csv \
    --cost REDUCE_GRAD=4 -o same.svg
writes "messages in order" ordered.html '"comms": 96' -- 1f1b -p 4 -m 8 \
    --comm ordered -o ordered.html
"$sluice" schedule zbv -p 2 -m 4 --as lowered >lowered
input=lowered
writes "standard input" in.html '"title": "standard input"' -- - -o in.html
input=/dev/null
writes "a file by any name" any.html '"title": "lowered"' -- lowered -o any.html
if "$sluice" view 1f1b -o one.png 2>"$err"; then
    [ "$(head -c 4 one.png | od -An -c | tr -d ' ')" = '211PNG' ] ||
        bad "a PNG is none"
else
    grep -q 'without cairo' "$err" || bad "a PNG: $(cat "$err")"
fi
"$sluice" view 1f1b -o - 2>"$err" | grep '<!doctype html>' >/dev/null ||
    bad "a page on standard output"
[ -s "$err" ] && bad "words with a page on standard output: $(cat "$err")"
"$sluice" view 1f1b --as svg -o - | grep -q '^</svg>' ||
    bad "an SVG on standard output"

# A run, alone and beside what was planned.
"$sluice" bench step --layers 4 --d 8 --microbatch-size 2 -p 2 -m 4 \
    --trace run.json >/dev/null 2>&1 || bad "no run to look at"
writes "a run" run.html '"title": "run.json, measured", "measured": true' \
    -- --run run.json -o run.html
writes "a run and its plan" both.html '"title": "planned", "measured": false' \
    -- --run run.json --plan -o both.html
writes "a run and its plan as a picture" both.svg 'thick edge: more than a tenth longer than planned' \
    -- --run run.json --plan -o both.svg
writes "a run beside a schedule" other.html '"title": "GPipe, planned"' \
    -- gpipe -p 2 -m 4 --run run.json -o other.html
writes "a run beside one that costs seconds" timed.html '"makespan": 0.0015' \
    -- gpipe -p 2 -m 4 --run run.json --cost F=1e-4,B=2e-4 -o timed.html
writes "a run beside one of twice the stages" twice.html \
    '"title": "ZBVZeroBubble, planned"' -- zbv -p 2 -m 4 --run run.json \
    -o twice.html
grep -q '^"plan": ' twice.html && bad "other stages are compared"
writes "a run beside one with messages" slow.html '"comms": 16' \
    -- gpipe -p 2 -m 4 --run run.json --comm blocking --latency 1e-3 -o slow.html
"$sluice" view gpipe -p 2 -m 8 --run run.json -o other.html 2>"$err"
grep -q '^"plan": ' other.html && bad "other microbatches are compared"
writes "a run as a picture" run.svg 'data-action="1F3"' -- --run run.json \
    -o run.svg
writes "a run for other viewers" same.json '"traceEvents"' -- --run run.json \
    -o same.json
cmp -s run.json same.json || bad "a run as a trace is another"

# A browser is started and not waited for.
printf '#!/bin/sh\necho "$1" >opened\n' >browser
chmod +x browser
BROWSER=$tmp/browser
export BROWSER
"$sluice" view 1f1b -o one.html --open 2>"$err" || bad "--open: $(cat "$err")"
tries=0
while [ ! -s opened ] && [ $tries -lt 100 ]; do
    tries=$((tries + 1))
    sleep 0.1
done
[ "$(cat opened)" = one.html ] || bad "--open opened $(cat opened)"
rm -f opened
BROWSER=$tmp/none:$tmp/browser
"$sluice" view 1f1b -o one.html --open 2>"$err" || bad "the second browser"
BROWSER=$tmp/none
"$sluice" view 1f1b -o one.html --open 2>"$err"
[ $? = 1 ] && grep -q "one.html is written, but there is no browser" "$err" ||
    bad "a browser that is not there: $(cat "$err")"
unset BROWSER

refuses "nothing to show" "what shall be shown" -- view
refuses "an unknown name" "nosuch" -- view nosuch
refuses "a file that is not there" "cannot read no.csv" -- view no.csv
refuses "five" "at most 4" -- view 1f1b 1f1b 1f1b 1f1b 1f1b
refuses "four and a run" "at most 4" \
    -- view 1f1b 1f1b 1f1b 1f1b --run run.json
refuses "another ending" "ends in none of" -- view 1f1b -o one.pdf
refuses "another form" "--as takes html, svg, png or json" \
    -- view 1f1b --as pdf
refuses "several in a trace" "a trace holds one timeline, not 2" \
    -- view 1f1b zbv -o two.json
refuses "a plan of nothing" "--plan goes with --run" -- view 1f1b --plan
refuses "a picture's options for a page" "are for pictures" \
    -- view 1f1b --width 300
refuses "no width" "from 200 to 100000" -- view 1f1b --width 5 -o one.svg
refuses "too large a PNG" "PNG" -- view 1f1b --width 50000 -o one.png
echo precious >keep.svg
refuses "no width, once more" "from 200 to 100000" \
    -- view 1f1b --width 5 -o keep.svg
[ "$(cat keep.svg)" = precious ] || bad "a file was lost to a refusal"
ls "$tmp" | grep -q '\.part$' && bad "something was left behind"
# A file keeps its mode and its other names; half a file does not stay.
: >mode.html
chmod 666 mode.html
"$sluice" view 1f1b -o mode.html 2>"$err"
[ "$(stat -c %a mode.html)" = 666 ] || bad "the mode was lost"
: >one-name.html
ln one-name.html other-name.html
"$sluice" view 1f1b -o one-name.html 2>"$err"
cmp -s one-name.html other-name.html && [ -s other-name.html ] ||
    bad "the other name has the old file"
"$sluice" view 1f1b -p 256 -m 900 -o half.svg 2>"$err" &
writer=$!
tries=0
until ls half.svg.*.part >/dev/null 2>&1 || [ $tries = 200 ]; do
    tries=$((tries + 1))
    kill -0 $writer 2>/dev/null || break
    sleep 0.05
done
kill -TERM $writer 2>/dev/null
wait $writer 2>/dev/null
ls half.svg.*.part >/dev/null 2>&1 && bad "half a file was left behind"
refuses "a full disk" "/dev/full" -- view 1f1b --as svg -o /dev/full
refuses "two from standard input" "only one thing" -- view - -
refuses "two from standard input" "only one thing" -- view - --run -
refuses "a file's sizes are others" "says otherwise" -- view lowered -p 8
refuses "costs of no schedule" "none is named" \
    -- view --run run.json --latency 1
refuses "units of a run" "--unit is for simulations" \
    -- view gpipe -p 2 -m 4 --run run.json --unit
refuses "sizes of no schedule" "none is named" -- view --run run.json -p 2
refuses "a reading of no schedule" "none is named" \
    -- view --run run.json --plan --comm blocking
refuses "a rank's costs of a run" "as measured" \
    -- view gpipe -p 2 -m 4 --run run.json --per-rank
refuses "stages that do not fit" "the run has 2 stages and the schedule 3" \
    -- view gpipe -p 3 -m 4 --run run.json
refuses "a byte for two stages" "too few" \
    -- view zbv --per-rank --activation-bytes 1
refuses "nowhere" "cannot write no/where.html" -- view 1f1b -o no/where.html
refuses "standard output and a browser" "--open needs a file" \
    -- view 1f1b -o - --open
refuses "sizes that cannot be" "1F1B" -- view 1f1b -p 4 -m 8 -v 2
# Sizes with a name are for that schedule alone.
writes "sizes by name" named.html '"title": "Interleaved1F1B, v=2"' \
    -- 1f1b interleaved:v=2 -p 4 -m 8 -o named.html
grep -qF '"ranks": 4, "stages": 8, "microbatches": 8' named.html &&
    grep -qF '"ranks": 4, "stages": 4, "microbatches": 8' named.html ||
    bad "sizes by name: other sizes"
writes "all sizes by name" named.html \
    '"ranks": 2, "stages": 6, "microbatches": 16' \
    -- interleaved:p=2,m=16,v=3 -p 4 -m 8 -o named.html
"$sluice" schedule 1f1b -p 2 -m 4 >odd:v=2
writes "a file with a colon" named.html '"title": "odd:v=2"' -- odd:v=2 \
    -o named.html
refuses "stages for a schedule that has one" \
    "-v 2 is for every schedule here; write interleaved:v=2" \
    -- view 1f1b interleaved -p 4 -v 2 -m 8
for form in : :v= :v :x=2 :v=0 :v=-1 :v=2x :v=2, :v=2,v=3 :v=2:m=4 \
    :v=99999999999; do
    refuses "interleaved$form" "as in interleaved:v=2,m=16, not '${form#:}'" \
        -- view interleaved$form
done
refuses "sizes of a file" "1f1b.csv is a file and has its sizes" \
    -- view 1f1b.csv:v=2
refuses "sizes of an unknown name" "nosuch" -- view nosuch:v=2
refuses "sizes of a file that are others" "-p, -v or -m says otherwise" \
    -- view 1f1b.csv -p 8
printf '{"stages": [{"F": 1}, {"F": 2}, {"F": 3}, {"F": 4}]}' >costs.json
refuses "costs by stage, divided" "--per-rank divides" \
    -- view 1f1b --costs costs.json --per-rank

# Traces of anybody's.
printf 'not JSON' >bad.json
refuses "no JSON" "bad.json: not JSON" -- view --run bad.json
printf '{"traceEvents": []}' >bad.json
refuses "a trace of another program" "no trace of a run" -- view --run bad.json
"$sluice" view 1f1b -o planned.json 2>/dev/null
refuses "a trace of a simulation" "no trace of a run" -- view --run planned.json
# with EDIT WHAT WORDS: a run with one thing changed is refused in these words.
with() {
    sed "$1" run.json >bad.json
    cmp -s run.json bad.json && bad "$2: nothing was changed"
    refuses "$2" "$3" -- view --run bad.json -o bad.html
    [ -e bad.html ] && bad "$2: something was written"
}
with 's/"action": "1F2"/"action": "<script>alert(1)<\/script>"/' "markup" \
    'its "action" is none'
with 's/"cat": "compute"/"cat": "\\"><img src=x>"/' "markup in a kind" \
    '"cat" must be'
with 's/"ranks": 2/"ranks": 1/' "fewer ranks" '"peer" must be'
with 's/"ranks": 2/"ranks": 1e300/' "enormous ranks" '"ranks" must be'
with 's/"dur": [0-9.]*/"dur": 1e300/' "enormous times" '"dur" must be'
with 's/"dur": [0-9.]*/"dur": -7/' "times that run backwards" \
    'ends before it begins'
with 's/"ts": [0-9.]*, //' "missing times" '"ts" must be'
with 's/"args": {[^}]*}/"args": {}/' "missing actions" 'no "action"'
with 's/"bytes": [0-9][0-9]*/"bytes": 99999999999999999999/' "enormous bytes" \
    'not JSON'
# Names that are not looked at do no harm.
sed 's/"name": "[^"]*"/"name": "<\/script><script>alert(1)<\/script>"/' \
    run.json >names.json
writes "hostile names" names.html names.json -- --run names.json -o names.html
grep -q 'alert(1)' names.html && bad "a name got into the page"
finish
