/* SPDX-License-Identifier: MIT
 *
 * Shared by the built-in generators: their declarations, and an emitter that
 * appends to one rank's row and keeps the first failure, so that a generator
 * need not test each call. */
#ifndef SL_SCHEDULE_GENERATE_H
#define SL_SCHEDULE_GENERATE_H

#include "schedule/schedule.h"

extern const sl_generator sl__gpipe;
extern const sl_generator sl__1f1b;
extern const sl_generator sl__looped_bfs;
extern const sl_generator sl__interleaved_1f1b;
extern const sl_generator sl__interleaved_zero_bubble;
extern const sl_generator sl__zbv_zero_bubble;
extern const sl_generator sl__dualpipe_v;
extern const sl_generator sl__forward_only;

typedef struct sl__emitter {
    sl__row *row;
    sl_status status;
} sl__emitter;

static inline void sl__emit_action(sl__emitter *to, sl_action action)
{
    if (!to->status)
        to->status = sl__row_append(to->row, action);
}

static inline void sl__emit_cell(sl__emitter *to, sl_action_kind kind,
                                 int stage, int microbatch)
{
    sl__emit_action(to, sl_action_make(kind, stage, microbatch));
}

/* Appends `count` idle cells; none when it is not positive. */
static inline void sl__emit_idle(sl__emitter *to, int count)
{
    for (int i = 0; i < count; i++)
        sl__emit_action(to, sl_action_make(SL_IDLE, 0, 0));
}

/* The most cells a generated schedule may have, idle ones included: 2 GiB. */
#define SL__MAX_CELLS (INT64_C(1) << 27)

/* Refuses sizes that the generator does not support, with the reason and the
 * nearest sizes that it does (sizes.c). */
sl_status sl__admit(const sl_generator *generator, const sl_sizes *sizes);

/* Appends a rank's row; failures go to row->status. */
typedef void (*sl__generate_rank_fn)(const sl_sizes *sizes, int rank,
                                     sl__emitter *row);

/* Calls `generate_rank` for every rank, until one fails. */
sl_status sl__generate_ranks(const sl_sizes *sizes, sl_schedule *out,
                             sl__generate_rank_fn generate_rank);

/* Appends all forwards of a rank's stages, placed as a loop, breadth first. */
void sl__emit_forwards(sl__emitter *to, const sl_sizes *sizes, int rank);

/* Refuses sizes with other than `wanted` stages per rank. */
sl_status sl__admit_stages_per_rank(const char *name, const sl_sizes *sizes,
                                    int wanted);

/* ---- interleaved.c: what the two interleaved schedules have in common -- */

/* Refuses numbers of microbatches that do not divide into rounds of equal
 * size. */
sl_status sl__admit_rounds(const char *name, const sl_sizes *sizes);

/* Appends a rank's row. `hop` is how many more warm-up forwards a rank has than
 * the next rank. With `split`, backwards are I, and after the first `rank` of
 * them a W follows each. */
void sl__generate_interleaved(const sl_sizes *sizes, int rank, int hop,
                              bool split, sl__emitter *row);

#endif
