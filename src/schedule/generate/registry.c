/* SPDX-License-Identifier: MIT
 *
 * Generators by name: the built-in ones and those a program registers. */
#include "schedule/generate/generate.h"
#include "base/arguments.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/try.h"

#include <assert.h>
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

/* Generators that programs registered. A linked list, so that pointers to
 * entries stay valid as it grows; it is never freed. */
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

/* The same, also by a name with PyTorch's prefix. */
static const sl_generator *find_with_prefix(const char *name)
{
    static const char prefix[] = "Schedule";
    const sl_generator *found = find(name);
    if (!found && strncasecmp(name, prefix, strlen(prefix)) == 0)
        found = find(name + strlen(prefix));
    return found;
}

sl_status sl_generator_find(const char *name, const sl_generator **out)
{
    SL__NEED(name, out);
    const sl_generator *found = find_with_prefix(name);
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
    char quoted[SL__QUOTED_MAX];
    return sl_fail(SL_ENOTFOUND, "unknown schedule '%s'; known ones: %s",
                   sl__quoted(name, strlen(name), quoted), known);
}

static sl_status check_free(const char *name)
{
    if (*name && !find_with_prefix(name))
        return SL_OK;
    return sl_fail(SL_EINVAL, "a schedule cannot be named '%s': the name is %s",
                   name, *name ? "taken" : "empty");
}

sl_status sl_generator_register(const sl_generator *generator)
{
    SL__NEED(generator);
    if (!generator->name || !*generator->name || !generator->generate ||
        generator->default_stages_per_rank < 1)
        return sl_fail(SL_EINVAL, "a generator needs a name, a default number "
                                  "of stages per rank and a generate function");
    SL__TRY(check_free(generator->name));
    if (generator->short_name)
        SL__TRY(check_free(generator->short_name));
    registered *entry;
    SL__TRY(sl__alloc(1, sizeof *entry, &entry));
    entry->generator = *generator;
    registered **end = &first_registered;
    while (*end)
        end = &(*end)->next;
    *end = entry;
    return SL_OK;
}

sl_status sl_generate(const char *name, const sl_sizes *sizes,
                      sl_schedule **out)
{
    SL__NEED(name, sizes, out);
    const sl_generator *generator;
    sl_schedule *schedule;
    SL__TRY(sl_generator_find(name, &generator));
    SL__TRY(sl__admit(generator, sizes));
    SL__TRY(sl_schedule_create(sizes->ranks, &schedule));
    sl_status status = generator->generate(sizes, schedule);
    if (status)
        sl_schedule_destroy(schedule);
    else
        *out = schedule;
    return status;
}

sl_status sl__admit_stages_per_rank(const char *name, const sl_sizes *sizes,
                                    int wanted)
{
    if (sizes->stages_per_rank == wanted)
        return SL_OK;
    return sl_fail(SL_EINVAL, "%s runs exactly %d stage%s per rank, not %d",
                   name, wanted, wanted == 1 ? "" : "s",
                   sizes->stages_per_rank);
}

sl_status sl__generate_ranks(const sl_sizes *sizes, sl_schedule *out,
                             sl__generate_rank_fn generate_rank)
{
    for (int rank = 0; rank < sizes->ranks; rank++) {
        sl__emitter row = {&out->rows[rank], SL_OK};
        assert(out->rows[rank].length == 0);
        generate_rank(sizes, rank, &row);
        SL__TRY(row.status);
    }
    return SL_OK;
}

void sl__emit_forwards(sl__emitter *to, const sl_sizes *sizes, int rank)
{
    for (int local = 0; local < sizes->stages_per_rank; local++)
        for (int microbatch = 0; microbatch < sizes->microbatches; microbatch++)
            sl__emit_cell(to, SL_FORWARD, local * sizes->ranks + rank,
                          microbatch);
}
