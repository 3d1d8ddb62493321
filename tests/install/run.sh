#!/bin/sh
# SPDX-License-Identifier: MIT
# Installs into a fresh folder and builds a program against it, through
# pkg-config (shared and static) and through the CMake package.
set -eu
build=$1
source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/usr" >/dev/null
pc=$(dirname "$(find "$work/usr" -name sluice.pc)")
lib=$(dirname "$pc")
# The file finds its own prefix, also where it was configured for another.
export PKG_CONFIG_PATH="$pc"
flags=$(pkg-config --cflags --libs sluice)
static=$(pkg-config --static --cflags --libs sluice | sed "s| -lsluice| $lib/libsluice.a|")

cc -Wall -Werror "$source/examples/schedule.c" -o "$work/shared" $flags
LD_LIBRARY_PATH=$lib "$work/shared" >"$work/shared.out"
cc "$source/examples/schedule.c" -o "$work/static" $static
"$work/static" >"$work/static.out"
cmp "$work/shared.out" "$work/static.out"
cc "$source/examples/tensor.c" -o "$work/tensor" $static -lm
"$work/tensor" >/dev/null
cc "$source/examples/cut.c" -o "$work/cut" $static -lm
"$work/cut" >/dev/null

mkdir "$work/project"
cat >"$work/project/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(user C)
find_package(sluice REQUIRED)
add_executable(a ${EXAMPLE})
target_link_libraries(a PRIVATE sluice::static)
add_executable(b ${EXAMPLE})
target_link_libraries(b PRIVATE sluice::shared)
CMAKE
cmake -G Ninja -S "$work/project" -B "$work/project/build" \
    -DCMAKE_PREFIX_PATH="$work/usr" \
    -DEXAMPLE="$source/examples/schedule.c" >"$work/cmake.log" 2>&1 ||
    { cat "$work/cmake.log"; exit 1; }
ninja -C "$work/project/build" >"$work/ninja.log" 2>&1 ||
    { cat "$work/ninja.log"; exit 1; }
"$work/project/build/a" | cmp - "$work/shared.out"
"$work/project/build/b" | cmp - "$work/shared.out"
"$work/usr/bin/sluice" --version

# Only what the headers declare is visible.
if nm -D --defined-only "$lib/libsluice.so" | grep -v ' sl_[a-z]'; then
    echo "a symbol is exported that should not be"
    exit 1
fi
