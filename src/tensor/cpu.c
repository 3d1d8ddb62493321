/* SPDX-License-Identifier: MIT
 *
 * What the backends on the CPU share: memory, and readings of a kernel's
 * args. */
#include "tensor/backend.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HUGE_PAGE_BYTES = 2 << 20 };

/* --------------------------------------------------------------- memory -- */

sl_status sl__cpu_allocate(int64_t bytes, void **out)
{
    size_t size = (size_t)(bytes ? sl__aligned(bytes) : SL__ALIGNMENT);
    bool large = size >= HUGE_PAGE_BYTES;
    void *memory;
    if (posix_memalign(&memory, large ? HUGE_PAGE_BYTES : SL__ALIGNMENT, size))
        return sl_fail(SL_ENOMEM, "out of memory: a pool of %lld bytes",
                       (long long)bytes);
    /* Weights and gradients are walked end to end at every microbatch: fewer,
     * larger pages keep address translation out of the way. Not for what does
     * not fill the last of them, or more would be taken than was planned. */
    if (large)
        madvise(memory, size - size % HUGE_PAGE_BYTES, MADV_HUGEPAGE);
    memset(memory, 0, size);
    *out = memory;
    return SL_OK;
}

void sl__cpu_release(void *memory)
{
    free(memory);
}

void sl__cpu_copy(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}

void sl__cpu_clear(void *memory, size_t bytes)
{
    memset(memory, 0, bytes);
}

void sl__cpu_discard(void *memory, size_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t start = (uintptr_t)memory, end = start + bytes;
    uintptr_t first = (start + page - 1) / page * page,
              last = end / page * page;
    /* Whole pages go back, and are zeros when they are next touched. */
    if (first >= last || madvise((void *)first, last - first, MADV_DONTNEED))
        first = last = end;
    memset(memory, 0, first - start);
    memset((void *)last, 0, end - last);
}

void sl__cpu_descend(sl_dtype dtype, void *value, void *gradient, int64_t count,
                     double rate, int threads)
{
    (void)threads;
    if (dtype == SL_F32) {
        float *restrict x = value, *restrict g = gradient;
        float by = (float)rate;
        for (int64_t i = 0; i < count; i++)
            x[i] -= by * g[i];
    } else {
        double *restrict x = value, *restrict g = gradient;
        for (int64_t i = 0; i < count; i++)
            x[i] -= rate * g[i];
    }
    memset(gradient, 0, (size_t)count * sl_dtype_bytes(dtype));
}

/* ----------------------------------------------------------------- args -- */

sl_dtype sl__kernel_dtype(const sl__kernel *kernel)
{
    for (int i = kernel->operand_count; i < kernel->arg_count; i++) {
        if (kernel->args[i].pool != SL__POOL_NONE)
            return kernel->args[i].dtype;
    }
    return kernel->args[0].dtype;
}

bool sl__arg_is_dense(const sl__arg *arg)
{
    int64_t expected = 1;
    for (int d = arg->dims - 1; d >= 0; d--) {
        if (arg->shape[d] != 1 && arg->stride[d] != expected)
            return false;
        expected *= arg->shape[d];
    }
    return true;
}

sl__matmul_sizes sl__matmul_geometry(const sl__kernel *kernel)
{
    const sl__arg *args[] = {&kernel->args[0], &kernel->args[1],
                             &kernel->args[kernel->operand_count]};
    bool batched = args[0]->dims == 3;
    sl__matmul_sizes s = {.batch = batched ? args[0]->shape[0] : 1};
    int64_t *strides[] = {s.a, s.b, s.out};
    for (int i = 0; i < 3; i++) {
        const int64_t *stride = args[i]->stride + batched;
        strides[i][0] = batched ? args[i]->stride[0] : 0;
        strides[i][1] = stride[0];
        strides[i][2] = stride[1];
    }
    s.m = args[0]->shape[batched];
    s.k = args[0]->shape[batched + 1];
    s.n = args[1]->shape[batched + 1];
    return s;
}

int64_t sl__count_labels(const sl__arg *labels, const void *data,
                         int64_t ignore)
{
    int64_t counted = 0, count = sl__arg_count(labels);
    for (int64_t i = 0; i < count; i++)
        counted += sl__integer(labels, data, i) != ignore;
    return counted;
}

sl_status sl__refuse_id(const sl__kernel *kernel, int64_t id, int64_t place)
{
    const sl__node *node = kernel->node;
    /* Where the ids are, and what they count: rows of a table or columns of
     * logits. */
    bool late = node->op == SL__CROSS_ENTROPY_GRAD;
    bool is_label = late || node->op == SL__CROSS_ENTROPY;
    const sl_tensor *ids = node->operands[late ? 2 : 1];
    const sl__arg *table = &kernel->args[late ? 1 : 0];
    if (node->op == SL__EMBEDDING_GRAD)
        table = &kernel->args[kernel->operand_count];
    int64_t known = is_label ? sl__last_size(table) : table->shape[0];
    return sl_fail(SL_EINVAL,
                   "%s: '%s' has %lld at place %lld, expected 0 to %lld",
                   sl__ops[node->op].name, ids->name ? ids->name : "ids",
                   (long long)id, (long long)place, (long long)known - 1);
}
