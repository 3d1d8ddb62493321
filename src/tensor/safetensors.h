/* SPDX-License-Identifier: MIT
 *
 * What opening (safetensors.c), the header (safetensors_header.c) and writing
 * (safetensors_write.c) of safetensors files share: 8 bytes of little-endian
 * header length, the header, then the bytes of the tensors. */
#ifndef SL_TENSOR_SAFETENSORS_H
#define SL_TENSOR_SAFETENSORS_H

#include "sluice/tensor.h"

enum { SL__SAFETENSORS_PREFIX = 8 };

typedef struct sl__metadata {
    const char *key;
    const char *value;
} sl__metadata;

struct sl_safetensors {
    int fd;                 /* -1 if the bytes are in memory, and borrowed */
    char *path;             /* of the file, for sentences */
    sl_safetensor *tensors; /* in order of their bytes */
    size_t count;
    size_t capacity;
    const sl_safetensor **by_name;
    sl__metadata *metadata; /* by key */
    size_t metadata_count;
    size_t metadata_capacity;
    bool has_metadata;
    int64_t data_bytes; /* after the header */
    char *texts;        /* names and metadata */
    char *texts_end;    /* the end of those so far */
};

/* Reads the header's text, with `data_bytes` known; offsets of tensors count
 * from the end of the header. */
sl_status sl__safetensors_read_header(sl_safetensors *file, const char *text,
                                      size_t length);

/* Copies `bytes` bytes of a tensor, from its byte `first` on. */
sl_status sl__safetensor_read_part(const sl_safetensor *tensor, size_t first,
                                   size_t bytes, void *out);

/* The same of the tensor as if it had another float dtype, in which `first` and
 * `bytes` count. */
sl_status sl__safetensor_read_as(const sl_safetensor *tensor, sl_dtype dtype,
                                 size_t first, size_t bytes, void *out);

#endif
