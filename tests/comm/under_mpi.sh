#!/bin/sh
# SPDX-License-Identifier: MIT
# Runs a program under mpirun on 1, 2 and 4 ranks: under_mpi.sh MPIRUN PROGRAM,
# and with `abort` behind these once more, to see a failure reach all ranks.
set -eu
mpirun=$1
program=$2

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
. "$(dirname "$0")/mpirun.sh"

for ranks in 1 2 4; do
    timeout 120 "$mpirun" -np $ranks "$program"
done
[ "${3-}" = abort ] || exit 0
# A rank that fails: every rank hears why. What mpirun then makes of it is its
# own affair.
out=$tmp/out
timeout 60 "$mpirun" -np 3 "$program" abort >"$out" 2>&1 || true
[ "$(grep -c '^heard$' "$out")" = 3 ] || { cat "$out"; exit 1; }
