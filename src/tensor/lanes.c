/* SPDX-License-Identifier: MIT
 *
 * Lanes: on a device that works on by itself, what adds to gradients of
 * parameters in B runs on a stream beside the rest. A kernel waits for those of
 * the other lane whose memory it reads or overwrites, as the plan has laid it
 * out; what each lane does by itself is in order anyway. */
#include "tensor/program.h"

#include "base/try.h"

/* Bytes of a pool that a kernel reads or writes. */
typedef struct piece {
    int pool;
    int64_t from, to;
    bool is_written;
} piece;

static piece piece_of(const sl__kernel *kernel, int arg)
{
    const sl__arg *a = &kernel->args[arg];
    int64_t bytes = (int64_t)sl_dtype_bytes(a->dtype), span = 1;
    bool is_scratch = kernel->scratch_bytes && arg == kernel->arg_count - 1;
    for (int d = 0; d < a->dims; d++)
        span += (a->shape[d] - 1) * a->stride[d];
    return (piece){a->pool, a->offset,
                   a->offset + (is_scratch ? kernel->scratch_bytes
                                           : span * bytes),
                   arg >= kernel->operand_count};
}

static bool conflict(const sl__kernel *a, const sl__kernel *b)
{
    for (int i = 0; i < a->arg_count; i++) {
        const piece x = piece_of(a, i);
        for (int k = 0; k < b->arg_count && x.pool != SL__POOL_NONE; k++) {
            const piece y = piece_of(b, k);
            if (x.pool == y.pool && x.from < y.to && y.from < x.to &&
                (x.is_written || y.is_written))
                return true;
        }
    }
    return false;
}

bool sl__is_beside(const sl_stage *stage, int p, const sl__kernel_call *call)
{
    const sl_tensor *result = call->node->results[0];
    return p == SL_PROGRAM_B && stage->backend->graphs && result &&
           result->base->leaf == SL__PARAMETER_GRADIENT;
}

sl_status sl__assign_lanes(sl_stage *stage)
{
    const sl__kernel_calls *calls = &stage->programs[SL_PROGRAM_B];
    const sl__kernel *kernels = stage->kernels[SL_PROGRAM_B];
    sl__lane *lanes;
    size_t beside = 0;
    for (size_t i = 0; i < calls->count; i++)
        beside += sl__is_beside(stage, SL_PROGRAM_B, &calls->data[i]);
    if (beside == 0 || beside == calls->count)
        return SL_OK;
    SL__TRY(SL__TAKE(&stage->graph->arena, calls->count, &lanes));
    for (size_t i = 0; i < calls->count; i++) {
        lanes[i].is_beside =
            sl__is_beside(stage, SL_PROGRAM_B, &calls->data[i]);
        lanes[i].after = SL__LANE_START;
        /* The latest such kernel comes after all others of its lane. */
        for (size_t k = i; k-- > 0 && lanes[i].after < 0;) {
            if (lanes[k].is_beside != lanes[i].is_beside &&
                conflict(&kernels[i], &kernels[k]))
                lanes[i].after = (int)k;
        }
        if (lanes[i].after >= 0)
            lanes[lanes[i].after].is_awaited = true;
    }
    stage->lanes = lanes;
    return SL_OK;
}
