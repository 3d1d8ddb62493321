/* SPDX-License-Identifier: MIT
 *
 * Enqueueing kernels. */
#include "tensor/backends/cuda/gpu.h"

#include "base/try.h"

_Static_assert((int)DT_F32 == (int)SL_F32 && (int)DT_F64 == (int)SL_F64 &&
                   (int)DT_I32 == (int)SL_I32 && (int)DT_I64 == (int)SL_I64 &&
                   (int)DT_BOOL == (int)SL_BOOL && (int)DT_BF16 == (int)SL_BF16,
               "kernels know the dtypes by their numbers");
_Static_assert((int)SL_DIMS_MAX <= (int)CUDA_DIMS,
               "kernels have room for all dims");
_Static_assert(sizeof(sl__step_block) == 40 && sizeof(sl__update_block) == 32,
               "as kernels/device.cuh has them");
_Static_assert(sizeof(update_params) <= 4096 && sizeof(squares_params) <= 4096,
               "parameters of a kernel have 4 KiB");

sl_status sl__cuda_launch(const sl__cuda_stream *stream, sl__cuda_kernel which,
                          int64_t blocks, int64_t rows, int threads,
                          const void *params)
{
    enum { BLOCKS_MAX = INT32_MAX, ROWS_MAX = 65535 };
    void *arguments[] = {(void *)params};
    sl__gpu *gpu = stream->gpu;
    if (blocks == 0 || rows == 0)
        return SL_OK;
    if (blocks > BLOCKS_MAX || rows > ROWS_MAX)
        return sl_fail(SL_EINVAL, "%lld x %lld blocks are too many for a GPU",
                       (long long)blocks, (long long)rows);
    /* The kernel itself waits for what comes before it (device.cuh). */
    CUlaunchAttribute early = {
        .id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
        .value.programmaticStreamSerializationAllowed = 1};
    const CUlaunchConfig config = {.gridDimX = (unsigned)blocks,
                                   .gridDimY = (unsigned)rows,
                                   .gridDimZ = 1,
                                   .blockDimX = (unsigned)threads,
                                   .blockDimY = 1,
                                   .blockDimZ = 1,
                                   .hStream = stream->handle,
                                   .attrs = &early,
                                   .numAttrs = gpu->major >= 9};
    SL__TRY(sl__gpu_enter(gpu));
    CUresult result = sl__cuda.cuLaunchKernelEx_(&config, gpu->functions[which],
                                                 arguments, NULL);
    sl__gpu_leave(gpu);
    return sl__cuda_check(result, "cuLaunchKernelEx");
}

int64_t sl__cuda_blocks(const sl__cuda_stream *stream, int64_t count)
{
    int64_t enough = (count + 255) / 256, most = 16 * stream->gpu->processors;
    return enough < most ? enough : most;
}

int sl__cuda_collapse(int dims, int count, int64_t *shape,
                      int64_t (*stride)[CUDA_DIMS])
{
    int kept = 0;
    for (int d = 0; d < dims; d++) {
        bool joins = kept > 0;
        if (shape[d] == 1)
            continue;
        for (int n = 0; n < count && joins; n++)
            joins = stride[n][kept - 1] == stride[n][d] * shape[d];
        kept += !joins;
        shape[kept - 1] = joins ? shape[kept - 1] * shape[d] : shape[d];
        for (int n = 0; n < count; n++)
            stride[n][kept - 1] = stride[n][d];
    }
    return kept;
}

bool sl__cuda_is_aligned(const void *memory)
{
    return (uintptr_t)memory % 16 == 0;
}

sl_status sl__cuda_map(const sl__cuda_stream *stream, const map_params *given)
{
    map_params p = *given;
    bool is_wide = p.dtype[0] == DT_F64 || p.dtype[2] == DT_F64 ||
                   (p.b && p.dtype[1] == DT_F64);
    sl__cuda_kernel any = is_wide ? SL__CUDA_map_f64 : SL__CUDA_map_f32;
    bool reads_bool = p.dtype[0] == DT_BOOL || (p.b && p.dtype[1] == DT_BOOL);
    bool by_eight = !is_wide && !reads_bool && p.count % 8 == 0 &&
                    sl__cuda_is_aligned(p.a) && sl__cuda_is_aligned(p.b) &&
                    sl__cuda_is_aligned(p.out);
    p.dims = 1;
    p.shape[0] = p.count;
    for (int i = 0; i < 3; i++)
        p.stride[i][0] = 1;
    bool in_half = p.dtype[0] == DT_BF16 && p.dtype[2] == DT_BF16 &&
                   (!p.b || p.dtype[1] == DT_BF16) && !p.adds;
    sl__cuda_kernel fast = !in_half                ? SL__CUDA_map_eights
                           : p.op == MAP_GELU_TANH ? SL__CUDA_gelu_half
                           : p.op == MAP_GELU_TANH_GRAD
                               ? SL__CUDA_gelu_half_grad
                               : SL__CUDA_map_eights;
    if (by_eight)
        return sl__cuda_launch(
            stream, fast, sl__cuda_blocks(stream, p.count / 8), 1, 256, &p);
    return sl__cuda_launch(stream, any, sl__cuda_blocks(stream, p.count), 1,
                           256, &p);
}
