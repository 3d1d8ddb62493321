#!/bin/sh
# SPDX-License-Identifier: MIT
# Runs a program under mpirun on 1, 2 and 4 ranks: under_mpi.sh MPIRUN PROGRAM,
# and with `abort` behind these once more, to see a failure reach all ranks.
set -eu
mpirun=$1
program=$2

# More ranks than cores, as root where it must be, without what containers do
# not allow. Other MPIs do not read these. MPI leaks a little by itself.
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none
export ASAN_OPTIONS="detect_leaks=0"

for ranks in 1 2 4; do
    timeout 120 "$mpirun" -np $ranks "$program"
done
[ "${3-}" = abort ] || exit 0
# A rank that fails: every rank hears why. What mpirun then makes of it is its
# own affair.
out=$(mktemp)
trap 'rm -f "$out"' EXIT
timeout 60 "$mpirun" -np 3 "$program" abort >"$out" 2>&1 || true
[ "$(grep -c '^heard$' "$out")" = 3 ] || { cat "$out"; exit 1; }
