/* SPDX-License-Identifier: MIT
 *
 * The interface of a device, for layers that must not include one another:
 * streams, and operations on device memory. `tensor` implements it for each
 * backend; `comm` moves and sums messages through it; nothing else touches
 * device memory.
 *
 * Work on a stream is done in the order in which it was enqueued. `write` and
 * `read`, which copy from and to memory of this process, have finished when
 * they return; the others may finish later, but before whatever is enqueued
 * after them. Pointer arithmetic works on device addresses. */
#ifndef SL_BASE_DEVICE_H
#define SL_BASE_DEVICE_H

#include "sluice/base.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct sl__stream sl__stream;

/* A moment on a stream, which other streams can wait for. */
typedef struct sl__mark sl__mark;

typedef sl_status (*sl__move_fn)(sl__stream *stream, void *to, const void *from,
                                 size_t bytes);

typedef struct sl__buffer_ops {
    const char *kind; /* of memory, in a word: "host" */
    bool is_host;     /* this process may read and write it directly */
    /* Zeroed, and aligned to SL__ALIGNMENT. */
    sl_status (*allocate)(sl__stream *stream, int64_t bytes, void **out);
    void (*release)(sl__stream *stream, void *memory); /* NULL is fine */
    /* Zeroed memory of this process that the device, too, reads and writes;
     * NULL: any will do. It may outlive the stream. */
    sl_status (*allocate_host)(sl__stream *stream, int64_t bytes, void **out);
    void (*release_host)(void *memory);
    sl__move_fn write; /* from memory of this process */
    sl__move_fn read;  /* to memory of this process */
    sl__move_fn copy;
    sl_status (*clear)(sl__stream *stream, void *memory, size_t bytes);
    /* Zeroes memory that is not needed for a while, and gives its pages back to
     * the system. */
    sl_status (*discard)(sl__stream *stream, void *memory, size_t bytes);
    /* to += from */
    sl_status (*add)(sl__stream *stream, sl_dtype dtype, void *to,
                     const void *from, int64_t count);
    sl_status (*convert)(sl__stream *stream, sl_dtype to_dtype, void *to,
                         sl_dtype from_dtype, const void *from, int64_t count);
    /* The sum of the squares, into a double in device memory: the same bits
     * every time. */
    sl_status (*square_sum)(sl__stream *stream, sl_dtype dtype,
                            const void *from, int64_t count, void *to);
    /* Of devices that work while this process goes on; NULL for others. mark:
     * notes what has been enqueued so far; after: makes later work wait for
     * that; unmark: the caller no longer needs the mark; side: a stream beside
     * this one, for messages from rank `which` or for one of the kinds of work
     * below; it is closed with this one. */
    sl_status (*mark)(sl__stream *stream, sl__mark **out);
    sl_status (*after)(sl__stream *stream, const sl__mark *mark);
    void (*unmark)(sl__mark *mark);
    sl_status (*side)(sl__stream *stream, int which, sl__stream **out);
} sl__buffer_ops;

/* Work on a stream beside: half of an OVERLAP_F_B; what is not waited for soon,
 * and gives way to all else, on two streams. */
enum {
    SL__SIDE_HALF = -1,
    SL__SIDE_GIVES_WAY = -2,
    SL__SIDE_GIVES_WAY_2 = -3,
    SL__SIDE_KINDS = 3,
};

/* The stream struct of a backend begins with it. */
struct sl__stream {
    const sl__buffer_ops *buffers;
};

/* Every piece of device memory starts at a multiple of this. */
enum { SL__ALIGNMENT = 64 };
static inline int64_t sl__aligned(int64_t bytes)
{
    return (bytes + SL__ALIGNMENT - 1) / SL__ALIGNMENT * SL__ALIGNMENT;
}

/* Memory of this process: operations have finished when they return. */
extern const sl__buffer_ops sl__host_buffers;
extern sl__stream sl__host;

static inline bool sl__is_host(const sl__stream *stream)
{
    return stream->buffers->is_host;
}

/* Whether work on it goes on after the call that enqueues it. */
static inline bool sl__is_async(const sl__stream *stream)
{
    return stream->buffers->mark;
}

/* Allocates memory; where there is too little, the error says `what` it is for,
 * and on a device what needs less. */
sl_status sl__device_allocate(sl__stream *stream, const char *what,
                              int64_t bytes, void **out);

/* Zeroed memory of this process, for copies to and from a device. (device.c) */
sl_status sl__device_allocate_host(sl__stream *stream, int64_t bytes,
                                   void **out);
void sl__device_release_host(const sl__buffer_ops *buffers, void *memory);

static inline sl_status sl__device_write(sl__stream *stream, void *to,
                                         const void *from, size_t bytes)
{
    return stream->buffers->write(stream, to, from, bytes);
}

static inline sl_status sl__device_read(sl__stream *stream, void *to,
                                        const void *from, size_t bytes)
{
    return stream->buffers->read(stream, to, from, bytes);
}

static inline sl_status sl__device_copy(sl__stream *stream, void *to,
                                        const void *from, size_t bytes)
{
    return stream->buffers->copy(stream, to, from, bytes);
}

static inline sl_status sl__device_clear(sl__stream *stream, void *memory,
                                         size_t bytes)
{
    return stream->buffers->clear(stream, memory, bytes);
}

/* Copies between the memories of two streams. Unless one of them is this
 * process's, both are of one device. */
static inline sl_status sl__device_move(sl__stream *to_stream, void *to,
                                        sl__stream *from_stream,
                                        const void *from, size_t bytes)
{
    if (sl__is_host(to_stream) && !sl__is_host(from_stream))
        return sl__device_read(from_stream, to, from, bytes);
    if (sl__is_host(from_stream))
        return sl__device_write(to_stream, to, from, bytes);
    return sl__device_copy(to_stream, to, from, bytes);
}

/* Makes `later` wait for all that `earlier` has been given. */
static inline sl_status sl__device_join(sl__stream *later, sl__stream *earlier)
{
    sl__mark *mark;
    sl_status status = earlier->buffers->mark(earlier, &mark);
    if (status)
        return status;
    status = later->buffers->after(later, mark);
    later->buffers->unmark(mark);
    return status;
}

static inline sl_status sl__device_add(sl__stream *stream, sl_dtype dtype,
                                       void *to, const void *from,
                                       int64_t count)
{
    return stream->buffers->add(stream, dtype, to, from, count);
}

#endif
