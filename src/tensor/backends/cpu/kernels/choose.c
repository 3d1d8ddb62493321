/* SPDX-License-Identifier: MIT
 *
 * Which vector kernels are used: by instruction set, and by geometry. */
#include "tensor/backends/cpu/cpu.h"

#include <string.h>

static const sl__vector_kernels *forced;

const sl__vector_kernels *sl__vector_choose(void)
{
    if (forced)
        return forced;
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl"))
        return &sl__vector_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return &sl__vector_avx2;
#endif
    return &sl__vector_portable;
}

bool sl__vector_force(const char *name)
{
    forced = NULL;
    if (!name)
        return true;
#ifdef __x86_64__
    bool best = sl__vector_choose() == &sl__vector_avx512;
    bool good = best || sl__vector_choose() == &sl__vector_avx2;
    if (best && strcmp(name, "avx512") == 0)
        forced = &sl__vector_avx512;
    if (good && strcmp(name, "avx2") == 0)
        forced = &sl__vector_avx2;
#endif
    if (strcmp(name, "portable") == 0)
        forced = &sl__vector_portable;
    return forced != NULL;
}

const sl__vector_kernels *sl__vector_choose_bf16(void)
{
    const sl__vector_kernels *chosen = sl__vector_choose();
#ifdef __x86_64__
    if (chosen == &sl__vector_avx512 && sl__has_avx512_bf16())
        return &sl__vector_avx512_bf16;
    if (chosen != &sl__vector_portable)
        return &sl__vector_avx2_bf16;
#endif
    (void)chosen;
    return &sl__vector_portable_bf16;
}

int64_t sl__attention_scratch(sl__op op, int64_t length, int64_t size,
                              bool is_bf16)
{
    int64_t copies = op == SL__ATTENTION ? 1 : 2;
    int64_t numbers = copies * length * (size + SL__ATTENTION_BLOCK);
    /* Backward widens one operand and two results whole, and four by block;
     * forward one operand, and two by block. */
    if (is_bf16)
        numbers += (2 * copies - 1) * length * size +
                   2 * copies * SL__ATTENTION_BLOCK * size;
    return sl__aligned(numbers);
}

/* Whether an arg is contiguous, apart from leading dimensions that are
 * broadcast. */
static bool is_periodic(const sl__arg *arg)
{
    int64_t expected = 1;
    int d = arg->dims - 1;
    for (; d >= 0; d--) {
        if (arg->shape[d] == 1)
            continue;
        if (arg->stride[d] != expected)
            break;
        expected *= arg->shape[d];
    }
    for (; d >= 0; d--) {
        if (arg->shape[d] != 1 && arg->stride[d] != 0)
            return false;
    }
    return true;
}

bool sl__reduces_last(const sl__arg *in, const sl__arg *out)
{
    if (in->dims != out->dims || in->dims < 1 ||
        out->shape[out->dims - 1] != 1 || in->shape[in->dims - 1] == 1)
        return false;
    for (int d = 0; d < in->dims - 1; d++) {
        if (in->shape[d] != out->shape[d])
            return false;
    }
    return true;
}

/* Whether a reduction is to a scalar, to the last dimensions, or over the last
 * one. */
static bool reduces_rows(const sl__arg *in, const sl__arg *out)
{
    if (!sl__arg_is_dense(in) || !sl__arg_is_dense(out))
        return false;
    if (sl__reduces_last(in, out))
        return true;
    int64_t count = sl__arg_count(out), trailing = 1;
    for (int d = in->dims - 1; d >= 0 && trailing < count; d--) {
        int at = d - (in->dims - out->dims);
        if (at < 0 || out->shape[at] != in->shape[d])
            return false;
        trailing *= in->shape[d];
    }
    return true;
}

/* The dtypes of the operands and results that kernels on bf16 take: h: bf16, f:
 * f32, x: any, *: as the one before. */
static const char *dtypes_on_bf16(const sl__kernel *kernel)
{
    switch (kernel->node->op) {
    case SL__ADD:
    case SL__SUB:
    case SL__MUL: return "hxh";
    case SL__LAYER_NORM:
    case SL__RMS_NORM: return kernel->operand_count == 3 ? "hffhf" : "hfhf";
    case SL__EMBEDDING: return "fxh";
    case SL__ATTENTION: return "hhhhf";
    case SL__CAST:
        return kernel->args[0].dtype == SL_F32   ? "fh"
               : kernel->args[1].dtype == SL_F32 ? "hf"
                                                 : "hh";
    case SL__REDUCE: return "hf";
    case SL__MSE: return "hff";
    case SL__CROSS_ENTROPY: return "hxff";
    case SL__ADD_NORM: return kernel->operand_count == 4 ? "hhffhhf" : "hhfhhf";
    case SL__NORM_GRAD: return kernel->operand_count == 5 ? "hhffhh" : "hhffh";
    case SL__NORM_WEIGHT_GRAD: return "hhfff";
    case SL__EMBEDDING_GRAD: return "hxf";
    case SL__ATTENTION_GRAD: return "hhhhhfhhh";
    case SL__MSE_GRAD: return "fhfh";
    case SL__CROSS_ENTROPY_GRAD: return "fhxfh";
    default: return "h*";
    }
}

bool sl__vector_takes_bf16(const sl__kernel *kernel)
{
    const char *expected = dtypes_on_bf16(kernel);
    char before = 0;
    for (int i = 0; i < kernel->arg_count; i++) {
        const sl__arg *arg = &kernel->args[i];
        before = *expected == '*' ? before : *expected++;
        if (arg->pool != SL__POOL_NONE && before != 'x' &&
            arg->dtype != (before == 'h' ? SL_BF16 : SL_F32))
            return false;
    }
    return true;
}

bool sl__vector_accepts(sl__kernel *kernel, int threads)
{
    const sl__arg *args = kernel->args;
    sl__op op = kernel->node->op;
    switch (op) {
    case SL__ADD:
    case SL__SUB:
    case SL__MUL: return is_periodic(&args[0]) && is_periodic(&args[1]);
    case SL__REDUCE: return reduces_rows(&args[0], &args[1]);
    case SL__CAST:
        return sl__arg_is_dense(&args[0]) && sl__arg_is_dense(&args[1]);
    case SL__ATTENTION:
    case SL__ATTENTION_GRAD: {
        const sl__arg *q = &args[op == SL__ATTENTION ? 0 : 1];
        int64_t size = q->shape[2] / kernel->node->attributes.heads;
        kernel->scratch_bytes =
            SL__ATTENTION_WORKERS * threads * (int64_t)sizeof(float) *
            sl__attention_scratch(op, q->shape[1], size, q->dtype == SL_BF16);
        return true;
    }
    default: return true;
    }
}
