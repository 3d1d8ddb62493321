/* SPDX-License-Identifier: MIT
 *
 * See tensors.h. */
#include "tensors.h"

#include "base/dtype.h"
#include "tensor/backends/cpu/cpu.h"
#include "tensor/backends/cpu/gemm/gemm.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

test_stage test_compile(const sl_graph *graph, const sl_stage_options *options,
                        int slots)
{
    test_stage out = {0};
    assert_ok(sl_stage_compile(graph, options, &out.stage));
    assert_ok(sl_memory_create(out.stage, slots, &out.memory));
    return out;
}

void test_release(test_stage *stage)
{
    sl_memory_destroy(stage->memory);
    sl_stage_destroy(stage->stage);
    *stage = (test_stage){0};
}

void test_put(const test_stage *stage, sl_port_kind kind, const char *name,
              int slot, const void *data)
{
    sl_port port;
    assert_ok(sl_stage_port(stage->stage, kind, name, &port));
    assert_ok(
        sl_memory_write(stage->memory, &port, slot, data, (size_t)port.bytes));
}

void *test_get(const test_stage *stage, sl_port_kind kind, const char *name,
               int slot, size_t *count)
{
    sl_port port;
    assert_ok(sl_stage_port(stage->stage, kind, name, &port));
    void *data = malloc((size_t)port.bytes);
    assert_ok(
        sl_memory_read(stage->memory, &port, slot, data, (size_t)port.bytes));
    if (count)
        *count = (size_t)port.bytes / sl_dtype_bytes(port.dtype);
    return data;
}

float test_get_float(const test_stage *stage, sl_port_kind kind,
                     const char *name, int slot)
{
    float *data = test_get(stage, kind, name, slot, NULL);
    float value = data[0];
    free(data);
    return value;
}

void test_run(const test_stage *stage, const char *programs, int slot)
{
    for (; *programs; programs++) {
        sl_program program = (sl_program)(strchr("FIWB", *programs) - "FIWB");
        assert_ok(
            sl_stage_run(stage->stage, program, stage->memory, slot, NULL));
    }
}

double test_distance(const float *ours, const float *theirs, size_t count)
{
    double difference = 0, norm = 0;
    for (size_t i = 0; i < count; i++) {
        double d = (double)ours[i] - theirs[i];
        difference += d * d;
        norm += (double)theirs[i] * theirs[i];
    }
    if (isnan(difference) || isnan(norm))
        return INFINITY;
    return norm > 0 ? sqrt(difference / norm) : sqrt(difference);
}

static uint64_t next_bits(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15u;
    uint64_t x = *state;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

double test_random(uint64_t *state)
{
    return (double)(next_bits(state) >> 11) * 0x1p-52 - 1;
}

int test_random_int(uint64_t *state, int from, int to)
{
    return from + (int)(next_bits(state) % (uint64_t)(to - from + 1));
}

void test_fill(uint64_t *state, sl_dtype dtype, void *data, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (sl__is_float(dtype))
            sl__set_float(dtype, data, (int64_t)i, test_random(state));
        else if (dtype == SL_BOOL)
            ((uint8_t *)data)[i] = next_bits(state) & 1;
    }
}

static void fill_integers(uint64_t *state, sl_dtype dtype, void *data,
                          size_t count, int below)
{
    for (size_t i = 0; i < count; i++) {
        int value = test_random_int(state, 0, below - 1);
        if (dtype == SL_I32)
            ((int32_t *)data)[i] = value;
        else
            ((int64_t *)data)[i] = value;
    }
}

static void fill_kind(const test_stage *stage, sl_port_kind kind,
                      uint64_t *state, int slot, int below)
{
    for (int i = 0; i < sl_stage_port_count(stage->stage, kind); i++) {
        sl_port port;
        assert_ok(sl_stage_port_at(stage->stage, kind, i, &port));
        size_t count = (size_t)port.bytes / sl_dtype_bytes(port.dtype);
        void *data = malloc((size_t)port.bytes);
        if (port.dtype == SL_I32 || port.dtype == SL_I64)
            fill_integers(state, port.dtype, data, count, below);
        else
            test_fill(state, port.dtype, data, count);
        assert_ok(sl_memory_write(stage->memory, &port, slot, data,
                                  (size_t)port.bytes));
        free(data);
    }
}

void test_fill_all(const test_stage *stage, uint64_t seed, int slot, int below)
{
    /* Parameters depend on the seed's low half alone: one per stage. */
    uint64_t parameters = seed & 0xffffffff, inputs = seed;
    fill_kind(stage, SL_PORT_PARAMETER, &parameters, slot, below);
    fill_kind(stage, SL_PORT_INPUT, &inputs, slot, below);
    fill_kind(stage, SL_PORT_OUTPUT_GRADIENT, &inputs, slot, below);
}

/* The same with a floor under the norm, a tenth per element: a gradient that is
 * zero but for rounding has no norm to speak of. */
static double floored_distance(const float *ours, const float *theirs,
                               size_t count)
{
    double norm = 0;
    for (size_t i = 0; i < count; i++)
        norm += (double)theirs[i] * theirs[i];
    double distance = test_distance(ours, theirs, count);
    return distance * (norm > 0 ? sqrt(norm) : 1) /
           (sqrt(norm) + 0.1 * sqrt((double)count));
}

/* Over the size, where that is above 1. */
static double largest_difference(const double *ours, const double *theirs,
                                 size_t count)
{
    double most = 0;
    for (size_t i = 0; i < count; i++) {
        double off = fabs(ours[i] - theirs[i]) / fmax(1, fabs(theirs[i]));
        most = off <= most ? most : off;
    }
    return most;
}

/* Frees bf16 for the same numbers as f32. */
static void *to_floats(void *halves, size_t count)
{
    float *floats = malloc(count * sizeof *floats);
    assert_ok(
        sl__convert_floats(SL_F32, floats, SL_BF16, halves, (int64_t)count));
    free(halves);
    return floats;
}

static char context[256];

void test_context(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(context, sizeof context, format, arguments);
    va_end(arguments);
}

void test_assert_same(const test_stage *a, const test_stage *b,
                      sl_port_kind kind, int slot, double tolerance)
{
    for (int i = 0; i < sl_stage_port_count(a->stage, kind); i++) {
        sl_port port;
        assert_ok(sl_stage_port_at(a->stage, kind, i, &port));
        size_t count;
        void *left = test_get(a, kind, port.name, slot, &count);
        void *right = test_get(b, kind, port.name, slot, NULL);
        double distance = memcmp(left, right, (size_t)port.bytes) != 0;
        if (port.dtype == SL_BF16) {
            left = to_floats(left, count);
            right = to_floats(right, count);
        }
        if (tolerance > 0 && (port.dtype == SL_F32 || port.dtype == SL_BF16))
            distance = floored_distance(left, right, count);
        if (tolerance > 0 && port.dtype == SL_F64)
            distance = largest_difference(left, right, count);
        if (!(distance <= tolerance))
            fail_msg("%s: '%s' (kind %d) differs by %g", context, port.name,
                     (int)kind, distance);
        free(left);
        free(right);
    }
}

/* Calls `test` with each of some names that `force` knows here. */
static void with_each(const char *const *names, int count,
                      bool (*force)(const char *name), void (*test)(void))
{
    for (int i = 0; i < count; i++) {
        if (force(names[i]))
            test();
        else
            print_message("this CPU has no %s\n", names[i]);
    }
    force(NULL);
}

void test_with_each_set(void (*test)(void))
{
    static const char *const sets[] = {"avx512", "avx2", "portable"};
    assert_true(sl__split_force("none") && sl__bf16_force("none"));
    with_each(sets, 3, sl__vector_force, test);
    sl__split_force(NULL);
    sl__bf16_force(NULL);
}

void test_with_each_way(void (*test)(void))
{
    static const char *const tiles[] = {"portable", "amx"};
    test_with_each_set(test);
    with_each(tiles, 2, sl__split_force, test);
    with_each(tiles + 1, 1, sl__bf16_force, test);
}
