#!/bin/sh
# SPDX-License-Identifier: MIT
# What computes: --device, `sluice devices`, and drivers that cannot be used.
. ./lib.sh

run devices
[ "$status" = 0 ] && grep -q '^cpu  *[0-9]* core' "$out" ||
    bad "devices: $status, $(cat "$out" "$err")"
run devices --json
[ "$status" = 0 ] && grep -q '"cpu": {"cores": [0-9]*, ' "$out" ||
    bad "devices --json: $(cat "$out" "$err")"
refuses "an argument" "nothing goes with 'cuda'" -- devices cuda

for wrong in gpu cuda: cuda:x cuda:-1 cuda:1x cuda:99999999999; do
    refuses "--device $wrong" "--device is cpu, cuda or cuda:N, not '$wrong'" \
        -- bench step --device $wrong
done
head -c 4000 /dev/zero | tr '\0' a >"$tmp/text"
small="--d 16 --layers 2 --heads 2 --seq 16 --batch 8 --steps 1"
run train "$tmp/text" $small --device cpu
[ "$status" = 0 ] || bad "the CPU by its name: $(cat "$err")"

# Without a GPU every verb says so, and writes nothing.
if "$sluice" devices | grep -q '^cuda  *none'; then
    reason=$("$sluice" devices | sed -n 's/^cuda  *none: //p')
    [ -n "$reason" ] || bad "no reason why there is no GPU"
    refuses "bench" "--device cuda: $reason" -- bench step --device cuda
    refuses "train" "--device cuda:0: $reason" \
        -- train "$tmp/text" $small --device cuda:0 --out "$tmp/none"
    [ ! -e "$tmp/none/latest" ] || bad "a run without a GPU has a checkpoint"
fi

# Drivers that cannot be used, made here.
driver() {
    mkdir -p "$tmp/$1"
    echo "$2" | ${CC:-cc} -shared -fPIC -x c -o "$tmp/$1/libcuda.so.1" - 2>"$err" ||
        bad "no driver could be made: $(cat "$err")"
}
if ! "$sluice" devices | grep -q 'built without CUDA'; then
    driver old 'int cuDriverGetVersion(int *v) { *v = 11040; return 0; }'
    driver bare 'int cuDriverGetVersion(int *v) { *v = 99000; return 0; }'
    LD_LIBRARY_PATH="$tmp/old" run devices
    grep -q 'the NVIDIA driver is too old: it is for CUDA 11.4, and Sluice needs' "$out" ||
        bad "an old driver: $(cat "$out")"
    LD_LIBRARY_PATH="$tmp/bare" run devices
    grep -q 'cuda  *none: cu[A-Za-z_0-9]* is missing' "$out" ||
        bad "a driver without its functions: $(cat "$out")"
fi
finish
