/* SPDX-License-Identifier: MIT
 *
 * Lanes: on a device that works on by itself, what adds to gradients of
 * parameters in B runs beside the rest, products on one stream and sums, which
 * are many and small, on another. A kernel waits for those of the other lanes
 * whose memory it reads or overwrites, as the plan has laid it out; what each
 * lane does by itself is in order anyway. */
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
                   a->offset +
                       (is_scratch ? kernel->scratch_bytes : span * bytes),
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

int sl__lane_of(const sl_stage *stage, int p, const sl__kernel_call *call)
{
    const sl_tensor *result = call->node->results[0];
    if (p != SL_PROGRAM_B || !stage->backend->graphs || !result ||
        result->base->leaf != SL__PARAMETER_GRADIENT)
        return SL__LANE_MAIN;
    return call->node->op == SL__MATMUL ? SL__LANE_PRODUCTS : SL__LANE_SUMS;
}

/* Finds the latest kernel of each other lane that kernel `at` must come after:
 * it comes after all earlier ones of that lane. */
static void find_after(const sl__kernel *kernels, sl__lane *lanes, size_t at)
{
    sl__lane *own = &lanes[at];
    for (int lane = 0; lane < SL__LANES; lane++) {
        own->after[lane] = SL__LANE_START;
        for (size_t k = at; k-- > 0 && lane != own->lane;) {
            if (lanes[k].lane != lane || !conflict(&kernels[at], &kernels[k]))
                continue;
            own->after[lane] = (int)k;
            lanes[k].is_awaited = true;
            break;
        }
    }
}

sl_status sl__assign_lanes(sl_stage *stage)
{
    const sl__kernel_calls *calls = &stage->programs[SL_PROGRAM_B];
    sl__lane *lanes;
    size_t beside = 0;
    for (size_t i = 0; i < calls->count; i++)
        beside +=
            sl__lane_of(stage, SL_PROGRAM_B, &calls->data[i]) != SL__LANE_MAIN;
    if (beside == 0 || beside == calls->count)
        return SL_OK;
    SL__TRY(SL__TAKE(&stage->graph->arena, calls->count, &lanes));
    for (size_t i = 0; i < calls->count; i++) {
        lanes[i].lane = sl__lane_of(stage, SL_PROGRAM_B, &calls->data[i]);
        find_after(stage->kernels[SL_PROGRAM_B], lanes, i);
    }
    stage->lanes = lanes;
    return SL_OK;
}
