/* SPDX-License-Identifier: MIT
 *
 * Optimizers: as many parameters in a launch as fit into its parameters. */
#include "tensor/backends/cuda/gpu.h"

#include "base/try.h"

enum { UPDATE_BLOCK = 1 << 12, SQUARES_BLOCK = 1 << 15 };

sl_status sl__cuda_clip(sl__stream *stream, sl__update_block *block,
                        double clip)
{
    const clip_params p = {block, clip};
    return sl__cuda_launch(sl__cuda_of(stream), SL__CUDA_clip, 1, 1, 1, &p);
}

static int64_t blocks_of(int64_t count, int64_t block)
{
    return (count + block - 1) / block;
}

/* Which kernel takes the dtypes of a parameter and its gradient; -1: none. */
static int kind_of(const sl__update_args *args)
{
    if (args->gradient_dtype == SL_F32)
        return args->dtype == SL_F32 ? 0 : -1;
    if (args->gradient_dtype != SL_F64)
        return -1;
    return args->dtype == SL_F64 ? 1 : args->dtype == SL_F32 ? 2 : -1;
}

sl_status sl__cuda_update(sl__stream *stream, const sl__update *how,
                          const sl__update_block *block,
                          const sl__update_args *args, int count)
{
    update_params p = {0};
    for (int i = 0; i < count; i++) {
        int kind = kind_of(&args[i]);
        if (kind < 0)
            return sl_fail(SL_EINVAL, "an update of %s by a gradient of %s",
                           sl_dtype_text(args[i].dtype),
                           sl_dtype_text(args[i].gradient_dtype));
        p.block = block;
        p.is_sgd = how[i].kind == SL_UPDATE_SGD;
        p.beta1 = how[i].beta1;
        p.beta2 = how[i].beta2;
        p.epsilon = how[i].epsilon;
        p.momentum = how[i].momentum;
        p.parts[p.count] = (update_part){.value = args[i].value,
                                         .gradient = args[i].gradient,
                                         .first = args[i].first,
                                         .second = args[i].second,
                                         .half = args[i].half,
                                         .count = args[i].count,
                                         .decay = (float)how[i].decay,
                                         .kind = kind};
        p.start[p.count + 1] =
            p.start[p.count] + blocks_of(args[i].count, UPDATE_BLOCK);
        p.count++;
        if (p.count < CUDA_PARTS && i + 1 < count)
            continue;
        SL__TRY(sl__cuda_launch(sl__cuda_of(stream), SL__CUDA_update,
                                p.start[p.count], 1, 256, &p));
        p = (update_params){0};
    }
    return SL_OK;
}

static sl_status launch_squares(const sl__cuda_stream *stream,
                                const squares_params *p)
{
    SL__TRY(sl__cuda_launch(stream, SL__CUDA_squares_begin, p->start[p->count],
                            1, 256, p));
    return sl__cuda_launch(stream, SL__CUDA_squares_end, 1, 1, 256, p);
}

int64_t sl__cuda_squares_bytes(int64_t count)
{
    return blocks_of(count, SQUARES_BLOCK) * (int64_t)sizeof(double);
}

sl_status sl__cuda_squares(sl__stream *stream, const sl__update_args *args,
                           double *const *each, int count, double *all,
                           void *scratch)
{
    squares_params p = {.all = all, .partial = scratch};
    if (all)
        SL__TRY(sl__device_clear(stream, all, sizeof *all));
    for (int i = 0; i < count; i++) {
        if (each[i]) {
            p.data[p.count] = args[i].gradient;
            p.counts[p.count] = args[i].count;
            p.each[p.count] = each[i];
            p.dtype[p.count] = (int)args[i].gradient_dtype;
            p.start[p.count + 1] =
                p.start[p.count] + blocks_of(args[i].count, SQUARES_BLOCK);
            p.count++;
        }
        if (p.count == 0 || (p.count < CUDA_PARTS && i + 1 < count))
            continue;
        SL__TRY(launch_squares(sl__cuda_of(stream), &p));
        p = (squares_params){.all = all, .partial = scratch};
    }
    return SL_OK;
}
