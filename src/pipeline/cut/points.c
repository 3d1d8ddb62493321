/* SPDX-License-Identifier: MIT
 *
 * Cuts where the caller says: before or after modules by name, and at the marks
 * in model code. A cut is before the next live node. */
#include "pipeline/cut/model.h"

#include "base/arguments.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/try.h"

#include <assert.h>
#include <string.h>

/* ---------------------------------------------------------------- names -- */

/* The span of nodes of each module, by name. A prefix of the names of other
 * modules ("transformer.h") is a module too. */
typedef struct spans {
    sl__arena *arena;
    sl__names names;
    sl__region *data; /* by index in `names`; empty where first > end */
    int count;
} spans;

static sl_status widen_span(spans *s, const char *name, size_t length,
                            int first, int end)
{
    char text[SL__SCOPE_MAX + 1];
    assert(length < sizeof text);
    memcpy(text, name, length);
    text[length] = '\0';
    const sl__named *known = sl__find_name(&s->names, text);
    if (!known) {
        const sl__region span = {first, end};
        SL__TRY(sl__arena_text(s->arena, text, length, &name));
        SL__TRY(sl__append(s->arena, &s->data, &s->count, sizeof span, &span));
        return sl__add_name(&s->names, name, NULL, SL_NO_GRADIENT);
    }
    sl__region *span = &s->data[known - s->names.data];
    span->first = first < span->first ? first : span->first;
    span->end = end > span->end ? end : span->end;
    return SL_OK;
}

/* The span of live nodes of a module: the first, and one past the last. */
static void find_live_span(const sl__items *items, const sl__module *module,
                           int *first, int *end)
{
    *first = sl__next_live(items, module->first);
    *end = module->end;
    while (*end > *first && !items->live[*end - 1])
        (*end)--;
    if (*first >= *end) {
        *first = INT32_MAX;
        *end = 0;
    }
}

static sl_status find_spans(const sl__items *items, spans *out)
{
    const sl_graph *graph = items->graph;
    for (size_t m = 0; m < graph->module_count; m++) {
        const sl__module *module = &graph->modules[m];
        int first, end;
        find_live_span(items, module, &first, &end);
        /* The spans of the modules around it include its nodes already. A
         * prefix of its name that has no scope of its own gets them here. */
        size_t length = strlen(module->name);
        size_t above = module->parent
                           ? strlen(graph->modules[module->parent - 1].name)
                           : 0;
        for (size_t i = length; i > above; i--) {
            if (i == length || module->name[i] == '.')
                SL__TRY(widen_span(out, module->name, i, first, end));
        }
    }
    return SL_OK;
}

/* --------------------------------------------------------------- points -- */

static sl_status place_point(const sl__items *items, const spans *known,
                             const sl_cut_point *point, int *out)
{
    char quoted[SL__QUOTED_MAX], list[SL__LIST_TEXT];
    if (!point->module)
        return sl_fail(SL_EINVAL, "a cut point has no module");
    sl__quoted(point->module, strlen(point->module), quoted);
    const sl__named *found = sl__find_name(&known->names, point->module);
    if (!found)
        return sl_fail(SL_ENOTFOUND,
                       "there is no module '%s' to cut at; there are %s",
                       quoted, sl__list_items(items, list));
    const sl__region *span = &known->data[found - known->names.data];
    if (span->first >= span->end)
        return sl_fail(SL_EINVAL,
                       "module '%s' has no ops in it to cut at: they are "
                       "outside its scope",
                       quoted);
    *out = sl__next_live(items, point->after ? span->end : span->first);
    if (*out == items->first_live || *out == items->live_end)
        return sl_fail(SL_EINVAL, "cutting %s '%s' leaves the %s stage empty",
                       point->after ? "after" : "before", quoted,
                       *out == items->live_end ? "last" : "first");
    if (sl__is_divided(items, *out))
        return sl_fail(SL_EINVAL,
                       "cutting %s '%s' divides what is to stay whole in one "
                       "stage; modules are %s",
                       point->after ? "after" : "before", quoted,
                       sl__list_items(items, list));
    return SL_OK;
}

typedef struct placed {
    int start;
    const sl_cut_point *point;
} placed;

static int by_start(const void *left, const void *right)
{
    const placed *a = left, *b = right;
    return (a->start > b->start) - (a->start < b->start);
}

static sl_status refuse_same(const sl_cut_point *a, const sl_cut_point *b)
{
    char first[SL__QUOTED_MAX], second[SL__QUOTED_MAX];
    return sl_fail(SL_EINVAL,
                   "cutting %s '%s' and %s '%s' leaves the stage between them "
                   "empty",
                   a->after ? "after" : "before",
                   sl__quoted(a->module, strlen(a->module), first),
                   b->after ? "after" : "before",
                   sl__quoted(b->module, strlen(b->module), second));
}

static sl_status find_starts(sl__items *items, const spans *known,
                             const sl_cut_options *options, sl__ints *starts)
{
    placed *all;
    size_t count = (size_t)options->point_count;
    SL__TRY(sl__arena_take(&items->arena, count, sizeof *all, &all));
    for (size_t i = 0; i < count; i++) {
        all[i].point = &options->points[i];
        SL__TRY(place_point(items, known, all[i].point, &all[i].start));
    }
    qsort(all, count, sizeof *all, by_start);
    SL__TRY(sl__push(&items->arena, starts, items->first_live));
    for (size_t i = 0; i < count; i++) {
        if (i > 0 && all[i].start == all[i - 1].start)
            return refuse_same(all[i - 1].point, all[i].point);
        SL__TRY(sl__push(&items->arena, starts, all[i].start));
    }
    return SL_OK;
}

sl_status sl__starts_at_points(sl__items *items, const sl_cut_options *options,
                               sl__ints *starts)
{
    spans known = {.arena = &items->arena};
    sl_status status = find_spans(items, &known);
    if (!status)
        status = find_starts(items, &known, options, starts);
    sl__names_clear(&known.names);
    return status;
}

sl_status sl__starts_at_marks(sl__items *items, sl__ints *starts)
{
    const sl_graph *graph = items->graph;
    SL__TRY(sl__push(&items->arena, starts, items->first_live));
    for (size_t i = 0; i < graph->mark_count; i++) {
        int start = sl__next_live(items, graph->marks[i]);
        bool behind = start == items->live_end;
        if (behind || start == starts->data[starts->count - 1])
            return sl_fail(SL_EINVAL,
                           "mark %zu of %zu leaves stage %zu empty: nothing "
                           "is computed %s it",
                           i + 1, graph->mark_count, behind ? i + 1 : i,
                           behind   ? "behind"
                           : i == 0 ? "before"
                                    : "between the mark before and");
        SL__TRY(sl__push(&items->arena, starts, start));
    }
    return SL_OK;
}

/* -------------------------------------------------------------- reading -- */

/* Skips `word`, if the text starts with it and a space. */
static bool take_word(const char **at, const char *end, const char *word)
{
    size_t length = strlen(word);
    if ((size_t)(end - *at) <= length || memcmp(*at, word, length) != 0 ||
        (*at)[length] != ' ')
        return false;
    for (*at += length; *at < end && **at == ' '; ++*at)
        ;
    return true;
}

static sl_status read_point(const char *from, const char *end, char **names,
                            sl_cut_point *out)
{
    char quoted[SL__QUOTED_MAX];
    const char *at = from;
    while (at < end && *at == ' ')
        at++;
    while (end > at && end[-1] == ' ')
        end--;
    out->after = take_word(&at, end, "after");
    if (!out->after)
        take_word(&at, end, "before");
    if (at == end || memchr(at, ' ', (size_t)(end - at)))
        return sl_fail(SL_EPARSE,
                       "'%s' is no place to cut at; expected a module's name, "
                       "or before or after one",
                       sl__quoted(from, (size_t)(end - from), quoted));
    out->module = *names;
    memcpy(*names, at, (size_t)(end - at));
    *names += end - at;
    *(*names)++ = '\0';
    return SL_OK;
}

sl_status sl_cut_points_read(const char *text, sl_cut_point **out_points,
                             int *out_count)
{
    SL__NEED(text, out_points, out_count);
    size_t count = 1;
    for (const char *at = text; *at; at++)
        count += *at == ',';
    if (count > INT32_MAX)
        return sl_fail(SL_EPARSE, "%zu places to cut at", count);
    /* The points, followed by their names, each shorter than its text. */
    char *memory;
    size_t head = count * sizeof(sl_cut_point);
    SL__TRY(sl__alloc(head + strlen(text) + 2, 1, &memory));
    sl_cut_point *points = (sl_cut_point *)(void *)memory;
    char *names = memory + head;
    sl_status status = SL_OK;
    for (size_t i = 0; i < count && !status; i++) {
        const char *end = text + strcspn(text, ",");
        status = read_point(text, end, &names, &points[i]);
        text = end + 1;
    }
    if (status) {
        free(memory);
        return status;
    }
    *out_points = points;
    *out_count = (int)count;
    return SL_OK;
}
