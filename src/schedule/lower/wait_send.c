/* SPDX-License-Identifier: MIT
 *
 * wait-send: adds a WAIT_SEND for each send. A stage's backward of a microbatch
 * runs after the next stage has used what F sent there, so a wait for the
 * SEND_F right after that backward takes no time. Nothing shows the same of a
 * SEND_B, or of a SEND_F without a backward on this rank: their waits come at
 * the end of the row, in the order of the sends.
 *
 * Requires: no WAIT_SEND yet; no send twice.  Ensures: no idle cell; one
 * WAIT_SEND per SEND, after it on its rank.  Invalidates: step numbers. */
#include "schedule/lower/lower.h"
#include "schedule/action.h"
#include "base/arguments.h"
#include "base/memory.h"
#include "base/try.h"

typedef struct pending {
    /* Sends of the current row, in order; NULL once they are waited for. */
    const sl_action **sends;
    size_t count;
    size_t capacity;
    /* By direction, stage and microbatch: the send's index in `sends`, if it is
     * there. */
    uint32_t *place;
    size_t microbatches;
} pending;

static uint32_t *place_of(const pending *own, sl_action_kind send, int stage,
                          int microbatch)
{
    size_t cell = (size_t)stage * own->microbatches + (size_t)microbatch;
    return &own->place[2 * cell + (send == SL_SEND_B)];
}

/* The index of a pending send, or the count of all sends. */
static size_t find(const pending *own, sl_action_kind send, int stage,
                   int microbatch)
{
    size_t at = *place_of(own, send, stage, microbatch);
    const sl_action *found = at < own->count ? own->sends[at] : NULL;
    bool same = found && found->kind == send && found->stage == stage &&
                found->microbatch == microbatch;
    return same ? at : own->count;
}

static sl_status note_send(pending *own, const sl_action *send, int rank)
{
    if (find(own, send->kind, send->stage, send->microbatch) < own->count) {
        char text[SL_ACTION_TEXT_MAX];
        sl_action_print(send, text);
        return sl_fail(SL_EUNSOUND, "wait-send: rank %d has %s twice", rank,
                       text);
    }
    SL__TRY(sl__grow(&own->sends, &own->capacity, own->count + 1,
                     sizeof *own->sends));
    *place_of(own, send->kind, send->stage, send->microbatch) =
        (uint32_t)own->count;
    own->sends[own->count++] = send;
    return SL_OK;
}

static sl_status append_wait(sl__row *to, const sl_action *send)
{
    sl_action_kind wait =
        send->kind == SL_SEND_F ? SL_WAIT_SEND_F : SL_WAIT_SEND_B;
    return sl__row_append(to,
                          sl_action_make(wait, send->stage, send->microbatch));
}

/* After a backward: appends the wait for the send of F of the same
 * microbatch. */
static sl_status append_proven(pending *own, const sl_action *part, sl__row *to)
{
    if (!sl__is_backward(part->kind))
        return SL_OK;
    size_t at = find(own, SL_SEND_F, part->stage, part->microbatch);
    if (at == own->count)
        return SL_OK;
    const sl_action *send = own->sends[at];
    own->sends[at] = NULL;
    return append_wait(to, send);
}

static sl_status wait_row(const sl__row *from, sl__row *to, int rank,
                          void *context)
{
    pending *own = context;
    own->count = 0;
    SL__TRY(sl__row_reserve(to, from->length + from->length / 4));
    for (size_t step = 0; step < from->length; step++) {
        const sl_action *action = &from->actions[step];
        sl_action parts[2];
        int count = sl_action_parts(action, parts);
        SL__TRY(sl__row_append(to, *action));
        if (sl__is_send(action->kind))
            SL__TRY(note_send(own, action, rank));
        for (int i = 0; i < count; i++)
            SL__TRY(append_proven(own, &parts[i], to));
    }
    for (size_t i = 0; i < own->count; i++) {
        if (own->sends[i])
            SL__TRY(append_wait(to, own->sends[i]));
    }
    return SL_OK;
}

sl_status sl_lower_wait_send(const sl_schedule *in, sl_schedule **out)
{
    SL__NEED(in, out);
    sl_extent extent = sl_schedule_extent(in);
    size_t microbatches = (size_t)extent.microbatches;
    size_t cells = (size_t)extent.stages * microbatches;
    pending own = {.microbatches = microbatches};
    SL__TRY(sl__refuse_kinds(in, "wait-send", sl__is_send_wait));
    SL__TRY(sl__check_density(&extent));
    SL__TRY(sl__alloc(2 * cells, sizeof *own.place, &own.place));
    sl_status status = sl__lower_rows(in, wait_row, &own, out);
    free(own.place);
    free(own.sends);
    return status;
}
