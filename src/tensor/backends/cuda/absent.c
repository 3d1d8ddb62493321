/* SPDX-License-Identifier: MIT
 *
 * The `cuda` backend of a Sluice that was built without CUDA's toolkit. */
#include "tensor/backend.h"

static sl_status refuse(void)
{
    return sl_fail(SL_ENOTFOUND, "Sluice was built without CUDA");
}

static sl_status open(int threads, int number, bool deterministic,
                      sl__device **out)
{
    (void)threads;
    (void)number;
    (void)deterministic;
    (void)out;
    return refuse();
}

static sl_status list(sl_device *out, int most, int *out_count)
{
    (void)out;
    (void)most;
    (void)out_count;
    return refuse();
}

static void describe(int device, sl_dtype precision, char *out, size_t size)
{
    (void)device, (void)precision;
    if (size)
        *out = '\0';
}

const sl__backend sl__backend_cuda = {
    .name = "cuda",
    .device = {.threads_max = 1, .open = open},
    .kernels = {.describe = describe},
    .list = list,
};
