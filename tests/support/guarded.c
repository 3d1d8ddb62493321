/* SPDX-License-Identifier: MIT
 *
 * Memory is mapped without any access rights. An operation opens what it works
 * on and closes it again: a copy opens the ranges that it is given, a program
 * everything that was allocated through its stream. Ranks are threads of one
 * process, so a range that several have opened stays open until the last of
 * them closes it. */
#include "guarded.h"

#include "tensor/backend.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct region {
    char *start; /* NULL: free */
    size_t bytes;
    const sl__stream *stream;
    int users;
} region;

enum { REGIONS_MAX = 1 << 14 };
static region regions[REGIONS_MAX];
static int region_count;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void change(region *r, int by)
{
    int before = r->users;
    r->users += by;
    assert(r->users >= 0);
    if (!before != !r->users)
        mprotect(r->start, r->bytes,
                 r->users ? PROT_READ | PROT_WRITE : PROT_NONE);
}

static void change_at(const void *memory, int by)
{
    const char *at = memory;
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < region_count; i++) {
        region *r = &regions[i];
        if (r->start && at >= r->start && at < r->start + r->bytes)
            change(r, by);
    }
    pthread_mutex_unlock(&mutex);
}

static void change_stream(const sl__stream *stream, int by)
{
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < region_count; i++) {
        if (regions[i].start && regions[i].stream == stream)
            change(&regions[i], by);
    }
    pthread_mutex_unlock(&mutex);
}

/* ---------------------------------------------------------------- memory -- */

static sl_status allocate(sl__stream *stream, int64_t bytes, void **out)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t size = ((size_t)bytes + page) / page * page;
    char *start =
        mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
        return sl_fail(SL_ENOMEM, "out of memory: a pool of %lld bytes",
                       (long long)bytes);
    pthread_mutex_lock(&mutex);
    int at = 0;
    while (at < region_count && regions[at].start)
        at++;
    assert(at < REGIONS_MAX);
    region_count += at == region_count;
    regions[at] = (region){start, size, stream, 0};
    pthread_mutex_unlock(&mutex);
    *out = start;
    return SL_OK;
}

static void release(sl__stream *stream, void *memory)
{
    (void)stream;
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < region_count && memory; i++) {
        if (regions[i].start != memory)
            continue;
        munmap(regions[i].start, regions[i].bytes);
        regions[i].start = NULL;
    }
    pthread_mutex_unlock(&mutex);
}

/* An operation of the host's on one or two pieces. */
#define OPENED(a, b, call)                                                     \
    do {                                                                       \
        change_at(a, 1);                                                       \
        change_at(b, 1);                                                       \
        sl_status status = sl__host_buffers.call;                              \
        change_at(b, -1);                                                      \
        change_at(a, -1);                                                      \
        return status;                                                         \
    } while (0)

static sl_status copy(sl__stream *stream, void *to, const void *from,
                      size_t bytes)
{
    OPENED(to, from, copy(stream, to, from, bytes));
}

static sl_status clear(sl__stream *stream, void *memory, size_t bytes)
{
    OPENED(memory, NULL, clear(stream, memory, bytes));
}

static sl_status discard(sl__stream *stream, void *memory, size_t bytes)
{
    OPENED(memory, NULL, discard(stream, memory, bytes));
}

static sl_status add(sl__stream *stream, sl_dtype dtype, void *to,
                     const void *from, int64_t count)
{
    OPENED(to, from, add(stream, dtype, to, from, count));
}

static sl_status convert(sl__stream *stream, sl_dtype to_dtype, void *to,
                         sl_dtype from_dtype, const void *from, int64_t count)
{
    OPENED(to, from, convert(stream, to_dtype, to, from_dtype, from, count));
}

static sl_status square_sum(sl__stream *stream, sl_dtype dtype,
                            const void *from, int64_t count, void *to)
{
    OPENED(to, from, square_sum(stream, dtype, from, count, to));
}

static const sl__buffer_ops guarded_buffers = {
    .kind = "guarded",
    .allocate = allocate,
    .release = release,
    .write = copy,
    .read = copy,
    .copy = copy,
    .clear = clear,
    .discard = discard,
    .add = add,
    .convert = convert,
    .square_sum = square_sum,
};

/* -------------------------------------------------------------- backends -- */

/* What each is made of. */
static const sl__backend *const inner[] = {&sl__backend_cpu, &sl__backend_ref};
enum { INNER = sizeof inner / sizeof *inner };

/* The stream of the inner backend, but for its memory. That of `ref` is the one
 * of the process, which must stay as it is. */
static sl_status open_with(int which, sl__device *device, sl__stream **out)
{
    sl__stream *stream;
    sl_status status = inner[which]->device.open_stream(device, &stream);
    if (status)
        return status;
    if (stream == &sl__host) {
        stream = malloc(sizeof *stream);
        if (!stream)
            return sl_fail(SL_ENOMEM, "out of memory");
    }
    stream->buffers = &guarded_buffers;
    *out = stream;
    return SL_OK;
}

static void close_ref(sl__stream *stream)
{
    free(stream);
}

#define GUARDED(n)                                                             \
    static sl_status open_##n(sl__device *device, sl__stream **out)            \
    {                                                                          \
        return open_with(n, device, out);                                      \
    }                                                                          \
    static sl_status begin_##n(sl__stream *stream)                             \
    {                                                                          \
        change_stream(stream, 1);                                              \
        return inner[n]->device.begin(stream);                                 \
    }                                                                          \
    static sl_status end_##n(sl__stream *stream)                               \
    {                                                                          \
        sl_status status = inner[n]->device.end(stream);                       \
        change_stream(stream, -1);                                             \
        return status;                                                         \
    }                                                                          \
    static sl_status clip_##n(sl__stream *stream, sl__update_block *block,     \
                              double clip)                                     \
    {                                                                          \
        change_stream(stream, 1);                                              \
        sl_status status = inner[n]->kernels.clip(stream, block, clip);        \
        change_stream(stream, -1);                                             \
        return status;                                                         \
    }
GUARDED(0)
GUARDED(1)

void test_guard_memory(void)
{
    static sl__backend made[INNER];
    for (int i = 0; i < INNER; i++) {
        made[i] = *inner[i];
        made[i].buffers = &guarded_buffers;
        made[i].device.open_stream = i ? open_1 : open_0;
        made[i].device.begin = i ? begin_1 : begin_0;
        made[i].device.end = i ? end_1 : end_0;
        made[i].kernels.clip = i ? clip_1 : clip_0;
    }
    made[1].device.close_stream = close_ref;
    sl__backend_replace(made, INNER);
}

__attribute__((constructor)) static void guard_if_asked(void)
{
    const char *memory = getenv("SLUICE_TEST_MEMORY");
    if (memory && strcmp(memory, "unreadable") == 0)
        test_guard_memory();
}
