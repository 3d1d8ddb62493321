# SPDX-License-Identifier: MIT
# Shared by the CLI tests, which are called with the path of `sluice`.
#
#   run ARGS...                     output in $out and $err, exit in $status
#   is WHAT EXIT OUTPUT -- ARGS...  expects exit status and standard output
#   refuses WHAT WORDS -- ARGS...   expects exit 2, nothing on standard output,
#                                   and one line on standard error with WORDS
sluice=$1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
out=$tmp/out
err=$tmp/err
passed=0
failed=0
input=/dev/null
"$sluice" schedule 1f1b -p 2 -m 2 >"$tmp/1f1b.csv"

bad() {
    failed=$((failed + 1))
    echo "FAILED: $1"
}

run() {
    "$sluice" "$@" <"$input" >"$out" 2>"$err"
    status=$?
}

is() {
    what=$1 exit=$2 expected=$3
    shift 4
    run "$@"
    passed=$((passed + 1))
    [ "$status" = "$exit" ] || bad "$what: exit $status, not $exit: $(cat "$err")"
    [ "$(cat "$out")" = "$expected" ] || {
        bad "$what: other output:"
        cat "$out"
    }
}

refuses() {
    what=$1 words=$2
    shift 3
    run "$@"
    passed=$((passed + 1))
    [ "$status" = 2 ] || bad "$what: exit $status, not 2"
    [ -s "$out" ] && bad "$what: something on standard output"
    [ "$(wc -l <"$err")" = 1 ] || bad "$what: not one line: $(cat "$err")"
    grep -qF -e "$words" "$err" || bad "$what: '$words' is not in: $(cat "$err")"
}

# Whether Sluice has MPI, and mpirun is here to start it.
has_mpi() {
    command -v mpirun >/dev/null || return 1
    run bench step --transport mpi -p 1 --layers 1 --d 8 --steps 1
    ! grep -q 'without MPI' "$err"
}

finish() {
    echo "$passed passed, $failed failed"
    [ "$failed" = 0 ]
}
