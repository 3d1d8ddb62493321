/* SPDX-License-Identifier: MIT
 *
 * What the backends on the CPU share: streams that do work at once, and
 * functions that interpret a kernel's args. */
#include "tensor/backend.h"

#include "base/clock.h"

sl_status sl__cpu_begin_or_end(sl__stream *stream)
{
    (void)stream;
    return SL_OK;
}

sl_status sl__cpu_record(sl__stream *stream, sl__event *event)
{
    (void)stream;
    event->seconds = sl__seconds();
    return SL_OK;
}

sl_status sl__cpu_wait(sl__stream *stream, const sl__event *event)
{
    (void)stream;
    (void)event;
    return SL_OK;
}

sl_status sl__cpu_finish(sl__stream *stream)
{
    (void)stream;
    return SL_OK;
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

sl_status sl__refuse_id(const sl__kernel *kernel, const sl__fault *fault)
{
    const sl__node *node = kernel->node;
    /* Which operand has the ids, and what they index: rows of a table or
     * columns of logits. */
    bool late = node->op == SL__CROSS_ENTROPY_GRAD;
    bool is_label = late || node->op == SL__CROSS_ENTROPY;
    const sl_tensor *ids = node->operands[late ? 2 : 1];
    const sl__arg *table = &kernel->args[late ? 1 : 0];
    if (node->op == SL__EMBEDDING_GRAD)
        table = &kernel->args[kernel->operand_count];
    int64_t known = is_label ? sl__last_size(table) : table->shape[0];
    return sl_fail(
        SL_EINVAL, "%s: '%s' has %lld at place %lld, expected 0 to %lld",
        sl__ops[node->op].name, ids->name ? ids->name : "ids",
        (long long)fault->value, (long long)fault->place, (long long)known - 1);
}
