/* SPDX-License-Identifier: MIT
 *
 * Loads CUDA's driver, and says in one sentence why it cannot be used. */
#include "tensor/backends/cuda/gpu.h"

#include "base/try.h"

#include <dlfcn.h>
#include <stdio.h>

sl__cuda_driver sl__cuda;

/* The oldest driver that takes what this was compiled with. */
enum { OLDEST = CUDA_VERSION / 1000 * 1000 };

sl_status sl__cuda_check(CUresult result, const char *what)
{
    const char *text = NULL;
    if (result == CUDA_SUCCESS)
        return SL_OK;
    if (sl__cuda.cuGetErrorString_)
        sl__cuda.cuGetErrorString_(result, &text);
    return sl_fail(result == CUDA_ERROR_OUT_OF_MEMORY ? SL_ENOMEM : SL_EFAIL,
                   "the GPU failed: %s (%d, in %.40s)",
                   text ? text : "an unknown error", (int)result, what);
}

static sl_status find_symbol(void *library, const char *name, void *out)
{
    void *found = dlsym(library, name);
    if (!found)
        return sl_fail(SL_ENOTFOUND, "%s is missing: %s", name, dlerror());
    *(void **)out = found;
    return SL_OK;
}

sl_status sl__cuda_library(const char *const *names,
                           const sl__cuda_name *functions, size_t count,
                           void *out)
{
    char reason[300] = "";
    void *library = NULL;
    for (int i = 0; names[i] && !library; i++) {
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (i == 0 && !library)
            snprintf(reason, sizeof reason, "%s", dlerror());
    }
    if (!library)
        return sl_fail(SL_ENOTFOUND, "%s cannot be loaded: %s", names[0],
                       reason);
    for (size_t i = 0; i < count; i++)
        SL__TRY(find_symbol(library, functions[i].name,
                            (char *)out + functions[i].at));
    return SL_OK;
}

/* Without its functions, `sl__cuda` stays as it was. */
static sl_status find_functions(void *library)
{
    sl__cuda_driver found = {.version = 0};
#define DRIVER(name)                                                           \
    SL__TRY(find_symbol(library, SL__WORDS(name), &found.name##_));
#include "tensor/backends/cuda/driver.def"
#undef DRIVER
    sl__cuda = found;
    return SL_OK;
}

static sl_status load(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    int version = 0;
    CUresult (*ask)(int *) = NULL;
    if (!library)
        return sl_fail(SL_ENOTFOUND,
                       "there is no NVIDIA driver here (libcuda.so.1)");
    /* A driver that is too old also lacks functions. */
    if (find_symbol(library, "cuDriverGetVersion", &ask) == SL_OK)
        ask(&version);
    if (version < OLDEST)
        return sl_fail(SL_ENOTFOUND,
                       "the NVIDIA driver is too old: it is for CUDA %d.%d, "
                       "and Sluice needs one for %d.0 or later",
                       version / 1000, version % 1000 / 10, OLDEST / 1000);
    SL__TRY(find_functions(library));
    sl__cuda.version = version;
    return SL_OK;
}

sl_status sl__cuda_load(int *out_gpus)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static bool is_ready;
    sl_status status = SL_OK;
    *out_gpus = 0;
    pthread_mutex_lock(&lock);
    if (!is_ready)
        status = load();
    if (!status && !is_ready) {
        CUresult result = sl__cuda.cuInit_(0);
        if (result == CUDA_ERROR_NO_DEVICE)
            status = sl_fail(SL_ENOTFOUND, "there is no GPU here");
        else
            status = sl__cuda_check(result, "cuInit");
    }
    if (!status)
        status = sl__cuda_check(sl__cuda.cuDeviceGetCount_(out_gpus),
                                "cuDeviceGetCount");
    if (!status && *out_gpus == 0)
        status = sl_fail(SL_ENOTFOUND, "there is no GPU here");
    is_ready = !status;
    pthread_mutex_unlock(&lock);
    return status;
}
