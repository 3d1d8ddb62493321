/* SPDX-License-Identifier: MIT
 *
 * Memory of a device, and memory of this process that it copies from and to
 * without a detour. */
#include "base/device.h"

#include "base/memory.h"
#include "base/try.h"

#include <stdio.h>

sl_status sl__device_allocate(sl__stream *stream, const char *what,
                              int64_t bytes, void **out)
{
    char reason[300];
    sl_status status = stream->buffers->allocate(stream, bytes, out);
    if (status != SL_ENOMEM)
        return status;
    snprintf(reason, sizeof reason, "%s", sl_error_text());
    return sl_fail(status, "%s: %s%s", what, reason,
                   sl__is_host(stream)
                       ? ""
                       : "; fewer or smaller microbatches, --recompute, "
                         "--precision bf16 or more GPUs need less on one");
}

sl_status sl__device_allocate_host(sl__stream *stream, int64_t bytes,
                                   void **out)
{
    return stream->buffers->allocate_host
               ? stream->buffers->allocate_host(stream, bytes, out)
               : sl__alloc((size_t)bytes, 1, out);
}

void sl__device_release_host(const sl__buffer_ops *buffers, void *memory)
{
    if (memory && buffers->release_host)
        buffers->release_host(memory);
    else
        free(memory);
}
