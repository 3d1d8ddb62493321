#!/bin/sh
# SPDX-License-Identifier: MIT
# Steps that go wrong under mpirun: failures_mpi.sh MPIRUN PROGRAM. Every rank
# that lives says why, and everything ends in time.
set -eu
mpirun=$1
program=$2
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
. "$(dirname "$0")/../comm/mpirun.sh"
out=$tmp/out

# run RANKS WAY STAGE [FLAGS]: what mpirun makes of the exit is its own affair.
run() {
    ranks=$1 way=$2 stage=$3
    shift 3
    timeout 40 "$mpirun" "$@" -np "$ranks" "$program" "$way" "$stage" \
        >"$out" 2>&1 || [ $? -ne 124 ] || fail "did not end"
}
fail() {
    echo "$way of stage $stage: $*"
    cat "$out"
    exit 1
}
# expect COUNT PATTERN: so many lines at least.
expect() {
    [ "$(grep -c -- "$2" "$out")" -ge "$1" ] || fail "expected $1 of '$2'"
}

for stage in 0 1 2 3; do
    for way in F B; do
        run 4 $way $stage
        expect 4 "^heard [0-3]: rank $stage: $way of stage $stage, microbatch 1: $way said no"
    done
    for way in I W; do
        run 2 $way $stage
        expect 2 "^heard [01]: rank $((stage % 2)): $way of stage $stage, microbatch 1: $way said no"
    done
done

# A rank that does not come back, and one that never comes: all others hear who
# was waited for, and what everybody was doing.
run 4 hang 2
expect 3 '^heard [013]: rank [013]: wait around . of stage .*: waited 1 s for a message between it and stage'
expect 3 '^  rank 2 gives no answer: it computes, is gone,'
expect 3 '^  rank 3 step 1: waits at 3RECV_F'
run 4 absent 1
grep -q '^heard 0: rank [023]: waited 1 s for all ranks to begin' "$out" ||
    fail "no report"
grep -q '^  rank 0 step 1: waits for all ranks to begin' "$out" ||
    fail "no report"

# One that fails beside its pipeline, in a program of somebody's own.
run 4 beside 2
expect 4 ': rank 2: the data is not there'

# A rank that is killed: mpirun ends the job, and says so. Where it is told not
# to, the others find out by themselves.
run 4 kill 2
if "$mpirun" --version 2>/dev/null | grep -q 'Open MPI'; then
    grep -qi 'signal 9' "$out" ||
        fail "mpirun does not say that a rank was killed"
    run 4 kill 2 --enable-recovery
    expect 3 '^heard [013]: rank [013]: wait around . of stage .*: waited 1 s'
    expect 3 '^  rank 2 gives no answer: it computes, is gone,'
fi
