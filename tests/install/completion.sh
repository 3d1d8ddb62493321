#!/bin/sh
# SPDX-License-Identifier: MIT
# What is installed completes the same words in bash, zsh and fish; a shell that
# is not here is skipped: completion.sh BUILD
set -eu
build=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/usr" >/dev/null
installed() { find "$work/usr" -path "*/$1"; }
mkdir -p "$work/here/parts"
cd "$work/here"
touch plan.csv other.txt costs.json
export PATH="$work/usr/bin:$PATH" HOME="$work" XDG_CONFIG_HOME="$work"
export LC_ALL=C TERM=dumb OUT="$work/words"
unset XDG_DATA_HOME ZDOTDIR ARGP_HELP_FMT

# A line up to the cursor: what is offered there, sorted.
cat >"$work/expected" <<'WORDS'
sluice s:schedule simulate
sluice help tr:train
sluice schedule b:bfs
sluice schedule ZB:ZBVZeroBubble
sluice view 1f1b In:Interleaved1F1B InterleavedZeroBubble
sluice view p:parts plan.csv
sluice check pl:plan.csv
sluice check o:other.txt
sluice train --schedule=1:1F1B 1f1b
sluice train --schedule p:parts plan.csv
sluice train --optimizer :adamw sgd
sluice train --lr-decay=:constant cosine linear
sluice train --lr-:--lr-decay --lr-last
sluice train --steps :
sluice train --out :parts
sluice train o:other.txt
sluice simulate --costs c:costs.json
sluice lower --recv :asap defer late
sluice schedule --as :comms compute grid json lowered order
sluice view --as :html json png svg
sluice view -o o:other.txt
sluice check --comm=:async blocking ordered per-edge
sluice cut --route :direct hop
sluice cut --model :gpt2 mlp
sluice bench :kernels stage step
sluice bench s:stage step
sluice bench step --transport :mpi threads
sluice bench step --sch:--schedule
WORDS
sed 's/:.*//' "$work/expected" >"$work/lines"

cat >"$work/ask.bash" <<'BASH'
source "$1"
while IFS= read -r line; do
    read -ra COMP_WORDS <<<"${line//=/ = }"
    [[ $line == *" " ]] && COMP_WORDS+=("")
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    COMPREPLY=()
    _sluice sluice </dev/null
    echo "$line:$(printf '%s\n' "${COMPREPLY[@]}" | sort -u | xargs)"
done
BASH

# zsh completes in its editor alone, so it has a terminal, and writes into a
# file what it is given to offer.
cat >"$work/ask.zsh" <<'ZSH'
zmodload zsh/zpty
lines=("${(@f)$(cat)}")
zpty -b shell zsh -f -i
zpty -w shell "fpath=(${1:h} \$fpath); autoload -Uz compinit; compinit -u -D
compadd() {
    [[ \" \$* \" == *' -'[OAD]' '* ]] && { builtin compadd \"\$@\"; return }
    local -a offered
    builtin compadd -A offered \"\$@\"
    print -rl -- \$offered >>\$OUT
    builtin compadd \"\$@\"
}
touch \$OUT.done"
wait_done() {
    repeat 200; do
        zpty -rt shell seen
        [[ -e $OUT.done ]] && break
        sleep 0.05
    done
    rm -f $OUT.done
}
wait_done
for line in $lines; do
    : >$OUT
    zpty -n -w shell "$line"$'\t\C-u'"touch \$OUT.done"$'\n'
    wait_done
    print -r -- "$line:$(sort -u $OUT | xargs)"
done
zpty -d shell
ZSH

cat >"$work/ask.fish" <<'FISH'
source $argv[1]
while read -l line
    set -l words (complete -C "$line" | string replace -r '\t.*' '' |
        string replace -r '^--[^=]*=' '' | string trim -r -c / | sort -u)
    echo "$line:$words"
end
FISH

status=0
try() {
    if ! command -v "$1" >/dev/null; then
        echo "$1: skipped, not installed"
        return
    fi
    "$1" "$work/ask.$1" "$(installed "$2")" <"$work/lines" >"$work/got" 2>&1
    if diff "$work/expected" "$work/got"; then
        echo "$1: completes"
    else
        echo "$1: offers other words than expected"
        status=1
    fi
}
try bash bash-completion/completions/sluice
try zsh zsh/site-functions/_sluice
try fish fish/vendor_completions.d/sluice.fish
exit $status
