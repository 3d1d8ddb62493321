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

/* Idle cells there may be for filling and draining the pipe. */
static int64_t idle_cells(int64_t ranks, int64_t stages_per_rank)
{
    return ranks * (ranks * stages_per_rank + 4 * ranks);
}

/* At most three quarters of the cells may be idle ones. */
#define MAX_IDLE (SL__MAX_CELLS / 4 * 3)

static int most_stages_per_rank(int64_t ranks)
{
    int64_t by_stages = SL_MAX_STAGES / ranks;
    int64_t by_idle = (MAX_IDLE / ranks - 4 * ranks) / ranks;
    return (int)(by_stages < by_idle ? by_stages : by_idle);
}

int sl__most_microbatches(const sl_sizes *sizes)
{
    /* F, I and W of each stage and microbatch. */
    int64_t room =
        SL__MAX_CELLS - idle_cells(sizes->ranks, sizes->stages_per_rank);
    int64_t most = room / (3 * (int64_t)sizes->ranks * sizes->stages_per_rank);
    return (int)(most < SL_MAX_MICROBATCHES ? most : SL_MAX_MICROBATCHES);
}

/* Refuses sizes whose schedules would not fit. */
static sl_status admit_limits(const sl_sizes *sizes)
{
    if (sizes->ranks > SL_MAX_RANKS)
        return sl_fail(SL_EINVAL, "%d ranks are too many; at most %d",
                       sizes->ranks, SL_MAX_RANKS);
    int stages = most_stages_per_rank(sizes->ranks);
    if (sizes->stages_per_rank > stages)
        return sl_fail(SL_EINVAL,
                       "%d stages per rank are too many on %d ranks; at most "
                       "%d",
                       sizes->stages_per_rank, sizes->ranks, stages);
    int microbatches = sl__most_microbatches(sizes);
    if (sizes->microbatches > microbatches)
        return sl_fail(SL_EINVAL,
                       "%d microbatches are too many for %d stages on each of "
                       "%d ranks; at most %d",
                       sizes->microbatches, sizes->stages_per_rank,
                       sizes->ranks, microbatches);
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

sl_status sl__generate_ranks(const sl_sizes *sizes, sl_schedule *out,
                             sl_status (*generate_rank)(const sl_sizes *sizes,
                                                        int rank,
                                                        sl_schedule *out))
{
    sl_status status = SL_OK;
    for (int rank = 0; rank < sizes->ranks && !status; rank++)
        status = generate_rank(sizes, rank, out);
    return status;
}

void sl__emit_forwards(sl__emitter *to, const sl_sizes *sizes, int rank)
{
    for (int local = 0; local < sizes->stages_per_rank; local++)
        for (int microbatch = 0; microbatch < sizes->microbatches; microbatch++)
            sl__emit(to, SL_FORWARD, local * sizes->ranks + rank, microbatch);
}
