/* SPDX-License-Identifier: MIT
 *
 * Which kernels a GPU spends a step on, by CUPTI, also inside graphs:
 *
 *   cc -shared -fPIC -O2 -I/usr/local/cuda/include bench/gpu_kernels.c \
 *       -o gpu_kernels.so -L/usr/local/cuda/lib64 -lcupti
 *   CUDA_INJECTION64_PATH=$PWD/gpu_kernels.so SLUICE_KERNELS=out.tsv \
 *       sluice bench step --device cuda ...
 *
 * out.tsv has a line for each kernel, copy and clear: start and duration in
 * microseconds, stream, name; and with stream -1 each call of the driver by the
 * host. bench/gpu_kernels.awk sums them up. */
#include <cupti.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUFFER = 8 << 20 };
static FILE *out;
static uint64_t first;

static void put(uint64_t start, uint64_t end, int64_t stream, const char *name)
{
    if (!first)
        first = start;
    fprintf(out, "%.3f\t%.3f\t%lld\t%.120s\n",
            ((double)start - (double)first) * 1e-3,
            (double)(end - start) * 1e-3, (long long)stream, name);
}

static void put_record(const CUpti_Activity *record)
{
    switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
        const CUpti_ActivityKernel10 *k = (const void *)record;
        put(k->start, k->end, k->streamId, k->name);
        break;
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
        const CUpti_ActivityMemcpy6 *m = (const void *)record;
        put(m->start, m->end, m->streamId, "(copy)");
        break;
    }
    case CUPTI_ACTIVITY_KIND_MEMSET: {
        const CUpti_ActivityMemset4 *m = (const void *)record;
        put(m->start, m->end, m->streamId, "(clear)");
        break;
    }
    case CUPTI_ACTIVITY_KIND_DRIVER: {
        const CUpti_ActivityAPI *a = (const void *)record;
        const char *name = "?";
        cuptiGetCallbackName(CUPTI_CB_DOMAIN_DRIVER_API, a->cbid, &name);
        put(a->start, a->end, -1, name);
        break;
    }
    default: break;
    }
}

static void give_buffer(uint8_t **buffer, size_t *size, size_t *most)
{
    *buffer = aligned_alloc(8, BUFFER);
    *size = *buffer ? BUFFER : 0;
    *most = 0;
}

static void take_buffer(CUcontext context, uint32_t stream, uint8_t *buffer,
                        size_t size, size_t valid)
{
    CUpti_Activity *record = NULL;
    (void)context, (void)stream, (void)size;
    while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS)
        put_record(record);
    free(buffer);
}

static void flush(void)
{
    cuptiActivityFlushAll(1);
    fclose(out);
}

/* The driver calls this when it starts. */
int InitializeInjection(void)
{
    const char *path = getenv("SLUICE_KERNELS");
    static const CUpti_ActivityKind kinds[] = {
        CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
        CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_DRIVER};
    out = fopen(path ? path : "kernels.tsv", "we");
    if (!out)
        return 0;
    cuptiActivityRegisterCallbacks(give_buffer, take_buffer);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        cuptiActivityEnable(kinds[i]);
    atexit(flush);
    return 1;
}
