/* SPDX-License-Identifier: MIT
 *
 * Generators by name: the built-in ones and those a program registers. */
#include "schedule/generate/generate.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static const sl_generator *const built_in[] = {
    &sl__gpipe,
    &sl__1f1b,
    &sl__looped_bfs,
    &sl__interleaved_1f1b,
    &sl__interleaved_zero_bubble,
    &sl__zbv_zero_bubble,
    &sl__dualpipe_v,
    &sl__forward_only,
};
#define BUILT_IN_COUNT (sizeof built_in / sizeof *built_in)

/* What programs registered; a linked list, so that pointers to entries stay
 * valid as it grows. Lives as long as the process. */
typedef struct registered {
    sl_generator generator;
    struct registered *next;
} registered;
static registered *first_registered;

const sl_generator *sl_generator_at(size_t index)
{
    if (index < BUILT_IN_COUNT)
        return built_in[index];
    index -= BUILT_IN_COUNT;
    const registered *entry = first_registered;
    while (entry && index--)
        entry = entry->next;
    return entry ? &entry->generator : NULL;
}

static bool answers_to(const sl_generator *generator, const char *name)
{
    return strcasecmp(generator->name, name) == 0 ||
           (generator->short_name &&
            strcasecmp(generator->short_name, name) == 0);
}

static const sl_generator *find(const char *name)
{
    const sl_generator *generator;
    for (size_t i = 0; (generator = sl_generator_at(i)); i++) {
        if (answers_to(generator, name))
            return generator;
    }
    return NULL;
}

sl_status sl_generator_find(const char *name, const sl_generator **out)
{
    static const char prefix[] = "Schedule";
    const sl_generator *found = find(name);
    if (!found && strncasecmp(name, prefix, strlen(prefix)) == 0)
        found = find(name + strlen(prefix));
    if (found) {
        *out = found;
        return SL_OK;
    }
    char known[512] = "";
    const sl_generator *generator;
    for (size_t i = 0; (generator = sl_generator_at(i)); i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "",
                 generator->name);
    }
    return sl_fail(SL_ENOTFOUND, "unknown schedule '%.40s'; known ones: %s",
                   name, known);
}

sl_status sl_generator_register(const sl_generator *generator)
{
    if (!generator->name || !*generator->name || !generator->generate ||
        generator->default_stages_per_rank < 1)
        return sl_fail(SL_EINVAL, "a generator needs a name, a default number "
                                  "of stages per rank and a generate function");
    if (find(generator->name) ||
        (generator->short_name && find(generator->short_name)))
        return sl_fail(SL_EINVAL, "a schedule named '%s' exists already",
                       generator->name);
    registered *entry;
    sl_status status = sl__alloc(1, sizeof *entry, &entry);
    if (status)
        return status;
    entry->generator = *generator;
    registered **end = &first_registered;
    while (*end)
        end = &(*end)->next;
    *end = entry;
    return SL_OK;
}

static sl_status admit_positive(const char *what, int size)
{
    if (size >= 1)
        return SL_OK;
    return sl_fail(SL_EINVAL, "%s must be at least 1, not %d", what, size);
}

/* Refuses sizes whose schedules would not fit: F, I and W of each stage and
 * microbatch, and idle cells for filling and draining the pipe. */
static sl_status admit_limits(const sl_sizes *sizes)
{
    int64_t ranks = sizes->ranks;
    int64_t stages = ranks * sizes->stages_per_rank;
    if (ranks > SL_MAX_RANKS)
        return sl_fail(SL_EINVAL, "%d ranks are too many; at most %d",
                       sizes->ranks, SL_MAX_RANKS);
    int64_t idle = ranks * (stages + 4 * ranks);
    if (stages > SL_MAX_STAGES || idle > SL__MAX_CELLS / 2 + (1 << 25))
        return sl_fail(SL_EINVAL, "%lld stages on %lld ranks are too many",
                       (long long)stages, (long long)ranks);
    int64_t most = (SL__MAX_CELLS - idle) / (3 * stages);
    if (most > SL_MAX_MICROBATCHES)
        most = SL_MAX_MICROBATCHES;
    if (sizes->microbatches > most)
        return sl_fail(SL_EINVAL,
                       "%d microbatches are too many for %lld stages on %lld "
                       "ranks; at most %lld",
                       sizes->microbatches, (long long)stages, (long long)ranks,
                       (long long)most);
    return SL_OK;
}

static sl_status admit(const sl_generator *generator, const sl_sizes *sizes)
{
    sl_status status = admit_positive("ranks", sizes->ranks);
    if (!status)
        status = admit_positive("stages per rank", sizes->stages_per_rank);
    if (!status)
        status = admit_positive("microbatches", sizes->microbatches);
    if (!status)
        status = admit_limits(sizes);
    if (!status && generator->admit)
        status = generator->admit(sizes);
    return status;
}

sl_status sl_generate(const char *name, const sl_sizes *sizes,
                      sl_schedule **out)
{
    const sl_generator *generator;
    sl_status status = sl_generator_find(name, &generator);
    if (!status)
        status = admit(generator, sizes);
    sl_schedule *schedule;
    if (!status)
        status = sl_schedule_create(sizes->ranks, &schedule);
    if (status)
        return status;
    status = generator->generate(sizes, schedule);
    if (status) {
        sl_schedule_destroy(schedule);
        return status;
    }
    *out = schedule;
    return SL_OK;
}

sl_status sl__admit_stages_per_rank(const char *name, const sl_sizes *sizes,
                                    int wanted, const char *hint)
{
    if (sizes->stages_per_rank == wanted)
        return SL_OK;
    return sl_fail(SL_EINVAL,
                   "%s runs exactly %d stage%s per rank, not %d; the nearest "
                   "size that works is %d (%s)",
                   name, wanted, wanted == 1 ? "" : "s", sizes->stages_per_rank,
                   wanted, hint);
}
