/* SPDX-License-Identifier: MIT
 *
 * The options of verbs that lower schedules, and the passes they stand for. */
#ifndef SL_CLI_LOWERING_H
#define SL_CLI_LOWERING_H

#include "cli.h"

typedef struct lowering {
    sl_lower_options options;
    int lookahead[SL_MAX_RANKS]; /* of a LIST */
    int budget;                  /* -1: none */
    bool defers;                 /* --recv defer */
    bool before_2_15;            /* --for */
    bool for_given;
    bool recv_given;
    bool window_given;
    bool lookahead_given;
    bool reduce_wait_given;
} lowering;
#define LOWERING_INIT                                                          \
    {                                                                          \
        .options = SL_LOWER_OPTIONS_INIT, .budget = -1                         \
    }

enum {
    LOWERING_FOR = 640,
    LOWERING_RECV,
    LOWERING_BUDGET,
    LOWERING_REDUCE_WAIT,
    LOWERING_WINDOW,
    LOWERING_LOOKAHEAD
};

/* The parser of these keys; lowering.def has their entries of a table. */
error_t lowering_parse(int key, const char *arg, lowering *asked);

/* The first of these options that was given, as in "--recv", or NULL. */
const char *lowering_given(const lowering *asked);

/* Refuses options that contradict each other. */
int lowering_check(const char *verb, const lowering *asked);

/* Lowers a schedule: a compute-only one whole; of one that is lowered already
 * only waits and receives are changed, for the form asked for. */
sl_status lowering_run(const lowering *asked, const sl_schedule *in,
                       sl_schedule **out);

/* Adds messages alone, as `--as comms`. */
sl_status lowering_run_messages(const lowering *asked, const sl_schedule *in,
                                sl_schedule **out);

#endif
