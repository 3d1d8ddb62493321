/* SPDX-License-Identifier: MIT
 *
 * Any bytes may be given as safetensors; what is read lies inside them, tensor
 * after tensor, and writing it gives the same tensors back. */
#include "fuzz.h"

#include <string.h>
#include <unistd.h>

static void check_tensors(const sl_safetensors *file, const uint8_t *data,
                          size_t size)
{
    const uint8_t *end = NULL;
    for (size_t i = 0; i < sl_safetensors_count(file); i++) {
        const sl_safetensor *tensor = sl_safetensors_at(file, i);
        const uint8_t *first = tensor->data;
        size_t bytes = sl_dtype_bytes(tensor->dtype);
        must(first >= data && tensor->bytes <= (size_t)(data + size - first));
        must(!end || first == end);
        for (int d = 0; d < tensor->dims; d++)
            bytes *= (size_t)tensor->shape[d];
        must(bytes == tensor->bytes);
        must(sl_safetensors_find(file, tensor->name) == tensor);
        end = first + tensor->bytes;
    }
    must(!end || end == data + size);
}

static void round_trip(const sl_safetensors *file)
{
    char path[64];
    size_t count = sl_safetensors_count(file);
    sl_safetensor *tensors = malloc((count + 1) * sizeof *tensors);
    sl_safetensors *again;
    must(tensors);
    for (size_t i = 0; i < count; i++)
        tensors[i] = *sl_safetensors_at(file, i);
    snprintf(path, sizeof path, "/tmp/fuzz.%d.safetensors", (int)getpid());
    must(!sl_safetensors_write(path, tensors, count, NULL));
    must(!sl_safetensors_open(path, &again));
    must(sl_safetensors_count(again) == count);
    for (size_t i = 0; i < count; i++) {
        const sl_safetensor *other =
            sl_safetensors_find(again, tensors[i].name);
        must(other && other->bytes == tensors[i].bytes &&
             other->dtype == tensors[i].dtype &&
             other->dims == tensors[i].dims);
        void *found = malloc(other->bytes + 1);
        must(found && !sl_safetensor_read(other, found));
        must(memcmp(found, tensors[i].data, other->bytes) == 0);
        free(found);
    }
    sl_safetensors_close(again);
    unlink(path);
    free(tensors);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static unsigned turn;
    sl_safetensors *file;
    if (sl_safetensors_parse(data, size, &file))
        return 0;
    check_tensors(file, data, size);
    sl_safetensors_metadata(file, "config");
    if (turn++ % 16 == 0)
        round_trip(file);
    sl_safetensors_close(file);
    return 0;
}
