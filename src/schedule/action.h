/* SPDX-License-Identifier: MIT
 *
 * Helpers for actions, for the files of the schedule layer. */
#ifndef SL_SCHEDULE_ACTION_H
#define SL_SCHEDULE_ACTION_H

#include "sluice/schedule.h"

/* As sl_action_parse, but sets no error text: returns NULL when `out` was
 * written, else what was expected, as in "a stage number". */
const char *sl__action_read(const char *text, size_t length, sl_action *out);

/* As sl_action_print, without the NUL. */
size_t sl__action_format(const sl_action *action, char *text);

/* Whether the kind yields the gradient of the stage's input. */
static inline bool sl__is_backward(uint8_t kind)
{
    return kind == SL_BACKWARD || kind == SL_BACKWARD_INPUT;
}

static inline bool sl__is_send(uint8_t kind)
{
    return kind == SL_SEND_F || kind == SL_SEND_B;
}

static inline bool sl__is_communication(uint8_t kind)
{
    return kind >= SL_SEND_F && kind <= SL_RECV_B;
}

static inline bool sl__is_send_wait(uint8_t kind)
{
    return kind == SL_WAIT_SEND_F || kind == SL_WAIT_SEND_B;
}

/* The send that a WAIT_SEND waits for. */
static inline sl_action_kind sl__awaited_send(uint8_t wait)
{
    return wait == SL_WAIT_SEND_F ? SL_SEND_F : SL_SEND_B;
}

/* The stage at the other end of a message, or of one that is waited for. */
static inline int sl__peer_stage(const sl_action *action)
{
    bool up = action->kind == SL_SEND_F || action->kind == SL_RECV_B ||
              action->kind == SL_WAIT_SEND_F;
    return up ? action->stage + 1 : action->stage - 1;
}

/* Whether the kind completes the gradients of the stage's weights. */
static inline bool sl__ends_microbatch(uint8_t kind)
{
    return kind == SL_BACKWARD || kind == SL_BACKWARD_WEIGHT;
}

#endif
